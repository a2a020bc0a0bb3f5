"""What kernel CCA by random features shares, whichever the features are."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from dscca.base import TwoViewEstimator, Variates
from dscca.head import project, training_sums
from dscca.kernel.functions import (
    FEATURE_ENTRIES,
    FourierMap,
    LandmarkMap,
    require_variation,
)
from dscca.linalg import Covariances, canonical_directions
from dscca.parameters import NOT_NEGATIVE, pair_of
from dscca.regularization import choose_regularizer
from dscca.views import View, require_finite, resolve_device, row_blocks

FeatureMap = FourierMap | LandmarkMap

_SMALLEST_BLOCK = 256
"""Rows, below which products with them would be slow."""

GRID = tuple(float(r) for r in np.logspace(-12, -2, 11))
"""Regularisers, relative to the total variance of the features, that "auto" chooses from."""

EPS = torch.finfo(torch.float64).eps


class FeatureMapCCA(TwoViewEstimator):
    """Base of the approximations: fixed random features of either view, then linear CCA.

    A subclass draws the feature maps (``_draw_maps``) and makes them again from what is stored
    (``_stored_map``).
    """

    _persistent: ClassVar[dict[str, str]] = {
        **TwoViewEstimator._persistent,
        "x_feature_mean_": "d",
        "y_feature_mean_": "e",
        "x_rotations_": "d k",
        "y_rotations_": "e k",
    }
    _training_only: ClassVar[tuple[str, ...]] = ("random_state",)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "rank": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "gamma": [StrOptions({"median"}), Interval(Real, 0, None, closed="neither"), "array-like"],
        "reg": [Interval(Real, 0, None, closed="left"), "array-like", StrOptions({"auto"})],
        "random_state": ["random_state"],
        "device": [str],
    }

    n_components: int
    rank: int | Sequence[int]
    gamma: str | float | Sequence[float]
    reg: str | float | Sequence[float]
    random_state: Any
    device: str
    gamma_: tuple[float | None, float | None]
    x_feature_mean_: NDArray[np.float64]
    y_feature_mean_: NDArray[np.float64]
    x_rotations_: NDArray[np.float64]
    y_rotations_: NDArray[np.float64]

    @abstractmethod
    def _draw_maps(
        self, views: tuple[View, View], ranks: tuple[int, int], device: torch.device
    ) -> tuple[FeatureMap, FeatureMap]:
        """Return the feature maps of both views, and set what is stored of them."""

    @abstractmethod
    def _stored_map(self, which: int, device: torch.device) -> FeatureMap:
        """Return the feature map of a view, whose features ``x_rotations_`` takes."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit CCA to random features; the validation views serve ``reg="auto"``, which needs them.

        The training data are read once, in blocks; beside the covariance of all features memory
        holds one block of features.
        """
        views = self._check_training(X, y, reset=True)
        held_out = self._check_validation(X_val, y_val)
        device = resolve_device(self.device)
        ranks = self._ranks(len(views[0]))
        require_finite({"X": views[0], "y": views[1]})
        require_variation({"X": views[0], "y": views[1]})
        maps = self._draw_maps(views, ranks, device)
        sums, scatters = training_sums(_encoder(maps), _blocks(views, ranks, device), EPS)
        self.reg_ = self._choose(sums, held_out, maps)
        relative = (self.reg_[0] * ranks[0], self.reg_[1] * ranks[1])
        found = canonical_directions(sums, self.n_components, relative)
        self.x_loadings_, self.x_patterns_ = scatters[0].interpret(found.A, sums.S11)
        self.y_loadings_, self.y_patterns_ = scatters[1].interpret(found.B, sums.S22)
        self.x_feature_mean_, self.x_rotations_ = _on_stored(maps[0], sums.mean_x, found.A)
        self.y_feature_mean_, self.y_rotations_ = _on_stored(maps[1], sums.mean_y, found.B)
        self._set_spectrum(found)
        return self

    def _ranks(self, n_samples: int) -> tuple[int, int]:
        pair = np.atleast_1d(np.asarray(self.rank))
        if len(pair) > 2 or pair.dtype.kind not in "iu" or (pair < 1).any():
            raise ValueError(f"rank must be a whole number >= 1 or a pair, got {self.rank!r}.")
        bound = min(*pair, n_samples - 1)
        if self.n_components > bound:
            raise ValueError(
                f"n_components={self.n_components} is above {bound}, the bound set by "
                f"rank={self.rank} and {n_samples} samples (one is spent on the mean): use "
                f"n_components <= {bound}."
            )
        return int(pair[0]), int(pair[-1])

    def _choose(
        self,
        sums: Covariances,
        held_out: tuple[View, View] | None,
        maps: tuple[FeatureMap, FeatureMap],
    ) -> tuple[float, float]:
        if self.reg != "auto":
            return pair_of("reg", self.reg, NOT_NEGATIVE)
        if held_out is None:
            raise ValueError(
                'reg="auto" chooses on validation data: pass X_val, y_val or a number.'
            )
        require_finite({"X_val": held_out[0], "y_val": held_out[1]})
        ranks = (maps[0].rank, maps[1].rank)
        blocks = _blocks(held_out, ranks, resolve_device(self.device))
        validation, _ = training_sums(_encoder(maps), blocks, EPS)
        units = (float(ranks[0]), float(ranks[1]))
        return choose_regularizer([(sums, validation)], self.n_components, GRID, units).reg

    def _project(self, view: View, which: int) -> Variates:
        require_finite({"Xy"[which]: view})
        device = resolve_device(self.device)
        mean = (self.x_feature_mean_, self.y_feature_mean_)[which]
        A = (self.x_rotations_, self.y_rotations_)[which]
        feature_map = self._stored_map(which, device)
        return project(
            lambda block: feature_map(block.double()),
            view,
            mean,
            A,
            name="Xy"[which],
            device=device,
            rows=_rows(len(mean)),
        )

    def fitted_state(self) -> dict[str, Any]:
        """Return what a saved model consists of besides its parameters."""
        return {**super().fitted_state(), "kernel": {"gamma": self.gamma_, "reg": self.reg_}}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`fitted_state` returned."""
        small = state.pop("kernel")
        super().restore_state(state)
        self.gamma_, self.reg_ = small["gamma"], small["reg"]


def _encoder(maps: tuple[FeatureMap, FeatureMap]) -> Callable[[Tensor, int], Tensor]:
    return lambda block, which: maps[which](block)


def _rows(features: int) -> int:
    return max(_SMALLEST_BLOCK, FEATURE_ENTRIES // features)


def _blocks(
    views: tuple[View, View], ranks: tuple[int, int], device: torch.device
) -> Iterator[Sequence[Tensor]]:
    """Yield blocks of both views in float64, so many rows as make a block of features."""
    widths = [view.shape[1] for view in views]
    for _, block in row_blocks(*views, device=device, dtype=torch.float64, rows=_rows(sum(ranks))):
        yield torch.split(block, widths, dim=1)


def _on_stored(
    used: FeatureMap, mean: Tensor, A: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and directions for the stored map, which knows no whitening factor."""
    factor = used.factor if isinstance(used, LandmarkMap) else None
    if factor is not None:
        mean, A = mean.to(factor), A.to(factor)
        mean, A = factor @ mean, torch.linalg.solve_triangular(factor.T, A, upper=True)
    return mean.numpy(force=True), A.numpy(force=True)
