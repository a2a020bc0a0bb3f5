"""What an index asks of the engine that holds and searches the items of one view."""

import json
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

Id = str | int
Vectors = NDArray[np.float32]

_BACKENDS = {
    "exact": ("dscca.retrieval.exact_backend", "ExactBackend"),
    "faiss": ("dscca.retrieval.faiss_backend", "FaissBackend"),
    "milvus": ("dscca.retrieval.milvus_backend", "MilvusBackend"),
}


class Hit(NamedTuple):
    """An item that was found, its cosine with the query, and what is kept beside it."""

    id: Id
    score: float
    metadata: Any = None


class Backend(Protocol):
    """The items of one view: ids, unit vectors of one width, and metadata as JSON text.

    What arrives is checked: vectors are finite float32 rows of norm one (or zero), ids are new to
    ``add`` and known to ``remove`` and ``vectors``, and ``1 <= k <= len(self)``.
    """

    def __len__(self) -> int:
        """Return the number of items."""

    def contains(self, ids: Sequence[Id]) -> list[bool]:
        """Say of each id whether it is held."""

    def add(self, ids: Sequence[Id], vectors: Vectors, metadata: Sequence[str]) -> None:
        """Add all of the items, or none if it fails."""

    def remove(self, ids: Sequence[Id]) -> None:
        """Remove the items."""

    def vectors(self, ids: Sequence[Id]) -> Vectors:
        """Return the vectors of the items."""

    def search(self, vectors: Vectors, k: int) -> list[list[Hit]]:
        """Return the `k` items of largest inner product for each row, the best first."""

    def start(self) -> None:
        """Begin without items."""

    def drop(self) -> None:
        """Delete all items, and the place they are in."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a saved index has to hold for these items."""

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take back what :meth:`arrays` returned."""

    def saved_options(self, folder: Path) -> dict[str, Any]:
        """Return the options that make this back end again from an index in `folder`."""

    def close(self) -> None:
        """Let go of files and connections."""


def make_backend(
    name: str, view: str, width: int, options: dict[str, Any], folder: Path | None = None
) -> Backend:
    """Return a back end for `view` by name; `folder` is where its saved index lies, if any."""
    if name not in _BACKENDS:
        raise ValueError(f"backend={name!r} is unknown: use {', '.join(_BACKENDS)}.")
    module, cls = _BACKENDS[name]
    backend = getattr(import_module(module), cls)
    known = [p for p in signature(backend).parameters if p not in ("view", "width", "folder")]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"the {name} back end has no option {', '.join(unknown)}; it has {', '.join(known)}."
        )
    return cast(Backend, backend(view=view, width=width, folder=folder, **options))


def optional(module: str, extra: str) -> Any:
    """Import a package that an extra installs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f'the {extra} back end needs an extra: pip install "dscca[{extra}]"'
        ) from error


def hits(ids: Sequence[Id], scores: Sequence[float], metadata: Sequence[str]) -> list[Hit]:
    """Return the hits of one query."""
    return [
        Hit(i, float(score), None if text == "null" else json.loads(text))
        for i, score, text in zip(ids, scores, metadata, strict=True)
    ]
