import re

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dscca.stats import checks, permutation, permutation_test, wilks_lambda
from problems import LINNERUD_BODY, LINNERUD_EXERCISE
from stats_problems import assert_rejection_rate, canonical_correlations, planted_views, seeds


def naive_second_p_value(X, Y, n_permutations, rng):
    """P-value of the second correlation from permuting whole views, first pair included."""
    observed = canonical_correlations(X, Y)[1]
    U, V, _ = permutation._canonical_variates(X, Y)
    permuted = [
        np.linalg.svdvals(U.T @ V[rng.permutation(len(V))])[1] for _ in range(n_permutations)
    ]
    return (1 + np.sum(np.array(permuted) >= observed)) / (1 + n_permutations)


def test_one_feature_each_matches_exact_permutation_test():
    rng = np.random.default_rng(0)
    x, y = planted_views(rng, 7, 1, 1, [0.6])
    exact = scipy.stats.permutation_test(
        (x[:, 0],),
        lambda values: scipy.stats.pearsonr(values, y[:, 0]).statistic ** 2,
        permutation_type="pairings",
        alternative="greater",
        n_resamples=np.inf,
    ).pvalue
    ours = permutation_test(x, y, n_permutations=20_000, random_state=0)
    assert abs(ours.p_values[0] - exact) < 5 * np.sqrt(exact * (1 - exact) / 20_000)


def test_ties_count_as_exceeding():
    # Of the 24 orders of four numbers, only the given one and its reverse reach rho = 1.
    for statistic in ("wilks", "roy"):
        x = np.array([-3.0, -1.0, 1.0, 3.0]) / 7
        test = permutation_test(x, x, n_permutations=5000, statistic=statistic, random_state=0)
        assert abs(test.p_values[0] - 2 / 24) < 5 * np.sqrt(2 / 24 * 22 / 24 / 5000)


@pytest.mark.parametrize("seed", range(4))
def test_ties_up_to_rounding_count_as_exceeding(seed):
    # Two features tell three distinct rows apart, so y, equal where X is, is explained perfectly,
    # and so it is in the 4 of 24 orders that leave the equal rows equal.
    rows, rng = [0, 0, 1, 2], np.random.default_rng(seed)
    X, y = rng.normal(size=(3, 2))[rows], rng.normal(size=3)[rows]
    test = permutation_test(X, y, n_permutations=2400, random_state=0)
    assert test.correlations == pytest.approx(1)
    assert abs(test.p_values[0] - 4 / 24) < 5 * np.sqrt(4 / 24 * 20 / 24 / 2400)


@pytest.mark.parametrize("statistic", ["wilks", "roy"])
def test_permutations_that_reproduce_removed_variates(statistic):
    # Swapping the two factors of this design maps the second variate onto the first one.
    design = np.array([[i, j] for i in (-1, 1) for j in (-1, 1) for _ in range(2)])
    test = permutation_test(
        design, design, n_permutations=3000, statistic=statistic, random_state=0
    )
    assert np.isfinite(test.statistics).all()
    assert (test.p_values_uncorrected > 1 / 3001).all()
    # 4 cells of 2 equal rows: 8 symmetries of the square x 2^4 orders, out of 8! permutations.
    if statistic == "wilks":
        exact = 8 * 2**4 / 40320
        assert abs(test.p_values[0] - exact) < 5 * np.sqrt(exact / 3000)


@pytest.mark.parametrize(("p", "q"), [(4, 4), (6, 3)])
def test_statistics_of_one_permutation_match_explicit_residuals(p, q):
    rng = np.random.default_rng(1)
    X, Y = planted_views(rng, 30, p, q, [0.9, 0.6])
    U, V, _ = permutation._canonical_variates(X, Y)
    rows = rng.permutation(30)
    M = (U.T @ V[rows])[None]
    for k in range(q):
        fitted = U[:, :k] @ np.linalg.lstsq(U[:, :k], V[rows, k:])[0]
        rho = np.cos(scipy.linalg.subspace_angles(U[:, k:], V[rows, k:] - fitted))
        wilks = permutation._step_statistics(M, q, "wilks")[0, k]
        roy = permutation._step_statistics(M, q, "roy")[0, k]
        np.testing.assert_allclose(wilks, -np.log(np.prod(1 - rho**2)), rtol=1e-5)
        np.testing.assert_allclose(roy, rho.max() ** 2, rtol=1e-5)


