"""The index: search against sorting everything, additions and removals, impossible requests."""

import threading

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dscca
from dscca import CrossModalIndex, LinearCCA
from dscca.retrieval import Hit, exact_backend
from problems import paired
from retrieval_problems import KINDS, LOCAL, brute_force, fitted, ids_of, make_index, manifold


@pytest.fixture
def index(request, tmp_path):
    """An index of 300 items of either view, with ids by which their rows are known."""
    model, X, y = fitted()
    with make_index(getattr(request, "param", "exact"), tmp_path, model) as made:
        made.add(X, range(300), view="x", metadata=[{"row": row} for row in range(300)])
        made.add(y, [f"caption {row}" for row in range(300)], view="y")
        yield made


every_backend = pytest.mark.parametrize("index", KINDS, indirect=True)


@every_backend
def test_search_equals_brute_force(index):
    model, X, y = fitted()
    x_variates, y_variates = model.embed(X, y)
    rows, scores = brute_force(x_variates[:50], y_variates, 10)
    found = index.search(X[:50], 10, view="x")
    assert ids_of(found) == [[f"caption {row}" for row in one] for one in rows]
    np.testing.assert_allclose([[hit.score for hit in one] for one in found], scores, atol=1e-6)
    _, scores = brute_force(y_variates[:50], x_variates, 300)
    found = index.search(y[:50], 300, view="y")
    assert all(sorted(one) == list(range(300)) for one in ids_of(found))
    np.testing.assert_allclose([[hit.score for hit in one] for one in found], scores, atol=1e-6)
    assert all(hit.metadata == {"row": hit.id} for one in found for hit in one)


@every_backend
def test_one_query_is_a_batch_of_one(index):
    _, X, _ = fitted()
    one = index.search(X[3], 2, view="x")
    assert one == index.search(X[3:4], 2, view="x")[0]
    assert one == index.search_id(3, 2, view="x")
    assert one == index.search_variates(index.model.embed(X[3:4])[0], 2, among="y")
    assert isinstance(one[0], Hit)


@every_backend
def test_search_among_the_same_view(index):
    model, X, _ = fitted()
    variates = model.embed(X)
    rows, _ = brute_force(variates[:1], variates, 4)
    assert rows[0, 0] == 0
    assert [hit.id for hit in index.search(X[0], 4, view="x", among="x")] == rows[0].tolist()
    found = index.search_id(0, 3, view="x", among="x")
    assert [hit.id for hit in found] == rows[0, 1:].tolist()


