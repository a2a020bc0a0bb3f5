"""The search for neighbours against scikit-learn's."""

import sys

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from dscca import NCCA
from dscca.neighbors import nearest, nearest_approximately
from problems import paired


def points(n, a=3, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(n, a)) / np.sqrt(a))


def by_scikit_learn(queries, among, k):
    search = NearestNeighbors(n_neighbors=k, algorithm="kd_tree").fit(among.numpy())
    distances, indices = search.kneighbors(queries.numpy())
    return indices, distances**2


# 5,000 and 3,000 are searched in two rounds; 3,001 leaves points outside the groups.
@pytest.mark.parametrize(("n", "k"), [(40, 40), (200, 7), (3001, 20), (5000, 1)])
def test_neighbours_of_new_points(n, k):
    queries, among = points(500, seed=1), points(n)
    indices, offsets = nearest(queries, among, k)
    expected, distances = by_scikit_learn(queries, among, k)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(offsets, distances - distances[:, :1], atol=1e-11)


@pytest.mark.parametrize("n", [200, 3000])
def test_neighbours_among_the_points_themselves(n):
    among = points(n)
    indices, offsets = nearest(among, among, 9, first=0)
    expected, distances = by_scikit_learn(among, among, 9)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(offsets, distances, atol=1e-11)


def test_a_part_of_the_points_may_be_asked_for():
    among = points(300)
    whole = nearest(among, among, 5, first=0)
    part = nearest(among[100:130], among, 5, first=100)
    for ours, expected in zip(part, whole, strict=True):
        torch.testing.assert_close(ours, expected[100:130], rtol=0, atol=0)


def test_among_duplicates_each_point_is_its_own_neighbour():
    among = points(10).repeat(30, 1)
    indices, offsets = nearest(among, among, 4, first=0)
    np.testing.assert_array_equal(indices[:, 0], np.arange(300))
    assert offsets.max() < 1e-11
    assert (indices % 10 == torch.arange(300)[:, None] % 10).all()


def test_results_do_not_depend_on_what_else_is_searched():
    # A lattice is full of equal distances, whose order rounding would otherwise decide.
    side = torch.linspace(-1, 1, 15, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.from_numpy(np.random.default_rng(0).normal(size=(3, 3))))[0]
    among = torch.cartesian_prod(side, side, side) @ rotation
    whole = nearest(among, among, 10)
    for i in range(0, len(among), 100):
        alone = nearest(among[i : i + 1], among, 10)
        np.testing.assert_array_equal(alone[0], whole[0][i : i + 1])
        np.testing.assert_allclose(alone[1], whole[1][i : i + 1], atol=1e-11)


def test_queries_far_away_keep_their_weights():
    among = points(100)
    far = torch.tensor([[1e8, 0.0, 0.0]], dtype=torch.float64)
    indices, offsets = nearest(far, among, 3)
    order = np.argsort(-among[:, 0].numpy())[:3]
    np.testing.assert_array_equal(indices[0], order)
    expected = 2e8 * (among[order[0], 0] - among[order, 0])
    np.testing.assert_allclose(offsets[0], expected, rtol=1e-6, atol=10)


class TestApproximate:
    @pytest.fixture(autouse=True)
    def _needs_faiss(self):
        pytest.importorskip("faiss")

    def test_finds_nearly_all_neighbours_with_exact_distances(self):
        among = points(20_000, a=10)
        found, offsets = nearest_approximately(among, 10, seed=0)
        exact, _ = nearest(among, among, 10, first=0)
        shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
        assert np.mean(shared) / 10 > 0.95
        np.testing.assert_array_equal(found[:, 0], np.arange(20_000))
        differences = among[found] - among[:, None]
        np.testing.assert_allclose(offsets, (differences**2).sum(dim=2), atol=1e-12)
        assert (offsets.diff(dim=1) >= 0).all()

    def test_is_reproducible(self):
        among = points(3000)
        first = nearest_approximately(among, 5, seed=3)[0]
        np.testing.assert_array_equal(first, nearest_approximately(among, 5, seed=3)[0])

    def test_copes_with_duplicates_and_few_points(self):
        among = points(30).repeat(20, 1)
        found, offsets = nearest_approximately(among, 30, seed=0)
        np.testing.assert_array_equal(found[:, 0], np.arange(600))
        assert not offsets[:, :20].any()
        assert (found >= 0).all()
        found, _ = nearest_approximately(points(12), 12, seed=0)
        np.testing.assert_array_equal(found.sort(dim=1)[0], np.tile(np.arange(12), (12, 1)))

    def test_gives_about_the_same_model(self):
        X, y = paired(n=3000, p=4, q=3)
        parameters = {"head_reg": 1e-6, "random_state": 0, "n_neighbors": 15}
        exact = NCCA(**parameters).fit(X, y)
        approximate = NCCA(**parameters, neighbors="approximate").fit(X, y)
        assert approximate.score(X, y) == pytest.approx(exact.score(X, y), abs=0.02)


def test_without_faiss_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r'pip install "dscca\[faiss\]"'):
        NCCA(n_neighbors=5, head_reg=0.1, neighbors="approximate").fit(*paired(n=50))
