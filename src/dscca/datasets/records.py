"""What is known of a data set before it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any

from dscca.datasets.cache import DataFolder
from dscca.datasets.samples import Samples


@dataclass(frozen=True)
class Source:
    """A file on the net: `urls` are its mirrors. An archive's file is found in it by name."""

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class DataFile:
    """One file that a loader reads, under any of its `names`; the last may serve for several."""

    names: tuple[str, ...]
    what: str
    needed: bool = True
    source: Source | None = None
    content_sha256: str | None = None
    """Of the file's content, decompressed: the same for every way of packing it."""


@dataclass(frozen=True)
class Dataset:
    """One data set, as users name it."""

    name: str
    title: str
    views: tuple[str, str]
    sizes: tuple[int, int, int]
    """Training, validation and test samples of the standard split, by default."""
    reference: str | None
    """Its key in ``references.bib``."""
    licence: str
    loader: str
    files: tuple[DataFile, ...] = ()
    obtain: str = ""
    n_folds: int | None = None
    aliases: tuple[str, ...] = ()

    @property
    def citation(self) -> str:
        """The BibTeX entry of the publication it comes from."""
        from dscca.methods import citations

        return citations()[self.reference] if self.reference else ""

    @property
    def folder(self) -> DataFolder:
        """Where its files are looked for."""
        return DataFolder(self.name, self.obtain)

    @property
    def options(self) -> list[str]:
        """What its loader takes besides folder, fold and seed."""
        parameters = signature(self._load).parameters.values()
        return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

    def load_samples(self, fold: int | None, seed: int, **options: Any) -> Samples:
        """Call the loader."""
        return self._load(self.folder, fold, seed, **options)

    @property
    def _load(self) -> Callable[..., Samples]:
        module, function = self.loader.split(":")
        load: Callable[..., Samples] = getattr(import_module(module), function)
        return load
