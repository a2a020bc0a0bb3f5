"""Items in Milvus: embedded in a local file, or a cluster at a URL, through the same client."""

import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from dscca.retrieval.backends import Hit, Id, Vectors, hits, optional

_LARGEST_K = 16_384
_LARGEST_TEXT = 65_535
_QUERIES = 1_000
_REQUEST_BYTES = 2**24
"""Milvus refuses requests above 64 MB; text may double when it is escaped."""

_KEYS = 4_096
_embedded: Counter[str] = Counter()
_guard = threading.Lock()


class MilvusBackend:
    """One collection per view, named ``COLLECTION_x`` and ``COLLECTION_y``.

    The items live in Milvus, not in the saved index, which holds the model and where to find them:
    additions and removals are there at once, for every process, without saving. Additions are sent
    in parts of some megabytes; one that fails is taken back.

    Parameters
    ----------
    uri : a path ending in ``.db`` for the embedded engine, which serves one process at a time, or
        the URL of a cluster
    collection : prefix of the collections' names
    token : credentials for the cluster, ``user:password`` or a key; never saved, so pass it again
        on loading
    index_type : Milvus's index; "FLAT" is exact; "HNSW" and others are not, and may
        find fewer items than asked for
    index_params : parameters of that index, such as ``{"M": 32, "efConstruction": 80}``
    search_params : parameters of searches, such as ``{"ef": 128}``
    """

    def __init__(
        self,
        view: str,
        width: int,
        folder: Path | None = None,
        *,
        uri: str,
        collection: str = "dscca",
        token: str = "",
        index_type: str = "FLAT",
        index_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,200}", str(collection)):
            raise ValueError(
                f"collection={collection!r} must be letters, digits and underscores, not "
                f"beginning with a digit."
            )
        self.width = width
        self._pymilvus = optional("pymilvus", "milvus")
        self._uri = _located(str(uri), folder)
        if folder and _is_file(self._uri) and not Path(self._uri).exists():
            raise FileNotFoundError(f"the items of {folder} are missing: there is no {self._uri}")
        self._name = f"{collection}_{view}"
        self._index = {"index_type": index_type, "params": index_params or {}}
        self._search_params = {"metric_type": "IP", "params": search_params or {}}
        self._options = {
            "collection": collection,
            "index_type": index_type,
            "index_params": index_params,
            "search_params": search_params,
        }
        self._client = self._connect(token)

    def start(self) -> None:
        """Make the collection, which must not exist."""
        types = self._pymilvus.DataType
        with self._errors():
            if self._client.has_collection(self._name):
                raise ValueError(
                    f"{self._uri} has a collection {self._name} already: load the index it "
                    f"belongs to, or choose another collection name."
                )
            schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("key", types.VARCHAR, is_primary=True, max_length=32)
            schema.add_field("id", types.VARCHAR, max_length=_LARGEST_TEXT)
            schema.add_field("metadata", types.VARCHAR, max_length=_LARGEST_TEXT)
            schema.add_field("vector", types.FLOAT_VECTOR, dim=self.width)
            index = self._client.prepare_index_params()
            index.add_index(field_name="vector", metric_type="IP", **self._index)
            self._client.create_collection(
                self._name, schema=schema, index_params=index, consistency_level="Strong"
            )

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Find the collection again."""
        with self._errors():
            if not self._client.has_collection(self._name):
                raise ValueError(f"{self._uri} has no collection {self._name}")
            fields = self._client.describe_collection(self._name)["fields"]
            widths = [f["params"]["dim"] for f in fields if f["name"] == "vector"]
            if [int(width) for width in widths] != [self.width]:
                raise ValueError(
                    f"collection {self._name} has vectors of width {widths}, not {self.width}"
                )
            self._client.load_collection(self._name)

    def __len__(self) -> int:
        with self._errors():
            answer = self._client.query(self._name, filter="", output_fields=["count(*)"])
            return int(answer[0]["count(*)"])

    def contains(self, ids: Sequence[Id]) -> list[bool]:
        """Say of each id whether it is held."""
        keys = [_key(i) for i in ids]
        held = {row["key"] for row in self._get(keys, ["key"])}
        return [key in held for key in keys]

    def add(self, ids: Sequence[Id], vectors: Vectors, metadata: Sequence[str]) -> None:
        """Add all of the items, or none if it fails."""
        texts = [json.dumps(i) for i in ids]
        for i, text, more in zip(ids, texts, metadata, strict=True):
            if max(len(text), len(more)) > _LARGEST_TEXT:
                raise ValueError(
                    f"item {str(i)[:40]!r}: Milvus holds ids and metadata of at most "
                    f"{_LARGEST_TEXT:,} bytes of JSON."
                )
        sent: list[str] = []
        with self._errors():
            try:
                for rows in _requests(texts, metadata, self.width):
                    part = [
                        {
                            "key": _key(ids[row]),
                            "id": texts[row],
                            "metadata": metadata[row],
                            "vector": vectors[row],
                        }
                        for row in rows
                    ]
                    sent += [row["key"] for row in part]
                    self._client.insert(self._name, part)
            except BaseException:
                self._delete(sent)
                raise

    def remove(self, ids: Sequence[Id]) -> None:
        """Remove the items."""
        with self._errors():
            self._delete([_key(i) for i in ids])

    def vectors(self, ids: Sequence[Id]) -> Vectors:
        """Return the vectors of the items."""
        keys = [_key(i) for i in ids]
        held = {row["key"]: row["vector"] for row in self._get(keys, ["key", "vector"])}
        return np.array([held[key] for key in keys], dtype=np.float32).reshape(-1, self.width)

    def search(self, vectors: Vectors, k: int) -> list[list[Hit]]:
        """Return the `k` items of largest inner product for each row, the best first."""
        if k > _LARGEST_K:
            raise ValueError(f"Milvus finds at most {_LARGEST_K:,} items per query, not k={k}.")
        found = []
        with self._errors():
            for start in range(0, len(vectors), _QUERIES):
                found += self._client.search(
                    self._name,
                    data=list(vectors[start : start + _QUERIES]),
                    anns_field="vector",
                    limit=k,
                    search_params=self._search_params,
                    output_fields=["id", "metadata"],
                )
        return [
            hits(
                [json.loads(hit["entity"]["id"]) for hit in one],
                [hit["distance"] for hit in one],
                [hit["entity"]["metadata"] for hit in one],
            )
            for one in found
        ]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return nothing: Milvus keeps the items."""
        return {}

    def saved_options(self, folder: Path) -> dict[str, Any]:
        """Return where the items are; a file inside `folder` is named relative to it."""
        path, folder = Path(self._uri), folder.resolve()
        inside = _is_file(self._uri) and path.is_relative_to(folder)
        return {**self._options, "uri": str(path.relative_to(folder)) if inside else self._uri}

    def drop(self) -> None:
        """Delete the collection."""
        with self._errors():
            self._client.drop_collection(self._name)

    def close(self) -> None:
        """Disconnect; the embedded engine stops, and another process may open its file."""
        if self._client is None:
            return
        self._client.close()
        self._client = None
        if _is_file(self._uri):
            _release(self._uri)

    def _connect(self, token: str) -> Any:
        for name in ("pymilvus", "milvus_lite"):  # errors are raised: no need to print them too
            logging.getLogger(name).addHandler(logging.NullHandler())
        with self._errors():
            if not _is_file(self._uri):
                return self._pymilvus.MilvusClient(self._uri, token=token)
            optional("milvus_lite", "milvus")
            Path(self._uri).parent.mkdir(parents=True, exist_ok=True)
            with _guard:
                _embedded[self._uri] += 1
            try:
                return self._pymilvus.MilvusClient(self._uri)
            except self._pymilvus.MilvusException as error:
                _release(self._uri)
                raise ConnectionError(
                    f"cannot open {self._uri}: another process has it open (the embedded engine "
                    f"serves one at a time; a cluster serves many), or it is damaged."
                ) from error

    def _get(self, keys: list[str], fields: list[str]) -> Iterator[dict[str, Any]]:
        with self._errors():
            for start in range(0, len(keys), _KEYS):
                yield from self._client.get(
                    self._name, ids=keys[start : start + _KEYS], output_fields=fields
                )

    def _delete(self, keys: list[str]) -> None:
        for start in range(0, len(keys), _KEYS):
            self._client.delete(self._name, ids=keys[start : start + _KEYS])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._pymilvus.MilvusException as error:
            raise ConnectionError(f"Milvus at {self._uri}: {error}") from error


