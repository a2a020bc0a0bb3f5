"""Arguments and options that commands share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from dscca.values import parse_value

_SOURCE = "array file: .npy, .npz (file.npz:key), .csv or .parquet; one row per sample"
ViewX = Annotated[str, typer.Argument(metavar="X", help=f"View one, an {_SOURCE}.")]
ViewY = Annotated[str, typer.Argument(metavar="Y", help="View two, row i paired with row i of X.")]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder or file of a fit model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def parse_assignments(
    param: list[str] | None, known: Iterable[str] | None = None, option: str = "-p"
) -> dict[str, Any]:
    """Return what an option's ``NAME=VALUE`` say, with names from `known`, if given."""
    values = {}
    names = None if known is None else list(known)
    for assignment in param or []:
        name, equals, value = assignment.partition("=")
        if not equals or (names is not None and name not in names):
            allowed = "" if names is None else f" with NAME from {', '.join(names)}"
            raise ValueError(f"{option} {assignment}: write NAME=VALUE{allowed}")
        values[name] = parse_value(value)
    return values


def shown(text: str) -> Text:
    """Return text from outside for a table: no markup is read, control characters are escaped."""
    return Text("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text))
