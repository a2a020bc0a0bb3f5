"""Handwritten digits cut into a left and a right half (LeCun et al. 1998)."""

import gzip
import struct
from dataclasses import dataclass
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


@dataclass(frozen=True)
class TwoViewSplits:
    """Two paired views, cut into training, validation and test samples."""

    X_train: NDArray[np.float32]
    y_train: NDArray[np.float32]
    X_val: NDArray[np.float32]
    y_val: NDArray[np.float32]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.float32]
    labels_test: NDArray[np.uint8]


def read_idx(path: str | PathLike[str]) -> NDArray[Any]:
    """Read an array in the idx format of the MNIST files, gzipped or not."""
    path = Path(path)
    raw = path.read_bytes()
    try:
        content = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        code, ndim = content[2], content[3]
        dtype = np.dtype(_DTYPES[code])
        shape = struct.unpack_from(f">{ndim}I", content, 4)
    except (EOFError, OSError, IndexError, KeyError, struct.error) as error:
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


def embedded_digits(seed: int = 0) -> TwoViewSplits:
    """Return the halves of MNIST's 10,000 test digits, which come with the package.

    They are shuffled by `seed` into 8,000 for training, 1,000 for validation and 1,000 for testing.
    For experiments use the full data; these are for demonstrations and tests.
    """
    folder = files("dscca.datasets") / "digits"
    with as_file(folder / "t10k-images-idx3-ubyte.gz") as images:
        left, right = halves(read_idx(images))
    with as_file(folder / "t10k-labels-idx1-ubyte.gz") as labels_file:
        labels = read_idx(labels_file)
    train, val, test = np.split(np.random.default_rng(seed).permutation(len(left)), [8000, 9000])
    return TwoViewSplits(
        left[train], right[train], left[val], right[val], left[test], right[test], labels[test]
    )
