"""From the name of a data set to its arrays."""

from typing import Any

from dscca.datasets.data import SPLITS, TwoViewData, TwoViewSplits
from dscca.datasets.fetch import fetch_verified
from dscca.datasets.registry import find_dataset


def load(
    name: str,
    split: str = "train",
    fold: int | None = None,
    *,
    seed: int = 0,
    download: bool = True,
    **options: Any,
) -> TwoViewData:
    """Return one part of a data set; see :func:`load_splits`."""
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}: there are {', '.join(SPLITS)}")
    return _parts(name, (split,), fold, seed, download, options)[split]


def load_splits(
    name: str,
    fold: int | None = None,
    *,
    seed: int = 0,
    download: bool = True,
    **options: Any,
) -> TwoViewSplits:
    """Return the training, validation and test samples of a data set.

    Parameters
    ----------
    name : of the data set; `dscca data list` shows all
    fold : number of the fold, counted from 0; None takes the standard split
    seed : of all that is random in the split, the folds and synthetic data
    download : whether to fetch files that are missing, where their checksums are known
    options : what the loader of this data set takes besides

    Examples
    --------
    >>> data = load_splits("synthetic-linear", sizes=(500, 100, 100))
    >>> data.train
    TwoViewData(synthetic-linear, train: (500, 20) and (500, 15))
    """
    return TwoViewSplits(**_parts(name, SPLITS, fold, seed, download, options))


def _parts(
    name: str,
    splits: tuple[str, ...],
    fold: int | None,
    seed: int,
    download: bool,
    options: dict[str, Any],
) -> dict[str, TwoViewData]:
    dataset = find_dataset(name)
    if download:
        fetch_verified(dataset)
    samples = dataset.load_samples(fold, seed, **options)
    return {
        split: TwoViewData(
            **samples.take(getattr(samples.split, split)),
            name=dataset.name,
            split=split,
            fold=fold,
            population_correlations=samples.population_correlations,
            citation=dataset.citation,
            licence=dataset.licence,
        )
        for split in splits
    }
