"""Wilks' lambda: the parametric test of canonical correlations."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from dscca.stats.checks import require_samples_for_ranks

_ROUNDING = 1e-8
"""How far a correlation may leave [0, 1], or their order be violated, by rounding."""


@dataclass(frozen=True, eq=False)
class WilksTest:
    """Result of :func:`dscca.stats.wilks_lambda`: entry k tests that all from ρ_k on are zero.

    Attributes
    ----------
    wilks_lambda : ndarray of shape (k,)
        ``Lambda_k``, from 0 (perfect correlation) to 1 (none).
    f_statistic : ndarray of shape (k,)
        Rao's F; infinite where a remaining correlation is one.
    df_numerator, df_denominator : ndarray of shape (k,)
        Its degrees of freedom; the second need not be an integer.
    p_values : ndarray of shape (k,)
        Upper tail of the F distribution.
    """

    wilks_lambda: Float[np.ndarray, " k"]
    f_statistic: Float[np.ndarray, " k"]
    df_numerator: Float[np.ndarray, " k"]
    df_denominator: Float[np.ndarray, " k"]
    p_values: Float[np.ndarray, " k"]


def wilks_lambda(
    correlations: ArrayLike, n_samples: int, n_features_x: int, n_features_y: int
) -> WilksTest:
    r"""Test, for every k, that canonical correlations k, k+1, ... are zero (Gaussian data).

    .. math::
        \Lambda_k = \prod_{i \ge k} (1 - \rho_i^2), \qquad
        F_k = \frac{1 - \Lambda_k^{1/t}}{\Lambda_k^{1/t}} \frac{\nu_2}{\nu_1}, \qquad
        t = \sqrt{\frac{p_k^2 q_k^2 - 4}{p_k^2 + q_k^2 - 5}}, \\
        \nu_1 = p_k q_k, \qquad
        \nu_2 = \left(n - \tfrac{p + q + 3}{2}\right) t - \tfrac{p_k q_k}{2} + 1,

    with ``p_k = p - k``, ``q_k = q - k`` for k = 0, 1, ... and ``t = 1`` where the fraction is not
    positive (Rao 1951). Exact where one side has at most two features left, up to the error of
    taking the earlier correlations as found; a close approximation elsewhere.

    Parameters
    ----------
    correlations : array-like of shape (min(p, q),)
        *All* canonical correlations ``rho`` of an *unregularised* linear CCA on its *training*
        data, largest first.
    n_samples : int
        Number of rows ``n``, at least ``p + q + 1``.
    n_features_x, n_features_y : int
        Numbers of linearly independent features, ``p`` and ``q``.

    References
    ----------
    C. R. Rao, An asymptotic expansion of the distribution of Wilks' criterion, Bulletin of the
    International Statistical Institute 33, 1951.

    Examples
    --------
    >>> test = wilks_lambda([0.7956081544, 0.2005560411, 0.0725702862], 20, 3, 3)
    >>> test.p_values.round(4).tolist()
    [0.0635, 0.9491, 0.7748]
    """
    p, q = n_features_x, n_features_y
    rho = _training_correlations(correlations, p, q)
    require_samples_for_ranks(n_samples, p, q)
    k = np.arange(len(rho))
    p_left, q_left = p - k, q - k
    df1 = (p_left * q_left).astype(np.float64)
    squares = p_left**2 + q_left**2 - 5
    t = np.sqrt(np.where(squares > 0, (df1**2 - 4) / np.maximum(squares, 1), 1.0))
    df2 = (n_samples - (p + q + 3) / 2) * t - df1 / 2 + 1
    with np.errstate(divide="ignore", over="ignore"):  # a correlation of one: Lambda = 0, F = inf
        log_lambda = np.cumsum(np.log1p(-(rho**2))[::-1])[::-1]
        f_statistic = np.expm1(-log_lambda / t) * df2 / df1
    return WilksTest(
        wilks_lambda=np.exp(log_lambda),
        f_statistic=f_statistic,
        df_numerator=df1,
        df_denominator=df2,
        p_values=np.asarray(stats.f.sf(f_statistic, df1, df2)),
    )


def _training_correlations(values: ArrayLike, p: int, q: int) -> Float[np.ndarray, " k"]:
    """Return canonical correlations within [0, 1], or raise unless they are all, and in order."""
    rho = np.asarray(values, dtype=np.float64)
    if min(p, q) < 1 or rho.shape != (min(p, q),):
        raise ValueError(
            f"correlations must hold all min(n_features_x, n_features_y) = {min(p, q)} of them, "
            f"got shape {rho.shape}; fit an unregularised CCA with that many components."
        )
    if not (rho.min() >= -_ROUNDING and rho.max() <= 1 + _ROUNDING):
        raise ValueError(
            f"correlations must be between 0 and 1, got {rho.tolist()}; pass training "
            "correlations of an unregularised CCA, which cannot leave this range."
        )
    if (np.diff(rho) > _ROUNDING).any():
        raise ValueError(f"correlations must be sorted, largest first, got {rho.tolist()}.")
    return rho.clip(0.0, 1.0)
