"""The command that searches beyond an experiment's grid."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dscca.cli.experiments import Overlays, Overrides, SpecName, read_spec

if TYPE_CHECKING:
    from dscca.experiments.tune import Tuner

app = typer.Typer()


@app.command()
def tune(
    spec: SpecName,
    data: Annotated[str, typer.Option(metavar="KEY", help="Data set of the spec.")],
    row: Annotated[str, typer.Option(metavar="ROW", help="Row of the spec.")],
    storage: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Kept there: SQLite if it ends in .db or .sqlite, else a journal."
        ),
    ],
    trials: Annotated[int, typer.Option(min=1, help="Trials in all, earlier ones included.")] = 50,
    measure: Annotated[
        str | None,
        typer.Option(help="Validation figure to be highest; by default the spec's first rule."),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="NAME=LOW:HIGH[:log]",
            help="Draw a parameter from a range, in place of its grid or beside it; repeatable.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the search; trainings have seed 0.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    overlays: Overlays = None,
    overrides: Overrides = None,
) -> None:
    r"""Search a row's parameters beyond its grid with Optuna, by validation data alone.

    The space is the grid of the spec's row, with ranges if you like. Trials that fall behind the
    others' validation figures are stopped early. The same command goes on where it was stopped.
    Needs [bold]pip install "dscca\[tune]"[/bold].

    Example: [bold]dscca tune beyond --data mnist --row "DS-DCCA beyond" --storage tune.db
    --range learning_rate=1e-4:1e-2:log[/bold]
    """
    from dscca.experiments.tune import override

    tuner = _tuner(read_spec(spec, overlays, overrides), data, row, measure, ranges or [])
    tuner.storage, tuner.seed, tuner.device = storage, seed, device
    console = Console(soft_wrap=True, highlight=False, markup=False)

    def show(trial: Any) -> None:
        shown = {
            "COMPLETE": f"{tuner.measure} {trial.value:.3f}" if trial.value is not None else "",
            "PRUNED": f"stopped after epoch {trial.last_step}",
            "FAIL": str(trial.user_attrs.get("error")),
        }[trial.state.name]
        values = ", ".join(f"{k}={v}" for k, v in tuner.values_of(trial).items())
        console.print(f"[{len(tuner.finished())}/{trials}] {shown}  ({values})")

    tuner.watch = show
    try:
        tuner.run(trials)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        raise typer.Exit(130) from None
    best = tuner.best()
    if best is None:
        raise ValueError(f"none of {len(tuner.finished())} trials ended: their errors are above")
    values = {**tuner.fixed, **tuner.values_of(best)}
    console.print(f"best of {len(tuner.finished())}: validation {tuner.measure} {best.value:.3f}")
    console.print(f"to use it: --set {shlex.quote(override(row, data, values))}")


def _tuner(loaded: Any, data: str, row: str, measure: str | None, ranges: list[str]) -> "Tuner":
    """Return what searches, from names that were checked."""
    from dscca.experiments.spaces import fixed_takes, row_space, with_ranges
    from dscca.experiments.spec import MEASURES
    from dscca.experiments.tune import Tuner

    if data not in loaded.data:
        raise ValueError(f"--data {data}: take from {', '.join(loaded.data)}")
    rows = [name for name, known in loaded.methods.items() if data in known.choices]
    if row not in rows:
        raise ValueError(f"--row {row}: take from {', '.join(rows)}")
    measure = loaded.criteria[0] if measure is None else measure
    if measure not in MEASURES:
        raise ValueError(f"--measure {measure}: take from {', '.join(MEASURES)}")
    column, method = loaded.data[data], loaded.methods[row]
    space = row_space(loaded, column, method)
    fixed = fixed_takes(loaded, column, method, space)
    base = loaded.job(column, method, fixed).parameters
    space = with_ranges(space, ranges, method, base)
    if not space:
        raise ValueError(f"{row} has no grid on {data}: give a space with --range NAME=LOW:HIGH")
    return Tuner(loaded, column, method, space, measure, Path(), fixed)
