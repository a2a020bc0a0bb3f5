"""The command that writes a report."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dscca.cli.experiments import Overlays, Overrides, read_spec

app = typer.Typer()


def _shape(text: str | None) -> Any:
    """Return height and width from ``28x14``."""
    if text is None:
        return None
    height, x, width = text.lower().partition("x")
    if not (x and height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise ValueError(f"{text!r} is no shape of pictures: write HEIGHTxWIDTH, such as 28x14")
    return int(height), int(width)


_SHAPE = "HEIGHTxWIDTH of the pictures that its rows are, values from 0 to 1."


@app.command()
def report(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="Folder of records, a model, or a folder of models and records."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show models on the test samples of this data set."),
    ] = None,
    x: Annotated[
        str | None, typer.Option("--x", metavar="X", help="Or on these: view one, an array file.")
    ] = None,
    y: Annotated[str | None, typer.Option("--y", metavar="Y", help="View two of them.")] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Their classes: an array file, or text, one a line."),
    ] = None,
    captions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts to show, one a line.")
    ] = None,
    x_image: Annotated[str | None, typer.Option(metavar="HxW", help=f"View one: {_SHAPE}")] = None,
    y_image: Annotated[str | None, typer.Option(metavar="HxW", help=f"View two: {_SHAPE}")] = None,
    spec: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Show the records as this experiment's table."),
    ] = None,
    overlays: Overlays = None,
    overrides: Overrides = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    points: Annotated[
        int, typer.Option(min=10, help="Samples to show at most; the page says if there are more.")
    ] = 10_000,
) -> None:
    """Write one HTML page on records of runs, on fitted models, or on both.

    It holds all it needs, opens from disk, and asks nothing of the network. Where models and
    records lie together, the models are shown on the test samples of the records' data set.

    Example: [bold]dscca report demo-models -o report.html[/bold],
    [bold]dscca report results/runs --spec total_correlation[/bold],
    [bold]dscca report model/ --x images.npy --y text.npy --labels classes.npy[/bold]
    """
    from dscca.persistence import check_target
    from dscca.report.inputs import find_models, find_records, read_samples, samples_of_records
    from dscca.report.writing import report_models, report_records

    check_target(output.with_suffix(".safetensors"))  # a file beside it
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder: name a file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is nothing at {path}")
    models, records = find_models(path), find_records(path)
    arguments: dict[str, Any] = {
        "title": title or (path.stem if models or records else ""),
        "command": shlex.join(["dscca", *sys.argv[1:]]),
    }
    given = (data, x, y, labels, captions, x_image, y_image)
    if spec is None and (overlays or overrides):
        raise ValueError("--with and --set change a spec: name it by --spec")
    if spec is not None and (models or not records):
        raise ValueError(f"--spec is for a folder of records alone, which {path} is not")
    if models:
        samples = (
            samples_of_records(records, path)
            if all(value is None for value in given)
            else read_samples(data, x, y, labels, captions, (_shape(x_image), _shape(y_image)))
        )
        report_models(models, samples, output, records=records, max_points=points, **arguments)
    elif records:
        if any(value is not None for value in given):
            raise ValueError(f"{path} holds records and no model to show data with: leave them out")
        experiment = None if spec is None else read_spec(spec, overlays, overrides)
        if title is None and experiment is not None:
            arguments["title"] = experiment.title
        report_records(records, output, spec=experiment, **arguments)
    else:
        raise ValueError(f"{path} holds neither records of runs (JSON) nor models")
    Console().print(f"wrote {output}", highlight=False, markup=False, soft_wrap=True)
