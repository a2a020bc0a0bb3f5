"""An index on disk: one safetensors file in a folder, replaced as a whole. No pickle.

The file holds the model's arrays and, per view, what the back end keeps: vectors, ids and metadata
(as bytes of JSON). Its header describes them in JSON, with a digest of every array and of itself,
so that damage is found before anything is used. A reader opens either the old file or the new one.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dscca.integrity import checksum
from dscca.persistence import replacing

FORMAT = "dscca-index"
VERSION = 1
FILE_NAME = "index.safetensors"

Arrays = dict[str, NDArray[Any]]


class IndexFileError(ValueError):
    """A folder holds no index of this package, a damaged one, or one that was changed meanwhile."""


def write(folder: Path, description: dict[str, Any], arrays: Arrays, seen: str | None) -> str:
    """Write an index and return its revision.

    With `seen`, the revision that the index was read or last written with, the folder must still
    hold that one: what another process has saved meanwhile is not overwritten.
    """
    revision = uuid4().hex
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    digests = {name: checksum([], {name: array}) for name, array in arrays.items()}
    text = json.dumps({**description, "revision": revision, "digests": digests})
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "index": text,
        "digest": checksum([text], {}),
    }
    file = folder / FILE_NAME
    folder.mkdir(parents=True, exist_ok=True)
    with _only_writer(folder):
        if seen is not None and file.exists() and _description(file)["revision"] != seen:
            raise IndexFileError(
                f"{folder} was saved by another process since this index was loaded from it: "
                f"load it again and repeat the changes, or save to another folder."
            )
        with replacing(file) as temporary:
            save_file(arrays, temporary, metadata=header)
    return revision


def read(folder: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the description and the arrays of an index, whose digests are checked."""
    file = folder / FILE_NAME
    if not file.is_file():
        raise FileNotFoundError(f"no index at {folder}: give the folder that was passed to save.")
    with _open(file) as source:
        description = _checked_description(file, source.metadata())
        try:
            digests = description["digests"]
            arrays = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118
            damaged = digests.keys() ^ arrays.keys()
            both = digests.keys() & arrays.keys()
            damaged |= {n for n in both if digests[n] != checksum([], {n: arrays[n]})}
        except (SafetensorError, KeyError, AttributeError) as error:
            raise IndexFileError(f"{file} is damaged: {error}") from error
    if damaged:
        raise IndexFileError(f"{file} is damaged: {', '.join(sorted(damaged))} changed or missing.")
    return description, arrays


def _description(file: Path) -> dict[str, Any]:
    with _open(file) as source:
        return _checked_description(file, source.metadata())


@contextmanager
def _open(file: Path) -> Iterator[Any]:
    try:
        source = safe_open(file, framework="numpy")
    except SafetensorError as error:
        raise IndexFileError(f"{file} is no whole index: {error}") from error
    with source:
        yield source


def _checked_description(file: Path, header: dict[str, str] | None) -> dict[str, Any]:
    header = header or {}
    if header.get("format") != FORMAT:
        raise IndexFileError(f"{file} is a safetensors file, but no index of dscca.")
    if header.get("version") != str(VERSION):
        raise IndexFileError(
            f"{file} has format version {header.get('version')!r:.20}, this dscca reads {VERSION}: "
            f"use the version of dscca that wrote it."
        )
    text = header.get("index", "")
    if checksum([text], {}) != header.get("digest"):
        raise IndexFileError(f"{file} is damaged: its description does not match its digest.")
    try:
        description = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise IndexFileError(f"{file} is damaged: {error}") from error
    if not isinstance(description, dict) or "revision" not in description:
        raise IndexFileError(f"{file} describes no index.")
    return description


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Wait for other processes that are saving to the folder; a killed one holds nothing up."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for left in folder.glob(f".{FILE_NAME}.*.tmp"):
            left.unlink()  # by a writer that was killed
        yield
    finally:
        os.close(handle)
