"""Permutation test of canonical correlations, one dimension after the other."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from dscca.stats.checks import chunks, paired_views, require_samples_for_ranks, standardised

_SHIFT = 1e-8
"""Added to squared norms of one: keeps ``log(1 - rho^2)`` finite at ``rho = 1``."""

_TIE = 1e-6
"""A permuted statistic this close to the observed one, absolutely or relatively, equals it."""


@dataclass(frozen=True, eq=False)
class PermutationTest:
    """Result of :func:`permutation_test`; entry ``k`` tests "correlations k, k+1, ... are zero".

    Attributes
    ----------
    p_values : ndarray of shape (k,)
        Closed over the dimensions (cumulative maximum): rejecting while ``p <= alpha`` keeps the
        chance of a single false dimension at ``alpha``. This is the one to report.
    p_values_uncorrected : ndarray of shape (k,)
        Each dimension on its own.
    statistics : ndarray of shape (k,)
        Observed ``-log Lambda_k`` ("wilks") or ``rho_k^2`` ("roy").
    correlations : ndarray of shape (k,)
        Sample canonical correlations of the tested dimensions.
    n_permutations : int
        Number drawn; no p-value is below ``1 / (1 + n_permutations)``.
    """

    p_values: Float[np.ndarray, " k"]
    p_values_uncorrected: Float[np.ndarray, " k"]
    statistics: Float[np.ndarray, " k"]
    correlations: Float[np.ndarray, " k"]
    n_permutations: int


def permutation_test(
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_permutations: int = 999,
    statistic: Literal["wilks", "roy"] = "wilks",
    n_dimensions: int | None = None,
    random_state: int | np.random.Generator | None = None,
) -> PermutationTest:
    r"""Test every canonical correlation of unregularised linear CCA by permuting rows.

    Let ``U`` (n x p) and ``V`` (n x q) be *all* centred canonical variates, those of the wider view
    without a partner included, scaled to ``UᵀU = I``, ``VᵀV = I``, so that ``UᵀV = diag(rho)``.
    For each k = 0, 1, ... and each permutation ``P`` of the rows, the first k pairs are set aside
    and the correlations ``s_i`` of ``U[:, k:]`` with ``P V[:, k:]`` give

    .. math::
        T_k = -\log \Lambda_k = -\sum_i \log(1 - s_i^2) \text{ (wilks)} \quad\text{or}\quad
        \max_i s_i^2 \text{ (roy)}, \qquad
        p_k = \frac{1 + \#\{P : T_k(P) \ge T_k(I)\}}{1 + B},

    closed by ``max(p_0, ..., p_k)`` (Winkler et al. 2020). ``p_0`` is exact for any data, the later
    ones are approximations.

    One step is added to theirs: ``P V[:, k:]`` is first made orthogonal to ``U[:, :k]``, as the
    unpermuted one is by construction. Otherwise permuted correlations are too small, and strong
    first pairs make later dimensions look significant. The step takes the effective number of
    samples for dimension k, ``n - 2k + sum_{i<k} rho_i^-2`` (Lawley 1959), as ``n - k``: right for
    strong pairs and conservative for weak ones.

    Parameters
    ----------
    X, y : array-like of shapes (n, p) and (n, q)
        Two views, paired by row; one-dimensional input is one feature. Linearly dependent features
        do not count; the ranks may add up to at most ``n - 1``.
    n_permutations : int, default 999
        Number ``B`` of permutations drawn.
    statistic : {"wilks", "roy"}, default "wilks"
        "wilks" gathers evidence over all remaining correlations; "roy" looks at the largest alone,
        stronger where a single one stands out.
    n_dimensions : int, optional
        Test the first so many dimensions only; by default all ``min(rank X, rank y)``.
    random_state : int or numpy Generator, optional
        Source of the permutations.

    Notes
    -----
    Working memory is 64 MiB, or that of one permutation, ``8 (n (q + 2) + p q + 6 q^2)`` bytes with
    ``q`` the smaller rank, if that is more.

    References
    ----------
    A. M. Winkler, O. Renaud, S. M. Smith and T. E. Nichols, Permutation inference for canonical
    correlation analysis, NeuroImage 220, 2020.
    D. N. Lawley, Tests of significance in canonical analysis, Biometrika 46, 1959.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> shared = rng.normal(size=(100, 1))
    >>> X, y = shared + rng.normal(size=(100, 3)), shared + rng.normal(size=(100, 2))
    >>> (permutation_test(X, y, random_state=0).p_values <= 0.05).tolist()
    [True, False]
    """
    if statistic not in ("wilks", "roy"):
        raise ValueError(f"statistic must be 'wilks' or 'roy', got {statistic!r}.")
    if n_permutations < 1:
        raise ValueError(
            f"n_permutations must be at least 1, got {n_permutations}; 999 is a good choice."
        )
    U, V, rho = _canonical_variates(*paired_views(X, y, ("X", "y"), minimum=2))
    dimensions = len(rho) if n_dimensions is None else n_dimensions
    if not 1 <= dimensions <= len(rho):
        raise ValueError(
            f"n_dimensions must be between 1 and the smaller rank of the views, {len(rho)}, "
            f"got {dimensions}; leave it out to test all."
        )
    (n, p), q = U.shape, V.shape[1]
    observed = _step_statistics(np.eye(p, q)[None] * rho, dimensions, statistic)[0]
    threshold = observed - _TIE * np.maximum(1.0, observed)
    rng = np.random.default_rng(random_state)
    exceeding = np.zeros(dimensions)
    for size in chunks(n_permutations, 8 * (n * (q + 2) + p * q + 6 * q * q)):
        rows = rng.permuted(np.tile(np.arange(n), (size, 1)), axis=1)
        permuted = _step_statistics(U.T @ V[rows], dimensions, statistic)
        exceeding += (permuted >= threshold).sum(axis=0)
    p_values = (1 + exceeding) / (1 + n_permutations)
    return PermutationTest(
        p_values=np.maximum.accumulate(p_values),
        p_values_uncorrected=p_values,
        statistics=observed,
        correlations=rho[:dimensions],
        n_permutations=n_permutations,
    )


def _step_statistics(
    M: Float[np.ndarray, "b p q"], n_dimensions: int, statistic: Literal["wilks", "roy"]
) -> Float[np.ndarray, "b k"]:
    """Return ``T_0, T_1, ...`` of :func:`permutation_test` for a stack of ``M = Uᵀ P V``.

    With ``N = M[k:, k:]`` and ``S = I - M[:k, k:]ᵀ M[:k, k:]``, the Gram matrix of ``P V[:, k:]``
    made orthogonal to ``U[:, :k]``, the remaining correlations are the singular values of
    ``N S^-1/2``. So ``Lambda_k = det(S - NᵀN) / det S``, and no decomposition is needed for it.
    """
    q = M.shape[2]
    unexplained = (1 + _SHIFT) * np.eye(q) - M.mT @ M
    S = np.broadcast_to((1 + _SHIFT) * np.eye(q), unexplained.shape).copy()
    steps = np.empty((len(M), n_dimensions))
    for k in range(n_dimensions):
        remaining = S[:, k:, k:]
        if statistic == "wilks":
            log_det = np.linalg.slogdet(remaining)[1]
            steps[:, k] = log_det - np.linalg.slogdet(unexplained[:, k:, k:])[1]
        else:
            whitened = np.linalg.solve(np.linalg.cholesky(remaining), M[:, k:, k:].mT)
            steps[:, k] = np.linalg.svdvals(whitened)[:, 0] ** 2
        S -= M[:, k, :, None] * M[:, k, None, :]
    return steps


def _canonical_variates(
    X: Float[np.ndarray, "n _p"], Y: Float[np.ndarray, "n _q"]
) -> tuple[Float[np.ndarray, "n p"], Float[np.ndarray, "n q"], Float[np.ndarray, " q"]]:
    """Return all orthonormal canonical variates, wider view first, and the correlations."""
    U, V = _orthonormal_basis(X, "X"), _orthonormal_basis(Y, "y")
    require_samples_for_ranks(len(U), U.shape[1], V.shape[1])
    if U.shape[1] < V.shape[1]:
        U, V = V, U
    left, rho, right = np.linalg.svd(U.T @ V)
    return U @ left, V @ right.T, np.minimum(rho, 1.0)


def _orthonormal_basis(X: Float[np.ndarray, "n p"], name: str) -> Float[np.ndarray, "n r"]:
    """Return an orthonormal basis of the centred columns of a view, ``r`` being their rank."""
    Z = standardised(X)
    if not Z.any():
        raise ValueError(f"{name} must have at least one feature that varies, all are constant.")
    basis, singular_values, _ = np.linalg.svd(Z, full_matrices=False)
    tolerance = singular_values[0] * max(Z.shape) * np.finfo(np.float64).eps
    return np.ascontiguousarray(basis[:, singular_values > tolerance])
