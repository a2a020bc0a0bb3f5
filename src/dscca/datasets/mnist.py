"""Handwritten digits cut into a left and a right half (LeCun et al. 1998)."""

import gzip
import struct
import zlib
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.datasets.cache import DataFolder
from dscca.datasets.data import TwoViewSplits
from dscca.datasets.samples import Samples
from dscca.datasets.splits import Indices, Split, fold_of

N_TRAIN, N_VAL, N_TEST = 50_000, 10_000, 10_000
N_FOLDS = 7
LICENCE = "Creative Commons Attribution-Share Alike 3.0"

_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_SIZES = {"train": N_TRAIN + N_VAL, "t10k": N_TEST}


def read_idx(path: str | PathLike[str]) -> NDArray[Any]:
    """Read an array in the idx format of the MNIST files, gzipped or not."""
    path = Path(path)
    raw = path.read_bytes()
    try:
        content = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        code, ndim = content[2], content[3]
        dtype = np.dtype(_DTYPES[code])
        shape = struct.unpack_from(f">{ndim}I", content, 4)
    except (EOFError, OSError, IndexError, KeyError, struct.error, zlib.error) as error:
        raise ValueError(f"{path} is no whole idx file: {error!r}") from error
    expected = 4 + 4 * ndim + int(np.prod(shape)) * dtype.itemsize
    if content[:2] != b"\0\0" or len(content) != expected:
        raise ValueError(
            f"{path} is no whole idx file: {len(content)} bytes where its header says {expected}."
        )
    return np.frombuffer(content, dtype, offset=4 + 4 * ndim).reshape(shape)


def halves(images: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cut n images of 28 x 28 into left and right halves: two arrays n x 392, scaled to [0, 1]."""
    scaled: NDArray[np.float32] = images.astype(np.float32) / np.float32(255)
    return scaled[:, :, :14].reshape(len(images), -1), scaled[:, :, 14:].reshape(len(images), -1)


def names(part: str, kind: str) -> tuple[str, ...]:
    """Return the names under which one of the four files is known; `kind` is images or labels."""
    dims = 3 if kind == "images" else 1
    stems = (f"{part}-{kind}-idx{dims}-ubyte", f"{part}-{kind}.idx{dims}-ubyte")
    return tuple(stem + end for stem in stems for end in (".gz", ""))


def load(folder: DataFolder, fold: int | None, seed: int) -> Samples:
    """Read the four files; samples are numbered through the training file, then the test file.

    The standard split trains on the first 50,000 digits of the training file, validates on the
    other 10,000 and tests on the test file. Seven folds over all 70,000 keep these sizes.
    """
    images = np.concatenate([_read(folder, part, "images", (28, 28)) for part in _SIZES])
    labels = np.concatenate([_read(folder, part, "labels", ()) for part in _SIZES])
    if fold is None:
        split = Split(*np.split(np.arange(len(images)), [N_TRAIN, N_TRAIN + N_VAL]))
    else:
        split = fold_of(len(images), N_FOLDS, fold, seed, N_VAL)

    def take(rows: Indices) -> dict[str, Any]:
        x, y = halves(images[rows])
        return {"x": x, "y": y, "ids": rows, "labels": labels[rows]}

    return Samples(split, take)


def _read(folder: DataFolder, part: str, kind: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    path = folder.require(*names(part, kind))
    array = read_idx(path)
    expected = (_SIZES[part], *shape)
    if array.shape != expected or array.dtype != np.uint8:
        raise ValueError(
            f"{path} holds {array.dtype} values of shape {array.shape} where MNIST's file has "
            f"uint8 of shape {expected}: is it another data set's?"
        )
    if kind == "labels" and array.max() > 9:
        raise ValueError(f"{path} holds the label {array.max()}: digits go from 0 to 9.")
    return array


def load_embedded(folder: DataFolder, fold: int | None, seed: int) -> Samples:
    """Read the test digits that come with the package, shuffled by `seed`."""
    if fold is not None:
        raise ValueError(f"fold={fold}: the embedded digits have one split; take another seed.")
    digits = files("dscca.datasets") / "digits"
    with as_file(digits / "t10k-images-idx3-ubyte.gz") as path:
        images = read_idx(path)
    with as_file(digits / "t10k-labels-idx1-ubyte.gz") as path:
        labels = read_idx(path)
    order = np.random.default_rng(seed).permutation(len(images))

    def take(rows: Indices) -> dict[str, Any]:
        x, y = halves(images[rows])
        return {"x": x, "y": y, "ids": rows, "labels": labels[rows]}

    return Samples(Split(*np.split(order, [8000, 9000])), take)


def embedded_digits(seed: int = 0) -> TwoViewSplits:
    """Return the halves of MNIST's 10,000 test digits, which come with the package.

    They are shuffled by `seed` into 8,000 for training, 1,000 for validation and 1,000 for testing.
    For experiments use the full data; these are for demonstrations and tests.
    """
    from dscca.datasets.loading import load_splits

    return load_splits("embedded-digits", seed=seed)
