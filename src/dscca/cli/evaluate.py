"""The command that says how well a fitted model retrieves one view by the other."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dscca.cli.options import AsJson, ModelPath, ViewX, ViewY

app = typer.Typer()

_GROUPS = (
    "Whole numbers, one per row of {}: rows of both views with equal ones match. By default row i "
    "matches row i."
)


@app.command()
def evaluate(
    model: ModelPath,
    x: ViewX,
    y: ViewY,
    x_groups: Annotated[str | None, typer.Option(metavar="FILE", help=_GROUPS.format("X"))] = None,
    y_groups: Annotated[str | None, typer.Option(metavar="FILE", help=_GROUPS.format("Y"))] = None,
    k: Annotated[
        list[int] | None, typer.Option("-k", min=1, help="Place to report recall at; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print recall, median rank and mean reciprocal rank, in both directions.

    Every sample of one view ranks those of the other by the cosine of their projections; ties count
    against it. Recalls are shown in percent, and written as shares with --json.

    Example: [bold]dscca evaluate model/ images.npy captions.npy --y-groups image_of.npy[/bold]
    """
    from dscca import load
    from dscca.arrays import read_array, read_views
    from dscca.metrics import evaluate_retrieval

    fitted = load(model)
    groups = [None if g is None else read_array(g).reshape(-1) for g in (x_groups, y_groups)]
    paired = x_groups is None and y_groups is None
    views = read_views(x, y) if paired else (read_array(x), read_array(y))
    result = evaluate_retrieval(
        fitted.embed(views[0]),
        fitted.embed_y(views[1]),
        x_groups=groups[0],
        y_groups=groups[1],
        ks=k or (1, 5, 10),
    )
    if as_json:
        print(json.dumps(result.to_dict(orient="index")))
        return
    table = Table("direction", *result.columns)
    for direction, row in result.iterrows():
        cells = [
            f"{100 * value:.1f}" if str(name).startswith("R@") else f"{value:g}"
            for name, value in row.items()
        ]
        table.add_row(str(direction), *cells)
    Console().print(table)
