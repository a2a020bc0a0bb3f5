"""Feature files: ``features`` (n, width), the ``ids`` of the rows, and ``about``, their making."""

import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dscca.arrays import ROW_NAMES
from dscca.persistence import open_atomically


@dataclass(frozen=True)
class Features:
    """The content of a feature file."""

    features: NDArray[Any]
    """One row per item."""
    ids: NDArray[np.str_]
    """The name of each row's item."""
    about: dict[str, Any] = field(default_factory=dict)
    """How the features were made: encoder, its weights' hash, preprocessing."""


def read_features(path: str | PathLike[str]) -> Features:
    """Read a file of ``dscca features``, or any .npz with `features` and `ids` or `files`."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            known = ("features", *ROW_NAMES, "about")
            entries = {name: archive[name] for name in known if name in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(f"{path} is no whole .npz file: {error}") from error
    ids = next((entries[name] for name in ROW_NAMES if name in entries), None)
    if ids is None or "features" not in entries:
        raise ValueError(f"{path} is no feature file: it needs the arrays features and ids.")
    features = entries["features"]
    if ids.ndim != 1 or features.ndim != 2 or len(ids) != len(features):
        raise ValueError(
            f"{path}: features of shape {features.shape} do not go with ids of shape {ids.shape}; "
            f"there must be one id per row."
        )
    about = json.loads(str(entries["about"])) if "about" in entries else {}
    return Features(features, ids.astype(np.str_), about)


def write_features(
    path: Path,
    blocks: Iterable[NDArray[Any]],
    shape: tuple[int, int],
    dtype: DTypeLike,
    ids: Sequence[str],
    about: dict[str, Any],
) -> None:
    """Write a feature file block by block; it appears whole or not at all.

    The same content gives the same bytes: the archive holds no time.
    """
    dtype = np.dtype(dtype)
    with open_atomically(path) as file, zipfile.ZipFile(file, "w") as archive:
        with archive.open("features.npy", "w", force_zip64=True) as entry:
            header = {
                "descr": np.lib.format.dtype_to_descr(dtype),
                "fortran_order": False,
                "shape": shape,
            }
            np.lib.format.write_array_header_1_0(entry, header)
            rows = 0
            for block in blocks:
                entry.write(np.ascontiguousarray(block, dtype=dtype).data)
                rows += len(block)
            if rows != shape[0]:
                raise AssertionError(f"{rows} rows were written, {shape[0]} were announced")
        _write_entry(archive, "ids.npy", np.asarray(ids, dtype=np.str_))
        _write_entry(archive, "about.npy", np.asarray(json.dumps(about, sort_keys=True)))


def _write_entry(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(name, "w", force_zip64=True) as entry:
        np.lib.format.write_array(entry, array, allow_pickle=False)
