"""CrossModalIndex: items of both views in the space of a fitted model."""

import json
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dscca import persistence
from dscca.retrieval import storage
from dscca.retrieval.backends import Backend, Hit, Id, Vectors, make_backend
from dscca.retrieval.checks import check_ids, check_k, refuse, repeated, to_json, unit_vectors
from dscca.retrieval.storage import IndexFileError
from dscca.views import without_graph

ViewName = Literal["x", "y"]

VIEWS: tuple[ViewName, ...] = ("x", "y")


class CrossModalIndex:
    """Items of either view, found by queries of the other.

    Items and queries are projected by the model (``embed``) and compared by their cosine, in
    float32; an item whose projection is all zero has the cosine 0 with everything. Searches may run
    in any number of threads; additions and removals need the index for themselves.

    Parameters
    ----------
    model : a fitted estimator of dscca
    backend : "exact", in memory on any device; "faiss", approximate, for millions of items
        (``pip install "dscca[faiss]"``); "milvus", in its embedded engine or on a cluster
        (``pip install "dscca[milvus]"``)
    options : the back end's own: :class:`~dscca.retrieval.exact_backend.ExactBackend`,
        :class:`~dscca.retrieval.faiss_backend.FaissBackend`,
        :class:`~dscca.retrieval.milvus_backend.MilvusBackend`

    Examples
    --------
    >>> import numpy as np
    >>> from dscca import CrossModalIndex, LinearCCA
    >>> rng = np.random.default_rng(0)
    >>> sounds = rng.normal(size=(50, 3))
    >>> names = sounds @ rng.normal(size=(3, 3))
    >>> index = CrossModalIndex(LinearCCA(3).fit(sounds, names))
    >>> index.add(names, ids=range(50), view="y").size("y")
    50
    >>> index.search(sounds[7], k=1, view="x")[0].id
    7
    """

    def __init__(self, model: Any, *, backend: str = "exact", **options: Any) -> None:
        check_is_fitted(model)
        self.model = model
        self.backend = backend
        self._seen: tuple[Path, str] | None = None
        self._items: dict[str, Backend] = {}
        started: list[Backend] = []
        try:
            for view in VIEWS:
                self._items[view] = make_backend(backend, view, self.width, options)
            for items in self._items.values():
                items.start()
                started.append(items)
        except BaseException:
            for items in started:
                items.drop()
            self.close()
            raise

    @property
    def width(self) -> int:
        """Number of variates."""
        return len(self.model.correlations_)

    def size(self, view: ViewName) -> int:
        """Return the number of items of a view."""
        return len(self._of(view))

    def contains(self, ids: Iterable[Id], *, view: ViewName) -> list[bool]:
        """Say of each id whether the index holds an item of that view under it."""
        return self._of(view).contains(check_ids(ids))

    def add(
        self,
        features: ArrayLike,
        ids: Iterable[Id],
        *,
        view: ViewName,
        metadata: Sequence[Any] | None = None,
    ) -> Self:
        """Add items by their features; all of them, or none if there is an error.

        Parameters
        ----------
        features : (n_items, n_features), features of `view` as the model was fitted to
        ids : text or whole numbers, one per item, that are not in use among the view's items
        metadata : anything that JSON can hold, one per item; it comes back with every hit
        """
        return self.add_variates(self._project(features, view), ids, view=view, metadata=metadata)

    def add_variates(
        self,
        variates: ArrayLike,
        ids: Iterable[Id],
        *,
        view: ViewName,
        metadata: Sequence[Any] | None = None,
    ) -> Self:
        """Add items by their variates, (n_items, n_components); else as :meth:`add`."""
        items, vectors, names = self._of(view), unit_vectors(variates, self.width), check_ids(ids)
        texts = [json.dumps(None)] * len(names) if metadata is None else to_json(metadata)
        if not len(vectors) == len(names) == len(texts):
            raise ValueError(
                f"{len(vectors)} items came with {len(names)} ids and {len(texts)} metadata: pass "
                f"one of each per item."
            )
        refuse(names, repeated(names), "given more than once")
        if names:
            held = [i for i, there in zip(names, items.contains(names), strict=True) if there]
            refuse(names, held, f"in the index already, among the items of view {view}")
            items.add(names, vectors, texts)
        return self

    def remove(self, ids: Iterable[Id], *, view: ViewName) -> Self:
        """Remove items; all of them, or none if one is not there."""
        names = check_ids(ids)
        refuse(names, repeated(names), "given more than once")
        self._refuse_unknown(names, view)
        if names:
            self._of(view).remove(names)
        return self

    def search(
        self, query: ArrayLike, k: int = 10, *, view: ViewName, among: ViewName | None = None
    ) -> Any:
        """Return the `k` items most similar to a query, the best first.

        Parameters
        ----------
        query : features of `view`: one query (n_features,), or a batch (n_queries, n_features)
        k : how many items to find, at most as many as there are
        view : the query's view
        among : the items' view; by default the other one

        Returns
        -------
        list of :class:`Hit` (id, score, metadata); for a batch a list of such lists
        """
        among = among or _other(view)
        one = np.ndim(without_graph(query)) == 1
        variates = self._project(_one_row(query) if one else query, view)
        found = self.search_variates(variates, k, among=among)
        return found[0] if one else found

    def search_variates(self, variates: ArrayLike, k: int = 10, *, among: ViewName) -> Any:
        """Return the `k` items of the view `among` most similar to given variates.

        Variates are (n_components,) or (n_queries, n_components); the result is as of
        :meth:`search`.
        """
        one = np.ndim(without_graph(variates)) == 1
        vectors = unit_vectors(_one_row(variates) if one else variates, self.width)
        found = self._search(vectors, k, among)
        return found[0] if one else found

    def search_id(
        self, id: Id, k: int = 10, *, view: ViewName, among: ViewName | None = None
    ) -> list[Hit]:
        """Return the `k` items most similar to an item of the index, which itself is left out."""
        among = among or _other(view)
        names = check_ids([id])
        self._refuse_unknown(names, view)
        vector = self._of(view).vectors(names)
        if among != view:
            return self._search(vector, k, among)[0]
        if check_k(k) >= self.size(view):
            raise ValueError(
                f"k={k} is above the {self.size(view) - 1} other items of view {view}."
            )
        return [hit for hit in self._search(vector, k + 1, among)[0] if hit.id != names[0]][:k]

    def save(self, path: str | PathLike[str]) -> None:
        """Write model and items to a folder, replacing an index there in one step.

        A failure, a kill included, leaves an older index whole. If the folder's index was saved by
        another process since this one was loaded from it, nothing is written. The items of a Milvus
        back end stay where they are.
        """
        folder = Path(path)
        model, arrays = persistence.describe(self.model)
        tensors = {f"model/{name}": array for name, array in arrays.items()}
        for view, items in self._items.items():
            tensors |= {f"{view}/{name}": array for name, array in items.arrays().items()}
        description = {
            "model": model,
            "backend": self.backend,
            "options": self._items["x"].saved_options(folder),
        }
        place = folder.resolve()
        seen = self._seen[1] if self._seen and self._seen[0] == place else None
        self._seen = place, storage.write(folder, description, tensors, seen)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        options: dict[str, Any] | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> Self:
        """Read an index written by :meth:`save`.

        Parameters
        ----------
        path : the folder
        options : options of the back end to use instead of the saved ones; ``device`` and ``token``
            are never saved
        parameters : the model's parameters that could not be saved, see :func:`dscca.load`
        """
        folder = Path(path)
        description, tensors = storage.read(folder)
        index = cls.__new__(cls)
        index._items = {}
        try:
            index.model = persistence.restore(
                folder / storage.FILE_NAME,
                description["model"],
                _below("model", tensors),
                parameters or {},
            )
            index.backend = description["backend"]
            index._seen = folder.resolve(), description["revision"]
            chosen = {**description["options"], **(options or {})}
            for view in VIEWS:
                items = make_backend(index.backend, view, index.width, chosen, folder.resolve())
                index._items[view] = items
                items.restore(_below(view, tensors))
        except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            index.close()
            if isinstance(error, persistence.ModelFileError):
                raise
            raise IndexFileError(f"{folder} cannot be used: {error}") from error
        except BaseException:
            index.close()
            raise
        return index

    def drop(self) -> None:
        """Delete the items of both views; in Milvus, for good, with their collections."""
        for items in self._items.values():
            items.drop()

    def close(self) -> None:
        """Let go of connections; only a Milvus back end has any."""
        for items in self._items.values():
            items.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _of(self, view: str) -> Backend:
        if view not in self._items:
            raise ValueError(f'view={view!r} is unknown: use "x" or "y".')
        return self._items[view]

    def _project(self, features: ArrayLike, view: ViewName) -> NDArray[Any]:
        self._of(view)
        embed = self.model.embed if view == "x" else self.model.embed_y
        return np.asarray(embed(features))

    def _search(self, vectors: Vectors, k: int, among: ViewName) -> list[list[Hit]]:
        items = self._of(among)
        n = len(items)
        if not n:
            raise ValueError(f"the index holds no items of view {among}: add some first.")
        if check_k(k) > n:
            raise ValueError(f"k={k} is above the {n} items of view {among}.")
        return items.search(vectors, int(k)) if len(vectors) else []

    def _refuse_unknown(self, ids: list[Id], view: ViewName) -> None:
        there = self._of(view).contains(ids) if ids else []
        unknown = [i for i, held in zip(ids, there, strict=True) if not held]
        refuse(ids, unknown, f"not in the index, among the items of view {view}")


def _other(view: str) -> ViewName:
    return "x" if view == "y" else "y"


def _one_row(query: Any) -> Any:
    plain = without_graph(query)
    return plain[None] if isinstance(plain, torch.Tensor) else np.asarray(plain)[None]


def _below(prefix: str, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = f"{prefix}/"
    return {n.removeprefix(start): array for n, array in tensors.items() if n.startswith(start)}
