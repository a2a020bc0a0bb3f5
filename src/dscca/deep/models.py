"""Deep estimators: each is its encoders and its objective."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval
from torch import Tensor

from dscca.deep.estimator import DeepEstimator
from dscca.deep.losses import cca_loss
from dscca.deep.network import Objective, TwoViewNet
from dscca.deep.scaling import DynamicScaling
from dscca.parameters import POSITIVE, pair_of


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
        return CCAObjective(pair_of("reg", self.reg, POSITIVE))


class DSDCCA(DynamicScaling, DCCA):
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
        **DynamicScaling._scaling_constraints,
    }

    def __init__(
        self, n_components: int = 50, hidden: Sequence[Any] = (800, 800), **options: Any
    ) -> None:
        super().__init__(n_components, hidden, **options)
