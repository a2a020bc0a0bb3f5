"""Deep methods the paper compares with: Soft-CCA, Soft-HGR, ℓ0-CCA."""

from collections import OrderedDict
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from dscca.deep.estimator import DeepEstimator
from dscca.deep.gates import StochasticGates
from dscca.deep.losses import (
    accumulated_covariance,
    batch_normalized,
    open_gates,
    soft_cca_loss,
    soft_hgr_loss,
)
from dscca.deep.models import DCCA, CCAObjective
from dscca.deep.network import Objective, TwoViewModel, TwoViewNet
from dscca.deep.preparation import FittingData
from dscca.deep.training import State
from dscca.parameters import NOT_NEGATIVE, POSITIVE, pair_of

_NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
_POSITIVE = Interval(Real, 0, None, closed="neither")


class RunningCovariance(nn.Module):
    """Covariance of a view's features: in training of past batches too, else of the given ones."""

    total: Tensor
    normalizer: Tensor

    def __init__(self, width: int, memory: float) -> None:
        super().__init__()
        self.memory = memory
        self.register_buffer("total", torch.zeros(width, width))
        self.register_buffer("normalizer", torch.zeros(()))

    def forward(self, F: Tensor) -> Tensor:
        """Return the estimate with a batch of centred features."""
        past = (self.total, self.normalizer)
        if not self.training:
            past = (torch.zeros_like(self.total), torch.zeros_like(self.normalizer))
        total, normalizer = accumulated_covariance(F, *past, self.memory)
        if self.training:
            self.total.copy_(total.detach())
            self.normalizer.copy_(normalizer)
        return total / normalizer


class SoftCCAObjective(Objective):
    """The loss of Soft-CCA; at inference with the covariances of the given features alone."""

    def __init__(
        self, width: int, weights: tuple[float, float], memories: tuple[float, float]
    ) -> None:
        super().__init__()
        self.weights = weights
        self.covariances = nn.ModuleList(RunningCovariance(width, memory) for memory in memories)

    def forward(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch."""
        # For encoders that end in a BatchNorm this changes nothing, others have no scale without.
        F1, F2 = batch_normalized(f), batch_normalized(g)
        return soft_cca_loss(
            F1, F2, (self.covariances[0](F1), self.covariances[1](F2)), self.weights
        )


class SoftCCA(DeepEstimator):
    """Soft-CCA (Chang et al. 2018): equal features of both views, softly decorrelated in each.

    The distance of both views' batch-normalised features plus λ times the sum of the absolute
    off-diagonal entries of either view's covariance, a running average over batches
    (:func:`dscca.deep.losses.soft_cca_loss`). The best epoch is chosen by the same loss with the
    validation samples' own normalisation and covariances.

    Parameters
    ----------
    n_components, hidden, **options
        As for :class:`dscca.DCCA`; encoders of your own must return equally many features.
    decorrelation : float or pair of floats
        λ, the weight of either view's decorrelation.
    memory : float or pair of floats
        α, the share of the past that the running covariances keep in every batch. As only the
        batch's own share has a gradient, decorrelation acts with about λ (1 - α).
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeepEstimator._parameter_constraints,
        "decorrelation": [_NOT_NEGATIVE, "array-like"],
        "memory": [Interval(Real, 0, 1, closed="left"), "array-like"],
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        decorrelation: float | Sequence[float] = 10.0,
        memory: float | Sequence[float] = 0.97,
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, **options)
        self.decorrelation = decorrelation
        self.memory = memory

    def _objective(self, net: TwoViewNet) -> Objective:
        memories = pair_of("memory", self.memory, NOT_NEGATIVE)
        if max(memories) >= 1:
            raise ValueError(f"memory must be below 1 for both views, got {self.memory!r}.")
        width = net.shared_width(self.input_shapes_)
        return SoftCCAObjective(
            width, pair_of("decorrelation", self.decorrelation, NOT_NEGATIVE), memories
        )


