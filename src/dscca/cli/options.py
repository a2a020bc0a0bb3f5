"""Arguments and options that commands share."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

_SOURCE = "array file: .npy, .npz (file.npz:key), .csv or .parquet; one row per sample"
ViewX = Annotated[str, typer.Argument(metavar="X", help=f"View one, an {_SOURCE}.")]
ViewY = Annotated[str, typer.Argument(metavar="Y", help="View two, row i paired with row i of X.")]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder or file of a fit model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def shown(text: str) -> Text:
    """Return text from outside for a table: no markup is read, control characters are escaped."""
    return Text("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text))
