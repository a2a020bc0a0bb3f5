"""The leading singular pairs of a large operator, without decomposing the whole of it."""

from typing import Protocol

import torch
from torch import Tensor

_DENSE = 1536
"""Matrices of at most so many rows or columns are decomposed whole, which is then quicker."""

_BLOCKS = 10
"""Blocks that either basis may hold before it is cut back to the best of it."""

_NOTHING = 1e-2
"""Vectors whose squared length by N is 1e-10 of this are taken to be rounding."""

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

    def norms(self, R: Tensor, space: int) -> Tensor:
        """Return the length of each column in space 1 or 2, by its inner product."""

    def clear(self, block: Tensor) -> Tensor:
        """Return the block without what no inner product sees, where it is known.

        Nothing else would keep it from growing.
        """


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

    def norms(self, R: Tensor, space: int) -> Tensor:
        """Return Euclidean lengths."""
        return R.norm(dim=0)

    def clear(self, block: Tensor) -> Tensor:
        """Return the block: there is nothing of the kind."""
        return block


def leading_svd(M: Tensor, k: int, *, tolerance: float = 1e-8) -> tuple[Tensor, Tensor, Tensor]:
    """Return U (p x k), the singular values and V (q x k) of the `k` leading singular pairs."""
    if min(M.shape) <= max(_DENSE, 4 * k):
        U, s, Vh = torch.linalg.svd(M, full_matrices=False)
        return U[:, :k], s[:k], Vh[:k].T
    return leading_pairs(MatrixOperator(M), k, tolerance=tolerance)


def leading_pairs(
    operator: Operator, k: int, *, tolerance: float = 1e-8, max_steps: int = 300
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return ``W, σ, Z`` with ``T z_i = σ_i w_i``, ``T* w_i = σ_i z_i`` for the `k` largest σ.

    A block Krylov method: bases of both spaces grow by ``T`` and ``T*`` of each other's newest
    block, orthonormal to all before (Golub, Luk and Overton 1981), and the best pairs in them are
    those of the small matrix of T between the bases (Rayleigh-Ritz). When they have grown long they
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
    W, Z = _Basis(operator), _Basis(operator)
    # In the range of T*, most of the start has some length.
    start = operator.adjoint(operator.apply(start.to(operator.device))[0])[0]
    block, worst = Z.outside(start), torch.inf
    for step in range(1, max_steps + 1):
        Z.append(block, *operator.apply(block))
        further = W.outside(Z.newest)
        W.append(further, *operator.adjoint(further))
        # Before a restart, as it must be orthogonal to the pairs that are dropped as well.
        block = Z.outside(W.newest)
        exhausted, long = not block.shape[1], W.vectors.shape[1] > limit
        if not (exhausted or long or step % _CHECK_STEPS == 0 or step == max_steps):
            continue
        X, sigma, Yh = torch.linalg.svd(W.metric.T @ Z.images, full_matrices=False)
        w, Tw = W.vectors @ X[:, :k], W.images @ X[:, :k]
        z, Tz = Z.vectors @ Yh[:k].T, Z.images @ Yh[:k].T
        lengths = operator.norms(Tz - sigma[:k] * w, 1), operator.norms(Tw - sigma[:k] * z, 2)
        worst = max(float(length.max()) for length in lengths)
        if exhausted or (len(sigma) >= k and worst <= tolerance * float(sigma[0])):
            return w, sigma[:k], z
        if long:
            keep = max(limit // 3, k + width)
            W.combine(X[:, :keep])
            Z.combine(Yh[:keep].T)
    raise NotConvergedError(
        f"the {k} leading pairs were not found to {tolerance:g} in {max_steps} steps (residual "
        f"{worst:.1e}): ask for fewer components or raise the regulariser."
    )


class _Basis:
    """Vectors orthonormal by the inner product N, their images, and their products with N."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.vectors = self.images = self.metric = torch.empty(0, 0)
        self.newest = self.images
        """Images of the vectors that came last."""

    def outside(self, block: Tensor) -> Tensor:
        """Return vectors, of length one, for what of `block` is orthogonal to the basis."""
        size = torch.linalg.matrix_norm(block)
        if len(self.vectors):
            for _ in range(2):
                block = block - self.vectors @ (self.metric.T @ block)
        Q, R = torch.linalg.qr(self.operator.clear(block))
        U, s, _ = torch.linalg.svd(R)
        return Q @ U[:, s > 1e-13 * size]

    def append(self, block: Tensor, images: Tensor, metric: Tensor) -> None:
        """Add vectors that are outside the basis, made orthonormal."""
        if len(self.vectors):
            inside = self.metric.T @ block
            block = block - self.vectors @ inside
            images = images - self.images @ inside
            metric = metric - self.metric @ inside
        gram = block.T @ metric
        values, directions = torch.linalg.eigh((gram + gram.T) / 2)
        keep = values > 1e-10 * max([_NOTHING, *values[-1:].tolist()])
        root = directions[:, keep] / values[keep].sqrt()
        self.newest = images @ root
        self.vectors = _beside(self.vectors, block @ root)
        self.images = _beside(self.images, self.newest)
        self.metric = _beside(self.metric, metric @ root)

    def combine(self, C: Tensor) -> None:
        """Replace the basis by combinations of its vectors, with orthonormal coefficients C."""
        self.vectors, self.images = self.vectors @ C, self.images @ C
        self.metric = self.metric @ C


def _beside(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], dim=1) if len(old) else new
