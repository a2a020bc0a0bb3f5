"""Two paired views as users get them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class TwoViewData:
    """The samples of one split; row i of `x` is paired with row i of `y`, as ``fit(x, y)`` wants.

    Attributes
    ----------
    x, y : arrays n x p and n x q, float32
    ids : what names each sample in its source: a number, a file, an utterance and frame
    name, split, fold : where it comes from; `fold` is None for the standard split
    labels : classes, where the data have them; no method sees them
    groups : what samples share that makes them no independent draws, such as an utterance
    captions : the texts of each sample, where they were asked for
    population_correlations : what is known of synthetic data's population, by kind
    citation : BibTeX entry of the publication
    licence : the terms of the data, in short
    """

    x: NDArray[Any]
    y: NDArray[Any]
    ids: NDArray[Any]
    name: str
    split: str
    fold: int | None = None
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    captions: tuple[tuple[str, ...], ...] | None = None
    population_correlations: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    citation: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        columns = {
            "rows of y": self.y,
            "ids": self.ids,
            "labels": self.labels,
            "groups": self.groups,
            "captions": self.captions,
        }
        for name, values in columns.items():
            if values is not None and len(values) != len(self.x):
                raise ValueError(
                    f"{self.name} ({self.split}): {len(values)} {name} for {len(self.x)} samples "
                    "of x: one is needed for each."
                )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        fold = "" if self.fold is None else f", fold {self.fold}"
        return f"TwoViewData({self.name}, {self.split}{fold}: {self.x.shape} and {self.y.shape})"


@dataclass(frozen=True, eq=False)
class TwoViewSplits:
    """Training, validation and test samples of one split or fold."""

    train: TwoViewData
    val: TwoViewData
    test: TwoViewData

    def __getitem__(self, split: str) -> TwoViewData:
        if split not in SPLITS:
            raise ValueError(f"no split {split!r}: there are {', '.join(SPLITS)}")
        part: TwoViewData = getattr(self, split)
        return part

    @property
    def X_train(self) -> NDArray[Any]:  # noqa: N802
        """View one of the training samples."""
        return self.train.x

    @property
    def y_train(self) -> NDArray[Any]:
        """View two of the training samples."""
        return self.train.y

    @property
    def X_val(self) -> NDArray[Any]:  # noqa: N802
        """View one of the validation samples."""
        return self.val.x

    @property
    def y_val(self) -> NDArray[Any]:
        """View two of the validation samples."""
        return self.val.y

    @property
    def X_test(self) -> NDArray[Any]:  # noqa: N802
        """View one of the test samples."""
        return self.test.x

    @property
    def y_test(self) -> NDArray[Any]:
        """View two of the test samples."""
        return self.test.y

    @property
    def labels_test(self) -> NDArray[Any] | None:
        """Classes of the test samples, where there are any."""
        return self.test.labels
