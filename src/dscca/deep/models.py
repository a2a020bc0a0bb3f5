"""Deep estimators: each is its encoders and its objective."""

from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dscca.base import Variates
from dscca.deep.estimator import DeepEstimator
from dscca.deep.layers import Context, DynamicLinear, Scaling
from dscca.deep.losses import cca_loss
from dscca.deep.network import Objective, TwoViewNet
from dscca.deep.scaled_product import Start
from dscca.deep.sizes import widths_per_view
from dscca.regularization import per_view
from dscca.views import View, check_x, not_finite_error


class CCAObjective(Objective):
    """Minus the total correlation of the features: the paper's equation 6."""

    def __init__(self, reg: tuple[float, float]) -> None:
        super().__init__()
        self.reg = reg

    def forward(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch."""
        return cca_loss(f, g, self.reg)


class DCCA(DeepEstimator):
    """Deep CCA (Andrew et al. 2013): equation 6 of the paper with conventional encoders.

    The encoders are the paper's (fully connected, BatchNorm without affine parameters, ReLU), or
    your own, trained to maximise the total correlation of their outputs in every batch.

    Parameters
    ----------
    n_components, hidden
        Outputs and hidden widths of the encoders.
    reg : float or pair of floats
        r1 and r2, added to the diagonals of the batch covariances; absolute, as in the paper, whose
        outputs have unit variance. Must be positive.
    **options
        Training, head and data: see :class:`dscca.deep.estimator.DeepEstimator`.

    Examples
    --------
    >>> from dscca.datasets import embedded_digits
    >>> data = embedded_digits()
    >>> model = DCCA(5, (32,), epochs=2, random_state=0)
    >>> model.fit(data.X_train, data.y_train).transform(data.X_test).shape
    (1000, 5)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeepEstimator._parameter_constraints,
        "reg": [Interval(Real, 0, None, closed="neither"), "array-like"],
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        reg: float | Sequence[float] = 1e-4,
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, **options)
        self.reg = reg

    def _objective(self, net: TwoViewNet) -> Objective:
        return CCAObjective(self._regs())

    def _regs(self) -> tuple[float, float]:
        reg = per_view("reg", self.reg)
        if 0 in reg:
            raise ValueError(f"reg must be positive for both views, got {self.reg!r}.")
        return reg


class DSDCCA(DCCA):
    """Dynamically-Scaled Deep CCA, the paper's model: DCCA whose last layer is a DSL.

    For `warmup` epochs it is DCCA; then a second network joins, which scales the parameters of
    either encoder's last layer for every sample (equations 1 and 2, in
    :class:`dscca.deep.layers.DynamicLinear`). The view's own input is all the scales depend on.

    Parameters
    ----------
    n_components, hidden, reg, **options
        As for :class:`DCCA`.
    scale_hidden : sequence of int, or a pair of them
        Hidden widths of the scaling networks: (128,), (256,) or (256, 128) in the paper.
    scaling : "parameters", "outputs", "global", "hypernetwork" or "none"
        What is scaled, by what: the paper's model, and its ablations.
    context : "z", "x" or "zx"
        What the scaling network sees: the layer's input (as in the paper), the view, or both.
    warmup : int
        Epochs before the scaling networks join, T in the paper; a hypernetwork takes 0.
    start : "one" or "default"
        How scales start: as ones, or as any layer's outputs.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DCCA._parameter_constraints,
        "scaling": [StrOptions({"parameters", "outputs", "global", "hypernetwork", "none"})],
        "context": [StrOptions({"z", "x", "zx"})],
        "warmup": [Interval(Integral, 0, None, closed="left")],
        "start": [StrOptions({"one", "default"})],
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        scale_hidden: Sequence[Any] = (256,),
        scaling: Scaling = "parameters",
        context: Context = "z",
        warmup: int = 50,
        start: Start = "one",
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, **options)
        self.scale_hidden = scale_hidden
        self.scaling = scaling
        self.context = context
        self.warmup = warmup
        self.start = start

    def scales(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return the scales of view one's last layer, a row of ``c`` numbers per sample.

        The first d_out * d_in are those of the weights, row by row, the rest those of the biases.
        They are ones if the best epoch was before the scaling networks joined.
        """
        check_is_fitted(self)
        return self._scales(check_x(self, X, reset=False), 0)

    def scales_y(self, y: ArrayLike) -> NDArray[np.float32]:
        """Return the scales of view two's last layer."""
        check_is_fitted(self)
        return self._scales(self._check_second(y), 1)

    def _scales(self, view: View, which: int) -> Variates:
        encoder: Any = self.net_.encoders[which]
        if not isinstance(getattr(encoder, "last", None), DynamicLinear):
            raise ValueError("encoders of your own have no scales to return.")
        last: DynamicLinear = encoder.last
        rows = (
            view.cpu().float() if isinstance(view, Tensor) else torch.tensor(np.array(view, "f4"))
        )
        if not rows.isfinite().all():
            raise not_finite_error({"Xy"[which]: view})
        if not last.scaled:
            c = last.weight.numel() + last.out_features
            return np.ones((len(rows), c), dtype=np.float32)
        x = self.net_.inputs[which](rows)
        with torch.no_grad():
            S_W, S_b = last.scales(encoder.body(x), x)
        return torch.cat([S_W.flatten(1), S_b], dim=1).numpy()  # type: ignore[list-item]

    def _last_layer(self, which: int, in_features: int) -> Any:
        if self.scaling == "hypernetwork" and self.warmup:
            raise ValueError(
                f'scaling="hypernetwork" has no conventional parameters to warm up, but '
                f"warmup={self.warmup}: use warmup=0."
            )
        return partial(
            DynamicLinear,
            scale_hidden=widths_per_view("scale_hidden", self.scale_hidden)[which],
            context=self.context,
            context_features=in_features,
            scaling=self.scaling,
            start=self.start,
        )
