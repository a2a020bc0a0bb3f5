"""Word vectors in word2vec's binary and text formats, read in one pass and only as far as needed.

Binary (Mikolov et al., 2013): a line ``WORDS WIDTH``, then for every word its name, a space and
WIDTH little-endian float32 numbers. Text: a line per word, its name and its numbers; the first line
may be ``WORDS WIDTH`` (fastText) or not (GloVe).
"""

import gzip
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

_MAX_WIDTH = 100_000
_MAX_WORD = 4096
_CHUNK = 2**22


class WordVectorFileError(ValueError):
    """A file of word vectors is damaged or of another format."""


@dataclass(frozen=True)
class WordVectors:
    """Vectors of some words."""

    rows: dict[str, int]
    """The row of each word."""
    vectors: NDArray[np.float32]
    """One row per word."""


def read_word_vectors(
    path: str | PathLike[str], wanted: Collection[str] | None = None
) -> WordVectors:
    """Read the vectors of the `wanted` words, or of all.

    The file is streamed: memory holds the wanted vectors and some megabytes. Of a word that occurs
    twice the first vector counts, as in word2vec's own order of frequency.

    Parameters
    ----------
    path : ``.bin`` (word2vec's binary format), ``.txt`` or ``.vec`` (text), gzipped or not
    """
    path = Path(path)
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() not in (".bin", ".txt", ".vec"):
        raise ValueError(f"{path} ends in none of .bin, .txt and .vec (.gz).")
    size = None if zipped else path.stat().st_size
    words = wanted if wanted is None or isinstance(wanted, set | frozenset) else set(wanted)
    try:
        with cast(BinaryIO, gzip.open(path)) if zipped else path.open("rb") as file:
            if suffix.lower() == ".bin":
                return _read_binary(path, file, words, size)
            return _read_text(path, file, words)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WordVectorFileError(f"{path} is a truncated or damaged gzip: {error}") from error


def _read_binary(
    path: Path, file: BinaryIO, wanted: Collection[str] | None, size: int | None
) -> WordVectors:
    header = file.readline(100)
    count, width = _counts(header) or (0, 0)
    if not header.endswith(b"\n") or count < 1 or not 1 <= width <= _MAX_WIDTH:
        raise WordVectorFileError(
            f"{path} does not begin with a line of two numbers, words and width (1 to "
            f"{_MAX_WIDTH:,}): it is not in word2vec's binary format."
        )
    row_bytes = 4 * width
    if size is not None and size < len(header) + count * (row_bytes + 2):
        raise WordVectorFileError(
            f"{path} has {size} bytes, fewer than {count} words of {width} numbers need: it is "
            f"truncated."
        )
    collected = _Collected(path, width)
    buffer, at = b"", 0
    for number in range(count):
        end = buffer.find(b" ", at, at + _MAX_WORD)
        if end < 0 or end + 1 + row_bytes > len(buffer):
            buffer, at = buffer[at:] + file.read(_CHUNK + row_bytes), 0
            end = buffer.find(b" ", 0, _MAX_WORD)
            if end < 0 or end + 1 + row_bytes > len(buffer):
                problem = "has no end" if len(buffer) >= _MAX_WORD and end < 0 else "is cut off"
                raise WordVectorFileError(f"{path}: word {number + 1} of {count} {problem}.")
        word = buffer[at:end].lstrip(b"\n").decode("utf-8", errors="replace")
        at = end + 1 + row_bytes
        if not word:
            raise WordVectorFileError(f"{path}: word {number + 1} of {count} is empty.")
        if wanted is None or word in wanted:
            collected.add(word, np.frombuffer(buffer, "<f4", width, end + 1))
    if (buffer[at:] + file.read(2)).strip():
        raise WordVectorFileError(f"{path} goes on after the {count} words that it announces.")
    return collected.result()


def _read_text(path: Path, file: BinaryIO, wanted: Collection[str] | None) -> WordVectors:
    limit = _MAX_WORD + 40 * _MAX_WIDTH
    first = file.readline(limit)
    counts = _counts(first)
    line, number = (file.readline(limit), 2) if counts else (first, 1)
    width = counts[1] if counts else len(line.split()) - 1
    if not 1 <= width <= _MAX_WIDTH:
        raise WordVectorFileError(
            f"{path}, line {number}: no word with its numbers (1 to {_MAX_WIDTH:,} of them)."
        )
    collected, words = _Collected(path, width), 0
    while line:
        parts = line.rstrip().rsplit(b" ", width)  # from the right: some words hold spaces
        if len(parts) != width + 1 or not parts[0]:
            raise WordVectorFileError(f"{path}, line {number}: not a word and {width} numbers.")
        word = parts[0].decode("utf-8", errors="replace")
        if wanted is None or word in wanted:
            try:
                collected.add(word, np.array(parts[1:], dtype=np.float32))
            except ValueError as error:
                raise WordVectorFileError(f"{path}, line {number}: {error}") from error
        words += 1
        line, number = file.readline(limit), number + 1
    if counts and words != counts[0]:
        raise WordVectorFileError(f"{path} announces {counts[0]} words, but holds {words}.")
    return collected.result()


def _counts(line: bytes) -> tuple[int, int] | None:
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


class _Collected:
    """Wanted vectors, in an array that doubles when it is full."""

    def __init__(self, path: Path, width: int) -> None:
        self._path, self._rows = path, dict[str, int]()
        self._vectors = np.empty((1024, width), dtype=np.float32)

    def add(self, word: str, vector: NDArray[np.float32]) -> None:
        if word in self._rows:
            return
        if not np.isfinite(vector).all():
            raise WordVectorFileError(f"{self._path}: the vector of {word!r} is not finite.")
        if len(self._rows) == len(self._vectors):
            grown = np.empty((2 * len(self._vectors), vector.size), dtype=np.float32)
            grown[: len(self._vectors)] = self._vectors
            self._vectors = grown
        self._vectors[len(self._rows)] = vector
        self._rows[word] = len(self._rows)

    def result(self) -> WordVectors:
        return WordVectors(self._rows, self._vectors[: len(self._rows)].copy())
