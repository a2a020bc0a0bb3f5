"""Ranks against a literal sort of every query's exact scores, on inputs with many ties."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from dscca.metrics import (
    evaluate_retrieval,
    mean_reciprocal_rank,
    median_rank,
    recall_at,
    retrieval_ranks,
)
from dscca.metrics import recall as module


def exact_score(query, item, score):
    """A number that orders items as the score does, free of rounding: the signed square."""
    dot = sum(int(a) * int(b) for a, b in zip(query, item, strict=True))
    if score == "dot":
        return Fraction(dot)
    norm = sum(int(b) ** 2 for b in item)
    return Fraction(dot * abs(dot), norm) if norm else Fraction(0)


def rank_by_sorting(query, items, matching, score):
    """Sort all items, the best first and matching ones last among equals; find the first match."""
    ordered = sorted(
        (-exact_score(query, item, score), bool(match))
        for item, match in zip(items, matching, strict=True)
    )
    return 1 + [match for _, match in ordered].index(True)


@st.composite
def retrievals(draw):
    """Small whole numbers: ties, parallel, opposite and zero vectors abound; groups overlap."""
    width = draw(st.integers(1, 4))
    n_queries, n_items = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    values = st.integers(-2, 2)
    queries = draw(npst.arrays(np.int64, (n_queries, width), elements=values))
    items = draw(npst.arrays(np.int64, (n_items, width), elements=values))
    item_groups = draw(npst.arrays(np.int64, n_items, elements=st.integers(-1, 3)))
    query_groups = np.array(
        draw(st.lists(st.sampled_from(sorted(set(item_groups))), min_size=n_queries))[:n_queries]
    )
    return queries, items, query_groups, item_groups


@settings(max_examples=300)
@given(retrievals(), st.sampled_from(["cosine", "dot"]), st.sampled_from([1, 7, 2**22]))
def test_ranks_are_those_of_a_literal_sort(problem, score, block):
    queries, items, query_groups, item_groups = problem
    expected = [
        rank_by_sorting(query, items, item_groups == group, score)
        for query, group in zip(queries, query_groups, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_SCORES", block)
        patch.setattr(module, "_QUERY_ROWS", min(block, 3))
        ranks = retrieval_ranks(
            queries, items, query_groups=query_groups, item_groups=item_groups, score=score
        )
    np.testing.assert_array_equal(ranks, expected)


@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-160, 1.0, 1e160]))
def test_equal_items_are_tied_whatever_their_length_and_place(seed, scale):
    """Multiples of one vector round differently when scaled to norm one."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=37)
    items = direction * rng.uniform(0.1, 10, size=(101, 1)) * scale
    ranks = retrieval_ranks(rng.normal(size=(101, 37)), items)
    np.testing.assert_array_equal(ranks, 101)


def test_constant_representations_earn_nothing():
    ones = np.ones((20, 3))
    assert (retrieval_ranks(ones, ones) == 20).all()
    assert (retrieval_ranks(0 * ones, np.eye(20, 3)) == 20).all()


def test_five_captions_per_image():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(40, 8))
    captions = np.repeat(images, 5, axis=0) + 1.5 * rng.normal(size=(200, 8))
    owner = np.repeat(np.arange(40), 5)
    shuffled = rng.permutation(200)
    table = evaluate_retrieval(images, captions[shuffled], y_groups=owner[shuffled])
    s = images @ captions.T
    s /= np.linalg.norm(images, axis=1)[:, None] * np.linalg.norm(captions, axis=1)
    best = np.array([np.flatnonzero(owner[np.argsort(-row)] == i)[0] for i, row in enumerate(s)])
    back = np.array([np.flatnonzero(np.argsort(-s[:, j]) == owner[j])[0] for j in range(200)])
    for direction, places, n_items in (("x to y", best, 200), ("y to x", back, 40)):
        row = table.loc[direction]
        for k in (1, 5, 10):
            assert row[f"R@{k}"] == pytest.approx((places < k).mean())
        assert row["median rank"] == np.median(places + 1)
        assert row["MRR"] == pytest.approx(np.mean(1 / (places + 1)))
        assert (row["queries"], row["items"]) == (len(places), n_items)


@pytest.mark.parametrize(
    "kind",
    [
        torch.tensor,
        pd.DataFrame,
        lambda v: torch.tensor(v).bfloat16(),
        lambda v: v.astype(">f4"),
        lambda v: v[::-1].copy()[::-1],
        np.ndarray.tolist,
    ],
)
def test_views_of_every_kind(kind):
    x = np.random.default_rng(1).integers(-3, 4, size=(30, 4)).astype(np.float64)
    y = np.random.default_rng(2).integers(-3, 4, size=(30, 4)).astype(np.float64)
    np.testing.assert_array_equal(retrieval_ranks(kind(x), kind(y)), retrieval_ranks(x, y))


LARGE = """
import resource
import numpy as np
from dscca.metrics import retrieval_ranks
x = np.random.default_rng(0).normal(size=({n}, 4)).astype(np.float32)
retrieval_ranks(x[:10], x[:10])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert (retrieval_ranks(x, x, device="cpu") == 1).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in KB on Linux")
def test_the_score_matrix_is_never_held():
    """20,000 x 20,000 scores would take 3.2 GB in float64; a process of its own needs 0.3."""
    out = subprocess.run(
        [sys.executable, "-c", LARGE.format(n=20_000)], capture_output=True, text=True, check=True
    )
    assert int(out.stdout) < 300_000


def test_summaries_of_ranks():
    ranks = np.array([1, 2, 4, 10])
    assert recall_at(ranks, 1) == 0.25
    assert recall_at(ranks, 4) == 0.75
    assert recall_at(ranks, 1000) == 1
    assert median_rank(ranks) == 3
    assert mean_reciprocal_rank(ranks) == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 10) / 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: retrieval_ranks(x, x * np.nan), "Input items contains NaN: 4 of 4 rows"),
        (lambda x: retrieval_ranks((x + 1) * np.inf, x), "Input queries contains"),
        (lambda x: retrieval_ranks(x, x[:, :2]), "3 components and items 2"),
        (lambda x: retrieval_ranks(x, x[:2]), "4 rows of one view and 2 of the other"),
        (lambda x: retrieval_ranks(x[0], x), r"queries must have the shape .* got \(3,\)"),
        (lambda x: retrieval_ranks(x[:0], x), "at least one of each"),
        (lambda x: retrieval_ranks(x, x.astype(str)), "real numbers, got dtype"),
        (lambda x: retrieval_ranks(x, x, score="euclid"), "'euclid' is unknown"),
        (lambda x: retrieval_ranks(x, x, item_groups=[0, 1, 1, 3]), r"1 of 4 .* row 2 \(group 2"),
        (lambda x: retrieval_ranks(x, x, item_groups=[0, 1]), "item groups must be 4 whole"),
        (lambda x: retrieval_ranks(x, x, query_groups=[0.5] * 4), "query groups must be 4 whole"),
        (lambda x: evaluate_retrieval(x, x), "k=5 says nothing where only 4 items are ranked"),
        (lambda x: evaluate_retrieval(x, x, ks=[0]), "k=0 must be"),
        (lambda x: recall_at([1, 2], 1.5), "k=1.5 must be a whole number"),
        (lambda x: recall_at([], 1), "at least one of them"),
        (lambda x: median_rank([0, 1]), "whole numbers of at least 1"),
        (lambda x: mean_reciprocal_rank([1.5]), "whole numbers of at least 1"),
    ],
)
def test_impossible_requests(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.arange(12.0).reshape(4, 3))
