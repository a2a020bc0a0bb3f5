import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.multivariate.cancorr import CanCorr
from statsmodels.regression.linear_model import OLS

from dscca.stats import wilks_lambda
from stats_problems import assert_rejection_rate, canonical_correlations, planted_views


def test_linnerud_published_values():
    # SAS/STAT documentation of PROC CANCORR, example "fitness club" (Linnerud's data).
    test = wilks_lambda([0.7956081544, 0.2005560411, 0.0725702862], 20, 3, 3)
    np.testing.assert_allclose(test.wilks_lambda, [0.35039053, 0.95472266, 0.99473355], atol=5e-9)
    np.testing.assert_allclose(test.p_values, [0.0635, 0.9491, 0.7748], atol=5e-5)
    np.testing.assert_allclose(test.f_statistic, [2.05, 0.18, 0.08], atol=5e-3)
    np.testing.assert_array_equal(test.df_numerator, [9, 4, 1])
    np.testing.assert_allclose(test.df_denominator, [34.223, 30, 16], atol=5e-4)


@pytest.mark.parametrize("n_features", [2, 3, 6])
def test_matches_statsmodels(n_features):
    rng = np.random.default_rng(n_features)
    X, Y = planted_views(rng, 50, n_features, n_features, [0.6])
    reference = CanCorr(X, Y)
    table = reference.corr_test().stats.astype(float)
    test = wilks_lambda(reference.cancorr, 50, n_features, n_features)
    for column, ours in {
        "Wilks' lambda": test.wilks_lambda,
        "Num DF": test.df_numerator,
        "Den DF": test.df_denominator,
        "F Value": test.f_statistic,
        "Pr > F": test.p_values,
    }.items():
        np.testing.assert_allclose(ours, table[column], rtol=1e-9, err_msg=column)


@pytest.mark.parametrize(("p", "q"), [(2, 5), (5, 2), (3, 7), (7, 4)])
def test_matches_statsmodels_on_views_of_different_width(p, q):
    # Only its overall test is comparable: the denominator degrees of freedom of its
    # per-dimension table change with the order of the views.
    X, Y = planted_views(np.random.default_rng(p), 40, p, q, [0.5])
    reference = CanCorr(X, Y)
    row = reference.corr_test().stats_mv.loc["Wilks' lambda"].astype(float)
    test = wilks_lambda(reference.cancorr, 40, p, q)
    np.testing.assert_allclose(test.wilks_lambda[0], row["Value"], rtol=1e-10)
    np.testing.assert_allclose(test.f_statistic[0], row["F Value"], rtol=1e-10)
    np.testing.assert_allclose(test.df_denominator[0], row["Den DF"], rtol=1e-10)
    np.testing.assert_allclose(test.p_values[0], row["Pr > F"], rtol=1e-8)


def test_one_feature_is_the_f_test_of_regression():
    X, y = planted_views(np.random.default_rng(0), 30, 4, 1, [0.5])
    regression = OLS(y[:, 0], np.column_stack([np.ones(30), X])).fit()
    test = wilks_lambda([np.sqrt(regression.rsquared)], 30, 4, 1)
    np.testing.assert_allclose(test.f_statistic, regression.fvalue)
    np.testing.assert_allclose(test.df_denominator, regression.df_resid)
    np.testing.assert_allclose(test.p_values, regression.f_pvalue)


def test_p_values_are_uniform_for_independent_gaussians():
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(300):
        X, Y = planted_views(rng, 25, 4, 6, [])
        p_values.append(wilks_lambda(canonical_correlations(X, Y), 25, 4, 6).p_values[0])
    for level in (0.1, 0.2, 0.5):
        assert_rejection_rate(p_values, level)


def test_perfect_correlation():
    test = wilks_lambda([1.0, 0.1], 20, 2, 3)
    assert test.wilks_lambda[0] == 0
    assert test.f_statistic[0] == np.inf
    assert test.p_values[0] == 0
    assert 0 < test.p_values[1] < 1


def test_tiny_lambda_does_not_overflow():
    test = wilks_lambda(np.full(300, 1 - 1e-12), 1000, 300, 300)
    assert test.wilks_lambda[0] == 0
    assert (test.p_values == 0).all()


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.integers(0, 4),
    st.integers(1, 50),
)
def test_bounds_order_and_symmetry(correlations, extra, spare):
    rho = np.sort(correlations)[::-1]
    p, q = len(rho), len(rho) + extra
    n = p + q + spare
    test, swapped = wilks_lambda(rho, n, p, q), wilks_lambda(rho, n, q, p)
    assert ((test.wilks_lambda >= 0) & (test.wilks_lambda <= 1)).all()
    assert (np.diff(test.wilks_lambda) >= 0).all()
    assert ((test.p_values >= 0) & (test.p_values <= 1)).all()
    assert (test.df_denominator > 0).all()
    np.testing.assert_array_equal(test.p_values, swapped.p_values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5], 20, 2, 3), "all min(n_features_x, n_features_y) = 2 of them, got shape (1,)"),
        (([[0.5]], 20, 1, 1), "got shape (1, 1)"),
        (([], 20, 0, 3), "= 0 of them"),
        (([1.2, 0.5], 20, 2, 3), "between 0 and 1, got [1.2, 0.5]"),
        (([np.nan, 0.5], 20, 2, 3), "between 0 and 1, got [nan, 0.5]"),
        (([0.2, 0.5], 20, 2, 3), "sorted, largest first, got [0.2, 0.5]"),
        (([0.5, 0.2], 5, 2, 3), "At least p + q + 1 = 6 samples"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        wilks_lambda(*arguments)
