"""Ranking CCA and its dynamically-scaled form: encoders trained for cross-modal retrieval."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from dscca.deep.cca_layer import CCALayer
from dscca.deep.estimator import DeepEstimator
from dscca.deep.layers import Context
from dscca.deep.losses import Reduction, ranking_loss
from dscca.deep.network import Objective, TwoViewNet
from dscca.deep.scaling import DynamicScaling
from dscca.metrics import recall_at, retrieval_ranks
from dscca.parameters import POSITIVE, pair_of

Selection = Literal["loss", "recall"]

RECALLS_AT = (1, 5, 10)
"""The paper's k."""


class RankingObjective(Objective):
    """Pairwise ranking loss of the CCA projections of a batch: the paper's equation 7.

    On validation data the projections are those of training features, as they will be at inference,
    not the running averages, which were formed while the parameters changed.
    """

    def __init__(
        self, layer: CCALayer, *, margin: float, reduction: Reduction, selection: Selection
    ) -> None:
        super().__init__()
        self.layer, self.margin = layer, margin
        self.reduction, self.selection = reduction, selection

    def forward(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch."""
        P1, P2 = self.layer(f, g)
        return ranking_loss(P1, P2, self.margin, self.reduction)

    def validate(
        self,
        features: tuple[Tensor, Tensor],
        x: Tensor,
        y: Tensor,
        training: tuple[Tensor, Tensor],
    ) -> dict[str, Tensor | float]:
        """Return the loss and the mean recall, over 1, 5 and 10 in both directions."""
        P1, P2 = self.layer.fit_project(training, features)
        loss = ranking_loss(P1, P2, self.margin, self.reduction)
        return {"val_loss": loss, "val_recall": mean_recall(P1, P2)}

    def criterion(self, row: dict[str, float]) -> float:
        """Return the validation loss, or minus the validation recall."""
        return -row["val_recall"] if self.selection == "recall" else row["val_loss"]


class RankingCCA(DeepEstimator):
    """Ranking CCA (Dorfer et al. 2018): encoders trained to retrieve the matching sample.

    In every batch the features are projected by CCA as a differentiable layer, and a match is to
    have a cosine above that of every mismatch by a margin, in both directions (equation 7 of the
    paper). After training the projections are those of the head, fitted on all training samples;
    retrieval compares variates by their cosine.

    Parameters
    ----------
    n_components, hidden
        Outputs and hidden widths of the encoders.
    margin : float
        m of equation 7; the paper chose from 0.4 to 0.8.
    alpha : float
        Weight of the newest batch in the running averages of the CCA layer; the paper chose from
        0.85, 0.9, 0.95 and 0.97.
    reg : float or pair of floats
        r1 and r2 of the CCA layer, absolute; positive.
    reduction : "mean" or "sum"
        Whether the loss is the mean over mismatched pairs, as in the authors' code, or equation 7's
        sum; besides weight decay the scale matters little.
    selection : "loss" or "recall"
        Which validation figure chooses the epoch whose parameters are kept: the lowest loss (the
        paper's) or the highest mean of the recalls at 1, 5 and 10 in both directions.
    **options
        Training, head and data: see :class:`dscca.deep.estimator.DeepEstimator`. The history has
        one column more, ``val_recall``.

    Examples
    --------
    >>> from dscca.datasets import embedded_digits
    >>> data = embedded_digits()
    >>> model = RankingCCA(5, (32,), epochs=2, random_state=0)
    >>> model.fit(data.X_train, data.y_train).transform(data.X_test).shape
    (1000, 5)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeepEstimator._parameter_constraints,
        "margin": [Interval(Real, 0, None, closed="neither")],
        "alpha": [Interval(Real, 0, 1, closed="right")],
        "reg": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "reduction": [StrOptions({"mean", "sum"})],
        "selection": [StrOptions({"loss", "recall"})],
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        margin: float = 0.5,
        alpha: float = 0.9,
        reg: float | Sequence[float] = 1e-3,
        reduction: Reduction = "mean",
        selection: Selection = "loss",
        head_reg: str | float | Sequence[float] = 1e-3,
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, head_reg=head_reg, **options)
        self.margin = margin
        self.alpha = alpha
        self.reg = reg
        self.reduction = reduction
        self.selection = selection

    def _objective(self, net: TwoViewNet) -> Objective:
        reg = pair_of("reg", self.reg, POSITIVE)
        layer = CCALayer(*net.widths(self.input_shapes_), alpha=self.alpha, reg=reg)
        return RankingObjective(
            layer,
            margin=self.margin,
            reduction=self.reduction,
            selection=self.selection,
        )


class DSRankingCCA(DynamicScaling, RankingCCA):
    """Dynamically-Scaled Ranking CCA, the paper's model for retrieval.

    Ranking CCA whose encoders' last layers are scaled for every sample by a second network, which
    sees the layer's input z, the view itself, or both, the paper's choice, concatenated.

    Parameters
    ----------
    n_components, hidden, margin, alpha, reg, reduction, selection, **options
        As for :class:`RankingCCA`.
    context : "z", "x" or "zx"
        What the scaling network sees.
    scale_hidden, scaling, warmup, start
        The scaling networks: see :class:`dscca.DSDCCA`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **RankingCCA._parameter_constraints,
        **DynamicScaling._scaling_constraints,
    }

    def __init__(
        self,
        n_components: int = 50,
        hidden: Sequence[Any] = (800, 800),
        *,
        context: Context = "zx",
        **options: Any,
    ) -> None:
        super().__init__(n_components, hidden, context=context, **options)


def mean_recall(P1: Tensor, P2: Tensor) -> float:
    """Return the mean of the recalls at 1, 5 and 10 by cosine, in both directions, from 0 to 1."""
    pairs = ((P1, P2), (P2, P1))
    ranks = [retrieval_ranks(*pair, device=P1.device) for pair in pairs]
    return float(np.mean([recall_at(r, k) for r in ranks for k in RECALLS_AT]))
