"""Synthetic views against the mathematics of their population."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import eval_hermitenorm, factorial

from dscca import DCCA, DSDCCA, LinearCCA
from dscca.datasets import load, load_splits
from dscca.datasets.synthetic import mehler_spectrum, normal, uniform
from problems import generalized_eigen_correlations

BIG = (60_000, 10, 10)


def test_linear():
    data = load("synthetic-linear", sizes=BIG)
    known = data.population_correlations["linear"]
    np.testing.assert_allclose(known[:6], [0.95, 0.9, 0.8, 0.7, 0.5, 0])
    found = generalized_eigen_correlations(data.x, data.y)
    # The standard error of a correlation is (1 - rho^2) / sqrt(n), some 0.004 at most.
    np.testing.assert_allclose(found[:5], known[:5], atol=0.015)
    assert found[5] < 0.04
    assert len(known) == 15


@given(st.lists(st.floats(0.1, 0.95), min_size=1, max_size=3))
def test_mehler_spectrum(rho):
    """All products with exponents up to 11, the slow way."""
    products = [
        np.prod(np.power(rho, powers))
        for powers in itertools.product(range(12), repeat=len(rho))
        if any(powers)
    ]
    found = mehler_spectrum(rho, 10)
    assert (np.diff(found) <= 0).all()
    wanted = np.sort(products)[::-1][:10]
    # A tail of high powers that the slow way leaves out can only add to what it finds.
    assert (found >= np.pad(wanted, (0, 10 - len(wanted))) - 1e-12).all()
    kept = found[found > max(rho) ** 12]
    np.testing.assert_allclose(kept, wanted[: len(kept)], rtol=1e-9)


def test_mehler_by_hermite_polynomials():
    """Orthonormal polynomials of a Gaussian pair have the products as canonical correlations."""
    rho = np.array([0.9, 0.6])
    u = normal((200_000, 2), 1)
    v = rho * u + np.sqrt(1 - rho**2) * normal((200_000, 2), 2)
    powers = [p for p in itertools.product(range(5), repeat=2) if 0 < sum(p) <= 4]

    def features(z):
        columns = []
        for p in powers:
            values = [eval_hermitenorm(k, z[:, i]) / np.sqrt(factorial(k)) for i, k in enumerate(p)]
            columns.append(np.prod(values, axis=0))
        return np.stack(columns, 1)

    found = generalized_eigen_correlations(features(u), features(v))
    np.testing.assert_allclose(found[:5], mehler_spectrum(rho, 5), atol=0.02)


def test_mehler_of_nothing():
    assert mehler_spectrum([0.0, 0.0], 3).tolist() == [0, 0, 0]
    assert mehler_spectrum([-0.5], 3).tolist() == [0.5, 0.25, 0.125]


def test_nonlinear_hides_what_is_there():
    data = load("synthetic-nonlinear", sizes=BIG)
    known = data.population_correlations["nonlinear"]
    np.testing.assert_allclose(known[:4], [0.95, 0.95**2, 0.9, 0.95**3])
    assert generalized_eigen_correlations(data.x, data.y)[:5].sum() < known[:5].sum() - 0.5


def test_nonlinear_in_one_dimension():
    """A monotone map keeps ranks, so Spearman's correlation is the Gaussian's: 6/pi asin(rho/2)."""
    data = load("synthetic-nonlinear", correlations=(0.8,), widths=(1, 1), sizes=(40_000, 5, 5))
    spearman = abs(stats.spearmanr(data.x[:, 0], data.y[:, 0]).statistic)
    assert spearman == pytest.approx(6 / np.pi * np.arcsin(0.4), abs=0.01)
    assert stats.skew(data.x[:, 0]) != pytest.approx(0, abs=0.5)


def test_classes():
    data = load("synthetic-classes", sizes=BIG)
    found = generalized_eigen_correlations(data.x, data.y)
    known = data.population_correlations
    np.testing.assert_allclose(found[:8], known["linear"][:8], atol=0.02)
    np.testing.assert_allclose(known["nonlinear"][:8], [1, 1, 1, 0.95, 0.95, 0.95, 0.95, 0.95**2])
    # Within a class the maps are linear, and all of the correlations are there.
    for c in range(4):
        rows = data.labels == c
        within = generalized_eigen_correlations(data.x[rows, :5], data.y[rows, :5])
        np.testing.assert_allclose(within, [0.95, 0.9, 0.8, 0.7, 0.5], atol=0.03)


def test_dynamic_scaling_finds_the_classes():
    data = load_splits("synthetic-classes", sizes=(6000, 1000, 2000))
    shared = {"n_components": 10, "hidden": (48,), "epochs": 25, "batch_size": 500}
    scores = {}
    for name, model in {
        "plain": DCCA(**shared, random_state=0),
        "scaled": DSDCCA(**shared, scale_hidden=(32,), warmup=5, random_state=0),
    }.items():
        model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
        scores[name] = model.score(data.X_test, data.y_test)
    known = data.train.population_correlations
    assert known["linear"][:10].sum() + 2 < scores["plain"]
    # Held-out correlations may pass the population's by their standard error only.
    assert scores["plain"] + 0.2 < scores["scaled"] < known["nonlinear"][:10].sum() + 0.05


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_each_view_shows_the_class(n_classes):
    data = load("synthetic-classes", n_classes=n_classes, sizes=(3000, 10, 10))
    for view in (data.x[:, 5:], data.y[:, 5:]):
        means = np.stack([view[data.labels == c].mean(0) for c in range(n_classes)])
        nearest = np.abs(view[:, None] - means).max(2).argmin(1)
        assert np.array_equal(nearest, data.labels)


@pytest.mark.parametrize("kind", ["linear", "nonlinear", "classes"])
def test_parts_share_a_population(kind):
    splits = load_splits(f"synthetic-{kind}", sizes=(3000, 500, 3000))
    assert [len(splits[part]) for part in ("train", "val", "test")] == [3000, 500, 3000]
    again = load_splits(f"synthetic-{kind}", sizes=(3000, 500, 3000))
    assert np.array_equal(splits.test.x, again.test.x)
    other = load(f"synthetic-{kind}", seed=1, sizes=(3000, 500, 3000))
    assert not np.array_equal(splits.train.x, other.x)
    model = LinearCCA(n_components=5, reg=1e-3).fit(splits.X_train, splits.y_train)
    gap = model.score(splits.X_train, splits.y_train) - model.score(splits.X_test, splits.y_test)
    assert abs(gap) < 0.3


def test_draws_are_uniform_and_normal():
    assert stats.kstest(uniform((20_000,), 5), "uniform").pvalue > 1e-4
    assert stats.kstest(normal((20_000,), 6), "norm").pvalue > 1e-4
    assert uniform((3, 4), 7).shape == (3, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"correlations": (1.0,)}, r"must be in \[0, 1\)"),
        ({"correlations": (-0.1,)}, r"must be in \[0, 1\)"),
        ({"correlations": ()}, "give between 1 and the narrower view's 15"),
        ({"correlations": (0.5,) * 16}, "16 correlations"),
        ({"fold": 0}, "no folds"),
    ],
)
def test_impossible_requests(options, message):
    with pytest.raises(ValueError, match=message):
        load("synthetic-linear", **options)
    if "correlations" not in options:
        with pytest.raises(ValueError, match="there must be 2 at least"):
            load("synthetic-classes", n_classes=1)
