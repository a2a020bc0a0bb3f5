"""Commands on cross-modal indexes: build, add, remove, search, info."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from dscca.cli.options import AsJson, ModelPath, parse_assignments, shown

if TYPE_CHECKING:
    from dscca.retrieval import Id
    from dscca.retrieval.index import CrossModalIndex

app = typer.Typer(no_args_is_help=True, help="Build and search cross-modal indexes.")

_View = Literal["x", "y"]
_ARRAY = "array file, one row per item"
_IDS = "Text file with one id per line, one per item."
_METADATA = "JSON lines file, one line per item: it comes back with every hit."

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of the index.")]
X = Annotated[str | None, typer.Option("--x", metavar="X", help=f"Features of view one: {_ARRAY}.")]
Y = Annotated[str | None, typer.Option("--y", metavar="Y", help=f"Features of view two: {_ARRAY}.")]
XIds = Annotated[Path | None, typer.Option("--x-ids", metavar="FILE", help=_IDS)]
YIds = Annotated[Path | None, typer.Option("--y-ids", metavar="FILE", help=_IDS)]
XMetadata = Annotated[Path | None, typer.Option("--x-metadata", metavar="FILE", help=_METADATA)]
YMetadata = Annotated[Path | None, typer.Option("--y-metadata", metavar="FILE", help=_METADATA)]
Token = Annotated[
    str,
    typer.Option(envvar="DSCCA_MILVUS_TOKEN", help="Credentials of a Milvus cluster; not saved."),
]


@app.command()
def build(
    model: ModelPath,
    index: IndexPath,
    x: X = None,
    y: Y = None,
    x_ids: XIds = None,
    y_ids: YIds = None,
    x_metadata: XMetadata = None,
    y_metadata: YMetadata = None,
    backend: Annotated[
        Literal["exact", "faiss", "milvus"],
        typer.Option(help="milvus: embedded in INDEX unless -p uri=URL names a cluster."),
    ] = "exact",
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", metavar="NAME=VALUE", help="Option of the back end: -p kind=ivf."
        ),
    ] = None,
    token: Token = "",
) -> None:
    """Project items with a fitted model and save them as an index, replacing one at INDEX.

    Without ids, items have the names that their feature file gives them, or numbers from 0.

    Example: [bold]dscca index build model/ index/ --y captions.npy --y-ids captions.txt[/bold]
    """
    from dscca import CrossModalIndex, load

    if x is None and y is None:
        raise ValueError("give items: --x, --y or both")
    options = parse_assignments(param)
    if backend == "milvus":
        options = {"uri": str(index / "milvus.db"), "token": token, **options}
    with CrossModalIndex(load(model), backend=backend, **options) as made:
        try:
            _add(made, "x", x, x_ids, x_metadata, numbered=True)
            _add(made, "y", y, y_ids, y_metadata, numbered=True)
            made.save(index)
        except BaseException:
            made.drop()
            raise
        _say(index, made)


@app.command()
def add(
    index: IndexPath,
    x: X = None,
    y: Y = None,
    x_ids: XIds = None,
    y_ids: YIds = None,
    x_metadata: XMetadata = None,
    y_metadata: YMetadata = None,
    token: Token = "",
) -> None:
    """Add items of one view to an index: all of them, or none if an id is in use.

    Example: [bold]dscca index add index/ --y more.npy --y-ids more.txt[/bold]
    """
    if (x is None) == (y is None):
        raise ValueError("give items of one view: --x or --y")
    with _load(index, token) as opened:
        _add(opened, "x", x, x_ids, x_metadata)
        _add(opened, "y", y, y_ids, y_metadata)
        opened.save(index)
        _say(index, opened)


@app.command()
def remove(
    index: IndexPath,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Items to remove.")],
    view: Annotated[_View, typer.Option(help="Their view.")],
    token: Token = "",
) -> None:
    """Remove items from an index by id.

    Example: [bold]dscca index remove index/ photo-7 photo-9 --view x[/bold]
    """
    with _load(index, token) as opened:
        opened.remove([_known(opened, i, view) for i in ids], view=view)
        opened.save(index)
        _say(index, opened)


@app.command()
def search(
    index: IndexPath,
    x: Annotated[
        str | None, typer.Option("--x", metavar="X", help="Queries: features of view one.")
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", metavar="Y", help="Queries: features of view two.")
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Query: an item of the index.")
    ] = None,
    view: Annotated[_View | None, typer.Option(help="The view of the item of --id.")] = None,
    among: Annotated[
        _View | None, typer.Option(help="View to search in; by default the other one.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items to find per query.")] = 10,
    as_json: AsJson = False,
    token: Token = "",
) -> None:
    """Find the items most similar to each query.

    Example: [bold]dscca index search index/ --x photo.npy -k 5[/bold]
    """
    from dscca.arrays import read_array

    if sum(given is not None for given in (x, y, id_)) != 1:
        raise ValueError("give one of --x, --y and --id")
    if (id_ is None) != (view is None):
        raise ValueError("--id and --view go together")
    with _load(index, token) as opened:
        if id_ is not None and view is not None:
            known = _known(opened, id_, view)
            found = [opened.search_id(known, k, view=view, among=among)]
        else:
            queries = read_array(str(y if x is None else x))
            queries = queries[None] if queries.ndim == 1 else queries
            found = opened.search(queries, k, view="y" if x is None else "x", among=among)
    if as_json:
        print(json.dumps([[hit._asdict() for hit in hits] for hits in found]))
        return
    table = Table("query", "place", "score", "id", "metadata")
    for query, hits in enumerate(found):
        for place, hit in enumerate(hits, 1):
            more = "" if hit.metadata is None else json.dumps(hit.metadata, ensure_ascii=False)
            name = str(query) if id_ is None else id_
            table.add_row(
                shown(name), str(place), f"{hit.score:.4f}", shown(str(hit.id)), shown(more)
            )
        table.add_section()
    Console().print(table)


@app.command()
def info(index: IndexPath, as_json: AsJson = False, token: Token = "") -> None:
    """Say what an index holds."""
    with _load(index, token) as opened:
        facts = {
            "model": type(opened.model).__name__,
            "components": opened.width,
            "features of x": opened.model.n_features_in_,
            "features of y": opened.model.n_features_y_,
            "backend": opened.backend,
            "items of x": opened.size("x"),
            "items of y": opened.size("y"),
        }
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    Console().print(table)


def save_index(model: Any, x: str, y: str, folder: Path) -> None:
    """Save the items of two array files as an index of a model, which is not loaded again."""
    from dscca import CrossModalIndex

    with CrossModalIndex(model) as made:
        _add(made, "x", x, None, None, numbered=True)
        _add(made, "y", y, None, None, numbered=True)
        made.save(folder)
        _say(folder, made)


def _load(index: Path, token: str) -> "CrossModalIndex":
    from dscca import CrossModalIndex

    return CrossModalIndex.load(index, options={"token": token} if token else None)


def _add(
    index: "CrossModalIndex",
    view: _View,
    source: str | None,
    ids: Path | None,
    metadata: Path | None,
    *,
    numbered: bool = False,
) -> None:
    from dscca.arrays import read_array, read_ids, read_lines

    if source is None:
        if ids is not None or metadata is not None:
            raise ValueError(f"--{view}-ids and --{view}-metadata need --{view}")
        return
    features = read_array(source)
    stored = None if ids is not None else read_ids(source)
    names: Iterable[Id] = range(len(features))
    if ids is not None:
        names = read_lines(ids)
    elif stored is not None:
        names = [str(name) for name in stored]
    elif not numbered:
        raise ValueError(f"--{view} needs --{view}-ids: new items need ids of their own")
    index.add(features, names, view=view, metadata=None if metadata is None else _json(metadata))


def _known(index: "CrossModalIndex", given: str, view: _View) -> "Id":
    """Return the id meant by a word: the text itself, else the number it writes."""
    number = given.removeprefix("-").isdecimal()
    return int(given) if number and not index.contains([given], view=view)[0] else given


def _json(file: Path) -> list[Any]:
    from dscca.arrays import read_lines

    values = []
    for number, line in enumerate(read_lines(file), 1):
        try:
            values.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}, line {number}: {error}") from error
    return values


def _say(folder: Path, index: "CrossModalIndex") -> None:
    sizes = ", ".join(f"{index.size(view)} items of view {view}" for view in ("x", "y"))
    Console().print(f"{folder}: {sizes}", highlight=False, markup=False)
