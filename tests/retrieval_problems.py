"""Indexes for tests, and search by other means than the package's."""

import numpy as np
import pytest

from dscca import CrossModalIndex, LinearCCA
from problems import paired

WIDTH = 4
LOCAL = {
    "exact": {"backend": "exact", "device": "cpu"},
    "flat": {"backend": "faiss", "kind": "flat"},
    "ivf": {"backend": "faiss", "kind": "ivf", "probes": 10_000},
    "hnsw": {"backend": "faiss", "kind": "hnsw", "ef_search": 500},
}
"""Back ends with parameters that make them exact at the sizes of these tests."""

KINDS = [*LOCAL, "milvus"]


def fitted():
    """A model of two views of 6 and 5 features, and those views."""
    X, y = paired(p=6, q=5, shared=4)
    return LinearCCA(WIDTH, reg=0.1, device="cpu").fit(X, y), X, y


def make_index(kind, folder, model=None):
    """An empty index; a test is skipped where the back end's package is missing."""
    options = LOCAL.get(kind) or {"backend": "milvus", "uri": str(folder / "milvus.db")}
    if options["backend"] != "exact":
        extra = options["backend"]
        pytest.importorskip(
            {"faiss": "faiss", "milvus": "milvus_lite"}[extra], reason=f"needs dscca[{extra}]"
        )
    return CrossModalIndex(model or fitted()[0], **options)


def brute_force(queries, items, k):
    """Rows of the k items of largest cosine for every query, by sorting all of them in float64."""
    q = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    t = items / np.linalg.norm(items, axis=1, keepdims=True)
    scores = q @ t.T
    rows = np.argsort(-scores, axis=1)[:, :k]
    return rows, np.take_along_axis(scores, rows, axis=1)


def ids_of(found):
    return [[hit.id for hit in one] for one in found]


def manifold(n, seed=0, latent=32, width=128, noise=0.5):
    """Points near a low-dimensional space, as representations are."""
    rng = np.random.default_rng(seed)
    plane = np.random.default_rng(1).normal(size=(latent, width))
    return rng.normal(size=(n, latent)) @ plane + noise * rng.normal(size=(n, width))
