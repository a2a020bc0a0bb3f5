import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dscca.metrics import canonical_correlations, total_correlation


@given(
    n=st.integers(3, 50),
    k=st.integers(1, 5),
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([1e-150, 1.0, 1e150]),
)
def test_equals_pearson(n, k, seed, scale):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n, k))
    expected = [np.corrcoef(x[:, i], y[:, i])[0, 1] for i in range(k)]
    np.testing.assert_allclose(canonical_correlations(x * scale, y), expected, atol=1e-10)
    assert total_correlation(x, y * scale) == pytest.approx(sum(expected), abs=1e-9)


def test_constant_variates_carry_no_correlation():
    x = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 7.0]])
    np.testing.assert_array_equal(canonical_correlations(x, x), [0, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [7, 10, 100])
def test_constants_whose_mean_is_rounded_carry_no_correlation(n, dtype):
    x = np.full((n, 1), 0.1, dtype=dtype)
    np.testing.assert_array_equal(canonical_correlations(x, 3 * x), 0)
    noise = np.random.default_rng(n).normal(size=(n, 1))
    np.testing.assert_array_equal(canonical_correlations(x, noise), 0)
    small = 1e6 + noise  # far from zero, but resolved
    np.testing.assert_allclose(canonical_correlations(small, noise), 1)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.ones((3, 2)), np.ones((4, 2)), r"\(3, 2\) and \(4, 2\)"),
        (np.ones(3), np.ones(3), "same shape"),
        (np.ones((1, 2)), np.ones((1, 2)), "at least 2 samples, got 1"),
        (np.full((3, 1), np.nan), np.ones((3, 1)), "NaN"),
    ],
)
def test_bad_variates(x, y, message):
    with pytest.raises(ValueError, match=message):
        canonical_correlations(x, y)
