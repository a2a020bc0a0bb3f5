"""Captions by item, read from the formats in which they come."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Literal, cast

CaptionFormat = Literal["token", "csv", "tsv", "jsonl"]
FORMATS = ("token", "csv", "tsv", "jsonl")
_SUFFIXES = {
    ".token": "token",
    ".txt": "token",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_TOKEN_KEY = re.compile(r"(?P<name>.+)#(?P<number>\d+)")
_ID_COLUMNS = ("id", "image", "image_id", "image_name", "file", "filename", "file_name")
_TEXT_COLUMNS = ("caption", "captions", "text", "comment", "description", "sentence")
_MAX_LINE = 2**20


class CaptionFileError(ValueError):
    """A caption file is not what it should be; the message gives the line."""


def read_captions(
    path: str | PathLike[str],
    *,
    format: CaptionFormat | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
) -> dict[str, list[str]]:
    """Return the captions of every item, items in the order in which they first appear.

    Parameters
    ----------
    path : file, gzipped if it ends in ``.gz``
    format : ``token`` (``name#0<TAB>caption``, as Flickr8k's and Flickr30k's), ``csv`` or ``tsv``
        with a header, or ``jsonl``, one object per line whose caption is a string or a list of
        them; by default as the file's name says
    id_column, text_column : where the items' names and the captions are
    """
    path = Path(path)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    kind = format or _SUFFIXES.get(suffix.lower())
    if kind not in FORMATS:
        raise ValueError(
            f"{path}: its name tells no format: give one of {', '.join(FORMATS)}"
            + (f", not {format}." if format else ".")
        )
    captions: dict[str, list[str]] = {}
    pairs: Iterator[tuple[str, str]]
    with _lines(path) as lines:
        if kind == "token":
            pairs = ((name, caption) for name, _, caption in _token_entries(path, lines))
        elif kind == "jsonl":
            pairs = _json_pairs(path, lines, id_column, text_column)
        else:
            delimiter = "," if kind == "csv" else "\t"
            pairs = _table_pairs(path, lines, delimiter, id_column, text_column)
        for name, caption in pairs:
            captions.setdefault(name, []).append(caption)
    if not captions:
        raise CaptionFileError(f"{path} holds no captions.")
    return captions


def read_tokens(path: str | PathLike[str]) -> Iterator[tuple[str, int, str]]:
    """Yield item, number and caption of every line of a token file (``name#0<TAB>caption``)."""
    path = Path(path)
    with _lines(path) as lines:
        yield from _token_entries(path, lines)


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[str]]:
    """Open a file, gzipped or not; what goes wrong in reading it is told with its name."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with (
            gzip.open(path) if zipped else path.open("rb") as content,
            TextIOWrapper(cast(BinaryIO, content), encoding="utf-8-sig", newline="") as lines,
        ):
            yield iter(lambda: lines.readline(_MAX_LINE), "")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CaptionFileError(f"{path} is a truncated or damaged gzip file: {error}") from error
    except UnicodeDecodeError as error:
        raise CaptionFileError(f"{path} is not in UTF-8: {error}") from error
    except csv.Error as error:
        raise CaptionFileError(f"{path} is no whole table: {error}") from error


def _token_entries(path: Path, lines: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    seen: dict[str, set[int]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        key, tab, caption = line.rstrip("\r\n").partition("\t")
        match = _TOKEN_KEY.fullmatch(key.strip())
        if not tab or match is None:
            raise CaptionFileError(
                f"{path}, line {number}: {line.strip()[:60]!r} is not NAME#NUMBER<TAB>CAPTION. If "
                f"the file is a table with a header, give format csv or tsv."
            )
        numbers = seen.setdefault(match["name"], set())
        if int(match["number"]) in numbers:
            raise CaptionFileError(f"{path}, line {number}: a second caption called {key}.")
        numbers.add(int(match["number"]))
        yield match["name"], int(match["number"]), caption


def _table_pairs(
    path: Path,
    lines: Iterable[str],
    delimiter: str,
    id_column: str | None,
    text_column: str | None,
) -> Iterator[tuple[str, str]]:
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    header = next(rows, [])
    names = [name.strip() for name in header]
    id_at = names.index(_column(path, names, id_column, _ID_COLUMNS, "id_column"))
    text_at = names.index(_column(path, names, text_column, _TEXT_COLUMNS, "text_column"))
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise CaptionFileError(
                f"{path}, line {rows.line_num}: {len(row)} fields under {len(header)} columns. A "
                f"caption that holds the delimiter must be quoted."
            )
        yield _named(path, rows.line_num, row[id_at]), row[text_at]


def _json_pairs(
    path: Path, lines: Iterable[str], id_column: str | None, text_column: str | None
) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise CaptionFileError(f"{path}, line {number}: no JSON: {error}") from error
        if not isinstance(entry, dict):
            raise CaptionFileError(f"{path}, line {number}: no object but {type(entry).__name__}.")
        where = f"{path}, line {number}"
        names = list(entry)
        name = entry[_column(where, names, id_column, _ID_COLUMNS, "id_column")]
        text = entry[_column(where, names, text_column, _TEXT_COLUMNS, "text_column")]
        texts = text if isinstance(text, list) else [text]
        if not isinstance(name, str | int) or not all(isinstance(t, str) for t in texts):
            raise CaptionFileError(f"{where}: the id or a caption is no text.")
        for caption in texts or [""]:
            yield _named(path, number, str(name)), caption


def _named(path: Path, number: int, name: str) -> str:
    if not name.strip():
        raise CaptionFileError(f"{path}, line {number}: a caption without an id.")
    return name.strip()


def _column(
    where: Path | str,
    names: list[str],
    asked: str | None,
    usual: tuple[str, ...],
    option: str,
) -> str:
    wanted = (asked,) if asked is not None else usual
    found = [name for name in names if name in wanted]
    if len(found) != 1:
        problem = "none" if not found else "more than one"
        raise CaptionFileError(
            f"{where}: {problem} of the columns {', '.join(names)[:200]} is called "
            f"{' or '.join(wanted)}: name it by {option}."
        )
    return found[0]
