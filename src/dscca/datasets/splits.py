"""Splits and folds: pure functions of sizes and seeds, the same on every machine.

Randomness is the raw 64-bit output of PCG64, which numpy keeps the same across versions (unlike
its ``permutation`` and ``shuffle``): a permutation is the stable order of one such key per sample.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Split(NamedTuple):
    """Row numbers of the training, validation and test samples."""

    train: Indices
    val: Indices
    test: Indices


def random_keys(n: int, *seed: int) -> NDArray[np.uint64]:
    """Return n 64-bit keys of the stream that belongs to these non-negative numbers."""
    keys: NDArray[np.uint64] = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(n)
    return keys


def permutation(n: int, *seed: int) -> Indices:
    """Return the numbers below n in the order of their keys."""
    return np.argsort(random_keys(n, *seed), kind="stable").astype(np.int64)


def sized(n: int, n_val: int, n_test: int, *seed: int, n_train: int | None = None) -> Split:
    """Draw validation and test samples at random; train on the rest, or on `n_train` of it."""
    taken = n_val + n_test + (1 if n_train is None else n_train)
    if min(n_val, n_test) < 1 or taken > n:
        rest = "at least one" if n_train is None else f"{n_train}"
        raise ValueError(
            f"{n} samples are too few for {rest} to train, {n_val} to validate and {n_test} to "
            f"test: {taken} are needed; ask for fewer."
        )
    order = permutation(n, *seed)
    test, val, train = np.split(order, [n_test, n_test + n_val])
    return Split(train[:n_train], val, test)


def fold_of(n: int, n_folds: int, fold: int, seed: int, n_val: int) -> Split:
    """Return fold number `fold` of `n_folds`, as the paper makes them.

    One permutation of all samples is cut into equal folds. One fold is for testing; the others are
    split at random into `n_val` samples for validation and the rest for training.
    """
    check_fold(fold, n_folds)
    if n < n_folds:
        raise ValueError(f"{n} samples are too few for {n_folds} folds: ask for {n} at most.")
    folds = np.array_split(permutation(n, seed), n_folds)
    others = np.concatenate([part for i, part in enumerate(folds) if i != fold])
    if not 0 < n_val < len(others):
        raise ValueError(
            f"n_val={n_val}: beside fold {fold} there are {len(others)} samples for validation and "
            f"training; take between 1 and {len(others) - 1}."
        )
    others = others[permutation(len(others), seed, fold + 1)]
    return Split(others[n_val:], others[:n_val], folds[fold])


def group_fold_of(groups: NDArray[Any], n_folds: int, fold: int, seed: int) -> Split:
    """Return a fold of whole groups: no group has samples in two of the three parts.

    The groups, not the samples, are permuted and cut into folds; the fold after the tested one is
    for validation. Parts keep the order of the samples.
    """
    names, member = np.unique(groups, return_inverse=True)
    if n_folds < 3:
        raise ValueError(f"n_folds={n_folds}: testing, validation and training need 3 at least.")
    check_fold(fold, n_folds)
    if len(names) < n_folds:
        raise ValueError(f"{len(names)} groups are too few for {n_folds} folds.")
    fold_of_group = np.empty(len(names), dtype=np.int64)
    for i, part in enumerate(np.array_split(permutation(len(names), seed), n_folds)):
        fold_of_group[part] = i
    place = fold_of_group[member]
    validation = (fold + 1) % n_folds
    return Split(
        np.flatnonzero((place != fold) & (place != validation)),
        np.flatnonzero(place == validation),
        np.flatnonzero(place == fold),
    )


def subsample(split: Split, sizes: tuple[int, int, int] | None, *seed: int) -> Split:
    """Keep so many random samples of each part, in the order of `split`; all if `sizes` is None."""
    if sizes is None:
        return split
    parts = []
    for i, (name, part, size) in enumerate(zip(Split._fields, split, sizes, strict=True)):
        if not 0 < size <= len(part):
            raise ValueError(
                f"{size} {name} samples are asked for: take between 1 and the {len(part)} there "
                "are, or sizes=None for all."
            )
        parts.append(part[np.sort(permutation(len(part), *seed, i)[:size])])
    return Split(*parts)


def check_fold(fold: int, n_folds: int) -> None:
    """Refuse the number of a fold that is not there."""
    if not 0 <= fold < n_folds:
        raise ValueError(f"fold={fold}: there are {n_folds}, numbered 0 to {n_folds - 1}.")
