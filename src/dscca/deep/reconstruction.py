"""Decoders, which turn features back into views, and the estimators' part in them."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from dscca.base import Variates
from dscca.deep.estimator import DeepEstimator
from dscca.deep.layers import MLP
from dscca.deep.network import Objective, Standardize, TwoViewNet
from dscca.deep.sizes import widths_per_view
from dscca.head import BLOCK_ROWS
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
    package's, whose hidden layers are those of ``hidden``; views of more than two dimensions are
    reconstructed flattened.
    """

    decoders_: Decoders

    def _decoders(self, net: TwoViewNet) -> Decoders:
        """Return new decoders for the features of `net`."""
        widths = net.widths(self.input_shapes_)
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
        self.net_.to(device)
        self.decoders_.to(device)
        try:
            features = [self._features(view, which, device) for which, view in enumerate(views)]
            codes = self._codes(*features)
            return tuple(
                None if code is None else self._decode(code, which, dtype)
                for which, code in enumerate(codes)
            )
        finally:
            self.net_.cpu()
            self.decoders_.cpu()

    def _features(self, view: View | None, which: int, device: torch.device) -> Tensor | None:
        if view is None:
            return None
        rows = torch.as_tensor(view).float()
        features = self.net_.encode(rows.to(device), which)
        if not features.isfinite().all():
            raise not_finite_error({"Xy"[which]: view})
        return features

    @torch.no_grad()
    def _decode(self, code: Tensor, which: int, dtype: torch.dtype) -> Variates:
        decode, units = self.decoders_.decoders[which], self.net_.inputs[which]
        assert isinstance(units, Standardize)
        shape = self.input_shapes_[which]
        parts = [
            units.inverse(decode(block).unflatten(1, shape)).to(dtype).cpu()
            for block in torch.split(code, BLOCK_ROWS)
        ]
        return torch.cat(parts).numpy()

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
        self.decoders_ = self._decoders(self.net_).requires_grad_(False).eval()
        values = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.decoders_.load_state_dict(values)
