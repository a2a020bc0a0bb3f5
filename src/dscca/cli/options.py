"""Arguments and options that commands share."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.text import Text

_SOURCE = "array file: .npy, .npz (file.npz:key), .csv or .parquet; one row per sample"
ViewX = Annotated[str, typer.Argument(metavar="X", help=f"View one, an {_SOURCE}.")]
ViewY = Annotated[str, typer.Argument(metavar="Y", help="View two, row i paired with row i of X.")]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder or file of a fit model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class _Loader(yaml.SafeLoader):
    """Reads ``1e-3`` as the number it is; YAML 1.1 wants ``1.0e-3``."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def parse_value(text: str) -> Any:
    """Return the value of a parameter written as YAML; a tuple is taken as the list it stands for.

    >>> parse_value("[1e-3, auto, null]"), parse_value("((8, 8), (4,))")
    ([0.001, 'auto', None], [[8, 8], [4]])
    """
    if text.strip().startswith("("):
        text = text.translate(str.maketrans("()", "[]"))
    return yaml.load(text, _Loader)  # a SafeLoader


def parse_assignments(
    param: list[str] | None, known: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return what a list of ``NAME=VALUE`` says, with names from `known`, if given."""
    values = {}
    names = None if known is None else list(known)
    for assignment in param or []:
        name, equals, value = assignment.partition("=")
        if not equals or (names is not None and name not in names):
            allowed = "" if names is None else f" with NAME from {', '.join(names)}"
            raise ValueError(f"-p {assignment}: write NAME=VALUE{allowed}")
        values[name] = parse_value(value)
    return values


def shown(text: str) -> Text:
    """Return text from outside for a table: no markup is read, control characters are escaped."""
    return Text("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text))
