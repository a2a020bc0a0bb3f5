"""The leading singular pairs of a large operator, without decomposing the whole of it."""

from typing import Protocol

import torch
from torch import Tensor

_DENSE = 1536
"""Matrices of at most so many rows or columns are decomposed whole, which is then quicker."""

_BLOCKS = 10
"""Blocks that either basis may hold before it is cut back to the best of it."""

_CHECK_STEPS = 3
"""Steps between looks at the pairs, each of which costs a decomposition of the bases' size."""


class NotConvergedError(ArithmeticError):
    """An iteration was stopped short of its tolerance."""


class Operator(Protocol):
    r"""A map T between two spaces with inner products :math:`\langle u, v\rangle_i = u^\top N_i v`.

    Its adjoint T* satisfies :math:`\langle w, T z\rangle_1 = \langle T^* w, z\rangle_2`.
    """

    shape: tuple[int, int]
    device: torch.device

    def apply(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``T Z`` and ``N₂ Z`` of a block of columns."""

    def adjoint(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``T* W`` and ``N₁ W`` of a block of columns."""


class MatrixOperator:
    """A matrix between Euclidean spaces."""

    def __init__(self, M: Tensor) -> None:
        self.M = M
        self.shape: tuple[int, int] = (M.shape[0], M.shape[1])
        self.device = M.device

    def apply(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``M Z`` and Z."""
        return self.M @ Z, Z

    def adjoint(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``Mᵀ W`` and W."""
        return self.M.T @ W, W


def leading_svd(M: Tensor, k: int, *, tolerance: float = 1e-9) -> tuple[Tensor, Tensor, Tensor]:
    """Return U (p x k), the singular values and V (q x k) of the `k` leading singular pairs."""
    if min(M.shape) <= max(_DENSE, 4 * k):
        U, s, Vh = torch.linalg.svd(M, full_matrices=False)
        return U[:, :k], s[:k], Vh[:k].T
    return leading_pairs(MatrixOperator(M), k, tolerance=tolerance)


def leading_pairs(
    operator: Operator, k: int, *, tolerance: float = 1e-9, max_steps: int = 300
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return ``W, σ, Z`` with ``T z_i = σ_i w_i``, ``T* w_i = σ_i z_i`` for the `k` largest σ.

    A block Krylov method: bases of both spaces grow by ``T`` and ``T*`` of each other's newest
    block, orthonormal to all before (Golub, Luk and Overton 1981), and the best pairs in them are
    those of the small problem between the bases (Rayleigh-Ritz). When they have grown long they
    are replaced by their best pairs, which loses little (thick restart; Wu and Simon 2000).

    It has converged when ``‖T z_i - σ_i w_i‖`` and ``‖T* w_i - σ_i z_i‖`` are at most `tolerance`
    times the largest singular value for every pair asked for; the error of σ_i is then of the order
    of the square of that. Not to converge is an error; an operator of a rank below `k` gives as
    many pairs as it has. The start is drawn with a fixed seed.
    """
    # A start narrower than k could miss copies of a value that is repeated as often.
    width = min(max(24, k + 8), *operator.shape)
    limit = max(_BLOCKS * width, 3 * k)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(operator.shape[1], width, dtype=torch.float64, generator=generator)
    W, Z = _Basis(operator.shape[0]), _Basis(operator.shape[1])
    block, worst = Z.extension(start.to(operator.device)), torch.inf
    for step in range(1, max_steps + 1):
        Z.append(block, *operator.apply(block))
        further = W.extension(Z.newest)
        W.append(further, *operator.adjoint(further))
        # Before a restart, as it must be orthogonal to the pairs that are dropped as well.
        block = Z.extension(W.newest)
        exhausted, long = not block.shape[1], W.vectors.shape[1] > limit
        if not (exhausted or long or step % _CHECK_STEPS == 0 or step == max_steps):
            continue
        sigma, X, Y = _ritz(W, Z)
        worst = _residual(W, Z, sigma[:k], X[:, :k], Y[:, :k])
        if exhausted or (len(sigma) >= k and worst <= tolerance * float(sigma[0])):
            return W.vectors @ X[:, :k], sigma[:k], Z.vectors @ Y[:, :k]
        if long:
            keep = max(limit // 3, k + width)
            W.combine(X[:, :keep])
            Z.combine(Y[:, :keep])
    raise NotConvergedError(
        f"the {k} leading pairs were not found to {tolerance:g} in {max_steps} steps (residual "
        f"{worst:.1e}): ask for fewer components or raise the regulariser."
    )


class _Basis:
    """Vectors orthonormal in the Euclidean sense, their images, and their products with N."""

    def __init__(self, length: int) -> None:
        empty = torch.empty(length, 0, dtype=torch.float64)
        self.vectors, self.images, self.metric = empty, empty, empty
        self.newest = empty
        """Images of the vectors that came last."""

    def append(self, vectors: Tensor, images: Tensor, metric: Tensor) -> None:
        if not self.vectors.shape[1]:
            self.vectors, self.images, self.metric = vectors, images, metric
        else:
            self.vectors = torch.cat([self.vectors, vectors], dim=1)
            self.images = torch.cat([self.images, images], dim=1)
            self.metric = torch.cat([self.metric, metric], dim=1)
        self.newest = images

    def combine(self, C: Tensor) -> None:
        """Replace the basis by the orthonormalised combinations C of its vectors."""
        Q = torch.linalg.qr(C)[0]
        self.vectors, self.images = self.vectors @ Q, self.images @ Q
        self.metric = self.metric @ Q

    def extension(self, block: Tensor) -> Tensor:
        """Return orthonormal vectors for what of `block` lies outside the basis."""
        norm = torch.linalg.matrix_norm(block)
        for _ in range(2):
            if self.vectors.shape[1]:
                block = block - self.vectors @ (self.vectors.T @ block)
            Q, R = torch.linalg.qr(block)
            U, s, _ = torch.linalg.svd(R)
            block = Q @ U[:, s > 1e-13 * norm]
            norm = torch.ones_like(norm)
        return block


def _ritz(W: _Basis, Z: _Basis) -> tuple[Tensor, Tensor, Tensor]:
    """Return the singular values of the operator between both bases, and their coefficients."""
    C = W.metric.T @ Z.images
    F, G = (_inverse_root(b.vectors.T @ b.metric) for b in (W, Z))
    U, sigma, Vh = torch.linalg.svd(F.T @ C @ G, full_matrices=False)
    return sigma, F @ U, G @ Vh.T


def _inverse_root(S: Tensor) -> Tensor:
    """Return R with ``Rᵀ S R = I`` on the directions of S that are not rounding."""
    values, vectors = torch.linalg.eigh((S + S.T) / 2)
    keep = values > 1e-12 * values[-1]
    return vectors[:, keep] / values[keep].sqrt()


def _residual(W: _Basis, Z: _Basis, sigma: Tensor, X: Tensor, Y: Tensor) -> float:
    w, z = W.vectors @ X, Z.vectors @ Y
    first = Z.images @ Y - sigma * w
    second = W.images @ X - sigma * z
    return max(float(r.norm(dim=0).max()) for r in (first, second))
