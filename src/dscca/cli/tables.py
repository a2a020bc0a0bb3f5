"""The command that shows what the paper's experiments gave, beside the paper's figures."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from dscca.cli.experiments import (
    RESULTS,
    Columns,
    Overlays,
    Overrides,
    Results,
    SpecName,
    read_spec,
)

app = typer.Typer()


@app.command()
def table(
    spec: SpecName,
    data: Columns = None,
    results: Results = RESULTS,
    form: Annotated[
        str, typer.Option("--format", metavar="terminal|markdown|latex|csv", help="To print as.")
    ] = "terminal",
    overlays: Overlays = None,
    overrides: Overrides = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Of runs in miniature, made with --smoke.")
    ] = False,
    deviations: Annotated[
        bool,
        typer.Option("--deviations", help="Also list where we differ from the paper, and why."),
    ] = False,
) -> None:
    """Show an experiment's table from the records of its runs, the paper's figures beside ours.

    Nothing is run. What is not recorded is shown as missing, with the reason; the best row is bold,
    the second best underlined. CSV has all figures in full, a line for each row and measure.

    Example: [bold]dscca table total_correlation --data mnist --format latex[/bold]
    """
    from dscca.experiments import rendering
    from dscca.experiments.planning import plan
    from dscca.experiments.records import read_records
    from dscca.experiments.smoke import smoke as miniature
    from dscca.experiments.tables import make_tables

    if form not in rendering.FORMATS:
        raise ValueError(f"--format {form}: take from {', '.join(rendering.FORMATS)}")
    loaded = read_spec(spec, overlays, overrides)
    if smoke:
        loaded = miniature(loaded)
    tables = make_tables(plan(loaded, read_records(_folder(results))), data)
    if form == "csv":
        print(rendering.comma_separated(tables), end="")
    for made in tables:
        if form == "terminal":
            _print_whole(rendering.terminal(made))
        elif form == "markdown":
            print(f"### {rendering.markdown_text(made.title)}\n\n{rendering.markdown(made)}")
        elif form == "latex":
            print(rendering.latex(made))
    if deviations and form != "csv":
        escape = {"markdown": rendering.markdown_text, "latex": rendering.latex_text}.get(form, str)
        for entry in rendering.deviations(loaded):
            Console().print(escape(entry), markup=False, highlight=False, soft_wrap=True)


def _folder(results: Path) -> Path:
    """Return the folder of records, which may not be there yet, but is no file."""
    if results.exists() and not results.is_dir():
        raise NotADirectoryError(f"--results {results} is a file, not a folder")
    return results


def _print_whole(table: Table) -> None:
    """Print a table at the width it needs: a figure that is cut off is a wrong one."""
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    if needed > console.width:
        console = Console(width=needed)
    console.print(table)
