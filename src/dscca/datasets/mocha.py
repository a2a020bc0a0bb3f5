"""Sound and articulation of one speaker: MOCHA-TIMIT (Wrench 1999).

``<speaker>.npz`` holds what was derived from the recordings, frame by frame at 10 ms: `mfcc`
(n x 39), `ema` (n x 14: x and y of seven coils), `utterance` and `phone` (numbers) and their
`utterance_names` and `phone_names`. Views are windows of seven frames: 273-d and 98-d.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.datasets.cache import DataFolder
from dscca.datasets.samples import Samples, finite, read_npz
from dscca.datasets.splits import (
    Indices,
    Split,
    check_fold,
    fold_of,
    group_fold_of,
    sized,
    subsample,
)

SIZES = (30_000, 10_000, 10_000)
N_FOLDS = 5
WINDOW = 7
CLIP = 5.0
SILENT = ("sil", "breath")
_TEST, _VALIDATION = 2, 6
_ARRAYS = ("mfcc", "ema", "utterance", "utterance_names", "phone", "phone_names")


def load(
    folder: DataFolder,
    fold: int | None,
    seed: int,
    *,
    speaker: str = "fsew0",
    split_by: str = "utterance",
    sizes: tuple[int, int, int] | None = SIZES,
) -> Samples:
    """Read windows of frames in which somebody speaks.

    The frame in the middle of a window must be speech; its neighbours may be silence, but are
    always of the same utterance. Features are clipped at five standard deviations from the mean of
    the training samples.

    Parameters
    ----------
    speaker : whose file
    split_by : "utterance" keeps an utterance's frames together: by its number modulo 10, 2 tests,
        6 validates, the others train, and folds are of utterances. "frames" splits frames at
        random, as the paper does with XRMB; neighbours then sit on both sides, and leak.
    sizes : random frames to keep for training, validation and testing; None keeps all
    """
    if split_by not in ("utterance", "frames"):
        raise ValueError(f"split_by={split_by!r}: take 'utterance' or 'frames'.")
    path = folder.require(f"{speaker}.npz")
    arrays = read_npz(path, *_ARRAYS)
    _check(str(path), arrays)
    utterance = arrays["utterance"].astype(np.int64)
    phone = arrays["phone_names"][arrays["phone"]]
    whole = window_centres(utterance, WINDOW)
    speech = np.flatnonzero(whole & ~np.isin(phone, SILENT))
    if split_by == "frames":
        split = _by_frames(len(speech), fold, seed, sizes)
    else:
        numbers = _numbers(arrays["utterance_names"])[utterance[speech]]
        split = subsample(_by_utterance(numbers, fold, seed), sizes, seed)
    centres = Split(*(speech[part] for part in split))
    limits = [_limits(stacked(arrays[view], centres.train)) for view in ("mfcc", "ema")]
    utterances = arrays["utterance_names"][utterance]

    def take(rows: Indices) -> dict[str, Any]:
        x, y = (
            np.clip(stacked(arrays[view], rows), *limit)
            for view, limit in zip(("mfcc", "ema"), limits, strict=True)
        )
        return {
            "x": x,
            "y": y,
            "ids": np.array(
                [f"{name}:{row}" for name, row in zip(utterances[rows], rows, strict=True)]
            ),
            "labels": phone[rows],
            "groups": utterances[rows],
        }

    return Samples(centres, take)


def window_centres(utterance: NDArray[np.int64], window: int) -> NDArray[np.bool_]:
    """Say which frames have all of an odd window around them in their own utterance."""
    reach = window // 2
    inside = np.zeros(len(utterance), dtype=bool)
    # Utterances are runs: equal numbers at both ends of a window mean that all of it is one's.
    if len(utterance) >= window:
        inside[reach : len(utterance) - reach] = utterance[: -2 * reach] == utterance[2 * reach :]
    return inside


def stacked(frames: NDArray[Any], centres: Indices, window: int = WINDOW) -> NDArray[np.float32]:
    """Return the windows around some frames, from the earliest frame to the latest, as rows."""
    around = np.arange(window) - window // 2
    rows = frames[centres[:, None] + around].reshape(len(centres), -1)
    return np.asarray(rows, dtype=np.float32)


def _limits(training: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    mean, deviation = training.mean(0, dtype=np.float64), training.std(0, dtype=np.float64)
    low, high = mean - CLIP * deviation, mean + CLIP * deviation
    return low.astype(np.float32), high.astype(np.float32)


def _by_utterance(numbers: Indices, fold: int | None, seed: int) -> Split:
    if fold is not None:
        return group_fold_of(numbers, N_FOLDS, fold, seed)
    last = numbers % 10
    return Split(
        np.flatnonzero((last != _TEST) & (last != _VALIDATION)),
        np.flatnonzero(last == _VALIDATION),
        np.flatnonzero(last == _TEST),
    )


def _by_frames(n: int, fold: int | None, seed: int, sizes: tuple[int, int, int] | None) -> Split:
    n_train, n_val, n_test = sizes or (n - 2 * (n // N_FOLDS), n // N_FOLDS, n // N_FOLDS)
    drawn = sized(n, n_val, n_test, seed, n_train=n_train)
    if fold is None:
        return drawn
    check_fold(fold, N_FOLDS)
    chosen = np.sort(np.concatenate(drawn))
    return Split(*(chosen[part] for part in fold_of(len(chosen), N_FOLDS, fold, seed, n_val)))


def _numbers(names: NDArray[Any]) -> Indices:
    found = [re.search(r"(\d+)$", str(name)) for name in names]
    if None in found:
        raise ValueError(f"utterance {names[found.index(None)]!r} does not end in its number.")
    return np.array([int(match[1]) for match in found if match], dtype=np.int64)


def _check(path: str, arrays: dict[str, NDArray[Any]]) -> None:
    n = len(arrays["mfcc"])
    shapes = {"mfcc": (n, 39), "ema": (n, 14), "utterance": (n,), "phone": (n,)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{path}: {name} has shape {arrays[name].shape}, not {shape}.")
    for name in ("utterance", "phone"):
        numbers, size = arrays[name], len(arrays[f"{name}_names"])
        if n and not 0 <= numbers.min() <= numbers.max() < size:
            raise ValueError(f"{path}: {name} goes beyond its {size} names.")
    starts = np.flatnonzero(np.diff(arrays["utterance"].astype(np.int64), prepend=-1))
    if len(np.unique(arrays["utterance"])) != len(starts):
        raise ValueError(f"{path}: the frames of an utterance do not lie together.")
    for view in ("mfcc", "ema"):
        finite(f"{path}: {view}", arrays[view])
