"""The joint density of two views from nearest neighbours, and its singular functions.

With ``W_x`` (n x n, rows) the Gaussian weights of view one's training points in the neighbourhoods
of view one's points, and ``W_y`` (n x n, rows) the same of view two, the joint density relative to
its marginals is estimated by ``S = W_x W_yᵀ`` at the pairs of training points (Michaeli, Wang and
Livescu 2016, section 4). Lancaster's theorem makes the singular functions of the density the
maximally correlated functions of the views, and the singular values their correlations.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, svds
from torch import Tensor
from torch.nn.functional import embedding_bag

Array = NDArray[np.float64]

_DENSE = 1000
"""Samples up to which a dense decomposition is at least as quick."""
_ROUNDING = 1e-7
"""Singular values below this, the square root of the precision of their squares, are rounding."""


def gaussian_weights(offsets: Tensor, width: float) -> Tensor:
    """Return ``exp(-‖q - t_j‖² / (2 width²))`` of each row's neighbours, the nearest having 1.

    A factor common to a row is lost when weights are normalised, so rows are never all zero.
    """
    return (offsets / (-2.0 * width**2)).exp()


def row_stochastic(indices: Tensor, weights: Tensor, n: int) -> sp.csr_array:
    """Return the weights of neighbours as a sparse matrix with n columns whose rows sum to one."""
    m, k = indices.shape
    shares = (weights / weights.sum(dim=1, keepdim=True)).numpy(force=True)
    starts = np.arange(0, m * k + 1, k)
    columns = indices.numpy(force=True)
    return sp.csr_array((shares.ravel(), columns.ravel(), starts), shape=(m, n))


@dataclass(frozen=True)
class Extension:
    """A view's singular functions away from the training pairs: at x, the mean of `values`.

    The mean is over the neighbours t_j of x, weighted by their Gaussian weights times `masses`.
    """

    masses: Tensor
    """(n,), positive."""
    values: Tensor
    """(n, k)."""


@dataclass(frozen=True)
class SingularFunctions:
    """Leading singular values and functions of a joint density, the constant pair left out."""

    correlations: Array
    """(k,), descending, at most 1."""
    x: Array
    """(n, k) functions of view one at its training points."""
    y: Array
    x_extension: Extension
    y_extension: Extension


def singular_functions(
    W_x: sp.csr_array, W_y: sp.csr_array, k: int, *, balancing: int, seed: int
) -> SingularFunctions:
    r"""Return the leading `k` singular functions of the density ``S = W_x W_yᵀ``.

    S is scaled to ``diag(a) S diag(b)``, by `balancing` rounds of Sinkhorn's algorithm, towards
    unit row and column sums. Whatever sums r and c are left,

    .. math:: M = \mathrm{diag}(r)^{-1/2} S \, \mathrm{diag}(c)^{-1/2}
       = \sum_i \sigma_i u_i v_i^\top

    has norm one exactly, and the pair :math:`\sqrt r, \sqrt c`, constant functions, attains it. It
    is subtracted before the decomposition, so no other function can be taken for it where parts
    of the data are unconnected and 1 is a multiple singular value.
    With :math:`f = \mathrm{diag}(r)^{-1/2} u` and :math:`g = \mathrm{diag}(c)^{-1/2} v` (times
    :math:`\sqrt{\sum r}`: unit mean square),

    .. math:: \sigma f(x) = \sum_j S(x, y_j) g_j \Big/ \sum_j S(x, y_j)

    holds at the training points, and extends f to any other x; a cancels. S is never formed: it
    has up to k² entries a row for k neighbours.
    """
    n = W_x.shape[0]
    W_xt, W_yt = W_x.T.tocsr(), W_y.T.tocsr()
    a = b = np.ones(n)
    for _ in range(balancing):
        b = 1 / (W_y @ (W_xt @ a))
        a = 1 / (W_x @ (W_yt @ b))
    x_masses, y_masses = W_yt @ b, W_xt @ a
    r, c = a * (W_x @ x_masses), b * (W_y @ y_masses)
    total = r.sum()
    left, right = a / np.sqrt(r), b / np.sqrt(c)
    u0, v0 = np.sqrt(r / total), np.sqrt(c / total)

    def forward(v: Array) -> Array:
        v = v.reshape(n, -1)
        return left[:, None] * (W_x @ (W_yt @ (right[:, None] * v))) - np.outer(u0, v0 @ v)

    def backward(u: Array) -> Array:
        u = u.reshape(n, -1)
        return right[:, None] * (W_y @ (W_xt @ (left[:, None] * u))) - np.outer(v0, u0 @ u)

    if n <= _DENSE or k >= n // 2:
        U, values, Vt = np.linalg.svd(forward(np.eye(n)))
    else:
        operator = LinearOperator(
            (n, n),
            matvec=lambda v: forward(v).ravel(),
            rmatvec=lambda u: backward(u).ravel(),
            matmat=forward,
            rmatmat=backward,
            dtype=np.float64,
        )
        start = np.random.default_rng(seed).normal(size=n)
        U, values, Vt = svds(operator, k=k, v0=start, tol=_ROUNDING)
    order = np.argsort(-values, kind="stable")[:k]
    U, values, V = U[:, order], values[order], Vt[order].T
    bound = int((values > _ROUNDING).sum())
    if bound < k:
        raise ValueError(
            f"n_components={k} is above {bound}, the number of pairs of functions that correlate "
            f"under the estimated joint density: use n_components <= {bound}, or a smaller width "
            f"or fewer neighbours."
        )
    signs = np.where(U[np.abs(U).argmax(axis=0), np.arange(k)] < 0, -1.0, 1.0)
    f = U * signs * np.sqrt(total / r)[:, None]
    g = V * signs * np.sqrt(total / c)[:, None]
    return SingularFunctions(
        np.minimum(values, 1.0),
        f,
        g,
        _extension(x_masses, W_yt @ (b[:, None] * g) / values),
        _extension(y_masses, W_xt @ (a[:, None] * f) / values),
    )


def extend(extension: Extension, indices: Tensor, weights: Tensor) -> Tensor:
    """Return a view's functions at points of the given neighbours and Gaussian weights."""
    weights = weights * extension.masses[indices]
    weights = weights / weights.sum(dim=1, keepdim=True)
    return embedding_bag(indices, extension.values, per_sample_weights=weights, mode="sum")


def _extension(masses: Array, sums: Array) -> Extension:
    return Extension(torch.from_numpy(masses), torch.from_numpy(sums / masses[:, None]))
