"""The linear algebra every method shares: moments, whitening, canonical directions.

Notation, here and throughout: two views with ``p`` and ``q`` features, covariances ``S11`` (p x p),
``S22`` (q x q) and ``S12`` (p x q) divided by ``n - 1``, and the whitened cross-covariance
``M = W1ᵀ S12 W2`` with ``Wᵀ S W = I``, whose singular values are the canonical correlations.
The differentiable counterparts of the last step are in :mod:`dscca.polar`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

RANK_TOLERANCE = 10.0
"""Directions of a correlation matrix under ``RANK_TOLERANCE * eps * sqrt(p)`` count as rounding."""

_FAR = 0.99
"""Share of a block's squares that its mean may make up before the block is centred by it."""


class SingularCovarianceError(ValueError):
    """A view's covariance is too close to singular for what was asked of it."""


@contextmanager
def full_precision(device: torch.device | None = None) -> Iterator[None]:
    """Keep matrix products out of TF32 and, on the given device, out of ``torch.autocast``.

    Process-wide settings and contexts around this one do not matter.
    """
    matmul = torch.backends.cuda.matmul
    previous = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        with nullcontext() if device is None else torch.autocast(device.type, enabled=False):
            yield
    finally:
        matmul.fp32_precision = previous


def _gram(C: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """Return ``CᵀC``.

    On a CPU only strips above the diagonal are multiplied, little more than half of the work.
    """
    d = C.shape[1]
    width = d if C.is_cuda else max(64, -(-d // 8))
    gram = torch.empty(d, d, dtype=C.dtype, device=C.device)
    with full_precision():
        for start in range(0, d, width):
            strip, rest = slice(start, start + width), slice(start + width, d)
            gram[strip, start:] = C[:, strip].T @ C[:, start:]
            gram[rest, strip] = gram[strip, rest].T
    return gram


@dataclass
class Moments:
    """Number of samples, mean and scatter matrix of a set of rows, all in float64.

    ``scatter = Σ (x - mean)(x - mean)ᵀ``. Two sets merge exactly (Chan, Golub and LeVeque 1979), so
    data of any length is summed in constant memory; rows of two views are taken side by side, as
    one vector of ``p + q`` entries, so that one symmetric product gives all three covariances.
    """

    n_samples: int
    mean: Float[Tensor, " d"]
    scatter: Float[Tensor, "d d"]
    eps: float
    """Rounding unit of the precision that products were taken in."""

    @classmethod
    def of(cls, block: Float[Tensor, "n d"], shift: Float[Tensor, " d"] | None = None) -> "Moments":
        """Moments of one block, from which `shift` was subtracted already.

        Products are taken in the block's own precision, their sums in float64. A shift near the
        mean makes a large mean cost nothing; a block that lies far from it is centred, in place,
        by its own mean. Values that are not finite show as a scatter that is not.
        """
        n, eps = len(block), torch.finfo(block.dtype).eps
        origin = torch.zeros(()) if shift is None else shift
        gram, total = _gram(block), block.sum(dim=0)
        if (total * total > _FAR * n * gram.diagonal()).any():
            centre = total / n
            block -= centre
            origin = origin.to(centre.device) + centre.double()
            gram, total = _gram(block), block.sum(dim=0)
        total, scatter = total.double(), gram.double()
        scatter.addr_(total, total, alpha=-1 / n)
        return cls(n, origin.to(total) + total / n, scatter, eps)

    def merge(self, other: "Moments") -> None:
        """Add another set of rows."""
        total = self.n_samples + other.n_samples
        step = other.mean - self.mean
        self.scatter += other.scatter
        self.scatter.addr_(step, step, alpha=self.n_samples * other.n_samples / total)
        self.mean = self.mean + step * (other.n_samples / total)
        self.n_samples = total
        self.eps = max(self.eps, other.eps)

    def without(self, other: "Moments") -> "Moments":
        """Return the moments of the rows that are not in `other`, a part of this set."""
        rest = self.n_samples - other.n_samples
        mean = (self.mean * self.n_samples - other.mean * other.n_samples) / rest
        step = other.mean - mean
        weight = rest * other.n_samples / self.n_samples
        scatter = self.scatter - other.scatter - torch.outer(step * weight, step)
        return Moments(rest, mean, scatter, self.eps)

    def copy(self) -> "Moments":
        """Return a copy that `merge` can change, in the memory of the CPU."""
        return Moments(self.n_samples, self.mean.cpu(), self.scatter.cpu().clone(), self.eps)

    def covariance(self) -> Float[Tensor, "d d"]:
        """Return the covariance, divided by ``n - 1``."""
        return self.scatter / (self.n_samples - 1)


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
    p = len(S)
    scale = (S.diagonal() + ridge(S, reg)).sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    C = S / torch.outer(scale, scale)
    C.diagonal().add_(ridge(S, reg) / scale.square())
    tolerance = RANK_TOLERANCE * eps * p**0.5
    L, failed = torch.linalg.cholesky_ex(C)
    if not failed and L.diagonal().min().square() > tolerance:
        identity = torch.eye(p, dtype=S.dtype, device=S.device)
        return torch.linalg.solve_triangular(L, identity, upper=False).T / scale[:, None]
    values, vectors = torch.linalg.eigh(C)
    keep = values > tolerance * values[-1]
    if reg > 0 and not keep.all():
        raise SingularCovarianceError(
            f"the covariance of view {view} is singular to rounding (rank {int(keep.sum())} of "
            f"{p}) even with reg={reg:g}: use reg >= {tolerance:.0e}, or reg=0, which keeps only "
            f"the directions that carry variance."
        )
    return vectors[:, keep] / values[keep].sqrt() / scale[:, None]


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
    """Projections of two views, their training correlations, and the rank of either view."""

    A: Float[Tensor, "p k"]
    B: Float[Tensor, "q k"]
    correlations: Float[Tensor, " k"]
    ranks: tuple[int, int]


def canonical_directions(
    cov: Covariances, n_components: int, reg: tuple[float, float] = (0.0, 0.0)
) -> CanonicalDirections:
    """Solve regularised CCA from covariances (the paper's equation 5).

    Maximise ``tr(Aᵀ S12 B)`` under ``Aᵀ (S11 + r1 I) A = Bᵀ (S22 + r2 I) B = I``: with whitenings
    W1 and W2 and the singular value decomposition ``W1ᵀ S12 W2 = U Σ Vᵀ``, ``A = W1 U`` and
    ``B = W2 V`` for the leading `n_components` pairs. The columns are then scaled so that variates
    have unit variance on the data, and ordered by their Pearson correlation there.
    """
    W1 = whitening(cov.S11, reg[0], eps=cov.eps, view="X")
    W2 = whitening(cov.S22, reg[1], eps=cov.eps, view="y")
    ranks = (W1.shape[1], W2.shape[1])
    _check_rank(cov.n_samples, ranks, reg)
    _check_components(n_components, min(ranks))
    U, _, Vh = torch.linalg.svd(W1.T @ cov.S12 @ W2, full_matrices=False)
    A, B = W1 @ U[:, :n_components], W2 @ Vh[:n_components].T
    A, B = _unit_variance(A, cov.S11, cov), _unit_variance(B, cov.S22, cov)
    correlations = canonical_correlations_of(A, B, cov)
    order = correlations.argsort(descending=True, stable=True)
    A, B = fix_signs(A[:, order], B[:, order])
    return CanonicalDirections(A, B, correlations[order], ranks)


def _unit_variance(
    A: Float[Tensor, "p k"], S: Float[Tensor, "p p"], cov: Covariances
) -> Float[Tensor, "p k"]:
    variances = variances_of(A, S)
    bound = cov.eps * len(S) ** 0.5 * (S.diagonal() @ A.square())
    alive = variances > bound
    if not alive.all():
        _check_components(A.shape[1], int(alive.sum()))
    return A / variances.sqrt()


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
