"""Sound and articulation: the Wisconsin X-Ray Microbeam database (Westbury 1994).

The two files of Wang, Arora, Livescu and Bilmes hold stacked frames by speakers, row by row:
acoustics (39 MFCCs x 7 frames = 273) as X1, XV1 and XTe1 in ``...single1.mat``, articulation
(8 pellets x 2 x 7 = 112) as X2, XV2 and XTe2 in ``...single2.mat``, with phone labels (trainLabel,
tuneLabel, testLabel) and speakers (trainID, tuneID, testID) in the second. The training, tuning and
test parts (1,429,236, 85,297 and 111,314 frames) have different speakers.
"""

import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.datasets.cache import DataFolder
from dscca.datasets.samples import Samples, finite
from dscca.datasets.splits import Indices, Split, check_fold, fold_of, sized, subsample

FILES = ("XRMBf2KALDI_window7_single1.mat", "XRMBf2KALDI_window7_single2.mat")
SIZES = (30_000, 10_000, 10_000)
N_FOLDS = 5
WIDTHS = (273, 112)
_PARTS = {"train": ("X1", "X2"), "tune": ("XV1", "XV2"), "test": ("XTe1", "XTe2")}
_BLOCK = 65_536


def load(
    folder: DataFolder,
    fold: int | None,
    seed: int,
    *,
    split_by: str = "frames",
    sizes: tuple[int, int, int] = SIZES,
) -> Samples:
    """Read a random 50,000 frames, by default 30,000 to train and 10,000 each to validate and test.

    Parameters
    ----------
    split_by : "frames" draws all from the training speakers' frames and splits them at random, as
        the paper; "speakers" draws each part from the speakers that the files keep for it
    sizes : training, validation and test samples
    """
    if split_by not in ("frames", "speakers"):
        raise ValueError(f"split_by={split_by!r}: take 'frames' or 'speakers'.")
    if split_by == "speakers" and fold is not None:
        raise ValueError(f"fold={fold}: speakers are split once; folds need split_by='frames'.")
    paths = [folder.require(name) for name in FILES]
    parts = ("train",) if split_by == "frames" else tuple(_PARTS)
    labels = {part: _column(paths[1], f"{part}Label") for part in parts}
    speakers = {part: _column(paths[1], f"{part}ID") for part in parts}
    counts = {part: len(values) for part, values in labels.items()}
    if split_by == "frames":
        chosen, split = _frames(counts["train"], fold, seed, sizes)
        rows = {"train": chosen}
    else:
        everything = Split(*(np.arange(counts[part]) for part in parts))
        rows = dict(zip(parts, subsample(everything, sizes, seed), strict=True))
        bounds = np.cumsum([0, *(len(part) for part in rows.values())])
        split = Split(*(np.arange(a, b) for a, b in pairwise(bounds)))
    views = [
        np.concatenate([_rows(paths[v], _PARTS[p][v], rows[p], counts[p], WIDTHS[v]) for p in rows])
        for v in (0, 1)
    ]
    label = np.concatenate([labels[part][rows[part]] for part in rows])
    speaker = np.concatenate([speakers[part][rows[part]] for part in rows])
    ids = np.concatenate([[f"{part}:{row}" for row in rows[part]] for part in rows])

    def take(chosen: Indices) -> dict[str, Any]:
        return {
            "x": views[0][chosen],
            "y": views[1][chosen],
            "ids": ids[chosen],
            "labels": label[chosen],
            "groups": speaker[chosen],
        }

    return Samples(split, take)


def _frames(
    n: int, fold: int | None, seed: int, sizes: tuple[int, int, int]
) -> tuple[Indices, Split]:
    """Return the frames that take part, in the order of the file, and their split."""
    if fold is not None:
        check_fold(fold, N_FOLDS)
    drawn = sized(n, sizes[1], sizes[2], seed, n_train=sizes[0])
    chosen = np.sort(np.concatenate(drawn))
    if fold is not None:
        return chosen, fold_of(len(chosen), N_FOLDS, fold, seed, sizes[1])
    return chosen, Split(*(np.searchsorted(chosen, part) for part in drawn))


def _rows(path: Path, name: str, rows: Indices, count: int, width: int) -> NDArray[np.float32]:
    """Return some rows (in ascending order) of a matrix count x width."""
    with _Variable(path, name) as matrix:
        if matrix.shape != (count, width):
            raise ValueError(
                f"{path}: {name} has shape {matrix.shape}, not ({count}, {width}): view one is "
                f"{WIDTHS[0]} wide and view two {WIDTHS[1]}, with a row for each label."
            )
        result: NDArray[np.float32] = matrix.take(rows).astype(np.float32)
    return np.asarray(finite(f"{path}: {name}", result))


def _column(path: Path, name: str) -> NDArray[Any]:
    with _Variable(path, name) as matrix:
        if len(matrix.shape) != 2 or 1 not in matrix.shape:
            raise ValueError(f"{path}: {name} has shape {matrix.shape}, not one value a frame.")
        n = max(matrix.shape)
        flat = matrix.take(np.arange(n)) if matrix.shape[1] == 1 else matrix.take(np.array([0]))
        return flat.reshape(-1).astype(np.int64)


class _Variable:
    """One matrix of a .mat file: version 5 by scipy, version 7.3, which is HDF5, by h5py."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.file: Any = None

    def __enter__(self) -> "_Variable":
        with open(self.path, "rb") as file:
            header = file.read(20)
        if header.startswith(b"MATLAB 7.3") or header.startswith(b"\x89HDF"):
            self._open_hdf5()
        else:
            self._read_v5()
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def _read_v5(self) -> None:
        from scipy.io import loadmat, whosmat
        from scipy.io.matlab import MatReadError

        try:
            known = [entry[0] for entry in whosmat(self.path)]
            if self.name in known:
                self.matrix = loadmat(self.path, variable_names=[self.name])[self.name]
        except (
            MatReadError,
            ValueError,
            TypeError,
            LookupError,
            OSError,
            EOFError,
            NotImplementedError,
            zlib.error,
        ) as e:
            raise ValueError(f"{self.path} is no whole .mat file: {e}") from e
        self._check(known)
        self.shape = tuple(self.matrix.shape)

    def _open_hdf5(self) -> None:
        try:
            import h5py
        except ImportError as error:
            raise ValueError(
                f"{self.path} is a .mat file of version 7.3, which needs an extra: "
                'pip install "dscca[matlab]"'
            ) from error
        try:
            self.file = h5py.File(self.path, "r")
        except OSError as error:
            raise ValueError(f"{self.path} is no whole .mat file: {error}") from error
        self._check(list(self.file))
        self.matrix = self.file[self.name]
        self.shape = tuple(self.matrix.shape[::-1])  # MATLAB's columns are HDF5's rows

    def _check(self, known: list[str]) -> None:
        if self.name not in known:
            shown = ", ".join(sorted(name for name in known if not name.startswith("#")))
            raise ValueError(f"{self.path} lacks the variable {self.name}; it holds {shown}.")

    def take(self, rows: Indices) -> NDArray[Any]:
        """Return rows in ascending order; of HDF5 only blocks of columns are in memory."""
        if self.file is None:
            return np.asarray(self.matrix[rows])
        blocks = [np.empty((0, self.shape[1]), self.matrix.dtype)]
        for start in range(0, self.shape[0], _BLOCK):
            first, last = np.searchsorted(rows, [start, start + _BLOCK])
            if first < last:
                block = self.matrix[:, start : start + _BLOCK].T
                blocks.append(block[rows[first:last] - start])
        return np.concatenate(blocks)
