"""The linear algebra every method shares: moments, whitening, canonical directions.

Notation, here and throughout: two views with ``p`` and ``q`` features, covariances ``S11`` (p x p),
``S22`` (q x q) and ``S12`` (p x q) divided by ``n - 1``, and the whitened cross-covariance
``M = W1ᵀ S12 W2`` with ``Wᵀ S W = I``, whose singular values are the canonical correlations.
The differentiable counterparts of the last step are in :mod:`dscca.polar`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dscca.krylov import leading_svd
from dscca.moments import Moments

RANK_TOLERANCE = 10.0
"""Directions of a correlation matrix under ``RANK_TOLERANCE * eps * sqrt(p)`` count as rounding."""


class SingularCovarianceError(ValueError):
    """A view's covariance is too close to singular for what was asked of it."""


@dataclass
class Covariances:
    """Means and covariances of two views, and the rounding unit of the products behind them."""

    n_samples: int
    mean_x: Float[Tensor, " p"]
    mean_y: Float[Tensor, " q"]
    S11: Float[Tensor, "p p"]
    S12: Float[Tensor, "p q"]
    S22: Float[Tensor, "q q"]
    eps: float = torch.finfo(torch.float64).eps

    @classmethod
    def of(cls, moments: Moments, p: int) -> "Covariances":
        """Split the moments of rows ``[x, y]``, where x has `p` entries."""
        S, mean = moments.covariance(), moments.mean
        blocks = S[:p, :p], S[:p, p:], S[p:, p:]
        return cls(moments.n_samples, mean[:p], mean[p:], *blocks, moments.eps)


def ridge(S: Float[Tensor, "p p"], reg: float) -> Float[Tensor, ""]:
    """Return what is added to the diagonal of `S`: `reg` times the mean variance."""
    return reg * S.diagonal().mean()


@dataclass
class Whitening:
    """A matrix W (p x r) with ``Wᵀ (S + ridge I) W = I``, as its inverse factor or its columns.

    With all p directions ``W = D⁻¹ L⁻ᵀ``, where D is diagonal and ``L Lᵀ`` the Cholesky
    factorisation of ``D⁻¹ (S + ridge I) D⁻¹``, and W itself is never formed.
    """

    scale: Float[Tensor, " p"]
    factor: Float[Tensor, "p p"] | None = None
    directions: Float[Tensor, "p r"] | None = None

    @classmethod
    def of(cls, S: Float[Tensor, "p p"], reg: float, *, eps: float, view: str) -> "Whitening":
        """Factor S, to which `reg` times the mean variance is added; see :func:`whitening`."""
        C, scale = _scaled(S, reg)
        if (L := _factor(C, eps)) is not None:
            return cls(scale, factor=L)
        tolerance = _rounding(C, eps)
        values, vectors = torch.linalg.eigh(C)
        keep = values > tolerance * values[-1]
        if reg > 0 and not keep.all():
            raise SingularCovarianceError(
                f"the covariance of view {view} is singular to rounding (rank {int(keep.sum())} of "
                f"{len(S)}) even with reg={reg:g}: use reg >= {tolerance:.0e}, or reg=0, which "
                f"keeps only the directions that carry variance."
            )
        return cls(scale, directions=vectors[:, keep] / values[keep].sqrt())

    @staticmethod
    def well_posed(S: Float[Tensor, "p p"], reg: float, *, eps: float) -> bool:
        """Return whether S with that ridge has full rank, beyond rounding."""
        return _factor(_scaled(S, reg)[0], eps) is not None

    @property
    def rank(self) -> int:
        """Number of W's columns."""
        return (self.scale if self.directions is None else self.directions.T).shape[0]

    def apply(self, U: Float[Tensor, "r k"]) -> Float[Tensor, "p k"]:
        """Return ``W U``."""
        if self.factor is None:
            assert self.directions is not None
            return self.directions @ U / self.scale[:, None]
        return torch.linalg.solve_triangular(self.factor.T, U, upper=True) / self.scale[:, None]

    def transposed(self, X: Float[Tensor, "p k"]) -> Float[Tensor, "r k"]:
        """Return ``Wᵀ X``."""
        X = X / self.scale[:, None]
        if self.factor is None:
            assert self.directions is not None
            return self.directions.T @ X
        return torch.linalg.solve_triangular(self.factor, X, upper=False)


def _scaled(
    S: Float[Tensor, "p p"], reg: float
) -> tuple[Float[Tensor, "p p"], Float[Tensor, " p"]]:
    """Return S with its ridge, scaled to unit diagonal, and the scales."""
    scale = (S.diagonal() + ridge(S, reg)).sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    C = S / scale
    C /= scale[:, None]
    C.diagonal().add_(ridge(S, reg) / scale.square())
    return C, scale


def _factor(C: Float[Tensor, "p p"], eps: float) -> Float[Tensor, "p p"] | None:
    """Return the Cholesky factor of a matrix of unit diagonal, or None if a pivot is rounding."""
    L, failed = torch.linalg.cholesky_ex(C)
    sound = not failed and L.diagonal().min().square() > _rounding(C, eps)
    return L if sound else None


def _rounding(C: Float[Tensor, "p p"], eps: float) -> float:
    return RANK_TOLERANCE * eps * len(C) ** 0.5


