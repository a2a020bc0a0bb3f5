"""What stands between an estimator, which knows parameters, and the engine, which does not."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dscca.deep.network import TwoViewModel, TwoViewNet
from dscca.deep.preparation import FittingData, fingerprint
from dscca.deep.sources import batches_of
from dscca.deep.training import Callback, Options, Trainer
from dscca.head import encode_both, feature_covariances, monitor_total_correlation

FEATURE_EPS = torch.finfo(torch.float32).eps
"""Rounding unit of features, whose networks train in float32."""

_CALIBRATION_ROWS = 2**16
_MONITOR_ROWS_PER_COMPONENT = 20


def make_trainer(
    model: TwoViewModel,
    data: FittingData,
    options: Options,
    *,
    n_components: int,
    callbacks: Sequence[Callback],
    verbose: int,
) -> Trainer:
    """Return the engine, which watches the validation TC of a head of `n_components` pairs."""
    # Drawn at random: neighbours may be alike, and any stride may meet a period of the data.
    shuffled = np.random.default_rng(data.seed).permutation(data.rows)
    watched_rows = np.sort(shuffled[: _MONITOR_ROWS_PER_COMPONENT * n_components])
    watched = data.training_rows(watched_rows)
    calibration = watched
    if options.averaging:
        calibration = data.training_rows(np.sort(shuffled[:_CALIBRATION_ROWS]))

    def monitor(train: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor]) -> float:
        return monitor_total_correlation(
            feature_covariances(train, FEATURE_EPS),
            feature_covariances(validation, FEATURE_EPS),
            n_components,
        )

    return Trainer(
        model,
        batches_of(*data.views, data.rows, data.batch_size, data.device),
        data.validation,
        options,
        watched=watched,
        calibration=calibration,
        monitor=monitor,
        callbacks=callbacks,
        verbose=verbose,
    )


def check_features(net: TwoViewNet, validation: Sequence[Tensor], n_components: int) -> None:
    """Refuse encoders that cannot be trained, or return too few features."""
    if not any(p.requires_grad for p in net.parameters()):
        raise ValueError("the encoders have no parameters to train.")
    few = encode_both(net.encode, [view[:2] for view in validation])
    for name, features in zip("Xy", few, strict=True):
        if features.ndim != 2 or features.shape[1] < n_components:
            raise ValueError(
                f"the encoder of view {name} returns features of shape "
                f"{tuple(features.shape[1:])} per sample, too few for "
                f"n_components={n_components}: it must return at least as many numbers."
            )


def run_facts(estimator: Any, net: TwoViewNet, data: FittingData) -> dict[str, Any]:
    """Return what a run must share with a checkpoint to go on from it."""
    if not isinstance(estimator.random_state, Integral):
        raise ValueError(
            f"checkpoint_dir needs an integer random_state to come back to the same run, got "
            f"{estimator.random_state!r}."
        )
    facts: dict[str, Any] = {
        name: repr(value)
        for name, value in estimator.get_params(deep=False).items()
        if name not in (*estimator._training_only, "verbose", "encoders")
    }
    facts["method"] = type(estimator).__name__
    facts["data"] = [fingerprint(view) for view in (*data.views, *data.held_out)]
    if estimator.encoders is not None:
        values = [value.flatten().double() for value in net.encoders.state_dict().values()]
        facts["encoders"] = fingerprint(torch.cat(values))
    return facts
