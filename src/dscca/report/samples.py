"""The samples that a report of fitted models shows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.datasets import TwoViewData

ImageShape = tuple[int, int]

_IMAGES: dict[str, ImageShape] = {"mnist": (28, 14), "embedded-digits": (28, 14)}
"""Data sets whose views are pictures, halves of them, with values from 0 to 1."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Paired samples that took no part in fitting, and what is known of them.

    Attributes
    ----------
    x, y : arrays n x p and n x q
    title : what they are, in words
    ids : what names each sample; its row number by default
    labels : classes, for colours and accuracies only
    captions : one text per sample, shown where there is no picture
    images : height and width of the pictures that the rows of x and of y are, or None each
    total : how many there were before a part was taken
    """

    x: NDArray[Any]
    y: NDArray[Any]
    title: str = "samples"
    ids: Sequence[Any] | NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    captions: Sequence[str] | None = None
    images: tuple[ImageShape | None, ImageShape | None] = (None, None)
    total: int = 0

    def __post_init__(self) -> None:
        for name, values in (("rows of y", self.y), *self._columns().items()):
            if values is not None and len(values) != len(self.x):
                raise ValueError(
                    f"there are {len(values)} {name} for {len(self.x)} samples of x: one is needed "
                    f"for each."
                )
        if self.labels is not None and np.asarray(self.labels).dtype.kind == "f":
            classes = np.asarray(self.labels)
            odd = np.flatnonzero(~np.isfinite(classes) | (classes % 1 != 0))
            if len(odd):
                raise ValueError(
                    f"labels must be classes, text or whole numbers: that of sample {odd[0]} is "
                    f"{classes[odd[0]]}."
                )
        for name, view, shape in zip("xy", (self.x, self.y), self.images, strict=True):
            if shape is not None and int(np.prod(shape)) != int(np.prod(view.shape[1:])):
                raise ValueError(
                    f"pictures of {shape[0]} x {shape[1]} have {np.prod(shape)} values, but rows "
                    f"of {name} have {np.prod(view.shape[1:])}."
                )

    def __len__(self) -> int:
        return len(self.x)

    @classmethod
    def of(cls, data: TwoViewData) -> "Samples":
        """Return the samples of a part of a data set."""
        from dscca.datasets import find_dataset

        shape = _IMAGES.get(data.name)
        captions = None if data.captions is None else [c[0] for c in data.captions]
        fold = "" if data.fold is None else f", fold {data.fold}"
        part = {"train": "training", "val": "validation"}.get(data.split, data.split)
        return cls(
            data.x,
            data.y,
            title=f"{find_dataset(data.name).title}: {len(data):,} {part} samples{fold}",
            ids=data.ids,
            labels=data.labels,
            captions=captions,
            images=(shape, shape),
        )

    def at_most(self, n: int, seed: int = 0) -> "Samples":
        """Return `n` of the samples, drawn at random, or all if there are no more."""
        if len(self) <= n:
            return replace(self, total=len(self))
        rows = np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False))
        columns: dict[str, Any] = {
            name: None if values is None else [values[row] for row in rows]
            for name, values in self._columns().items()
        }
        columns["labels"] = None if self.labels is None else np.asarray(self.labels)[rows]
        part: Any = {"x": self.x[rows], "y": self.y[rows], "total": len(self), **columns}
        return replace(self, **part)

    def names(self) -> list[str]:
        """Return how every sample is called on the page."""
        ids = range(len(self)) if self.ids is None else self.ids
        return [str(name) for name in ids]

    def _columns(self) -> dict[str, Any]:
        return {"ids": self.ids, "labels": self.labels, "captions": self.captions}
