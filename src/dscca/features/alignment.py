"""Bringing two feature files together: row i of both belongs to the same item."""

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dscca.features.files import Features, read_features
from dscca.features.sources import read_names

Match = Literal["id", "name", "stem"]
_KEYS: dict[str, Callable[[str], str]] = {
    "id": str,
    "name": lambda name: PurePosixPath(name).name,
    "stem": lambda name: PurePosixPath(name).stem,
}


@dataclass(frozen=True)
class Aligned:
    """Two views of the same items, in the same order."""

    x: NDArray[Any]
    y: NDArray[Any]
    ids: NDArray[np.str_]
    only_x: list[str]
    """Items of the first file that the second lacks."""
    only_y: list[str]
    missing: list[str]
    """Names that were asked for and are not in both files."""


def align(
    x: str | PathLike[str] | Features,
    y: str | PathLike[str] | Features,
    *,
    names: str | PathLike[str] | None = None,
    match: Match = "id",
) -> Aligned:
    """Pair the rows of two feature files by the names of their items, in the first file's order.

    Parameters
    ----------
    x, y : feature files; see :func:`~dscca.features.files.read_features`
    names : a text file with one name per line: only these items, in this order, such as the
        training images of a split
    match : what makes two names the same: all of them ("id"), the part after the last slash
        ("name"), or that part without its suffix ("stem")
    """
    if match not in _KEYS:
        raise ValueError(f"match={match!r} is none of {', '.join(_KEYS)}.")
    first, second = (f if isinstance(f, Features) else read_features(f) for f in (x, y))
    x_rows, y_rows = _rows(first, match, "first"), _rows(second, match, "second")
    listed = None if names is None else [_KEYS[match](name) for name in read_names(names)]
    wanted = list(x_rows) if listed is None else list(dict.fromkeys(listed))
    common = [key for key in wanted if key in x_rows and key in y_rows]
    if not common:
        raise ValueError(
            f"the files have no item in common: the first has {_some(first)}, the second "
            f'{_some(second)}. Where only folders or suffixes differ, match by "name" or "stem".'
        )
    x_at, y_at = [x_rows[key] for key in common], [y_rows[key] for key in common]
    return Aligned(
        first.features[x_at],
        second.features[y_at],
        first.ids[x_at],
        [str(first.ids[row]) for key, row in x_rows.items() if key not in y_rows],
        [str(second.ids[row]) for key, row in y_rows.items() if key not in x_rows],
        [] if listed is None else [key for key in wanted if key not in x_rows or key not in y_rows],
    )


def align_files(
    x: str | PathLike[str],
    y: str | PathLike[str],
    output: str | PathLike[str],
    *,
    names: str | PathLike[str] | None = None,
    match: Match = "id",
) -> Aligned:
    """Pair two feature files and write one with the arrays ``x``, ``y`` and ``ids``."""
    from dscca.arrays import write_arrays

    if Path(output).suffix.lower() != ".npz":
        raise ValueError(f"{output} does not end in .npz, which pairs are written to.")
    aligned = align(x, y, names=names, match=match)
    write_arrays(Path(output), {"x": aligned.x, "y": aligned.y, "ids": aligned.ids})
    return aligned


def _rows(features: Features, match: Match, which: str) -> dict[str, int]:
    rows: dict[str, int] = {}
    for row, name in enumerate(features.ids):
        key = _KEYS[match](str(name))
        if key in rows:
            other = features.ids[rows[key]]
            raise ValueError(
                f"in the {which} file {other} and {name} are the same by {match}: match by id."
            )
        rows[key] = row
    return rows


def _some(features: Features) -> str:
    return ", ".join(map(str, features.ids[:2])) + ", ..."
