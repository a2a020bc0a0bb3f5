"""What a loader hands over: which rows belong to which part, and a way to get rows."""

import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.datasets.splits import Indices, Split


@dataclass(frozen=True)
class Samples:
    """A data set before its parts are taken.

    `take` returns the arrays of some rows as keywords of ``TwoViewData``: x, y, ids and what else
    there is. Rows that nobody asks for need not be read or converted.
    """

    split: Split
    take: Callable[[Indices], dict[str, Any]]
    population_correlations: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def read_npz(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Return arrays of an .npz file; say so if it is damaged or lacks one."""
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is no zip archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                known = archive.files
                arrays = {name: archive[name] for name in names if name in known}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise ValueError(f"{path} is no whole .npz file: {error}") from error
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; it holds {', '.join(known)}.")
    return arrays


def finite(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, unless it holds NaN or infinity."""
    if not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
        raise ValueError(f"{name} holds NaN or infinity in {len(rows)} rows, first in {rows[0]}.")
    return array