def test_agrees_with_wilks_on_linnerud():
    test = permutation_test(LINNERUD_EXERCISE, LINNERUD_BODY, n_permutations=4999, random_state=0)
    rho = [0.7956081544, 0.2005560411, 0.0725702862]
    parametric = wilks_lambda(rho, 20, 3, 3)
    np.testing.assert_allclose(test.correlations, rho, atol=1e-9)
    np.testing.assert_allclose(np.exp(-test.statistics), parametric.wilks_lambda, rtol=1e-6)
    # 20 people and skewed exercise counts: the two tests are close, not equal.
    np.testing.assert_allclose(test.p_values[0], parametric.p_values[0], atol=0.02)
    assert test.p_values[1] > 0.5


@pytest.mark.parametrize("statistic", ["wilks", "roy"])
def test_first_p_value_is_uniform_under_the_global_null(statistic):
    rng = np.random.default_rng(2)
    p_values = [
        permutation_test(
            rng.standard_t(4, size=(25, 3)),
            rng.exponential(size=(25, 5)),
            n_permutations=99,
            statistic=statistic,
            random_state=rng,
        ).p_values[0]
        for _ in range(300)
    ]
    for level in (0.1, 0.2, 0.5):
        assert_rejection_rate(p_values, level)


@pytest.mark.parametrize("statistic", ["wilks", "roy"])
def test_second_dimension_is_valid_beside_one_true_correlation(statistic):
    rng = np.random.default_rng(3)
    second = []
    for _ in range(200):
        X, Y = planted_views(rng, 40, 5, 6, [0.95])
        test = permutation_test(X, Y, n_permutations=99, statistic=statistic, random_state=rng)
        assert test.p_values[0] == 0.01
        second.append(test.p_values[1])
    for level in (0.1, 0.2):
        assert_rejection_rate(second, level)


def test_permuting_without_setting_pairs_aside_would_be_wrong():
    # What the test above guards against: its bounds do notice the naive scheme.
    rng = np.random.default_rng(3)
    naive = [
        naive_second_p_value(*planted_views(rng, 40, 5, 6, [0.95]), 99, rng) for _ in range(200)
    ]
    for level in (0.1, 0.2):
        assert np.mean(np.array(naive) <= level + 1e-9) > 2 * level
        with pytest.raises(AssertionError):
            assert_rejection_rate(naive, level, uniform=False)


def test_valid_beside_many_strong_correlations():
    # Without orthogonalising the permuted variates about half would be rejected at 0.2.
    rng = np.random.default_rng(4)
    ninth = []
    for _ in range(150):
        X, Y = planted_views(rng, 120, 24, 24, [0.97] * 8)
        test = permutation_test(X, Y, n_permutations=99, n_dimensions=9, random_state=rng)
        assert test.p_values[7] == 0.01
        ninth.append(test.p_values[8])
    for level in (0.1, 0.2):
        assert_rejection_rate(ninth, level)


def test_rank_deficient_views_count_by_rank():
    X, Y = planted_views(np.random.default_rng(5), 40, 3, 4, [0.7])
    redundant = np.column_stack([X, X @ [1.0, -2.0, 0.5], np.full(40, 0.1), X[:, 0] * 1e9])
    expected = permutation_test(X, Y, n_permutations=99, random_state=0)
    ours = permutation_test(redundant, Y, n_permutations=99, random_state=0)
    np.testing.assert_allclose(ours.correlations, expected.correlations, rtol=1e-10)
    np.testing.assert_array_equal(ours.p_values, expected.p_values)


