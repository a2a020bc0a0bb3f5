"""Paired comparison of two methods."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dscca.stats.checks import paired_views, require_confidence


@dataclass(frozen=True)
class PairedTTest:
    """Result of :func:`paired_t_test`.

    Attributes
    ----------
    mean_difference : float
        Mean of ``a - b``.
    interval : tuple of two floats
        Its confidence interval.
    t_statistic, p_value : float
        Student's t and its two-sided p-value.
    degrees_of_freedom, n_pairs : int
        ``n - 1`` and ``n``.
    confidence : float
        Nominal coverage of ``interval``.
    """

    mean_difference: float
    interval: tuple[float, float]
    t_statistic: float
    p_value: float
    degrees_of_freedom: int
    n_pairs: int
    confidence: float


def paired_t_test(a: ArrayLike, b: ArrayLike, *, confidence: float = 0.95) -> PairedTTest:
    r"""Test whether two methods' paired scores have the same mean (Student's t, two-sided).

    .. math::
        t = \frac{\bar d}{s_d / \sqrt n} \sim t_{n-1}, \qquad
        \bar d \pm t_{n-1}^{-1}(1 - \tfrac{\alpha}{2}) \, s_d / \sqrt n, \qquad d = a - b.

    Differences that are all equal, up to rounding, have a defined result: ``t = 0, p = 1`` if they
    are zero, ``t = +-inf, p = 0`` if not, and an interval of width zero.

    Parameters
    ----------
    a, b : array-like of shape (n,)
        Scores of two methods on the same n folds or seeds, n at least 2.
    confidence : float, default 0.95
        Nominal coverage of the interval, between 0 and 1.

    Notes
    -----
    The training sets of cross-validation folds overlap, so scores on folds are not independent and
    p-values come out somewhat too small. Different seeds have no such overlap.

    Examples
    --------
    >>> round(paired_t_test([3.1, 2.9, 3.4], [2.0, 2.2, 2.1]).p_value, 3)
    0.028
    """
    require_confidence(confidence)
    left, right = paired_views(a, b, ("a", "b"), minimum=2)
    if left.shape[1] != 1 or right.shape[1] != 1:
        raise ValueError(
            f"a and b must hold one score per pair, got shapes {left.shape} and {right.shape}; "
            "test one score at a time."
        )
    scale = max(np.abs(left).max(), np.abs(right).max()) or 1.0
    left, right = left[:, 0] / scale, right[:, 0] / scale  # keeps squares from under- or overflow
    difference = left - right
    n, mean = len(difference), difference.mean()
    rounding = 32 * np.finfo(np.float64).eps
    if np.ptp(difference) <= rounding:
        t_statistic, p_value = (0.0, 1.0) if abs(mean) <= rounding else (mean * np.inf, 0.0)
        low, high = mean, mean
    else:
        result = stats.ttest_rel(left, right)
        t_statistic, p_value = result.statistic, result.pvalue
        low, high = result.confidence_interval(confidence)
    return PairedTTest(
        mean_difference=float(mean * scale),
        interval=(float(low * scale), float(high * scale)),
        t_statistic=float(t_statistic),
        p_value=float(p_value),
        degrees_of_freedom=n - 1,
        n_pairs=n,
        confidence=confidence,
    )
