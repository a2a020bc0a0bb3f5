"""What ``dscca report`` is given: models, records and samples, by path and name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.arrays import read_array, read_ids, read_lines, read_views
from dscca.datasets import find_dataset, load
from dscca.experiments.records import Record, read_records
from dscca.methods import METHODS, find_method
from dscca.persistence import FILE_NAME, model_path
from dscca.persistence import load as load_model
from dscca.report.samples import ImageShape, Samples

_CAPTIONED = ("flickr8k", "flickr30k", "iapr")
"""Data sets whose loaders bring captions when asked."""


def find_models(path: Path) -> dict[str, Any]:
    """Return the model at `path`, by its method's name, or those in its folders, by theirs.

    Folders named as methods come first, in the order of ``dscca models``.
    """
    if model_path(path).is_file():
        model = load_model(path)
        return {find_method(type(model).__name__).name: model}
    folders = {folder.parent.name: folder.parent for folder in path.glob(f"*/{FILE_NAME}")}
    order = [method.name for method in METHODS if method.name in folders]
    return {name: load_model(folders[name]) for name in (*order, *sorted(set(folders) - {*order}))}


def find_records(path: Path) -> list[Record]:
    """Return the records in the folder `path`."""
    return list(read_records(path).values()) if path.is_dir() else []


def samples_of_records(records: Sequence[Record], path: Path) -> Samples:
    """Return the test samples of the data set that all records are of."""
    found = {
        (record.job.dataset, tuple(sorted(record.job.options.items()))): record
        for record in records
        if record.job.fold is None
    }
    if len(found) != 1:
        what = "no record says" if not found else "the records are of several data sets: say"
        raise ValueError(
            f"{path} holds models, and {what} which samples to show them on: give --x and --y, or "
            f"--data NAME."
        )
    job = next(iter(found.values())).job
    return _test_samples(job.dataset, job.options)


def read_samples(
    data: str | None,
    x: str | None,
    y: str | None,
    labels: str | None,
    captions: Path | None,
    images: tuple[ImageShape | None, ImageShape | None],
) -> Samples:
    """Return the test samples of a data set, or those in array files."""
    if data is not None:
        if any(value is not None for value in (x, y, labels, captions, *images)):
            raise ValueError("give --data, or --x and --y with what belongs to them, not both")
        return _test_samples(data, {})
    if x is None or y is None:
        raise ValueError("give --x and --y, or --data NAME")
    views = read_views(x, y)
    ids = read_ids(x)
    return Samples(
        *views,
        title=f"{len(views[0]):,} samples of {Path(x).name} and {Path(y).name}",
        ids=ids if ids is not None else read_ids(y),
        labels=None if labels is None else _column(labels),
        captions=None if captions is None else read_lines(captions),
        images=images,
    )


def _test_samples(name: str, options: dict[str, Any]) -> Samples:
    captions = {"captions": True} if find_dataset(name).name in _CAPTIONED else {}
    return Samples.of(load(name, "test", **{**captions, **options}))


def _column(source: str) -> NDArray[Any]:
    if source.lower().endswith(".txt"):
        return np.array(read_lines(Path(source)))
    return read_array(source).reshape(-1)
