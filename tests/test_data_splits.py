"""Folds and splits: disjoint, whole, in proportion, and the same on every machine."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dscca.datasets import splits
from dscca.datasets.splits import Split, fold_of, group_fold_of, permutation, sized, subsample

seeds = st.integers(0, 2**32 - 1)


def assert_partition(split, n):
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(n))


@given(st.integers(0, 300), seeds)
def test_permutation(n, seed):
    order = permutation(n, seed)
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.array_equal(order, permutation(n, seed))


def test_permutations_are_uniform():
    orders = np.array([permutation(4, seed) for seed in range(6000)])
    counts = np.array([[(orders[:, i] == j).sum() for j in range(4)] for i in range(4)])
    # Each number is at each place 1,500 times, give or take; a chi-squared bound at 1e-6.
    assert ((counts - 1500) ** 2 / 1500).sum() < 45


@given(st.integers(2, 9), st.integers(0, 40), seeds, st.data())
def test_folds(n_folds, extra, seed, data):
    n = 3 * n_folds + extra
    n_val = data.draw(st.integers(1, n - -(-n // n_folds) - 1))
    parts = [fold_of(n, n_folds, fold, seed, n_val) for fold in range(n_folds)]
    assert_partition([part.test for part in parts], n)
    for fold, part in enumerate(parts):
        assert_partition(part, n)
        assert len(part.val) == n_val
        assert len(part.test) in (n // n_folds, -(-n // n_folds))
        for again, first in zip(fold_of(n, n_folds, fold, seed, n_val), part, strict=True):
            assert np.array_equal(again, first)


@pytest.mark.parametrize(
    ("n", "n_folds", "n_val"), [(70_000, 7, 10_000), (50_000, 5, 10_000), (8000, 8, 1000)]
)
def test_folds_keep_the_papers_ratios(n, n_folds, n_val):
    for fold in range(n_folds):
        part = fold_of(n, n_folds, fold, 0, n_val)
        assert [len(rows) for rows in part] == [n - 2 * n_val, n_val, n_val]


def test_folds_are_the_same_everywhere():
    split = fold_of(8000, 8, 3, 0, 1000)
    digest = hashlib.sha256(b"".join(rows.astype("<i8").tobytes() for rows in split)).hexdigest()
    assert digest == "bbb307e52487659460c1a2b66f368259fdcfc9728ef34bb9b3503f572cfee168"
    assert permutation(5, 0).tolist() == [3, 2, 1, 0, 4]
    # The stream itself: the first raw outputs of numpy's PCG64 seeded with 0.
    assert splits.random_keys(2, 0).tolist() == [11749869230777074271, 4976686463289251617]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(3, 6), seeds)
def test_group_folds(groups, n_folds, seed):
    groups = np.array(groups)
    if len(np.unique(groups)) < n_folds:
        with pytest.raises(ValueError, match="too few"):
            group_fold_of(groups, n_folds, 0, seed)
        return
    parts = [group_fold_of(groups, n_folds, fold, seed) for fold in range(n_folds)]
    assert_partition([part.test for part in parts], len(groups))
    for part in parts:
        assert_partition(part, len(groups))
        sets = [set(groups[rows]) for rows in part]
        assert len(set.union(*sets)) == sum(map(len, sets))
        counts = len(np.unique(groups)) / n_folds
        assert abs(len(sets[2]) - counts) < 1
        assert abs(len(sets[1]) - counts) < 1


@given(st.integers(3, 100), seeds, st.data())
def test_sized(n, seed, data):
    n_val = data.draw(st.integers(1, n - 2))
    n_test = data.draw(st.integers(1, n - n_val - 1))
    split = sized(n, n_val, n_test, seed)
    assert_partition(split, n)
    assert (len(split.val), len(split.test)) == (n_val, n_test)
    fewer = sized(n, n_val, n_test, seed, n_train=1)
    assert np.array_equal(fewer.test, split.test)
    assert np.array_equal(fewer.train, split.train[:1])


@given(st.integers(1, 60), seeds, st.data())
def test_subsample(n, seed, data):
    size = data.draw(st.integers(1, n))
    split = Split(np.arange(n), np.arange(n, 2 * n), np.arange(2 * n, 3 * n))
    fewer = subsample(split, (size, size, n), seed)
    assert [len(part) for part in fewer] == [size, size, n]
    for part, whole in zip(fewer, split, strict=True):
        assert set(part) <= set(whole)
        assert (np.diff(part) > 0).all()
    assert subsample(split, None, seed) is split


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fold_of(10, 5, 5, 0, 2), "fold=5: there are 5, numbered 0 to 4"),
        (lambda: fold_of(10, 5, -1, 0, 2), "fold=-1"),
        (lambda: fold_of(3, 5, 0, 0, 1), "3 samples are too few for 5 folds"),
        (lambda: fold_of(10, 5, 0, 0, 8), "take between 1 and 7"),
        (lambda: group_fold_of(np.arange(4), 2, 0, 0), "3 at least"),
        (lambda: sized(10, 5, 5, 0), "10 samples are too few"),
        (lambda: sized(10, 2, 2, 0, n_train=7), "11 are needed"),
        (
            lambda: subsample(Split(*[np.arange(3)] * 3), (4, 1, 1), 0),
            "4 train samples are asked for: take between 1 and the 3",
        ),
    ],
)
def test_impossible_requests(call, message):
    with pytest.raises(ValueError, match=message):
        call()
