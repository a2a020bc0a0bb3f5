"""Choosing each view's regulariser on data that took no part in fitting."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dscca.krylov import leading_svd
from dscca.linalg import (
    Covariances,
    SingularCovarianceError,
    Whitening,
    canonical_correlations_of,
)

GRID = tuple(float(r) for r in np.logspace(-8, 2, 11))
"""The paper's range, 1e-8 to 1e2."""


_LARGE = 1536
"""Beyond it an iteration for the leading directions beats the decomposition of a Gram matrix."""


@dataclass
class RegularizerChoice:
    """The chosen pair, its mean validation total correlation, and all pairs that were tried."""

    reg: tuple[float, float]
    score: float
    tried: dict[tuple[float, float], float]


def choose_regularizer(
    folds: Sequence[tuple[Covariances, Covariances]],
    n_components: int,
    grid: Sequence[float] = GRID,
    units: tuple[float, float] = (1.0, 1.0),
) -> RegularizerChoice:
    """Return the pair (one value per view) of the highest mean validation total correlation.

    First both views share each value of the grid, then one view's value is searched at a time
    until neither changes: some tens of small problems in place of ``len(grid) ** 2``.

    Parameters
    ----------
    folds : pairs (training covariances, validation covariances)
    n_components : number of pairs of directions whose correlations are summed
    grid : values relative to the mean variance, as in :func:`dscca.linalg.whitening`
    units : what the values are relative to instead, for either view, in mean variances
    """
    problems = [_Problem(train, validation, n_components, units) for train, validation in folds]
    allowed = [
        [r for r in sorted(grid) if all(problem.well_posed(view, r) for problem in problems)]
        for view in (0, 1)
    ]
    if not (allowed[0] and allowed[1]):
        raise SingularCovarianceError(
            f"the covariance of view {'X' if not allowed[0] else 'y'} is singular to rounding for "
            f"every regulariser up to {max(grid):g}: is the view constant?"
        )
    tried: dict[tuple[float, float], float] = {}

    def score(reg: tuple[float, float]) -> float:
        if reg not in tried:
            tried[reg] = float(np.mean([problem.total_correlation(reg) for problem in problems]))
        return tried[reg]

    shared = [r for r in allowed[0] if r in allowed[1]] or [max(allowed[0][0], allowed[1][0])]
    best = max(((r, r) for r in shared), key=score)
    while True:
        previous = best
        best = max(((r, best[1]) for r in allowed[0]), key=score)
        best = max(((best[0], r) for r in allowed[1]), key=score)
        if best == previous:
            return RegularizerChoice(best, tried[best], tried)


class _Problem:
    """One training/validation pair, in the eigenbases of the training covariances.

    There a regulariser only rescales rows and columns, so trying a pair costs one small
    eigen-decomposition, or a search for the leading directions, and no whitening.
    """

    def __init__(
        self,
        train: Covariances,
        validation: Covariances,
        n_components: int,
        units: tuple[float, float],
    ) -> None:
        self.k, self.units = n_components, units
        (v1, Q1), (v2, Q2) = torch.linalg.eigh(train.S11), torch.linalg.eigh(train.S22)
        self.v1, self.v2 = v1.clamp_min(0), v2.clamp_min(0)  # below is rounding
        self.S, self.eps = (train.S11, train.S22), train.eps
        self.S12 = Q1.T @ train.S12 @ Q2
        self.validation = Covariances(
            validation.n_samples,
            Q1.T @ validation.mean_x,
            Q2.T @ validation.mean_y,
            Q1.T @ validation.S11 @ Q1,
            Q1.T @ validation.S12 @ Q2,
            Q2.T @ validation.S22 @ Q2,
        )

    def well_posed(self, view: int, reg: float) -> bool:
        """Return whether the view can be whitened with that ridge, here and in the model."""
        return Whitening.well_posed(self.S[view], reg * self.units[view], eps=self.eps)

    def _ridge(self, view: int, reg: float) -> Float[Tensor, ""]:
        return reg * self.units[view] * (self.v1, self.v2)[view].mean()

    def total_correlation(self, reg: tuple[float, float]) -> float:
        w1 = (self.v1 + self._ridge(0, reg[0])).rsqrt()
        w2 = (self.v2 + self._ridge(1, reg[1])).rsqrt()
        M = w1[:, None] * self.S12 * w2
        if min(M.shape) > _LARGE:
            U, _, V = leading_svd(M, self.k, tolerance=1e-5)
        elif M.shape[0] < M.shape[1]:
            U = _leading_eigenvectors(M @ M.T, self.k)
            V = M.T @ U
        else:
            V = _leading_eigenvectors(M.T @ M, self.k)
            U = M @ V
        # Directions need no unit norm: correlations do not depend on it.
        A, B = w1[:, None] * U, w2[:, None] * V
        return float(canonical_correlations_of(A, B, self.validation).sum())


def _leading_eigenvectors(S: Float[Tensor, "d d"], k: int) -> Float[Tensor, "d k"]:
    return torch.linalg.eigh(S)[1][:, -k:]