class SoftHGRObjective(Objective):
    """The loss of Soft-HGR."""

    def forward(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch."""
        return soft_hgr_loss(f, g)


class SoftHGR(DeepEstimator):
    """Soft-HGR (Wang et al. 2019): maximal correlation without whitening.

    Maximises E[fᵀg] - tr(cov f cov g) / 2 over batches (:func:`dscca.deep.losses.soft_hgr_loss`).
    The scale of the features carries the size of the correlations, so the encoders have no
    BatchNorm after their last layer, and encoders of your own should have none either.

    Parameters
    ----------
    n_components, hidden, **options
        As for :class:`dscca.DCCA`; encoders of your own must return equally many features.
    """

    _output_norm: ClassVar[bool] = False

    def __init__(
        self, n_components: int = 50, hidden: Sequence[Any] = (800, 800), **options: Any
    ) -> None:
        super().__init__(n_components, hidden, **options)

    def _objective(self, net: TwoViewNet) -> Objective:
        net.shared_width(self.input_shapes_)
        return SoftHGRObjective()


class L0CCAObjective(CCAObjective):
    """The objective of DCCA, and the weighted expectation of open gates."""

    def __init__(
        self,
        reg: tuple[float, float],
        gates: Sequence[StochasticGates],
        weights: tuple[float, float],
        reduction: Literal["sum", "mean"],
    ) -> None:
        super().__init__(reg)
        self.gates = tuple(gates)  # the encoders' own: no modules of the objective's
        self.weights, self.reduction = weights, reduction

    def forward(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch."""
        loss = super().forward(f, g, x, y)
        for gates, weight in zip(self.gates, self.weights, strict=True):
            loss = loss + weight * open_gates(gates.mu, gates.noise, self.reduction)
        return loss


class L0CCA(DCCA):
    r"""ℓ0-CCA (Lindenbaum et al. 2020): DCCA on features that stochastic gates select.

    Minimises :math:`-\lVert M \rVert_* + λ \sum_v \operatorname{reduce} Φ(μ_v / σ)`: every
    feature of the standardised views is multiplied by a gate, whose probability of being open is
    penalised (:class:`dscca.deep.gates.StochasticGates`).

    Parameters
    ----------
    n_components, hidden, reg, **options
        As for :class:`dscca.DCCA`. Encoders of your own get gates of a sample's shape before them.
    sparsity : float or pair of floats
        λ, the weight of either view's penalty.
    noise : float or pair of floats
        σ, the standard deviation of the gates' noise in training.
    reduction : "sum" or "mean"
        Whether the penalty is the expected number of open gates, as in the publication, or their
        expected share, as in the published code.

    Attributes
    ----------
    x_gates_, y_gates_ : the gates at inference, from 0 to 1, of a sample's shape
    x_selected_, y_selected_ : whether they are open at all
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DCCA._parameter_constraints,
        "sparsity": [_NOT_NEGATIVE, "array-like"],
        "noise": [_POSITIVE, "array-like"],
        "reduction": [StrOptions({"sum", "mean"})],
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        sparsity: float | Sequence[float] = 0.01,
        noise: float | Sequence[float] = 0.1,
        reduction: Literal["sum", "mean"] = "mean",
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, **options)
        self.sparsity = sparsity
        self.noise = noise
        self.reduction = reduction

    @property
    def x_gates_(self) -> NDArray[np.float32]:
        """The gates of view one's features."""
        return self._gates(0)

    @property
    def y_gates_(self) -> NDArray[np.float32]:
        """The gates of view two's features."""
        return self._gates(1)

    @property
    def x_selected_(self) -> NDArray[np.bool_]:
        """Which features of view one are used."""
        return self._gates(0) > 0

    @property
    def y_selected_(self) -> NDArray[np.bool_]:
        """Which features of view two are used."""
        return self._gates(1) > 0

    def _gates(self, which: int) -> NDArray[np.float32]:
        encoder: Any = self.net_.encoders[which]
        return encoder.gates.gates().numpy(force=True)

    def _finish(self, model: TwoViewModel, state: State, data: FittingData) -> Self:
        for which, name in enumerate("Xy"):
            gates: Any = model.net.encoders[which]
            if not (gates.gates.mu > 0).any():
                raise ValueError(
                    f"all gates of view {name} closed with sparsity={self.sparsity!r} and "
                    f'reduction="{self.reduction}": use a smaller sparsity.'
                )
        return super()._finish(model, state, data)

    def _assembled(self, which: int, encoder: nn.Module) -> nn.Module:
        noise = pair_of("noise", self.noise, POSITIVE)[which]
        gates = StochasticGates(self.input_shapes_[which], noise)
        return nn.Sequential(OrderedDict(gates=gates, encoder=encoder))

    def _objective(self, net: TwoViewNet) -> Objective:
        encoders: Any = net.encoders
        return L0CCAObjective(
            pair_of("reg", self.reg, POSITIVE),
            [encoder.gates for encoder in encoders],
            pair_of("sparsity", self.sparsity, NOT_NEGATIVE),
            self.reduction,
        )
