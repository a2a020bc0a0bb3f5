"""Search through FAISS: all items, lists of neighbours (IVF) or a graph (HNSW)."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dscca.retrieval.backends import Vectors, optional
from dscca.retrieval.local import LocalBackend, Rows

_CLASSES = {"flat": "IndexFlatIP", "ivf": "IndexIVFFlat", "hnsw": "IndexHNSWFlat"}

_POINTS_PER_LIST = 39
"""FAISS's own bound on how few points a centroid of its k-means should have."""

_GROWTH = 2
"""Lists are learned anew when this many times the items they were learned from are held."""


class FaissBackend(LocalBackend):
    """Items in a FAISS index by inner product, which for unit vectors is the cosine.

    Removed items stay in the index, hidden from searches, until they are the greater part; then it
    is built anew. An approximate search that finds fewer than k items is repeated exhaustively for
    the queries concerned, so that results are never short. A saved index holds FAISS's own format,
    whose reader trusts its input: load only files from sources that you trust.

    Parameters
    ----------
    kind : "hnsw", a graph, for millions of items and queries in a fraction of a millisecond;
        "ivf", which compares a query with the items of the nearest lists only, quicker to build and
        smaller; "flat", exhaustive
    links, ef_construction, ef_search : neighbours per item in the graph, and the candidates that
        are followed when it is built and searched; more are slower and find more
    lists, probes : number of lists, by default ``4 sqrt(n)``; of these, how many are searched, by
        default one in 5 and at least 16
    """

    def __init__(
        self,
        view: str,
        width: int,
        folder: Path | None = None,
        *,
        kind: Literal["flat", "ivf", "hnsw"] = "hnsw",
        links: int = 32,
        ef_construction: int = 80,
        ef_search: int = 128,
        lists: int | None = None,
        probes: int | None = None,
    ) -> None:
        if kind not in _CLASSES:
            raise ValueError(f'kind={kind!r} is unknown: use "flat", "ivf" or "hnsw".')
        numbers = {
            "links": links,
            "ef_construction": ef_construction,
            "ef_search": ef_search,
            "lists": lists,
            "probes": probes,
        }
        for name, value in numbers.items():
            least = 2 if name == "links" else 1
            if value is None and name in ("lists", "probes"):
                continue
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")
        super().__init__(width, kind=kind, **numbers)
        self._faiss = optional("faiss", "faiss")
        self._kind = kind
        self._index: Any = None
        self._position = np.empty(0, dtype=np.int64)  # of each row in the FAISS index
        self._learned_from = 0

    def _append(self, vectors: Vectors) -> None:
        total = len(self._position) + len(vectors)
        if self._index is None or (
            self._kind == "ivf" and total > _GROWTH * self._learned_from and self._lists_may_grow()
        ):
            held = self._take(np.arange(len(self._position)))
            self._build(np.concatenate((held, vectors)))
        else:
            before = self._index.ntotal
            self._index.add(np.ascontiguousarray(vectors))
            added = np.arange(before, self._index.ntotal)
            self._position = np.concatenate((self._position, added))

    def _keep(self, rows: Rows) -> None:
        if 2 * len(rows) < self._index.ntotal:
            self._build(self._take(rows))
        else:
            self._position = self._position[rows]

    def _take(self, rows: Rows) -> Vectors:
        if not len(rows):
            return np.empty((0, self.width), dtype=np.float32)
        return self._index.reconstruct_batch(self._position[rows])

    def _nearest(self, vectors: Vectors, k: int) -> tuple[Vectors, Rows]:
        vectors = np.ascontiguousarray(vectors)
        scores, found = self._index.search(vectors, k, params=self._effort(k))
        short = np.flatnonzero((found < 0).any(axis=1))
        if len(short):
            scores[short], found[short] = self._search_all(vectors[short], k)
        row = np.full(self._index.ntotal, -1, dtype=np.int64)
        row[self._position] = np.arange(len(self._position))
        return scores, row[found]

    def _vector_arrays(self) -> dict[str, NDArray[Any]]:
        if self._index is None:
            return {}
        return {
            "faiss": self._faiss.serialize_index(self._index),
            "position": self._position,
            "learned_from": np.array([self._learned_from]),
        }

    def _restore_vectors(self, arrays: dict[str, NDArray[Any]]) -> int:
        if "faiss" not in arrays:
            return 0
        index = self._faiss.deserialize_index(arrays["faiss"])
        position = arrays["position"]
        if type(index).__name__ != _CLASSES[self._kind]:
            raise ValueError(f"a FAISS {type(index).__name__} is no index of kind {self._kind}")
        if index.d != self.width:
            raise ValueError(f"the FAISS index holds vectors of width {index.d}, not {self.width}")
        if len(position) and not 0 <= position.min() <= position.max() < index.ntotal:
            raise ValueError("positions lie outside the FAISS index")
        self._index, self._position = index, position
        self._learned_from = int(arrays["learned_from"][0])
        return len(position)

    def _build(self, vectors: Vectors) -> None:
        """Make the index anew from these vectors, which become all of its rows."""
        inner, options = self._faiss.METRIC_INNER_PRODUCT, self._options
        if self._kind == "hnsw":
            index = self._faiss.IndexHNSWFlat(self.width, options["links"], inner)
            index.hnsw.efConstruction = options["ef_construction"]
        elif self._kind == "ivf":
            coarse = self._faiss.IndexFlatIP(self.width)
            index = self._faiss.IndexIVFFlat(coarse, self.width, self._n_lists(len(vectors)), inner)
            index.cp.min_points_per_centroid = 1  # few items are few lists: no warning is due
            if len(vectors):
                index.train(vectors)
            index.make_direct_map()
        else:
            index = self._faiss.IndexFlatIP(self.width)
        if len(vectors):
            index.add(np.ascontiguousarray(vectors))
        # Without items there is nothing to learn lists from: the next addition builds the index.
        self._index = index if len(vectors) else None
        self._position, self._learned_from = np.arange(len(vectors)), len(vectors)

    def _n_lists(self, n: int) -> int:
        wanted = self._options["lists"] or int(4 * n**0.5)
        return max(1, min(wanted, n // _POINTS_PER_LIST))

    def _lists_may_grow(self) -> bool:
        wanted = self._options["lists"]
        return wanted is None or self._index.nlist < wanted

    def _effort(self, k: int) -> Any:
        hidden = self._hidden()
        if self._kind == "hnsw":
            return self._faiss.SearchParametersHNSW(
                efSearch=max(self._options["ef_search"], k), **hidden
            )
        if self._kind == "ivf":
            probes = self._options["probes"] or max(16, self._index.nlist // 5)
            return self._faiss.SearchParametersIVF(nprobe=min(probes, self._index.nlist), **hidden)
        return self._faiss.SearchParameters(**hidden)

    def _search_all(self, vectors: Vectors, k: int) -> tuple[Vectors, Rows]:
        hidden = self._hidden()
        if self._kind == "hnsw":
            storage = self._faiss.downcast_index(self._index.storage)
            return storage.search(vectors, k, params=self._faiss.SearchParameters(**hidden))
        everything = self._faiss.SearchParametersIVF(nprobe=self._index.nlist, **hidden)
        return self._index.search(vectors, k, params=everything)

    def _hidden(self) -> dict[str, Any]:
        """Return the selector of what was not removed, if anything was."""
        if len(self._position) == self._index.ntotal:
            return {}
        bits = np.zeros(self._index.ntotal, dtype=bool)
        bits[self._position] = True
        return {"sel": self._faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))}
