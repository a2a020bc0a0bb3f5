"""Captions and lists of images, in the formats they are published in."""

import gzip
import html
import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dscca.features.captions import read_tokens as token_lines

Captions = dict[str, tuple[str, ...]]


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Read a text file, gzipped or not."""
    try:
        raw = path.read_bytes()
        content = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        return content.decode(encoding)
    except (EOFError, OSError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no whole text file: {error}") from error


def read_tokens(path: Path) -> Captions:
    """Read a token file: in each line ``image.jpg#number``, a tab, a caption.

    An image's captions are numbered from 0; they are returned in that order, images in the file's.
    """
    numbered: dict[str, dict[int, str]] = {}
    for image, number, text in token_lines(path):
        numbered.setdefault(image, {})[number] = text.strip()
    for image, captions in numbered.items():
        if sorted(captions) != list(range(len(captions))):
            raise ValueError(
                f"{path}: {image} has captions {sorted(captions)}, which are not numbered from 0 "
                "on: lines are missing."
            )
    return {image: tuple(c[i] for i in range(len(c))) for image, c in numbered.items()}


def read_karpathy(path: Path) -> tuple[Captions, dict[str, list[str]]]:
    """Read Karpathy's JSON: the captions by image, and the images of train, val and test."""
    try:
        images = json.loads(read_text(path))["images"]
        captions: Captions = {}
        splits: dict[str, list[str]] = {}
        for image in images:
            name = str(image["filename"])
            if name in captions:
                raise ValueError(f"{name} comes twice")
            captions[name] = tuple(str(sentence["raw"]).strip() for sentence in image["sentences"])
            splits.setdefault(str(image["split"]), []).append(name)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not in the format of Karpathy's captions: {error}") from error
    return captions, splits


def read_list(path: Path) -> list[str]:
    """Read a list of images, one in each line."""
    names = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    check_distinct(str(path), names)
    return names


def read_iapr(folder: Path) -> Captions:
    """Read IAPR TC-12's annotations: a file for each image, below ``00``, ``01`` and so on.

    The files look like XML but have no declared encoding (they are Latin-1) and unescaped
    ampersands, so the two fields that matter are taken as text. The name of an image is its path
    below ``images``, such as ``00/25.jpg``.
    """
    captions: Captions = {}
    for path in sorted(folder.rglob("*.eng")):
        text = read_text(path, "latin-1")
        fields = {tag: _field(path, text, tag) for tag in ("IMAGE", "DESCRIPTION")}
        image = fields["IMAGE"].removeprefix("images/")
        if image in captions:
            raise ValueError(f"{path}: the image {image} has two annotations.")
        captions[image] = (fields["DESCRIPTION"],)
    if not captions:
        raise ValueError(f"{folder} holds no annotations: files such as 00/25.eng are expected.")
    return captions


def _field(path: Path, text: str, tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"{path} has {len(found)} fields {tag} where one is expected.")
    return " ".join(html.unescape(found[0]).split())


def check_distinct(source: str, names: Iterable[Any]) -> None:
    """Refuse a list in which a name comes twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{source}: {name} comes twice.")
        seen.add(name)
