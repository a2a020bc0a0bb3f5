"""Items held in this process: what the exact and the FAISS back ends share."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dscca.retrieval.backends import Hit, Id, Vectors, hits

Rows = NDArray[np.int64]


class LocalBackend(ABC):
    """Keeps ids and metadata by row; a subclass keeps the vectors and searches them.

    Row r is the r-th of the items that are held, in the order they were added.
    """

    _unsaved: ClassVar[frozenset[str]] = frozenset()
    """Options that belong to this machine rather than to the index."""

    def __init__(self, width: int, **options: Any) -> None:
        self.width = width
        self._options = options
        self._ids: list[Id] = []
        self._metadata: list[str] = []
        self._row: dict[Id, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def contains(self, ids: Sequence[Id]) -> list[bool]:
        """Say of each id whether it is held."""
        return [i in self._row for i in ids]

    def add(self, ids: Sequence[Id], vectors: Vectors, metadata: Sequence[str]) -> None:
        """Add all of the items, or none if it fails."""
        self._append(vectors)
        self._row.update(zip(ids, range(len(self._ids), len(self._ids) + len(ids)), strict=True))
        self._ids += ids
        self._metadata += metadata

    def remove(self, ids: Sequence[Id]) -> None:
        """Remove the items."""
        if not len(ids):
            return
        gone = self._rows(ids)
        kept = np.delete(np.arange(len(self._ids)), gone)
        self._keep(kept)
        self._ids = [self._ids[row] for row in kept]
        self._metadata = [self._metadata[row] for row in kept]
        self._row = {i: row for row, i in enumerate(self._ids)}

    def vectors(self, ids: Sequence[Id]) -> Vectors:
        """Return the vectors of the items."""
        return self._take(self._rows(ids))

    def search(self, vectors: Vectors, k: int) -> list[list[Hit]]:
        """Return the `k` items of largest inner product for each row, the best first.

        Items of equal score come in the order they were added.
        """
        scores, rows = self._nearest(vectors, k)
        order = np.lexsort((rows, -scores))
        scores = np.take_along_axis(scores, order, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
        return [
            hits([self._ids[r] for r in found], values, [self._metadata[r] for r in found])
            for found, values in zip(rows.tolist(), scores.tolist(), strict=True)
        ]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return ids and metadata as bytes of JSON, and the vectors as the subclass keeps them."""
        return {
            "ids": _to_bytes(json.dumps(self._ids)),
            "metadata": _to_bytes(f"[{','.join(self._metadata)}]"),
            **self._vector_arrays(),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take back what :meth:`arrays` returned."""
        ids, metadata = (json.loads(arrays[name].tobytes()) for name in ("ids", "metadata"))
        self._ids = list(ids)
        self._metadata = [json.dumps(value) for value in metadata]
        self._row = {i: row for row, i in enumerate(self._ids)}
        n_vectors = self._restore_vectors(arrays)
        if not len(self._row) == len(self._ids) == len(self._metadata) == n_vectors:
            raise ValueError("numbers of ids, metadata and vectors differ")

    def saved_options(self, folder: Path) -> dict[str, Any]:
        """Return the options that make this back end again."""
        return {k: v for k, v in self._options.items() if k not in self._unsaved}

    def drop(self) -> None:
        """Delete all items."""
        self.remove(self._ids)

    def start(self) -> None:  # noqa: B027
        """Begin without items: nothing is to be done."""

    def close(self) -> None:  # noqa: B027
        """Let go of nothing."""

    def _rows(self, ids: Sequence[Id]) -> Rows:
        return np.array([self._row[i] for i in ids], dtype=np.int64)

    @abstractmethod
    def _append(self, vectors: Vectors) -> None:
        """Add vectors as the last rows."""

    @abstractmethod
    def _keep(self, rows: Rows) -> None:
        """Drop all rows but these, which are ascending."""

    @abstractmethod
    def _take(self, rows: Rows) -> Vectors:
        """Return the vectors of rows."""

    @abstractmethod
    def _nearest(self, vectors: Vectors, k: int) -> tuple[Vectors, Rows]:
        """Return scores and rows of the `k` best items for each vector, in any order."""

    @abstractmethod
    def _vector_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is saved of the vectors."""

    @abstractmethod
    def _restore_vectors(self, arrays: dict[str, NDArray[Any]]) -> int:
        """Take back what :meth:`_vector_arrays` returned; return the number of vectors."""


def _to_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)