@every_backend
def test_additions_and_removals_leave_the_others_found(index):
    """A random history ends in the same answers as an index built from what is left."""
    model, X, y = fitted()
    rng = np.random.default_rng(0)
    held = {f"caption {row}": y[row] for row in range(300)}
    for turn in range(6):
        gone = rng.choice(sorted(held), size=len(held) // 2, replace=False)
        index.remove(gone, view="y")
        for name in gone:
            del held[name]
        more = rng.normal(size=(20, 5))
        names = [f"new {turn} {row}" for row in range(20)]
        index.add(more, names, view="y")
        held |= dict(zip(names, more, strict=True))
        assert index.size("y") == len(held)
        assert index.contains([gone[0], names[0]], view="y") == [False, True]
        rows, _ = brute_force(model.embed(X[:9]), model.embed_y(list(held.values())), 10)
        names = list(held)
        assert ids_of(index.search(X[:9], 10, view="x")) == [
            [names[row] for row in one] for one in rows
        ]
    index.remove(list(held), view="y")
    assert index.size("y") == 0
    index.add(y[:2], ["a", "b"], view="y")
    assert sorted(hit.id for hit in index.search(X[0], 2, view="x")) == ["a", "b"]


IMPOSSIBLE = [
    (lambda i, x: i.add(x[:2], ["a", "a"], view="y"), "1 of 2 ids are given more than once"),
    (lambda i, x: i.add(x[:2], ["a", "caption 7"], view="y"), "already.*the first being 'capt"),
    (lambda i, x: i.add(x[:2], ["a"], view="y"), "2 items came with 1 ids"),
    (lambda i, x: i.add(x[:1], ["a"], view="y", metadata=[1, 2]), "1 ids and 2 metadata"),
    (lambda i, x: i.add(x[:1], ["a"], view="y", metadata=[{1j}]), "item 0 cannot be written"),
    (lambda i, x: i.add(x[:1], ["a"], view="y", metadata=[np.nan]), "cannot be written as J"),
    (lambda i, x: i.add(x[:1, :3], ["a"], view="y"), "y has 3 features.*expecting 5"),
    (lambda i, x: i.add(x[:1] * np.nan, ["a"], view="y"), "NaN"),
    (lambda i, x: i.add_variates(x[:1] * np.nan, ["a"], view="y"), "4 columns"),
    (lambda i, x: i.add_variates([[1, np.nan, 1, 1]], ["a"], view="y"), "NaN or infinity"),
    (lambda i, x: i.add(x[:1], [1.5], view="y"), "text or whole numbers, got 1.5"),
    (lambda i, x: i.add(x[:1], [True], view="y"), "text or whole numbers, got True"),
    (lambda i, x: i.add(x[:1], "a", view="y"), "sequence of ids"),
    (lambda i, x: i.add(x[:1], ["a"], view="z"), "view='z' is unknown"),
    (lambda i, x: i.remove(["a", "caption 1"], view="y"), "1 of 2 ids are not in the index"),
    (lambda i, x: i.remove(["caption 1"] * 2, view="y"), "more than once"),
    (lambda i, x: i.search(x, 301, view="y"), "k=301 is above the 300 items of view x"),
    (lambda i, x: i.search(x, 0, view="y"), "k=0 must be"),
    (lambda i, x: i.search(x[:, :4], 1, view="y"), "4 features"),
    (lambda i, x: i.search(x[0, :4], 1, view="y"), "4 features"),
    (lambda i, x: i.search(x, 1, view="z"), "view='z'"),
    (lambda i, x: i.search_variates(x, 1, among="y"), r"4 columns.*got shape \(300, 5\)"),
    (lambda i, x: i.search_id("caption", view="y"), "'caption'"),
    (lambda i, x: i.search_id(0, 300, view="x", among="x"), "above the 299 other items"),
]


@every_backend
def test_impossible_requests_change_nothing(index):
    _, X, y = fitted()
    before = index.search(X[:20], 5, view="x")
    for call, message in IMPOSSIBLE:
        with pytest.raises((ValueError, TypeError), match=message):
            call(index, y)
    assert (index.size("x"), index.size("y")) == (300, 300)
    assert index.search(X[:20], 5, view="x") == before


def test_ids_and_metadata_of_every_kind(tmp_path):
    model, X, _ = fitted()
    ids = [0, "0", -1, 2**80, "", "[bold]", "a'b\"c\\", "../../etc", "\n\x1b[31m", "é🙂", "x" * 999]
    more = [None, True, 1.5, 2**80, "[red]", [1, [2]], {"a": {"b": []}}, "\x00", "é", {}, 1e300]
    for kind in ("exact", "hnsw", "milvus"):
        with make_index(kind, tmp_path / kind, model) as index:
            index.add(X[: len(ids)], ids, view="x", metadata=more)
            found = {hit.id: hit.metadata for hit in index.search_id("0", 10, view="x", among="x")}
            assert found == {i: m for i, m in zip(ids, more, strict=True) if i != "0"}
            index.remove(["a'b\"c\\", 0], view="x")
            assert index.contains([0, "0", "a'b\"c\\"], view="x") == [False, True, False]


def test_an_empty_index(tmp_path):
    _, X, y = fitted()
    for kind in KINDS:
        with make_index(kind, tmp_path / kind) as index:
            with pytest.raises(ValueError, match="holds no items of view y: add some first"):
                index.search(X[0], 1, view="x")
            index.add_variates(np.empty((0, 4)), [], view="y").remove([], view="y")
            assert index.size("y") == 0
            index.add(y, range(300), view="y")
            assert len(index.search(X[0], 300, view="x")) == 300


@given(
    n_items=st.integers(1, 700),
    n_queries=st.integers(1, 9),
    k=st.integers(1, 5),
    block=st.sampled_from([1, 300, 2**20]),
)
def test_largest_products_block_by_block(n_items, n_queries, k, block):
    """Many equal scores; the k largest are those of torch.sort, each with an item that has it."""
    rng = np.random.default_rng(n_items)
    items = torch.tensor(rng.integers(-3, 4, size=(n_items, 3)), dtype=torch.float32)
    queries = torch.tensor(rng.integers(-3, 4, size=(n_queries, 3)), dtype=torch.float32)
    k = min(k, n_items)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_backend, "_BLOCK_SCORES", block)
        patch.setattr(exact_backend, "_QUERY_ROWS", 4)
        scores, rows = exact_backend.nearest(queries, items, k)
    product = queries @ items.T
    torch.testing.assert_close(scores, product.sort(descending=True).values[:, :k])
    torch.testing.assert_close(product.gather(1, rows), scores)
    assert all(len(set(found.tolist())) == k for found in rows)


def test_equal_scores_come_in_the_order_of_addition():
    model, X, _ = fitted()
    index = CrossModalIndex(model).add(X[[0] * 5], list("edcba"), view="x")
    assert [hit.id for hit in index.search(X[0], 5, view="x", among="x")] == list("edcba")