def test_chunks_do_not_change_the_result(monkeypatch):
    X, Y = planted_views(np.random.default_rng(6), 30, 3, 4, [0.5])
    expected = permutation_test(X, Y, n_permutations=99, random_state=0)
    monkeypatch.setattr(checks, "_CHUNK_BYTES", 10_000)
    ours = permutation_test(X, Y, n_permutations=99, random_state=0)
    np.testing.assert_array_equal(ours.p_values, expected.p_values)


def test_roy_finds_a_single_weak_pair_better_than_wilks():
    rng = np.random.default_rng(7)
    p_values = {"roy": [], "wilks": []}
    for seed in range(40):
        X, Y = planted_views(rng, 60, 8, 8, [0.7])
        for statistic, values in p_values.items():
            test = permutation_test(
                X, Y, n_permutations=99, statistic=statistic, n_dimensions=1, random_state=seed
            )
            values.append(test.p_values[0])
    assert np.mean(p_values["roy"]) < np.mean(p_values["wilks"])


@settings(max_examples=30)
@given(seeds, st.integers(1, 4), st.integers(1, 4), st.sampled_from(["wilks", "roy"]))
def test_bounds_order_and_affine_invariance(seed, p, q, statistic):
    rng = np.random.default_rng(seed)
    X, Y = planted_views(rng, 20, p, q, [0.5])
    A = scipy.stats.ortho_group(p + 1, seed=rng).rvs()[:p, :p] + 2 * np.eye(p)
    options = {"n_permutations": 19, "statistic": statistic, "random_state": seed}
    test = permutation_test(X, Y, **options)
    mapped = permutation_test(X @ A * 1e3 - 7, Y * [-2.0] + 1, **options)
    assert ((test.p_values > 0) & (test.p_values <= 1)).all()
    assert (np.diff(test.p_values) >= 0).all()
    assert (test.p_values >= test.p_values_uncorrected).all()
    np.testing.assert_allclose(mapped.statistics, test.statistics, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(mapped.p_values, test.p_values)


@settings(max_examples=20)
@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_swapping_views(seed, p, extra):
    X, Y = planted_views(np.random.default_rng(seed), 20, p, p + extra, [0.5])
    test = permutation_test(X, Y, n_permutations=19, random_state=seed)
    swapped = permutation_test(Y, X, n_permutations=19, random_state=seed)
    np.testing.assert_array_equal(swapped.p_values, test.p_values)


@pytest.mark.parametrize(
    ("X", "y", "options", "message"),
    [
        (np.ones((4, 2, 2)), np.ones(4), {}, "X must have samples as rows"),
        (np.ones((4, 0)), np.ones(4), {}, "got shape (4, 0)"),
        ([1.0, np.nan, 2.0], [1.0, 2.0, 3.0], {}, "X must be finite but has 1 NaN"),
        ([1.0, 2.0], [np.inf, np.inf], {}, "y must be finite but has 2 NaN or infinite"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], {}, "X has 2 rows but y has 3; pass the same samples"),
        ([1.0], [1.0], {}, "At least 2 pairs are needed, got 1"),
        ([0.1] * 5, range(5), {}, "X must have at least one feature that varies"),
        (range(5), [0.0] * 5, {}, "y must have at least one feature that varies"),
        (np.eye(6), range(6), {}, "At least p + q + 1 = 7 samples are needed for views of"),
        (range(5), range(5), {"n_dimensions": 2}, "smaller rank of the views, 1, got 2"),
        (range(5), range(5), {"n_permutations": 0}, "at least 1, got 0"),
    ],
)
def test_errors(X, y, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        permutation_test(X, y, **options)


def test_unknown_statistic():
    with pytest.raises((ValueError, TypeError), match="pillai"):  # TypeError: type-checked runs
        permutation_test(range(5), range(5), statistic="pillai")