def _requests(ids: Sequence[str], metadata: Sequence[str], width: int) -> Iterator[range]:
    """Yield consecutive rows that together fit in a request."""
    start, size = 0, 0
    for row, (i, text) in enumerate(zip(ids, metadata, strict=True)):
        needed = 4 * width + len(i) + len(text) + 64
        if row > start and size + needed > _REQUEST_BYTES:
            yield range(start, row)
            start, size = row, 0
        size += needed
    if start < len(ids):
        yield range(start, len(ids))


def _key(i: Id) -> str:
    """Return a name that is safe in Milvus's expressions, whatever the id holds."""
    return blake2b(json.dumps(i).encode(), digest_size=16).hexdigest()


def _is_file(uri: str) -> bool:
    return "://" not in uri and not uri.startswith("unix:")


def _located(uri: str, folder: Path | None) -> str:
    """Return the absolute path of a local file, which `folder` is the base of, or the URL."""
    if not _is_file(uri):
        if urlsplit(uri).username is not None:
            raise ValueError("the URL would be saved with its credentials: pass them as token=.")
        return uri
    if not uri.endswith(".db"):
        raise ValueError(f"uri={uri!r} is neither a path ending in .db nor a URL.")
    return str((folder / uri if folder else Path(uri)).resolve())


def _release(path: str) -> None:
    """Stop the embedded engine of a file when its last user in this process has closed it."""
    with _guard:
        _embedded[path] -= 1
        if _embedded[path] > 0:
            return
        del _embedded[path]
    manager = optional("milvus_lite.server_manager", "milvus")
    manager.server_manager_instance.release_server(path)