@pytest.mark.parametrize("kind", [torch.tensor, pd.DataFrame, np.ndarray.tolist])
def test_queries_of_every_kind(index, kind):
    _, X, _ = fitted()
    expected = index.search(X[:3], 4, view="x")
    assert index.search(kind(X[:3]), 4, view="x") == expected
    one = index.search(kind(X)[0] if kind is not pd.DataFrame else kind(X).iloc[0], 4, view="x")
    assert [hit.id for hit in one] == [hit.id for hit in expected[0]]


def test_models_that_return_frames(index):
    _, X, _ = fitted()
    expected = index.search(X[:3], 4, view="x")
    index.model.set_output(transform="pandas")
    assert index.search(X[:3], 4, view="x") == expected


def test_zero_variates_have_the_cosine_zero(index):
    index.add_variates(np.zeros((1, 4)), ["nothing"], view="y")
    found = {hit.id: hit.score for hit in index.search(fitted()[1][0], 301, view="x")}
    assert found["nothing"] == 0
    assert min(found.values()) < 0 < max(found.values())


@pytest.mark.parametrize("index", [*LOCAL], indirect=True)
def test_threads_search_side_by_side(index):
    _, X, _ = fitted()
    expected = index.search(X, 5, view="x")
    answers = []

    def look():
        for _ in range(5):
            answers.append(index.search(X, 5, view="x") == expected)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [True] * 20


def test_approximate_search_finds_most_and_never_too_few():
    """The graph and the lists at their defaults, on points near a low-dimensional space."""
    pytest.importorskip("faiss", reason="needs dscca[faiss]")
    X = manifold(400, seed=5)
    model = LinearCCA(128, reg=0.1, device="cpu").fit(X, X)
    items, queries = manifold(20_000), manifold(200, seed=2)
    exact = CrossModalIndex(model).add_variates(items, range(20_000), view="y")
    expected = ids_of(exact.search_variates(queries, 10, among="y"))
    for kind in ("hnsw", "ivf"):
        index = CrossModalIndex(model, backend="faiss", kind=kind)
        index.add_variates(items[:5000], range(5000), view="y")
        index.add_variates(items[5000:], range(5000, 20_000), view="y")
        found = ids_of(index.search_variates(queries, 10, among="y"))
        recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, expected, strict=True)])
        assert recall >= 0.95
        assert all(
            len(hits) == 15_000 for hits in index.search_variates(queries[:2], 15_000, among="y")
        )
        index.remove(range(0, 20_000, 3), view="y")
        found = index.search_variates(queries, 10, among="y")
        assert all(len(hits) == 10 and all(hit.id % 3 for hit in hits) for hits in found)


def test_milvus_returns_the_ids_of_exact_search(tmp_path):
    """10,000 items through the embedded engine."""
    X, y = paired(n=500, p=40, q=30, shared=20)
    model = LinearCCA(20, reg=0.1, device="cpu").fit(X, y)
    _, items = paired(n=10_000, p=40, q=30, shared=20, seed=1)
    exact = CrossModalIndex(model).add(items, range(10_000), view="y")
    with make_index("milvus", tmp_path, model) as index:
        index.add(items, range(10_000), view="y")
        found, expected = (i.search(X[:100], 10, view="x") for i in (index, exact))
        assert ids_of(found) == ids_of(expected)
        assert index.size("y") == 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "magic"}, "'magic' is unknown: use exact, faiss, milvus"),
        ({"kind": "hnsw"}, "exact back end has no option kind; it has device"),
        ({"device": "abacus"}, "no device"),
        ({"backend": "faiss", "kind": "magic"}, "kind='magic' is unknown"),
        ({"backend": "faiss", "links": 1}, "links=1 must be a whole number of at least 2"),
        ({"backend": "faiss", "probes": 0}, "probes=0 must be"),
        ({"backend": "milvus", "uri": "items.txt"}, "neither a path ending in .db nor a URL"),
        ({"backend": "milvus", "uri": "a.db", "collection": "a b"}, "letters, digits"),
        ({"backend": "milvus", "uri": "http://me:secret@host"}, "the URL .* token="),
    ],
)
def test_impossible_back_ends(options, message):
    if options.get("backend") in ("faiss", "milvus"):
        pytest.importorskip({"faiss": "faiss", "milvus": "pymilvus"}[options["backend"]])
    with pytest.raises(ValueError, match=message):
        CrossModalIndex(fitted()[0], **options)


@pytest.mark.parametrize(("backend", "module"), [("faiss", "faiss"), ("milvus", "pymilvus")])
def test_a_missing_extra_is_named(monkeypatch, backend, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    options = {"uri": "a.db"} if backend == "milvus" else {}
    with pytest.raises(ImportError, match=rf'pip install "dscca\[{backend}\]"'):
        CrossModalIndex(fitted()[0], backend=backend, **options)


def test_an_unfitted_model_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        CrossModalIndex(dscca.LinearCCA(2))
