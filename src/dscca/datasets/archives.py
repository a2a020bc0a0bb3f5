"""Unpacking archives that nobody has checked: no paths outside, no links, bounded sizes."""

import gzip
import hashlib
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

_CHUNK = 1 << 20
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".gz")

Select = Callable[[str], str | None]
"""From a member's path in the archive to its path below the target, or None to leave it out."""


class ArchiveError(ValueError):
    """An archive is damaged, or holds what none should."""


@dataclass(frozen=True)
class Bounds:
    """What one archive may bring: bytes after decompression, and members."""

    size: int = 1 << 34
    count: int = 200_000


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    open: Callable[[], IO[bytes]]


def is_archive(path: Path) -> bool:
    """Whether the name of a file is an archive's."""
    return path.name.lower().endswith(SUFFIXES)


def unpack(
    archive: Path, target: Path, select: Select | None = None, bounds: Bounds | None = None
) -> list[Path]:
    """Unpack regular files of a zip, tar or gzip archive into `target`; return their paths.

    Everything is unpacked beside the target first and moved there once all of it is right, so an
    archive that is refused leaves nothing. A member that would land outside, is a link or a device,
    comes twice, or brings more than the bounds allow refuses the whole archive, also where `select`
    would leave it out. Sizes are counted as bytes come out, whatever the archive says.
    """
    bounds = bounds or Bounds()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".unpacking-") as folder:
        written = _unpack_into(archive, Path(folder), select or (lambda name: name), bounds)
        results = []
        for path in written:
            final = target / path.relative_to(folder)
            final.parent.mkdir(parents=True, exist_ok=True)
            path.replace(final)
            results.append(final)
    return results


def _unpack_into(archive: Path, folder: Path, select: Select, bounds: Bounds) -> list[Path]:
    written: list[Path] = []
    left = bounds.size
    try:
        with _members(archive) as members:
            for count, member in enumerate(members, start=1):
                if count > bounds.count:
                    raise ArchiveError(f"{archive} holds more than {bounds.count} members.")
                _inside(archive, member.name)
                if member.size > left:  # what the archive says itself
                    raise ArchiveError(f"{archive} unpacks to more than {bounds.size} bytes.")
                name = select(member.name)
                if name is None:
                    left -= member.size  # passing over it in a compressed archive costs as much
                    continue
                path = folder / _inside(archive, name)
                if path.exists():
                    raise ArchiveError(f"{archive} holds {name} more than once.")
                path.parent.mkdir(parents=True, exist_ok=True)
                left -= _copy(archive, member, path, left, bounds.size)
                written.append(path)
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise ArchiveError(f"{archive} cannot be unpacked: {error}") from error
    return written


def _copy(archive: Path, member: _Member, path: Path, left: int, bound: int) -> int:
    size = 0
    with member.open() as source, open(path, "wb") as file:
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > left:
                raise ArchiveError(f"{archive} unpacks to more than {bound} bytes.")
            file.write(chunk)
    return size


def _inside(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    drive = ":" in path.parts[0] if path.parts else False
    if path.is_absolute() or drive or ".." in path.parts or not path.parts or "\0" in name:
        raise ArchiveError(f"{archive} holds {name!r}, which points outside of the archive.")
    return path


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    name = archive.name.lower()
    if not archive.is_file():
        raise FileNotFoundError(f"no archive at {archive}")
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield _zip_members(archive, zipped)
    elif name.endswith(".gz") and not name.endswith(".tar.gz"):
        yield iter([_Member(archive.name[:-3], 0, partial(_gzipped, archive))])
    elif name.endswith(SUFFIXES):
        with tarfile.open(archive) as tar:
            yield _tar_members(archive, tar)
    else:
        raise ArchiveError(f"{archive} ends in none of {', '.join(SUFFIXES)}")


def _gzipped(archive: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(archive, "rb"))


def _zip_members(archive: Path, zipped: zipfile.ZipFile) -> Iterator[_Member]:
    for info in zipped.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ArchiveError(f"{archive} holds {info.filename!r}, a link or device.")
        if not info.is_dir():
            yield _Member(info.filename, info.file_size, partial(zipped.open, info))


def _tar_members(archive: Path, tar: tarfile.TarFile) -> Iterator[_Member]:
    for info in tar:
        if not (info.isreg() or info.isdir()):
            raise ArchiveError(f"{archive} holds {info.name!r}, a link or device.")
        if info.isreg():
            yield _Member(info.name, info.size, partial(_extracted, tar, info))


def _extracted(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    source = tar.extractfile(info)
    if source is None:
        raise ArchiveError(f"{info.name} is no regular file.")
    return source


def gunzipped_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, decompressed if it is gzip."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if zipped else open(path, "rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def copy_atomically(source: Path, target: Path) -> None:
    """Copy a file so that the target is whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copying-") as folder:
        copy = Path(folder) / target.name
        shutil.copyfile(source, copy)
        copy.replace(target)
