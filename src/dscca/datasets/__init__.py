"""Paired data to learn from: registry, files, loaders, splits."""

from dscca.datasets.cache import MissingDataError, cache_directory
from dscca.datasets.data import TwoViewData, TwoViewSplits
from dscca.datasets.loading import load, load_splits
from dscca.datasets.mnist import embedded_digits
from dscca.datasets.records import Dataset
from dscca.datasets.registry import DATASETS, find_dataset

__all__ = [
    "DATASETS",
    "Dataset",
    "MissingDataError",
    "TwoViewData",
    "TwoViewSplits",
    "cache_directory",
    "embedded_digits",
    "find_dataset",
    "load",
    "load_splits",
]
