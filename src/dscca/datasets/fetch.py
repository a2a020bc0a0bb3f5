"""Bringing a data set's files into the cache, and checking the ones that are there."""

import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from dscca.datasets.archives import copy_atomically, gunzipped_sha256, is_archive, unpack
from dscca.datasets.cache import MissingDataError, cache_folder
from dscca.datasets.download import Progress, download
from dscca.datasets.records import Dataset, Source

Watch = Callable[[str], Progress | None]
"""Called with the name of a file that a transfer of starts."""


def fetch_verified(dataset: Dataset) -> None:
    """Download the missing files whose checksums are known."""
    for file in dataset.files:
        if not (file.source and file.source.sha256) or dataset.folder.find(*file.names):
            continue
        try:
            _get(dataset, file.source, 30.0, None)
        except OSError as error:
            advice = dataset.folder.missing(file.names[0])
            raise MissingDataError(f"{advice} Downloading failed: {error}") from error


def fetch(
    dataset: Dataset, *, timeout: float = 30.0, watch: Watch | None = None
) -> list[tuple[Path, str]]:
    """Download what is missing and can be had without registration.

    Returns what came, with SHA-256s; :func:`missing` says what is still needed.
    """
    got = []
    for file in dataset.files:
        if file.source and not dataset.folder.find(*file.names):
            watched = watch(file.source.name) if watch else None
            got.append(_get(dataset, file.source, timeout, watched))
    return got


def missing(dataset: Dataset) -> list[str]:
    """Return the names of needed files that are not there."""
    return [f.names[0] for f in dataset.files if f.needed and not dataset.folder.find(*f.names)]


def install(dataset: Dataset, source: Path) -> list[Path]:
    """Take a data set's files out of a folder, an archive or a file into the cache."""
    if not source.exists():
        raise FileNotFoundError(f"no file or folder {source}")
    target = cache_folder(dataset.name)
    if source.is_file() and is_archive(source) and _place(dataset, source.name) is None:
        return _some(
            dataset, source, unpack(source, target, lambda member: _place(dataset, member))
        )
    if source.is_file():
        places = {source: _place(dataset, source.name)}
    else:  # the folder's own name counts: it may be the one that a loader looks for
        files = [path for path in sorted(source.rglob("*")) if path.is_file()]
        root = source.resolve().parent
        places = {path: _place(dataset, _below(root, path)) for path in files}
    written = []
    for path, place in places.items():
        if place is not None and target / place not in written:
            copy_atomically(path, target / place)
            written.append(target / place)
    return _some(dataset, source, written)


def damaged(dataset: Dataset) -> list[str]:
    """Compare the files that are there with their known checksums; return what is wrong."""
    wrong = []
    for file in dataset.files:
        path = dataset.folder.require(*file.names) if file.needed else None
        if path is not None and file.content_sha256:
            digest = _content_digest(path)
            if digest != file.content_sha256:
                wrong.append(f"{path}: its content has SHA-256 {digest}, not {file.content_sha256}")
    return wrong


def _content_digest(path: Path) -> str:
    try:
        return gunzipped_sha256(path)
    except (OSError, EOFError, zlib.error) as error:
        return f"none ({error})"


def _get(
    dataset: Dataset, source: Source, timeout: float, progress: Progress | None
) -> tuple[Path, str]:
    """Download a file, or the archive that it is in; return it and the download's SHA-256."""
    folder = cache_folder(dataset.name)
    remote = PurePosixPath(source.urls[0]).name
    digest = download(
        source.urls,
        folder / remote,
        sha256=source.sha256,
        size=source.size,
        timeout=timeout,
        progress=progress,
    )
    if remote != source.name:
        unpack(folder / remote, folder, lambda m: source.name if _base(m) == source.name else None)
        (folder / remote).unlink()
        if not (folder / source.name).exists():
            raise ValueError(f"{source.urls[0]} holds no {source.name}.")
    return folder / source.name, digest


def _place(dataset: Dataset, path: str) -> str | None:
    """Return the name under which a data set's loader looks for a file, or None if it does not."""
    parts = PurePosixPath(path).parts
    for file in dataset.files:
        for name in file.names:
            if "." in name and parts[-1] == name:
                return name
            if "." not in name and name in parts[:-1]:  # a folder is taken whole
                return "/".join(parts[parts.index(name) :])
    return None


def _below(root: Path, path: Path) -> str:
    return (path.parent.resolve() / path.name).relative_to(root).as_posix()


def _some(dataset: Dataset, source: Path, written: list[Path]) -> list[Path]:
    if not written:
        names = ", ".join(name for file in dataset.files for name in file.names)
        raise ValueError(f"{source} holds none of {dataset.name}'s files: {names}")
    return written


def _base(name: str) -> str:
    return PurePosixPath(name).name