def whitening(
    S: Float[Tensor, "p p"], reg: float, *, eps: float, view: str
) -> Float[Tensor, "p r"]:
    """Return W with ``Wᵀ (S + ridge I) W = I``, the ridge being `reg` times the mean variance.

    The matrix is first scaled to unit diagonal, so features of very different scales do no harm,
    then ``W = L⁻ᵀ`` with ``S + ridge I = L Lᵀ`` (Cholesky). If that is singular and ``reg == 0``,
    W spans the directions that carry variance, its columns being as many as the rank; with a
    regulariser too small to help there is an error that names the view.

    Parameters
    ----------
    S : covariance, p x p
    reg : regulariser relative to the mean variance, at least 0
    eps : rounding unit of the data S was computed from
    view : the view's name, for messages
    """
    W = Whitening.of(S, reg, eps=eps, view=view)
    return W.apply(torch.eye(W.rank, dtype=S.dtype, device=S.device))


def fix_signs(
    A: Float[Tensor, "p k"], B: Float[Tensor, "q k"]
) -> tuple[Float[Tensor, "p k"], Float[Tensor, "q k"]]:
    """Turn each pair of directions so that the largest entry of A's column is positive."""
    largest = A.abs().argmax(dim=0, keepdim=True)
    signs = torch.where(A.gather(0, largest) < 0, -1.0, 1.0).to(A.dtype)
    return A * signs, B * signs


def canonical_correlations_of(
    A: Float[Tensor, "p k"], B: Float[Tensor, "q k"], cov: Covariances
) -> Float[Tensor, " k"]:
    """Return the Pearson correlation of each pair of variates on data with covariances `cov`.

    A pair with a constant variate has correlation 0.
    """
    joint = ((A.T @ cov.S12) * B.T).sum(dim=1)
    variances = variances_of(A, cov.S11) * variances_of(B, cov.S22)
    return torch.where(variances > 0, joint / variances.clamp_min(1e-300).sqrt(), 0.0).clamp(-1, 1)


def variances_of(A: Float[Tensor, "p k"], S: Float[Tensor, "p p"]) -> Float[Tensor, " k"]:
    """Return the variance of each column's variate, ``diag(Aᵀ S A)``."""
    return ((S @ A) * A).sum(dim=0)


@dataclass
class CanonicalDirections:
    """Projections of two views, their training correlations, and the rank of either view.

    Variates are scaled to unit variance; `deviations`, of either view, are the standard deviations
    that they have as the problem defines them, at most 1.
    """

    A: Float[Tensor, "p k"]
    B: Float[Tensor, "q k"]
    correlations: Float[Tensor, " k"]
    ranks: tuple[int, int]
    deviations: tuple[Float[Tensor, " k"], Float[Tensor, " k"]]


def canonical_directions(
    cov: Covariances, n_components: int, reg: tuple[float, float] = (0.0, 0.0)
) -> CanonicalDirections:
    """Solve regularised CCA from covariances (the paper's equation 5).

    Maximise ``tr(Aᵀ S12 B)`` under ``Aᵀ (S11 + r1 I) A = Bᵀ (S22 + r2 I) B = I``: with whitenings
    W1 and W2 and the singular value decomposition ``W1ᵀ S12 W2 = U Σ Vᵀ``, ``A = W1 U`` and
    ``B = W2 V`` for the leading `n_components` pairs. The columns are then scaled so that variates
    have unit variance on the data, and ordered by their Pearson correlation there.
    """
    W1 = Whitening.of(cov.S11, reg[0], eps=cov.eps, view="X")
    W2 = Whitening.of(cov.S22, reg[1], eps=cov.eps, view="y")
    ranks = (W1.rank, W2.rank)
    _check_rank(cov.n_samples, ranks, reg)
    _check_components(n_components, min(ranks))
    M = W2.transposed(W1.transposed(cov.S12).T).T
    U, _, V = leading_svd(M, n_components)
    A, B = W1.apply(U), W2.apply(V)
    deviations = _deviations(A, cov.S11, cov), _deviations(B, cov.S22, cov)
    A, B = A / deviations[0], B / deviations[1]
    correlations = canonical_correlations_of(A, B, cov)
    order = correlations.argsort(descending=True, stable=True)
    A, B = fix_signs(A[:, order], B[:, order])
    kept = deviations[0][order], deviations[1][order]
    return CanonicalDirections(A, B, correlations[order], ranks, kept)


def _deviations(
    A: Float[Tensor, "p k"], S: Float[Tensor, "p p"], cov: Covariances
) -> Float[Tensor, " k"]:
    """Return the standard deviation of each variate, which none may be without."""
    variances = variances_of(A, S)
    bound = cov.eps * len(S) ** 0.5 * (S.diagonal() @ A.square())
    alive = variances > bound
    if not alive.all():
        _check_components(A.shape[1], int(alive.sum()))
    return variances.sqrt()


def _check_components(n_components: int, bound: int) -> None:
    if n_components > bound:
        raise ValueError(
            f"n_components={n_components} is above {bound}, the number of pairs of directions "
            f"that carry variance in both views: use n_components <= {bound}."
        )


def _check_rank(n: int, ranks: tuple[int, int], reg: tuple[float, float]) -> None:
    for view, rank, r in zip("Xy", ranks, reg, strict=True):
        if r == 0 and rank >= n - 1:
            raise SingularCovarianceError(
                f"view {view} has rank {rank}, all that {n} samples allow, so without a "
                f"regulariser any correlation would be 1: pass more than {rank + 1} samples, "
                f'reg > 0 or reg="auto".'
            )
