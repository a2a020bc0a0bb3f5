"""Decoders, which turn features back into views, and the estimators' part in them."""

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from dscca.base import Variates
from dscca.deep.estimator import DeepEstimator
from dscca.deep.layers import MLP
from dscca.deep.network import Objective
from dscca.deep.restoring import new_network
from dscca.deep.sizes import widths_per_view
from dscca.deep.sources import take
from dscca.head import row_chunks
from dscca.views import View, check_paired, check_x, not_finite_error, resolve_device, working_dtype


class Decoders(nn.Module):
    """Networks that reconstruct both views, flattened, from features.

    Each mirrors the encoder of the paper: its hidden layers in the opposite order, then a linear
    layer without a BatchNorm.

    Parameters
    ----------
    widths
        Number of features each decoder takes.
    hidden
        Widths of the encoders' hidden layers, for both views.
    shapes
        Shape of a sample of each view.
    """

    def __init__(
        self,
        widths: Sequence[int],
        hidden: Sequence[Sequence[int]],
        shapes: Sequence[tuple[int, ...]],
    ) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(
            MLP(width, tuple(layers)[::-1], math.prod(shape), output_norm=False)
            for width, layers, shape in zip(widths, hidden, shapes, strict=True)
        )

    def forward(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reconstructions of both views from the features meant for each."""
        return self.decoders[0](f), self.decoders[1](g)


class Reconstructing(DeepEstimator):
    """What the estimators that have decoders share.

    ``decoders_`` are kept beside ``net_``, on the CPU. Encoders of one's own get decoders of the
    package's, whose hidden layers are those of ``hidden``. Views of more than two dimensions are
    flattened in the loss.
    """

    decoders_: Decoders

    def _decoders(self, widths: Sequence[int]) -> Decoders:
        """Return new decoders for so many features of either view."""
        return Decoders(widths, widths_per_view("hidden", self.hidden), self.input_shapes_)

    def _codes(self, f: Tensor | None, g: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return what either view is decoded from, if the given features allow it."""
        raise NotImplementedError

    def reconstruct(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> Any:
        """Return reconstructions of both views, in their own units, from one view or both.

        A view that the given ones do not lead to is None.
        """
        check_is_fitted(self)
        if X is None and y is None:
            raise ValueError("reconstruct needs X, y or both.")
        views: list[View | None] = [None, None]
        if X is not None:
            views[0] = check_x(self, X, reset=False, allow_nd=self._allow_nd())
        if y is not None:
            views[1] = self._check_second(y)
        given = [view for view in views if view is not None]
        if len(given) == 2:
            check_paired(*given)
        device, dtype = resolve_device(self.device), working_dtype(*given)
        net = copy.deepcopy(self.net_).to(device, dtype)
        decoders = copy.deepcopy(self.decoders_).to(device, dtype)
        parts: list[list[Variates]] = [[], []]
        for rows in row_chunks(np.arange(len(given[0]))):
            features: list[Tensor | None] = [None, None]
            for which, view in enumerate(views):
                if view is not None:
                    features[which] = f = net.encode(take(view, rows, device), which)
                    if not f.isfinite().all():
                        raise not_finite_error({"Xy"[which]: view})
            for which, code in enumerate(self._codes(*features)):
                if code is not None:
                    flat: Tensor = decoders.decoders[which](code)
                    units: Any = net.inputs[which]
                    part = units.inverse(flat.reshape(-1, *self.input_shapes_[which]))
                    parts[which].append(part.numpy(force=True))
        return tuple(np.concatenate(blocks) if blocks else None for blocks in parts)

    def _keep(self, objective: Objective) -> None:
        decoders: Any = objective.decoders
        self.decoders_ = decoders.cpu().requires_grad_(False).eval()

    def fitted_state(self) -> dict[str, Any]:
        """Return what a saved model consists of."""
        values = self.decoders_.state_dict()
        arrays = {f"decoders/{name}": value.numpy() for name, value in values.items()}
        return {**super().fitted_state(), **arrays}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`fitted_state` returned."""
        names = [name for name in state if name.startswith("decoders/")]
        arrays = {name.removeprefix("decoders/"): state.pop(name) for name in names}
        super().restore_state(state)
        widths = len(self.x_feature_mean_), len(self.y_feature_mean_)
        decoders = new_network(partial(self._decoders, widths), arrays)
        self.decoders_ = decoders.requires_grad_(False).eval()
        values = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.decoders_.load_state_dict(values)
