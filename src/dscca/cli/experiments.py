"""The command that carries out the paper's experiments."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dscca.cli.options import parse_assignments

if TYPE_CHECKING:
    from dscca.experiments.planning import Plan
    from dscca.experiments.pool import Pool
    from dscca.experiments.records import Record
    from dscca.experiments.spec import Spec

app = typer.Typer()

SpecName = Annotated[
    str, typer.Argument(metavar="SPEC", help="Name of a spec, or the path of a YAML file.")
]
Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Folder of the records, one per job.")
]
Overlays = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="FILE", help="YAML file put over the spec; repeatable."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Value put over the spec: --set data.mnist.folds=3."
    ),
]
Rows = Annotated[
    list[str] | None, typer.Option("--only", metavar="ROW", help="Run this row; repeatable.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--data", metavar="KEY", help="Run on this data; repeatable.")
]
RESULTS = Path("results/runs")


def read_spec(name: str, overlays: list[str] | None, overrides: list[str] | None) -> "Spec":
    """Return the spec that the options of a command describe."""
    from dscca.experiments.spec import load_spec

    return load_spec(name, overlays or (), parse_assignments(overrides, option="--set"))


@app.command()
def run(
    spec: Annotated[
        str | None,
        typer.Argument(metavar="[SPEC]", help="Name of a spec, path of a YAML file, or all."),
    ] = None,
    only: Rows = None,
    data: Columns = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train at a time.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each; by default all are shared out.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    executor: Annotated[str, typer.Option(help="local, or ray for a Ray cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster; without it one is started here.")
    ] = None,
    gpus: Annotated[
        float, typer.Option(min=0, help="Share of a GPU that a job on Ray asks for.")
    ] = 0.0,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="In miniature, on synthetic data: does it all run?")
    ] = False,
    results: Results = RESULTS,
    overlays: Overlays = None,
    overrides: Overrides = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try jobs again that failed in earlier runs.")
    ] = False,
    checkpoints: Annotated[
        bool, typer.Option(help="Keep unfinished trainings, to go on with after an interruption.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is there and what would run, and stop.")
    ] = False,
) -> None:
    """Run the paper's experiments; without a name, list them.

    Every training is a job with a record of its own: what is recorded is not run again, so an
    interrupted run goes on where it was, and several runs may share a folder. `dscca table` shows
    the results. The exit code is 1 if jobs have failed.

    Example: [bold]dscca run total_correlation --data mnist --device cuda --workers 4[/bold]
    """
    from dscca.experiments.smoke import smoke as miniature
    from dscca.experiments.spec import load_spec, spec_names

    console = Console(markup=False, highlight=False)
    if spec is None:
        table = Table("spec", "what", "in the paper")
        for name in spec_names():
            loaded = load_spec(name)
            table.add_row(name, loaded.title, loaded.paper)
        console.print(table)
        return
    specs = [read_spec(n, overlays, overrides) for n in (spec_names() if spec == "all" else [spec])]
    if smoke:
        specs = [miniature(loaded) for loaded in specs]
        if results == RESULTS:
            results = Path(tempfile.mkdtemp(prefix="dscca-smoke-"))
    for loaded in specs:
        _check_names("--only", only, loaded.methods)
        _check_names("--data", data, loaded.data)
    failed = 0
    for loaded in specs:
        if dry_run:
            _show_plan(console, loaded, results, only, data)
            continue
        pool = _pool(executor, workers, threads, device, address, gpus, results, checkpoints)
        failed += _run(console, loaded, results, pool, only, data, retry_failed)
    if failed:
        raise typer.Exit(1)


def _pool(
    executor: str,
    workers: int,
    threads: int | None,
    device: str,
    address: str | None,
    gpus: float,
    results: Path,
    checkpoints: bool,
) -> "Pool":
    from dscca.experiments.pool import LocalPool
    from dscca.experiments.runner import CHECKPOINTS

    if executor == "local":
        folder = (results / CHECKPOINTS).absolute() if checkpoints else None
        return LocalPool(workers, device, threads, folder)
    if executor == "ray":
        from dscca.experiments.ray_pool import RayPool

        return RayPool(workers, device, threads, address=address, gpus=gpus)
    raise ValueError(f"--executor {executor}: take local or ray")


def _run(
    console: Console,
    spec: "Spec",
    results: Path,
    pool: "Pool",
    only: list[str] | None,
    data: list[str] | None,
    retry_failed: bool,
) -> int:
    """Run a spec, and return how many of its jobs have failed."""
    from dscca.experiments.runner import Runner

    start = time.monotonic()
    done: set[str] = set()

    def watch(record: "Record", state: "Plan") -> None:
        done.add(record.id)
        figures = (
            ", ".join(f"{k} {record.test[k]:.2f}" for k in ("tc", "recall_sum") if k in record.test)
            if record.done
            else record.error
        )
        known = len(done | {job.id for job in state.pending})
        console.print(
            f"[{len(done)}/{known}] {record.job}: {figures}  ({record.seconds or 0:.1f} s)",
            soft_wrap=True,
        )

    console.print(f"{spec.title}: records in {results}", soft_wrap=True)
    runner = Runner(spec, results, pool, only, data, retry_failed, watch)
    try:
        state = runner.run()
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        raise typer.Exit(130) from None
    for name, why in runner.unavailable.items():
        console.print(f"left out: {name}. {why}")
    failed = sum(cell.failed for cell in state.cells.values())
    seconds = time.monotonic() - start
    failures = f", {failed} failed (--retry-failed tries them again)" if failed else ""
    console.print(f"{len(done)} jobs in {seconds:.0f} s{failures}")
    return failed


def _show_plan(
    console: Console,
    spec: "Spec",
    results: Path,
    only: list[str] | None,
    data: list[str] | None,
) -> None:
    from dscca.experiments.planning import plan
    from dscca.experiments.records import read_records

    state = plan(spec, read_records(results), only=only, data=data)
    table = Table("data", "row", "candidates", "chosen", "state", title=spec.title)
    for cell in state.cells.values():
        chosen: list[Any] = []
        for choice in cell.chosen.values():
            if choice and choice not in chosen:
                chosen.append(choice)
        table.add_row(
            cell.data.key,
            cell.row.name,
            f"{cell.tried} of {cell.candidates}" if cell.candidates else "",
            "; ".join(", ".join(f"{k}={v}" for k, v in choice.items()) for choice in chosen),
            cell.reason or "complete",
        )
    console.print(table)
    console.print(f"{len(state.pending)} jobs are known to be needed")


def _check_names(option: str, given: list[str] | None, allowed: Any) -> None:
    for name in given or []:
        if name not in allowed:
            raise ValueError(f"{option} {name}: take from {', '.join(allowed)}")
