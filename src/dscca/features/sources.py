"""Where images come from: a folder, or a zip archive read in place, in a fixed order."""

import os
import stat
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from pathlib import Path, PurePosixPath

from dscca.features.extraction import Items

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"}
)
MAX_FILE_BYTES = 2**28
"""An image file of more than 256 MiB is refused unread."""


class UnreadableImageError(ValueError):
    """Why an image cannot be used."""


class ImageSource(ABC):
    """Named images whose bytes can be read, by several threads at once."""

    items: Items
    ignored: dict[str, str]
    """What lies among the images and is none, and why."""

    @abstractmethod
    def read(self, position: int) -> bytes:
        """Return the bytes of one image file, or raise UnreadableImageError."""


def image_source(
    source: str | PathLike[str], names: str | PathLike[str] | None = None
) -> ImageSource:
    """Open a folder, a zip archive, or a text file that lists paths beside itself.

    Parameters
    ----------
    source : folder (with its subfolders), ``.zip``, or a list with one path per line
    names : a list that chooses images of the folder or archive and puts them in its order
    """
    path = Path(source)
    wanted = None if names is None else read_names(names)
    if path.is_dir():
        return FolderSource(path, wanted)
    if not path.is_file():
        raise FileNotFoundError(f"no folder or file {path}")
    if zipfile.is_zipfile(path):
        return ZipSource(path, wanted)
    if path.suffix.lower() in (".txt", ".lst", ".list"):
        if wanted is not None:
            raise ValueError(f"{path} is a list already: give the folder of its images instead.")
        return FolderSource(path.parent, read_names(path))
    raise ValueError(f"{path} is no folder, no zip archive and no list (.txt) of images.")


def read_names(path: str | PathLike[str]) -> list[str]:
    """Return the lines of a list, without empty ones."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no list of names in UTF-8: {error}") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise ValueError(f"{path} lists nothing.")
    return names


class FolderSource(ImageSource):
    """The image files of a folder and its subfolders, sorted by path.

    A link that leads out of the folder is not followed: the item is refused.
    """

    def __init__(self, folder: Path, names: Sequence[str] | None = None) -> None:
        self._root = folder.resolve()
        self.ignored = {}
        ids = self._walk() if names is None else list(names)
        if not ids:
            raise ValueError(f"{folder} holds no images ({', '.join(sorted(SUFFIXES))}).")
        self.items = Items(ids, [self._stamp(name) for name in ids])

    def read(self, position: int) -> bytes:
        """Return the bytes of one image file."""
        path = self._path(self.items.ids[position])
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            raise UnreadableImageError("no such file") from None
        except OSError as error:
            raise UnreadableImageError(f"cannot be read: {error.strerror}") from error
        return _bounded(content)

    def _walk(self) -> list[str]:
        found = []
        for folder, subfolders, files in os.walk(self._root):
            subfolders.sort()
            for name in list(subfolders):
                path = Path(folder, name)
                if path.is_symlink():
                    self.ignored[self._name(path)] = "a link to a folder is not followed"
            for name in files:
                path = Path(folder, name)
                if name.startswith("."):
                    self.ignored[self._name(path)] = "hidden"
                elif path.suffix.lower() not in SUFFIXES:
                    self.ignored[self._name(path)] = "no image by its name"
                else:
                    found.append(self._name(path))
        return sorted(found)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _path(self, name: str) -> Path:
        try:
            path = (self._root / name).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name with NUL
            raise UnreadableImageError(f"no such file: {error}") from error
        if not path.is_relative_to(self._root):
            raise UnreadableImageError("leads out of the folder")
        if path.exists() and not path.is_file():
            raise UnreadableImageError("is no file")
        return path

    def _stamp(self, name: str) -> str:
        try:
            status = self._path(name).stat()
        except (OSError, UnreadableImageError) as error:
            return type(error).__name__
        return f"{status.st_size} {status.st_mtime_ns}"


class ZipSource(ImageSource):
    """The image files of a zip archive, sorted by path; nothing is unpacked to disk."""

    def __init__(self, path: Path, names: Sequence[str] | None = None) -> None:
        try:
            self._archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path} is no whole zip archive: {error}") from error
        self.ignored = {}
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self._archive.infolist():
            if not entry.is_dir() and self._is_image(entry):
                if entry.filename in self._entries:
                    raise ValueError(f"{path} holds two files called {entry.filename}.")
                self._entries[entry.filename] = entry
        ids = sorted(self._entries) if names is None else list(names)
        if not ids:
            raise ValueError(f"{path} holds no images ({', '.join(sorted(SUFFIXES))}).")
        self.items = Items(ids, [self._stamp(name) for name in ids])

    def read(self, position: int) -> bytes:
        """Return the bytes of one image file."""
        entry = self._entries.get(self.items.ids[position])
        if entry is None:
            raise UnreadableImageError("no such file in the archive")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise UnreadableImageError("is a link")
        if entry.file_size > MAX_FILE_BYTES:
            return _bounded(b"", entry.file_size)
        try:
            with self._archive.open(entry) as file:
                return _bounded(file.read(MAX_FILE_BYTES + 1))
        except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError) as error:
            raise UnreadableImageError(f"cannot be unpacked: {error}") from error
        except ValueError as error:
            raise UnreadableImageError(f"cannot be unpacked: {error}") from error

    def _is_image(self, entry: zipfile.ZipInfo) -> bool:
        path = PurePosixPath(entry.filename)
        if any(part.startswith(".") or part == "__MACOSX" for part in path.parts):
            self.ignored[entry.filename] = "hidden"
        elif path.suffix.lower() not in SUFFIXES:
            self.ignored[entry.filename] = "no image by its name"
        else:
            return True
        return False

    def _stamp(self, name: str) -> str:
        entry = self._entries.get(name)
        return "absent" if entry is None else f"{entry.file_size} {entry.CRC}"


def _bounded(content: bytes, size: int | None = None) -> bytes:
    if (size or len(content)) > MAX_FILE_BYTES:
        raise UnreadableImageError(f"the file is larger than {MAX_FILE_BYTES >> 20} MiB")
    return content
