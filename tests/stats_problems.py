"""Data with known canonical correlations, and checks of p-values, for the tests of `stats`."""

import numpy as np
import scipy.linalg
import scipy.stats
from hypothesis import strategies as st

seeds = st.integers(0, 2**31 - 1)


def planted_views(rng, n, p, q, correlations):
    """Gaussian views whose first population canonical correlations are the given ones."""
    X, Y = rng.normal(size=(n, p)), rng.normal(size=(n, q))
    for i, rho in enumerate(correlations):
        Y[:, i] = rho * X[:, i] + np.sqrt(1 - rho**2) * Y[:, i]
    return X, Y


def canonical_correlations(X, Y):
    """Cosines of the principal angles between the centred column spaces."""
    angles = scipy.linalg.subspace_angles(X - X.mean(axis=0), Y - Y.mean(axis=0))
    return np.sort(np.cos(angles))[::-1]


def assert_rejection_rate(p_values, level, *, uniform=True):
    """The number of p-values up to ``level`` is likely under (super)uniformity (1e-4 per side)."""
    rejections = np.count_nonzero(np.asarray(p_values) <= level + 1e-9)
    binomial = scipy.stats.binom(len(p_values), level)
    assert rejections <= binomial.ppf(1 - 1e-4)
    if uniform:
        assert rejections >= binomial.ppf(1e-4)
