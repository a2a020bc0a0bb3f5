import re

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dscca.stats import bootstrap_intervals, checks
from stats_problems import planted_views, seeds


@pytest.mark.parametrize(("n", "heavy_tails"), [(15, False), (40, False), (40, True)])
def test_coverage(n, heavy_tails):
    rng = np.random.default_rng(n)
    rho = np.array([0.95, 0.5, 0.0, -0.8])
    truth = np.append(rho, rho.sum())
    covered = np.zeros(5)
    n_datasets = 400
    for _ in range(n_datasets):
        X, Y = planted_views(rng, n, 4, 4, rho)
        if heavy_tails:  # multivariate t with 5 degrees of freedom has the same correlations
            radius = np.sqrt(5 / rng.chisquare(5, size=(n, 1)))
            X, Y = X * radius, Y * radius
        result = bootstrap_intervals(X, Y, n_resamples=400, random_state=rng)
        low, high = np.vstack([result.intervals, result.total_interval]).T
        covered += (low <= truth) & (truth <= high)
    # Nominal 0.95; a standard error here is 0.011.
    assert (covered / n_datasets > (0.89 if heavy_tails else 0.91)).all()
    assert (covered / n_datasets < 0.985).all()


def test_matches_scipy_for_many_samples():
    X, Y = planted_views(np.random.default_rng(0), 2000, 2, 2, [0.9, 0.3])
    ours = bootstrap_intervals(X, Y, n_resamples=4000, random_state=0)
    for i in range(2):
        reference = scipy.stats.bootstrap(
            (X[:, i], Y[:, i]),
            lambda x, y, axis: scipy.stats.pearsonr(x, y, axis=axis).statistic,
            paired=True,
            method="percentile",
            n_resamples=4000,
            batch=500,
            rng=np.random.default_rng(1),
        ).confidence_interval
        width = reference.high - reference.low
        np.testing.assert_allclose(ours.intervals[i], reference, atol=0.06 * width)


def test_estimates_are_pearson_correlations():
    X, Y = planted_views(np.random.default_rng(1), 50, 3, 3, [0.9, -0.4])
    result = bootstrap_intervals(X * 1e-6 + 1e3, Y * 1e6, n_resamples=100, random_state=0)
    expected = [scipy.stats.pearsonr(X[:, i], Y[:, i]).statistic for i in range(3)]
    np.testing.assert_allclose(result.correlations, expected, atol=1e-6)
    np.testing.assert_allclose(result.total_correlation, sum(expected), atol=1e-6)


def test_total_interval_uses_joint_resamples():
    # The second component repeats the first: the interval of the sum is twice as wide.
    X, Y = planted_views(np.random.default_rng(2), 100, 1, 1, [0.6])
    result = bootstrap_intervals(X[:, [0, 0]], Y[:, [0, 0]], random_state=0)
    np.testing.assert_allclose(result.total_interval, 2 * result.intervals[0])


def test_perfect_correlation_has_a_degenerate_interval():
    x = np.random.default_rng(3).normal(size=(50, 1))
    result = bootstrap_intervals(x, -3 * x + 1, random_state=0)
    np.testing.assert_allclose(result.intervals, [[-1, -1]], atol=1e-12)


def test_constant_resamples_count_as_zero():
    x = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    result = bootstrap_intervals(x, x, n_resamples=2000, random_state=0)
    # A third of the resamples, 0.8^5, miss the only one; in all others the correlation is 1.
    np.testing.assert_allclose(result.intervals, [[0, 1]], atol=1e-12)


def test_chunks_do_not_change_the_result(monkeypatch):
    X, Y = planted_views(np.random.default_rng(4), 31, 2, 2, [0.5])
    expected = bootstrap_intervals(X, Y, n_resamples=201, random_state=0)
    monkeypatch.setattr(checks, "_CHUNK_BYTES", 10_000)
    ours = bootstrap_intervals(X, Y, n_resamples=201, random_state=0)
    np.testing.assert_allclose(ours.intervals, expected.intervals, rtol=1e-12)


@settings(max_examples=40)
@given(seeds, st.integers(3, 12), st.integers(1, 4), st.floats(0.5, 0.98))
def test_bounds_symmetry_and_scale(seed, n, k, confidence):
    rng = np.random.default_rng(seed)
    X, Y = planted_views(rng, n, k, k, rng.uniform(-1, 1, size=k))
    options = {"n_resamples": 100, "confidence": confidence, "random_state": seed}
    result = bootstrap_intervals(X, Y, **options)
    assert (np.abs(result.intervals) <= 1).all()
    assert (result.intervals[:, 0] <= result.intervals[:, 1]).all()
    assert np.abs(result.total_interval).max() <= k
    swapped = bootstrap_intervals(Y, X, **options)
    np.testing.assert_allclose(swapped.intervals, result.intervals, atol=1e-9)
    flipped = bootstrap_intervals(-5 * X + 2, Y, **options)
    np.testing.assert_allclose(flipped.intervals, -result.intervals[:, ::-1], atol=1e-9)


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0], {}, "At least 3 pairs are needed, got 2"),
        (range(4), range(5), {}, "variates_x has 4 rows but variates_y has 5"),
        (np.eye(4), range(4), {}, "variates_x has 4 columns but variates_y has 1"),
        (range(4), np.full(4, 0.1), {}, "variates_y must vary in every column"),
        ([1, np.nan, 2], range(3), {}, "variates_x must be finite"),
        (range(4), range(4), {"confidence": 1.0}, "between 0 and 1, got 1.0"),
        (range(4), range(4), {"n_resamples": 39}, "= 40 to reach into the tails, got 39"),
    ],
)
def test_errors(x, y, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        bootstrap_intervals(x, y, **options)
