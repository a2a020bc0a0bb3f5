"""Deep methods whose features must also reconstruct the views: DCCAE and CorrNet."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from dscca.deep.estimator import DeepEstimator
from dscca.deep.losses import feature_correlations, reconstruction_error
from dscca.deep.models import DCCA, CCAObjective
from dscca.deep.network import Objective, TwoViewNet
from dscca.deep.reconstruction import Decoders, Reconstructing
from dscca.parameters import POSITIVE, pair_of


class DCCAEObjective(CCAObjective):
    """The objective of DCCA, and the weighted error of reconstructing each view from its own."""

    def __init__(self, reg: tuple[float, float], decoders: Decoders, weight: float) -> None:
        super().__init__(reg)
        self.decoders, self.weight = decoders, weight

    def forward(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch."""
        loss = super().forward(f, g, x, y)
        if not self.weight:  # DCCA to the bit: the decoders' zeros would change its rounding
            return loss
        x_hat, y_hat = self.decoders(f, g)
        return loss + self.weight * (
            reconstruction_error(x, x_hat) + reconstruction_error(y, y_hat)
        )


class DCCAE(Reconstructing, DCCA):
    r"""Deep canonically correlated autoencoders (Wang et al. 2015).

    Minimises :math:`-\lVert M \rVert_* + λ\, \mathbb{E}[\lVert x - p(f(x)) \rVert^2 +
    \lVert y - q(g(y)) \rVert^2]` over batches: DCCA, whose features must also suffice to
    reconstruct the standardised views. Squared errors are summed over a view's entries.

    Parameters
    ----------
    n_components, hidden, reg, **options
        As for :class:`dscca.DCCA`. The decoders have the hidden layers in the opposite order, also
        beside encoders of your own.
    reconstruction : float
        λ, the weight of the reconstruction errors; with 0 this is DCCA, and decoders do not train.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DCCA._parameter_constraints,
        "reconstruction": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        reconstruction: float = 1e-3,
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, **options)
        self.reconstruction = reconstruction

    def _objective(self, net: TwoViewNet) -> Objective:
        reg = pair_of("reg", self.reg, POSITIVE)
        decoders = self._decoders(net.widths(self.input_shapes_))
        return DCCAEObjective(reg, decoders, self.reconstruction)

    def _codes(self, f: Tensor | None, g: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        return f, g


class CorrNetObjective(Objective):
    """Both views' reconstruction from both, and from either alone, less their correlation."""

    def __init__(self, decoders: Decoders, weight: float) -> None:
        super().__init__()
        self.decoders, self.weight = decoders, weight

    def forward(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch."""
        # One pass for the three kinds of codes: the decoders' BatchNorms must see all of them.
        codes = torch.cat([f + g, f, g])
        x_hat, y_hat = self.decoders(codes, codes)
        parts = zip(x_hat.chunk(3), y_hat.chunk(3), strict=True)
        errors = [reconstruction_error(x, a) + reconstruction_error(y, b) for a, b in parts]
        return torch.stack(errors).sum() - self.weight * feature_correlations(f, g).sum()


class CorrNet(Reconstructing):
    r"""Correlational neural networks (Chandar et al. 2016).

    Both views z = (x, y) are decoded from h = f(x) + g(y), and from either summand alone:

    .. math::

        \mathcal{L} = L(z, \hat z(x, y)) + L(z, \hat z(x)) + L(z, \hat z(y))
            - λ \sum_k \operatorname{corr}(f_k, g_k)

    with L the squared error of both standardised views, summed over entries and averaged over the
    batch, as in the authors' code. Encoders and decoders are deep here, as in all other methods.
    As h sums both views' features, codes of one view are about half as long as those of both, and
    one decoder for all is a compromise: it shrinks what it makes of one view.

    Parameters
    ----------
    n_components, hidden, **options
        As for :class:`dscca.DCCA`. The decoders have the hidden layers in the opposite order, also
        beside encoders of your own, which must return equally many features.
    correlation : float
        λ, the weight of the correlations.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeepEstimator._parameter_constraints,
        "correlation": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        correlation: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, **options)
        self.correlation = correlation

    def _objective(self, net: TwoViewNet) -> Objective:
        width = net.shared_width(self.input_shapes_)
        return CorrNetObjective(self._decoders((width, width)), self.correlation)

    def _codes(self, f: Tensor | None, g: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        h = g if f is None else f if g is None else f + g
        return h, h
