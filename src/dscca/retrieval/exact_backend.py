"""Exact search in torch, block by block, on any device."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dscca.retrieval.backends import Vectors
from dscca.retrieval.local import LocalBackend, Rows
from dscca.views import resolve_device, shared

_QUERY_ROWS = 1024
_BLOCK_SCORES = 2**23
"""Scores in a block: 32 MB in float32."""

_GROUP = 64


def nearest(queries: Tensor, items: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest inner products of every query, and the rows of their items.

    Memory does not grow with the number of queries times that of items.

    Parameters
    ----------
    queries : (n_queries, width)
    items : (n_items, width), ``n_items >= k``

    Returns
    -------
    scores, rows : (n_queries, k), the largest score first
    """
    scores = queries.new_empty(len(queries), k)
    rows = torch.empty(len(queries), k, dtype=torch.int64, device=queries.device)
    for start in range(0, len(queries), _QUERY_ROWS):
        q = queries[start : start + _QUERY_ROWS]
        best = q.new_empty(len(q), 0)
        found = rows.new_empty(len(q), 0)
        step = max(k, _BLOCK_SCORES // len(q))
        for first in range(0, len(items), step):
            values, columns = _largest(q @ items[first : first + step].T, k)
            best = torch.cat((best, values), dim=1)
            found = torch.cat((found, columns + first), dim=1)
            best, order = best.topk(min(k, best.shape[1]), dim=1)
            found = found.gather(1, order)
        scores[start : start + len(q)] = best
        rows[start : start + len(q)] = found
    return scores, rows


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest entries of each row, or all if there are fewer, and their columns.

    The k largest entries lie in the k groups of columns whose maxima are largest, so only those are
    sorted: one pass over the scores instead of a selection.
    """
    n_rows, n = scores.shape
    groups = n // _GROUP
    if groups <= 2 * k:
        return scores.topk(min(k, n), dim=1)
    whole = scores[:, : groups * _GROUP].view(n_rows, groups, _GROUP)
    promising = whole.amax(dim=2).topk(k, dim=1, sorted=False).indices
    inside = torch.arange(_GROUP, device=scores.device)
    rest = torch.arange(groups * _GROUP, n, device=scores.device).expand(n_rows, -1)
    columns = torch.cat(((promising[:, :, None] * _GROUP + inside).flatten(1), rest), dim=1)
    values, order = scores.gather(1, columns).topk(k, dim=1)
    return values, columns.gather(1, order)


class ExactBackend(LocalBackend):
    """All items as one float32 matrix on `device`; every query is compared with all of them."""

    _unsaved: ClassVar[frozenset[str]] = frozenset({"device"})

    def __init__(
        self,
        view: str,
        width: int,
        folder: Path | None = None,
        *,
        device: str | torch.device = "auto",
    ) -> None:
        super().__init__(width, device=device)
        self._device = resolve_device(device)
        self._matrix = torch.empty(0, width, device=self._device)

    def _append(self, vectors: Vectors) -> None:
        self._matrix = torch.cat((self._matrix, self._there(vectors)))

    def _keep(self, rows: Rows) -> None:
        self._matrix = self._matrix[torch.as_tensor(rows, device=self._device)]

    def _take(self, rows: Rows) -> Vectors:
        return self._matrix[torch.as_tensor(rows, device=self._device)].numpy(force=True)

    def _nearest(self, vectors: Vectors, k: int) -> tuple[Vectors, Rows]:
        scores, rows = nearest(self._there(vectors), self._matrix, k)
        return scores.numpy(force=True), rows.numpy(force=True)

    def _vector_arrays(self) -> dict[str, NDArray[Any]]:
        return {"vectors": self._matrix.numpy(force=True)}

    def _restore_vectors(self, arrays: dict[str, NDArray[Any]]) -> int:
        vectors = arrays["vectors"]
        if vectors.dtype != np.float32 or vectors.shape[1:] != (self.width,):
            raise ValueError(
                f"vectors are {vectors.dtype} {vectors.shape}, not float32 (n, {self.width})"
            )
        if not np.isfinite(vectors).all():
            raise ValueError("vectors hold values that are not finite")
        self._matrix = self._there(vectors)
        return len(vectors)

    def _there(self, vectors: Vectors) -> Tensor:
        return shared(vectors).to(self._device)
