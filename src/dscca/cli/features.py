"""Commands from raw images and captions to features: images, text, align."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from dscca.features import Report

app = typer.Typer(
    name="features",
    help="Turn raw images and captions into the arrays that fit takes.",
    no_args_is_help=True,
)

Output = Annotated[
    Path, typer.Option("--output", "-o", help="Feature file to write (.npz); its report: .json.")
]
OnErrorOption = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="skip|zero|fail",
        help="Items without features: leave out, fill with zeros, or stop at the first.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Stored = Annotated[str, typer.Option("--dtype", metavar="float32|float16", help="As stored.")]


@app.command()
def images(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of images with its subfolders, .zip archive, or list of paths (.txt).",
        ),
    ],
    output: Output,
    model: Annotated[
        str,
        typer.Option(help="resnet50, a model of the Hugging Face hub, or the folder of one."),
    ] = "resnet50",
    names: Annotated[
        Path | None,
        typer.Option("--list", metavar="FILE", help="Only these images, in this order."),
    ] = None,
    on_error: OnErrorOption = "skip",
    pooling: Annotated[
        str,
        typer.Option(metavar="auto|pooler|cls|mean", help="From positions to one vector."),
    ] = "auto",
    batch_size: Annotated[int, typer.Option(min=1, help="Images at once.")] = 32,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that decode; one per CPU by default.")
    ] = None,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(metavar="fp32|bf16", help="Of the network.")] = "fp32",
    dtype: Stored = "float32",
    max_pixels: Annotated[
        int | None, typer.Option(min=1, help="Refuse larger images; 89 million by default.")
    ] = None,
) -> None:
    """Encode images, one row each. Run it again to go on after an interruption.

    Example: [bold]dscca features images photos/ -o images.npz --model resnet50[/bold]
    """
    from dscca.features import image_features

    bound: dict[str, Any] = {} if max_pixels is None else {"max_pixels": max_pixels}
    _run(
        lambda: image_features(
            source,
            output,
            model=model,
            names=names,
            on_error=on_error,  # type: ignore[arg-type]  # checked by the function, as the others
            pooling=pooling,  # type: ignore[arg-type]
            batch_size=batch_size,
            workers=workers,
            device=device,
            precision=precision,  # type: ignore[arg-type]
            dtype=dtype,  # type: ignore[arg-type]
            verbose=True,
            **bound,
        )
    )


@app.command()
def text(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Captions: NAME#NUMBER<TAB>CAPTION (.txt, .token), .csv, .tsv or .jsonl; or .gz.",
        ),
    ],
    output: Output,
    encoder: Annotated[
        str,
        typer.Option(help="word2vec, or a sentence-transformers model: hub id or folder."),
    ] = "word2vec",
    vectors: Annotated[
        Path | None,
        typer.Option(help="Word vectors: word2vec's .bin, or text (.txt, .vec); or .gz."),
    ] = None,
    lemmatizer: Annotated[
        str, typer.Option(help="lookup, or the name or folder of a spaCy pipeline.")
    ] = "lookup",
    language: Annotated[str, typer.Option(help="Of the captions, for lookup.")] = "en",
    format: Annotated[
        str | None,
        typer.Option(metavar="token|csv|tsv|jsonl", help="If the file's name does not tell."),
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Column of the items' names.")] = None,
    text_column: Annotated[str | None, typer.Option(help="Column of the captions.")] = None,
    on_error: OnErrorOption = "skip",
    batch_size: Annotated[int, typer.Option(min=1, help="Items at once.")] = 64,
    device: Device = "auto",
    dtype: Stored = "float32",
) -> None:
    """Encode captions, one row for all captions of an item.

    Example: [bold]dscca features text captions.token.txt -o text.npz --vectors vectors.bin[/bold]
    """
    from dscca.features import text_features

    _run(
        lambda: text_features(
            source,
            output,
            encoder=encoder,
            vectors=vectors,
            lemmatizer=lemmatizer,
            language=language,
            format=format,  # type: ignore[arg-type]
            id_column=id_column,
            text_column=text_column,
            on_error=on_error,  # type: ignore[arg-type]
            batch_size=batch_size,
            device=device,
            dtype=dtype,  # type: ignore[arg-type]
            verbose=True,
        )
    )


@app.command()
def align(
    x: Annotated[Path, typer.Argument(metavar="X", help="Feature file of view one.")],
    y: Annotated[Path, typer.Argument(metavar="Y", help="Feature file of view two.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help=".npz with the arrays x, y and ids.")
    ],
    names: Annotated[
        Path | None,
        typer.Option("--list", metavar="FILE", help="Only these items, in this order: a split."),
    ] = None,
    match: Annotated[
        str,
        typer.Option(
            metavar="id|name|stem",
            help="Same if the whole ids are, without folders, or without folders and suffix.",
        ),
    ] = "id",
) -> None:
    """Pair two feature files by the ids of their items.

    Example: [bold]dscca features align images.npz text.npz --list train.txt -o train.npz[/bold]
    """
    from dscca.features import align_files

    aligned = align_files(x, y, output, names=names, match=match)  # type: ignore[arg-type]
    console = Console()
    console.print(f"wrote {len(aligned.ids)} pairs to {output}", highlight=False)
    for what, some in (
        (f"only in {x}", aligned.only_x),
        (f"only in {y}", aligned.only_y),
        ("listed, but not in both", aligned.missing),
    ):
        if some:
            _name(Console(stderr=True), f"{len(some)} {what}", dict.fromkeys(some, ""))


def _run(make: Callable[[], "Report"]) -> None:
    start = time.perf_counter()
    report = make()
    seconds = time.perf_counter() - start
    console, errors = Console(), Console(stderr=True)
    new = report.items - report.reused
    went_on = f", {report.reused} taken from an interrupted run" if report.reused else ""
    console.print(
        f"wrote {report.rows} x {report.width} features to {report.output} "
        f"({new / seconds:.1f} items/s{went_on}); report: {report.path}",
        highlight=False,
        soft_wrap=True,
    )
    for what, items in (("left out", report.left_out), ("filled with zeros", report.zero_filled)):
        if items:
            _name(errors, f"{len(items)} of {report.items} items {what}", items)
    ignored = report.notes.get("ignored", {})
    if ignored:
        _name(errors, f"{len(ignored)} other files ignored", ignored)


def _name(console: Console, title: str, items: dict[str, str], shown: int = 5) -> None:
    named = [f"{name} ({why})" if why else name for name, why in list(items.items())[:shown]]
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    console.print(
        f"{title}: {', '.join(named)}{more}", highlight=False, markup=False, soft_wrap=True
    )
