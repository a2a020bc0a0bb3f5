"""Bootstrap confidence intervals for the correlations of held-out variates."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import special

from dscca.stats.checks import chunks, paired_views, require_confidence, standardised


@dataclass(frozen=True, eq=False)
class BootstrapIntervals:
    """Result of :func:`bootstrap_intervals`.

    Attributes
    ----------
    correlations : ndarray of shape (k,)
        Pearson correlation of each pair of variates.
    intervals : ndarray of shape (k, 2)
        Lower and upper ends, each component on its own (not simultaneous over components).
    total_correlation : float
        Sum of ``correlations``.
    total_interval : tuple of two floats
        Its interval: not the sum of the others, which would be far too wide.
    confidence : float
        Nominal coverage of every interval.
    """

    correlations: Float[np.ndarray, " k"]
    intervals: Float[np.ndarray, "k 2"]
    total_correlation: float
    total_interval: tuple[float, float]
    confidence: float


def bootstrap_intervals(
    variates_x: ArrayLike,
    variates_y: ArrayLike,
    *,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    random_state: int | np.random.Generator | None = None,
) -> BootstrapIntervals:
    r"""Confidence intervals for the correlations of paired variates, and for their sum.

    Pairs of rows are drawn with replacement, all components together, and each statistic's interval
    runs between two quantiles of its resampled values (the *expanded percentile* bootstrap),

    .. math::
        \alpha' = \Phi\left(-\sqrt{\tfrac{n}{n-1}}\; t_{n-1}^{-1}(1 - \tfrac{\alpha}{2})\right)
        \quad\text{and}\quad 1 - \alpha', \qquad \alpha = 1 - \text{confidence},

    with ``Phi`` the normal distribution function and ``t_{n-1}^{-1}`` Student's quantile function;
    plain percentile intervals (``alpha' = alpha / 2``) are too narrow for few samples. Quantiles
    carry over through increasing transformations, so nothing is gained by Fisher's z scale.

    The intervals describe *these* variates on new data from the same source: compute them on data
    the model was not fitted to.

    Parameters
    ----------
    variates_x, variates_y : array-like of shape (n, k)
        Held-out variates, paired by row and by column; n at least 3, no constant column.
    confidence : float, default 0.95
        Nominal coverage, between 0 and 1.
    n_resamples : int, default 2000
        Number of resamples, at least ``2 / (1 - confidence)``.
    random_state : int or numpy Generator, optional
        Source of the resamples.

    Notes
    -----
    In a resample where a variate happens to be constant (standard deviation under 1e-6 of that in
    the full data), its correlation counts as 0: it carries no information about its partner.
    Working memory is 64 MiB, or that of one resample, ``8 (4 n + 6 k)`` bytes, if that is more.

    References
    ----------
    T. C. Hesterberg, What teachers should know about the bootstrap: resampling in the undergraduate
    statistics curriculum, The American Statistician 69(4), 2015.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> result = bootstrap_intervals(X, X + rng.normal(size=(200, 2)), random_state=0)
    >>> bool(result.intervals[0, 0] < 0.5**0.5 < result.intervals[0, 1])
    True
    """
    require_confidence(confidence)
    if n_resamples < 2 / (1 - confidence):
        raise ValueError(
            f"n_resamples must be at least 2 / (1 - confidence) = {2 / (1 - confidence):.0f} to "
            f"reach into the tails, got {n_resamples}; 2000 is a good choice at 0.95."
        )
    names = ("variates_x", "variates_y")
    views = paired_views(variates_x, variates_y, names, minimum=3)
    n, n_components = views[0].shape
    if views[1].shape[1] != n_components:
        raise ValueError(
            f"variates_x has {n_components} columns but variates_y has {views[1].shape[1]}; "
            "pass as many variates of one view as of the other, in the same order."
        )
    x, y = (standardised(view) for view in views)
    for name, view in zip(names, (x, y), strict=True):
        constant = np.flatnonzero(~view.any(axis=0)).tolist()
        if constant:
            raise ValueError(
                f"{name} must vary in every column to have correlations, but columns {constant} "
                "are constant; drop these components from both sides."
            )
    products = np.concatenate([x, y, x * x, y * y, x * y], axis=1)
    estimate = _correlations_and_total(products.mean(axis=0))
    rng = np.random.default_rng(random_state)
    resampled = np.concatenate(
        [
            _correlations_and_total(_resampling_counts(size, n, rng) @ products / n)
            for size in chunks(n_resamples, 8 * (4 * n + 6 * n_components))
        ]
    )
    t_quantile = special.stdtrit(n - 1, (1 + confidence) / 2)
    tail = special.ndtr(-np.sqrt(n / (n - 1)) * t_quantile)
    intervals = np.quantile(resampled, [tail, 1 - tail], axis=0).T
    return BootstrapIntervals(
        correlations=estimate[:-1],
        intervals=intervals[:-1],
        total_correlation=float(estimate[-1]),
        total_interval=(float(intervals[-1, 0]), float(intervals[-1, 1])),
        confidence=confidence,
    )


def _resampling_counts(size: int, n: int, rng: np.random.Generator) -> Float[np.ndarray, "size n"]:
    """Return how often each of ``n`` rows occurs in each of ``size`` draws with replacement."""
    cells = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
    counts = np.bincount(cells.ravel(), minlength=size * n)
    return counts.reshape(size, n).astype(np.float64)


def _correlations_and_total(moments: Float[np.ndarray, "*b m"]) -> Float[np.ndarray, "*b k"]:
    """Return k Pearson correlations and their sum from the means of x, y, x^2, y^2 and x y."""
    x, y, xx, yy, xy = np.split(moments, 5, axis=-1)
    variance_x, variance_y = xx - x * x, yy - y * y
    defined = np.minimum(variance_x, variance_y) > 1e-12
    scale = np.sqrt(np.where(defined, variance_x * variance_y, 1.0))
    correlations = np.where(defined, np.clip((xy - x * y) / scale, -1.0, 1.0), 0.0)
    return np.concatenate([correlations, correlations.sum(axis=-1, keepdims=True)], axis=-1)
