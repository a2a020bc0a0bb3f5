"""How correlated paired representations are."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def canonical_correlations(variates_x: ArrayLike, variates_y: ArrayLike) -> NDArray[np.float64]:
    """Return the Pearson correlation of each pair of columns on the given samples.

    Nothing is fitted: the variates are taken as they are, so on held-out samples these are
    held-out correlations. A pair with a constant column carries no correlation and counts 0.

    Parameters
    ----------
    variates_x, variates_y : (n_samples, n_components), row i of one paired with row i of the other

    Examples
    --------
    >>> canonical_correlations([[0.0], [1.0], [2.0]], [[0.0], [2.0], [4.0]])
    array([1.])
    """
    x, y = _check_pair(variates_x, variates_y)
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    # Scaling by the largest entry keeps the squares of tiny and huge variates in range.
    x, y = x / _positive(np.abs(x).max(axis=0)), y / _positive(np.abs(y).max(axis=0))
    norms = np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
    return np.clip((x * y).sum(axis=0) / _positive(norms), -1.0, 1.0)


def total_correlation(variates_x: ArrayLike, variates_y: ArrayLike) -> float:
    """Return the sum of :func:`canonical_correlations`, the paper's TC; at most n_components."""
    return float(canonical_correlations(variates_x, variates_y).sum())


def _positive(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(values > 0, values, 1.0)


def _check_pair(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 2 or x.shape != y.shape:
        raise ValueError(
            f"variates must be two arrays of the same shape (n_samples, n_components), "
            f"got {x.shape} and {y.shape}."
        )
    if len(x) < 2:
        raise ValueError(f"a correlation needs at least 2 samples, got {len(x)}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("variates contain NaN or infinity: remove these rows from both views.")
    return x, y
