import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dscca.stats import paired_t_test


def test_students_sleep_data():
    # Student (1908), hours of sleep gained with two drugs: t = 4.06, p = 0.0028.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    test = paired_t_test(second, first)
    assert test.mean_difference == pytest.approx(1.58)
    assert test.t_statistic == pytest.approx(4.0621, abs=5e-5)
    assert test.p_value == pytest.approx(0.002833, abs=5e-7)
    assert test.interval == pytest.approx((0.7001142, 2.4598858), abs=5e-8)
    assert (test.degrees_of_freedom, test.n_pairs, test.confidence) == (9, 10, 0.95)


def test_identical_differences():
    a = np.array([0.3, 0.5, 0.7])
    equal = paired_t_test(a, a)
    assert (equal.t_statistic, equal.p_value, equal.interval) == (0, 1, (0, 0))
    shifted = paired_t_test(a, a + 0.1)
    assert (shifted.t_statistic, shifted.p_value) == (-np.inf, 0)
    assert shifted.interval == pytest.approx((-0.1, -0.1))
    assert paired_t_test(a, a - 0.1).t_statistic == np.inf


@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1e200])
def test_extreme_scales(scale):
    test = paired_t_test(np.array([3.0, 5.0]) * scale, np.array([0.0, 1.0]) * scale)
    assert test.t_statistic == pytest.approx(7)
    assert test.mean_difference == pytest.approx(3.5 * scale)


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=2, max_size=20),
    st.floats(0.01, 0.99),
)
def test_never_nan_and_antisymmetric(pairs, confidence):
    a, b = np.array(pairs).T
    test = paired_t_test(a, b, confidence=confidence)
    swapped = paired_t_test(b, a, confidence=confidence)
    (low, high), rounding = test.interval, 1e-12 * (1 + np.abs(pairs).max())
    assert low - rounding <= test.mean_difference <= high + rounding
    assert 0 <= test.p_value <= 1
    assert swapped.t_statistic == pytest.approx(-test.t_statistic)
    assert swapped.interval == pytest.approx((-high, -low), abs=rounding)


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        ([1.0], [2.0], {}, "At least 2 pairs are needed, got 1"),
        ([1.0, 2.0], [2.0], {}, "a has 2 rows but b has 1"),
        ([1.0, np.nan], [2.0, 1.0], {}, "a must be finite"),
        (np.eye(3), np.eye(3), {}, "one score per pair, got shapes (3, 3) and (3, 3)"),
        ([1.0, 2.0], [2.0, 1.0], {"confidence": 95.0}, "between 0 and 1, got 95.0"),
    ],
)
def test_errors(a, b, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        paired_t_test(a, b, **options)
