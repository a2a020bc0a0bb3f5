"""Commands on data sets: list, info, fetch, path, check."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dscca.cli.options import AsJson

if TYPE_CHECKING:
    from dscca.datasets.fetch import Watch
    from dscca.datasets.records import DataFile, Dataset

app = typer.Typer(help="Data sets: what there is, where it lies, whether it is whole.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Data set; `dscca data list` has all.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the data sets and whether their files are here.

    Example: [bold]dscca data list[/bold]
    """
    from dscca.datasets import DATASETS

    if as_json:
        print(json.dumps([_described(dataset) for dataset in DATASETS]))
        return
    table = Table("name", "what", "train / val / test", "folds", "here")
    table.columns[0].no_wrap = True
    for dataset in DATASETS:
        sizes = " / ".join(f"{size:,}" for size in dataset.sizes)
        folds = "" if dataset.n_folds is None else str(dataset.n_folds)
        table.add_row(dataset.name, dataset.title, sizes, folds, _presence(dataset))
    Console().print(table)


@app.command()
def info(name: Name, as_json: AsJson = False) -> None:
    """Show a data set: views, sizes, files and where they are, licence, citation.

    Example: [bold]dscca data info flickr8k[/bold]
    """
    from dscca.datasets import find_dataset

    dataset = find_dataset(name)
    if as_json:
        print(json.dumps(_described(dataset)))
        return
    console = Console()
    console.print(f"[bold]{dataset.title}[/bold]  {dataset.name}", highlight=False)
    sizes = ", ".join(
        f"{size:,} {part}"
        for size, part in zip(dataset.sizes, ("train", "validation", "test"), strict=True)
    )
    folds = f"; {dataset.n_folds} folds" if dataset.n_folds else ""
    console.print(f"{' | '.join(dataset.views)}; {sizes}{folds}", highlight=False)
    console.print(f"Licence: {dataset.licence}", highlight=False)
    if dataset.files:
        table = Table()
        for column in ("file", "what", "where"):
            table.add_column(column, overflow="fold")
        for file in dataset.files:
            found = dataset.folder.find(*file.names)
            absent = "missing" if file.needed else "not here (optional)"
            table.add_row(" or ".join(file.names), file.what, str(found or absent))
        console.print(table)
        places = ", ".join(str(place) for place in dataset.folder.places)
        console.print(f"Looked for in {places}. {dataset.obtain}", highlight=False, markup=False)
    console.print(dataset.citation, highlight=False, markup=False)


@app.command()
def fetch(
    name: Name,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="Take the files from an archive or folder."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for a server that is silent.")
    ] = 30.0,
) -> None:
    """Download the files of a data set into the cache, or take them from an archive or folder.

    A download that is cut or killed goes on where it stopped when the command is given again.

    Example: [bold]dscca data fetch mnist[/bold], [bold]dscca data fetch iapr --from
    iaprtc12.tgz[/bold]
    """
    from dscca.datasets import MissingDataError, find_dataset
    from dscca.datasets.fetch import fetch as get
    from dscca.datasets.fetch import install, missing

    dataset, console = find_dataset(name), Console()
    if source is not None:
        written = install(dataset, source)
        console.print(
            f"took {len(written)} files into {dataset.folder.places[-1]}", highlight=False
        )
        return
    with _progress(console) as watch:
        got = get(dataset, timeout=timeout, watch=watch)
    for path, digest in got:
        console.print(f"{path}  SHA-256 of the download {digest}", highlight=False, soft_wrap=True)
    lacking = missing(dataset)
    if lacking:
        raise MissingDataError(dataset.folder.missing(", ".join(lacking)))
    if not got:
        console.print(f"{dataset.name}: nothing was missing", highlight=False)


@app.command()
def path(name: Name) -> None:
    """Print the folder in which a data set's files are.

    Example: [bold]ls "$(dscca data path mnist)"[/bold]
    """
    from dscca.datasets import MissingDataError, find_dataset

    dataset = find_dataset(name)
    if not dataset.files:
        raise ValueError(f"{dataset.name} needs no files")
    for place in dataset.folder.places:
        if any((place / n).exists() for file in dataset.files for n in file.names):
            print(place)
            return
    raise MissingDataError(dataset.folder.missing("all of its files"))


@app.command()
def check(name: Name, as_json: AsJson = False) -> None:
    """Check that a data set's files are whole: checksums where they are known, then its loader.

    Example: [bold]dscca data check mnist[/bold]
    """
    from dscca.datasets import find_dataset, load_splits
    from dscca.datasets.fetch import damaged

    dataset = find_dataset(name)
    wrong = damaged(dataset)
    if wrong:
        raise ValueError("; ".join(wrong))
    data = load_splits(dataset.name, download=False)
    shapes = {
        part.split: (part.x.shape, part.y.shape) for part in (data.train, data.val, data.test)
    }
    known = sum(file.content_sha256 is not None for file in dataset.files)
    if as_json:
        print(json.dumps({"name": dataset.name, "checksums": known, "shapes": shapes}))
        return
    table = Table("part", "samples", *dataset.views)
    for part, (x, y) in shapes.items():
        table.add_row(part, f"{x[0]:,}", str(x[1]), str(y[1]))
    Console().print(table)
    print(f"{dataset.name} is whole; {known} of {len(dataset.files)} files have known checksums.")


def _described(dataset: "Dataset") -> dict[str, Any]:
    return {
        "name": dataset.name,
        "title": dataset.title,
        "views": dataset.views,
        "sizes": dataset.sizes,
        "folds": dataset.n_folds,
        "licence": dataset.licence,
        "citation": dataset.citation,
        "obtain": dataset.obtain,
        "places": [str(place) for place in dataset.folder.places],
        "files": [_file(dataset, file) for file in dataset.files],
    }


def _file(dataset: "Dataset", file: "DataFile") -> dict[str, Any]:
    found = dataset.folder.find(*file.names)
    return {
        "names": file.names,
        "what": file.what,
        "needed": file.needed,
        "path": str(found) if found else None,
        "urls": file.source.urls if file.source else (),
    }


def _presence(dataset: "Dataset") -> str:
    if not dataset.files:
        return "needs no files"
    needed = [file for file in dataset.files if file.needed]
    found = sum(dataset.folder.find(*file.names) is not None for file in needed)
    return "yes" if found == len(needed) else f"{found} of {len(needed)} files"


@contextmanager
def _progress(console: Console) -> Iterator["Watch"]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:

        def watch(name: str) -> Any:
            task = bars.add_task(name, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield watch
