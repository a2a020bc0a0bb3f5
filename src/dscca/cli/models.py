"""Commands on single models: fit, transform, score, models, demo."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dscca.cli.options import AsJson, ModelPath, ViewX, ViewY, parse_assignments

app = typer.Typer()


@app.command()
def fit(
    x: ViewX,
    y: ViewY,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to save the model.")],
    model: Annotated[str, typer.Option(help="Method; `dscca models` lists them.")] = "cca",
    n_components: Annotated[
        int, typer.Option("--n-components", "-n", min=1, help="Pairs of variates to find.")
    ] = 2,
    x_val: Annotated[
        str | None, typer.Option(metavar="X", help="View one of validation samples.")
    ] = None,
    y_val: Annotated[
        str | None, typer.Option(metavar="Y", help="View two of validation samples.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="Any parameter of the method, as YAML: -p reg=auto, -p 'reg=[0.1, 0.01]'.",
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(help="Also index the items of both views, for `dscca index search`."),
    ] = None,
) -> None:
    """Fit a model to paired views and save it; with --index, also an index to search them by.

    Example: [bold]dscca fit images.npy text.npy -n 50 -p reg=auto -o model/[/bold]
    """
    from dscca.arrays import read_views
    from dscca.cli.index import save_index
    from dscca.methods import find_method
    from dscca.persistence import check_target

    estimator = find_method(model).estimator_class()(n_components=n_components)
    estimator.set_params(**parse_assignments(param, estimator.get_params()))
    check_target(output)
    validation: dict[str, Any] = {}
    if x_val is not None and y_val is not None:
        validation["X_val"], validation["y_val"] = read_views(x_val, y_val)
    elif x_val is not None or y_val is not None:
        raise ValueError("give --x-val and --y-val, or neither")
    estimator.fit(*read_views(x, y), **validation)
    estimator.save(output)
    if index is not None:
        save_index(estimator, x, y, index)
    _print_correlations("training", {"training": estimator.correlations_})
    Console().print(f"saved {type(estimator).__name__} to {output}", highlight=False)


@app.command()
def transform(
    model: ModelPath,
    output: Annotated[
        Path, typer.Option("--output", "-o", help=".npz, or for one view .npy or .csv.")
    ],
    x: Annotated[str | None, typer.Option(metavar="X", help="View one to transform.")] = None,
    y: Annotated[str | None, typer.Option(metavar="Y", help="View two to transform.")] = None,
) -> None:
    """Write the variates of one view or both.

    Example: [bold]dscca transform model/ --x images.npy -o variates.npy[/bold]
    """
    from dscca import load
    from dscca.arrays import read_array, write_arrays

    if x is None and y is None:
        raise ValueError("give --x, --y or both")
    fitted = load(model)
    variates = {}
    if x is not None:
        variates["x"] = fitted.transform(read_array(x))
    if y is not None:
        variates["y"] = fitted.transform_y(read_array(y))
    write_arrays(output, variates)
    shapes = ", ".join(f"{name} {array.shape}" for name, array in variates.items())
    Console().print(f"wrote {shapes} to {output}", highlight=False)


@app.command()
def score(model: ModelPath, x: ViewX, y: ViewY, as_json: AsJson = False) -> None:
    """Print the canonical correlations and the total correlation on the given data.

    Nothing is refitted: on samples that took no part in fitting these are held-out figures.
    """
    from dscca import load
    from dscca.arrays import read_views

    correlations = load(model).canonical_correlations(*read_views(x, y))
    if as_json:
        values = [float(value) for value in correlations]
        print(json.dumps({"total_correlation": sum(values), "canonical_correlations": values}))
    else:
        _print_correlations("canonical correlations", {"given data": correlations})


@app.command()
def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this method in full.")
    ] = None,
) -> None:
    """List all methods, or show one with its parameters, the paper's grid and its citation.

    Example: [bold]dscca models ds-dcca[/bold]
    """
    from dscca.methods import METHODS, find_method

    console = Console()
    if name is None:
        table = Table("name", "in the paper", "estimator", "what it does")
        for method in METHODS:
            table.add_row(method.name, method.title, method.estimator, method.summary)
        console.print(table)
        return
    method = find_method(name)
    console.print(f"[bold]{method.title}[/bold]  dscca.{method.estimator}", highlight=False)
    console.print(method.summary, highlight=False)
    table = Table("parameter", "value", "the paper chooses from")
    for parameter, value in method.make().get_params().items():
        grid = method.grid.get(parameter, ())
        shown = ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in grid)
        table.add_row(parameter, str(value), shown)
    console.print(table)
    console.print(method.citation, highlight=False, markup=False)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for models, records and the report.")
    ] = Path("demo-models"),
    models: Annotated[
        str, typer.Option(metavar="NAMES", help="Methods, separated by commas, or all.")
    ] = "cca,nkcca,dcca,ds-dcca",
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Correlate the left and right halves of 10,000 embedded MNIST digits, and write a report.

    Example: [bold]dscca demo --open[/bold], [bold]dscca demo --models cca,ds-dcca[/bold]
    """
    from dscca.demo import run
    from dscca.persistence import check_target

    check_target(output / "model")
    run(output, [name.strip() for name in models.split(",")], show=show)


def _print_correlations(title: str, columns: dict[str, Any], shown: int = 10) -> None:
    table = Table("pair", *columns, title=title)
    size = len(next(iter(columns.values())))
    for i in range(min(size, shown)):
        table.add_row(str(i + 1), *(f"{values[i]:.4f}" for values in columns.values()))
    if size > shown:
        table.add_row("...", *("" for _ in columns))
    table.add_section()
    table.add_row(f"sum of {size}", *(f"{values.sum():.4f}" for values in columns.values()))
    Console().print(table)
