"""Reading and writing arrays by file name, for the command line."""

import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dscca.persistence import write_atomically

ROW_NAMES = ("ids", "files")
"""Arrays of an .npz file that name the rows of its other arrays."""
FORMATS = ".npy, .npz (file.npz:key), .csv, .parquet"


def read_array(source: str) -> NDArray[Any]:
    """Read a two-dimensional array; ``.npy`` is memory-mapped, ``file.npz:key`` names an entry.

    Of a feature file (``.npz`` with ``features`` and ``ids`` or ``files``) no entry need be named.
    """
    name, key = _split_key(source)
    path = Path(name)
    if not path.is_file():
        raise FileNotFoundError(f"no file {name}")
    readers: dict[str, Callable[[], NDArray[Any]]] = {
        ".npy": lambda: np.load(path, mmap_mode="r", allow_pickle=False),
        ".npz": lambda: _read_npz(path, key),
        ".csv": lambda: _numeric(_read_csv(path), path),
        ".parquet": lambda: _numeric(_read_parquet(path), path),
    }
    try:
        array = readers[path.suffix.lower()]()
    except KeyError:
        raise ValueError(f"{name} ends in none of {FORMATS}") from None
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        message = str(error)
        raise ValueError(message if name in message else f"{name}: {message}") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {array.dtype} values, not numbers")
    return array


def read_views(x: str, y: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read two paired arrays; where both files name their rows, the names must agree."""
    views = read_array(x), read_array(y)
    x_ids, y_ids = read_ids(x), read_ids(y)
    if x_ids is not None and y_ids is not None and not np.array_equal(x_ids, y_ids):
        only_x, only_y = len(np.setdiff1d(x_ids, y_ids)), len(np.setdiff1d(y_ids, x_ids))
        what = (
            f"{only_x} of {len(x_ids)} items are only in {x}, {only_y} of {len(y_ids)} only in {y}"
            if only_x or only_y
            else "they hold the same items in another order"
        )
        files = " ".join(_split_key(source)[0] for source in (x, y))
        raise ValueError(
            f"the rows of {x} and {y} are not paired: {what}. Pair them: dscca features align "
            f"{files} -o pairs.npz, then give pairs.npz:x pairs.npz:y."
        )
    return views


def write_arrays(target: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write one array to .npy or .csv, any number to .npz; the file appears whole or not at all."""
    suffix, buffer = target.suffix.lower(), io.BytesIO()
    single = next(iter(arrays.values()))
    if suffix in (".npy", ".csv") and len(arrays) > 1:
        raise ValueError(f"{target} holds one array, not {', '.join(arrays)}: write to .npz")
    if suffix == ".npy":
        np.save(buffer, single)
    elif suffix == ".csv":
        np.savetxt(buffer, single, delimiter=",")
    elif suffix == ".npz":
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # no key is called allow_pickle
    else:
        raise ValueError(f"{target} ends in none of .npy, .npz, .csv")
    write_atomically(target, buffer.getvalue())


def _split_key(source: str) -> tuple[str, str | None]:
    name, colon, key = source.rpartition(":")
    return (name, key) if colon and name.lower().endswith(".npz") else (source, None)


def _read_npz(path: Path, key: str | None) -> NDArray[Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        names = archive.files
        if key is None and "features" in names and any(name in names for name in ROW_NAMES):
            key = "features"
        if key is None and len(names) != 1:
            raise ValueError(f"{path} holds {', '.join(names)}: write {path}:NAME")
        if key is not None and key not in names:
            raise ValueError(f"{path} has no array {key}; it holds {', '.join(names)}")
        array: NDArray[Any] = archive[key or names[0]]
        return array


def read_ids(source: str) -> NDArray[Any] | None:
    """Return the names that a feature file gives its rows, or None where there are none."""
    name, _ = _split_key(source)
    if Path(name).suffix.lower() != ".npz":
        return None
    with np.load(name, allow_pickle=False) as archive:
        return next((archive[entry] for entry in ROW_NAMES if entry in archive.files), None)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _read_csv(path: Path) -> pd.DataFrame:
    first = pd.read_csv(path, header=None, nrows=1)
    headed = any(not pd.api.types.is_numeric_dtype(first[column]) for column in first)
    if not headed and first.shape[1] > 2 and first.iloc[0].tolist() == list(range(first.shape[1])):
        raise ValueError(
            f"{path} begins with a row 0, 1, 2, ...: pandas writes such a header for columns "
            f"without names; write them with header=False, or with names, or as .npy"
        )
    return pd.read_csv(path, header=0 if headed else None)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise ValueError('reading parquet needs an extra: pip install "dscca[parquet]"') from error


def _numeric(frame: pd.DataFrame, path: Path) -> NDArray[Any]:
    for column in frame:
        if not pd.api.types.is_numeric_dtype(frame[column]):
            raise ValueError(f"{path}: column {column} is not numeric; drop it or encode it")
    return frame.to_numpy()
