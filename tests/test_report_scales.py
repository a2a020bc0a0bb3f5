"""Coordinates of scales: they lie as the scales themselves do."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.datasets import make_blobs
from sklearn.neighbors import NearestNeighbors

from dscca import DCCA, DSDCCA, DSRankingCCA
from dscca.report import embed_scales
from report_problems import cloud

X, Y = cloud(400)
SMALL = {
    "hidden": (12,),
    "scale_hidden": (6,),
    "epochs": 4,
    "batch_size": 100,
    "random_state": 0,
    "device": "cpu",
}


@pytest.mark.parametrize(
    "options",
    [
        {"warmup": 1},
        {"warmup": 1, "context": "zx", "scale_hidden": (9, 5)},
        {"warmup": 1, "scaling": "outputs"},
        {"warmup": 0, "scaling": "hypernetwork"},
    ],
)
def test_distances_are_those_of_the_scales(options):
    model = DSDCCA(3, **{**SMALL, **options}).fit(X, Y)
    assert model.best_epoch_ > options["warmup"]
    for scales, coordinates in (
        (model.scales(X[:60]), model.scale_coordinates(X[:60])),
        (model.scales_y(Y[:60]), model.scale_coordinates_y(Y[:60])),
    ):
        expected = pdist(scales.astype(np.float64))
        assert expected.max() > 0.01
        np.testing.assert_allclose(pdist(coordinates), expected, atol=1e-4 * expected.max())
        assert coordinates.shape[1] <= 6


def test_ranking_models_have_them_too():
    model = DSRankingCCA(2, **SMALL, warmup=0).fit(X, Y)
    scales = model.scales(X[:40]).astype(np.float64)
    found = pdist(model.scale_coordinates(X[:40]))
    np.testing.assert_allclose(found, pdist(scales), atol=1e-4 * pdist(scales).max())


def test_constant_scales_are_one_point():
    model = DSDCCA(2, **SMALL, warmup=1, scaling="global").fit(X, Y)
    assert np.ptp(model.scales(X[:9]), axis=0).max() == 0
    np.testing.assert_array_equal(model.scale_coordinates(X[:9]), np.zeros((9, 1)))


def test_models_without_scales_have_no_coordinates():
    assert not hasattr(DCCA(2), "scale_coordinates")


def test_the_embedding_keeps_groups_apart():
    points, groups = make_blobs(150, 8, centers=3, random_state=0)
    embedding = embed_scales(points)
    assert embedding.shape == (150, 2)
    neighbors = NearestNeighbors(n_neighbors=6).fit(embedding).kneighbors()[1]
    assert (groups[neighbors] == groups[:, None]).mean() > 0.95
    np.testing.assert_array_equal(embedding, embed_scales(points))


def test_too_few_samples_are_not_embedded():
    with pytest.raises(ValueError, match="at least 4 samples, got 3"):
        embed_scales(np.eye(3))
