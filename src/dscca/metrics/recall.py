"""Cross-modal retrieval: the rank of the best match of every query, and what is made of ranks.

Every query of one view ranks all items of the other by score; its rank is the place of the best
item that matches it. The score matrix is taken block by block and never held as a whole.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dscca.views import View, not_finite_error, resolve_device, shared, without_graph

Score = Literal["cosine", "dot"]
Ranks = NDArray[np.int64]

_QUERY_ROWS = 1024
_BLOCK_SCORES = 2**22
"""Scores in a block: 32 MB in float64."""


def retrieval_ranks(
    queries: ArrayLike | Tensor,
    items: ArrayLike | Tensor,
    *,
    query_groups: ArrayLike | None = None,
    item_groups: ArrayLike | None = None,
    score: Score = "cosine",
    device: str | torch.device = "auto",
) -> Ranks:
    """Return the rank of the best matching item of every query, 1 being the best.

    Query i and item j match if ``query_groups[i] == item_groups[j]``. With ``s(i, j)`` their score
    and ``b(i)`` the best score among the matches of query i,

    ``rank(i) = 1 + #{j : j does not match i and s(i, j) >= b(i)}``,

    so ties count against the query: constant representations earn no recall. Scores are taken in
    float64, and those no further apart than its rounding count as tied. A zero vector has the score
    0 with everything.

    Parameters
    ----------
    queries : (n_queries, n_components), as from ``embed``
    items : (n_items, n_components)
    query_groups, item_groups : whole numbers, one per row; by default the number of the row, so
        that row i of one matches row i of the other. For five captions per image in order, the
        captions' groups are ``np.repeat(np.arange(n_images), 5)``. Items may match no query, but
        every query needs a match.
    score : "cosine", or "dot" for the inner product
    device : where to compute; "auto" is a CUDA GPU where there is one

    Notes
    -----
    Beyond the inputs, memory does not depend on the numbers of queries and items.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> captions = np.array([[1.0, 0.1], [1.0, 2.0], [0.2, 1.0], [0.9, 0.1]])
    >>> retrieval_ranks(images, captions, item_groups=[0, 0, 1, 1])
    array([1, 1])
    >>> retrieval_ranks(captions, images, query_groups=[0, 0, 1, 1])
    array([1, 2, 1, 2])
    """
    on = resolve_device(device)
    q, t = _check_variates(queries, "queries"), _check_variates(items, "items")
    if q.shape[1] != t.shape[1]:
        raise ValueError(
            f"queries have {q.shape[1]} components and items {t.shape[1]}: pass the variates of "
            f"both views from the same model."
        )
    _check_finite(queries=q, items=t)
    scale = _item_scale(t, score)
    query_of, item_of = _check_groups(query_groups, item_groups, len(q), len(t))
    matches = _Matches(query_of, item_of)
    largest = np.sqrt(q.shape[1]) if scale else 1.0  # no score of a block is above
    tolerance = 2 * (q.shape[1] + 8) * torch.finfo(torch.float64).eps * largest
    item_groups_there = torch.as_tensor(item_of, device=on)
    ranks = np.empty(len(q), dtype=np.int64)
    for rows in _parts(len(q), _QUERY_ROWS):
        unit = _unit(q, rows, on)
        bound = _best_scores(unit, rows, matches, t, scale) - tolerance
        groups = torch.as_tensor(query_of[rows], device=on)[:, None]
        above = torch.zeros(len(unit), dtype=torch.int64, device=on)
        for part in _parts(len(t), _block_rows(max(unit.shape))):
            scores = unit @ _scaled(t, part, on, scale).T
            above += ((scores >= bound[:, None]) & (groups != item_groups_there[part])).sum(dim=1)
        ranks[rows] = 1 + above.numpy(force=True)
    return ranks


def recall_at(ranks: ArrayLike, k: int) -> float:
    """Return the share of queries whose best match is among the first `k` items.

    >>> recall_at([1, 3, 12], 10)
    0.6666666666666666
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k={k!r} must be a whole number of at least 1.")
    return float((_check_ranks(ranks) <= k).mean())


def median_rank(ranks: ArrayLike) -> float:
    """Return the median rank; of an even number of queries, the mean of the middle two."""
    return float(np.median(_check_ranks(ranks)))


def mean_reciprocal_rank(ranks: ArrayLike) -> float:
    """Return the mean of one over the rank, between 0 and 1.

    >>> mean_reciprocal_rank([1, 2])
    0.75
    """
    return float((1.0 / _check_ranks(ranks)).mean())


def evaluate_retrieval(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    *,
    x_groups: ArrayLike | None = None,
    y_groups: ArrayLike | None = None,
    ks: Sequence[int] = (1, 5, 10),
    score: Score = "cosine",
    device: str | torch.device = "auto",
) -> pd.DataFrame:
    """Return recall, median rank and mean reciprocal rank in both directions.

    Parameters
    ----------
    x, y : projections of both views, as ``model.embed(X, Y)`` returns them
    x_groups, y_groups : what matches what, see :func:`retrieval_ranks`
    ks : places to report recall at; none may exceed the number of items that are ranked

    Returns
    -------
    one row per direction, "x to y" and "y to x"; columns ``R@k`` (shares of queries, between 0 and
    1), ``median rank``, ``MRR``, ``queries`` and ``items``

    Examples
    --------
    >>> import numpy as np
    >>> x = np.eye(3)
    >>> evaluate_retrieval(x, x[[0, 2, 1]], ks=[1, 2])[["R@1", "R@2", "median rank"]]
                 R@1       R@2  median rank
    x to y  0.333333  0.333333          3.0
    y to x  0.333333  0.333333          3.0
    """
    smaller = min(len(_check_variates(x, "x")), len(_check_variates(y, "y")))
    for k in ks:
        if k > smaller:
            raise ValueError(
                f"recall at k={k} says nothing where only {smaller} items are ranked: pass ks of "
                f"at most {smaller}, or more samples."
            )
    both = {
        "x to y": (x, y, x_groups, y_groups),
        "y to x": (y, x, y_groups, x_groups),
    }
    table = {}
    for direction, (queries, items, of_queries, of_items) in both.items():
        ranks = retrieval_ranks(
            queries,
            items,
            query_groups=of_queries,
            item_groups=of_items,
            score=score,
            device=device,
        )
        table[direction] = {
            **{f"R@{k}": recall_at(ranks, k) for k in ks},
            "median rank": median_rank(ranks),
            "MRR": mean_reciprocal_rank(ranks),
            "queries": len(ranks),
            "items": len(_check_variates(items, "items")),
        }
    return pd.DataFrame.from_dict(table, orient="index").astype({"queries": int, "items": int})


class _Matches:
    """Which items match a query, found by sorting the items by group once."""

    def __init__(self, query_of: Ranks, item_of: Ranks) -> None:
        self._order = np.argsort(item_of, kind="stable")
        ordered = item_of[self._order]
        self._first = np.searchsorted(ordered, query_of, side="left")
        self._count = np.searchsorted(ordered, query_of, side="right") - self._first
        alone = np.flatnonzero(self._count == 0)
        if len(alone):
            raise ValueError(
                f"{len(alone)} of {len(query_of)} queries match no item, the first being row "
                f"{alone[0]} (group {query_of[alone[0]]}): leave them out or add their items."
            )

    def pairs(self, rows: slice, size: int) -> Iterator[tuple[Ranks, Ranks]]:
        """Yield query and item of every match of the queries in `rows`, about `size` at a time.

        Queries are numbered from the start of `rows`.
        """
        first, count = self._first[rows], self._count[rows]
        ends = np.cumsum(count)
        for part in _parts(int(ends[-1]), size):
            position = np.arange(part.start, part.stop)
            query = np.searchsorted(ends, position, side="right")
            yield query, self._order[first[query] + position - (ends[query] - count[query])]


def _best_scores(unit: Tensor, rows: slice, matches: _Matches, t: View, scale: float) -> Tensor:
    """Return the best score of each query of a block among its matches."""
    best = torch.full((len(unit),), -torch.inf, dtype=torch.float64, device=unit.device)
    for query, item in matches.pairs(rows, _block_rows(unit.shape[1])):
        i = torch.as_tensor(query, device=unit.device)
        scores = (unit[i] * _scaled(t, item, unit.device, scale)).sum(dim=1)
        best.scatter_reduce_(0, i, scores, "amax")
    return best


def _block_rows(width: int) -> int:
    return max(1, _BLOCK_SCORES // width)


def _parts(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _rows(view: View, rows: slice | Ranks, device: torch.device) -> Tensor:
    if isinstance(view, Tensor):
        index = rows if isinstance(rows, slice) else torch.as_tensor(rows, device=view.device)
        return view[index].to(device=device, dtype=torch.float64)
    return shared(np.asarray(view[rows], dtype=np.float64)).to(device)


def _unit(view: View, rows: slice | Ranks, device: torch.device) -> Tensor:
    """Return rows scaled to norm one; dividing by the largest entry keeps squares in range."""
    block = _rows(view, rows, device)
    largest = block.abs().amax(dim=1, keepdim=True)
    block = block / torch.where(largest > 0, largest, 1.0)
    norms: Tensor = torch.linalg.vector_norm(block, dim=1, keepdim=True)
    return block / torch.where(norms > 0, norms, 1.0)


def _scaled(view: View, rows: slice | Ranks, device: torch.device, scale: float) -> Tensor:
    """Return unit rows (`scale` 0, for the cosine) or rows divided by one common `scale`."""
    return _rows(view, rows, device) / scale if scale else _unit(view, rows, device)


def _item_scale(t: View, score: Score) -> float:
    """Return the largest entry of the items under "dot", by which they are divided; else 0."""
    if score == "cosine":
        return 0.0
    if score != "dot":
        raise ValueError(f'score={score!r} is unknown: use "cosine" or "dot".')
    largest = max(
        float(_rows(t, part, torch.device("cpu")).abs().max())
        for part in _parts(len(t), _block_rows(t.shape[1]))
    )
    return largest or 1.0


def _check_variates(values: ArrayLike | Tensor, name: str) -> View:
    values = without_graph(values)
    checked: View = values if isinstance(values, Tensor) else np.asarray(values)
    if checked.ndim != 2 or 0 in checked.shape:
        raise ValueError(
            f"{name} must have the shape (n_samples, n_components) with at least one of each, got "
            f"{tuple(checked.shape)}."
        )
    if isinstance(checked, np.ndarray) and checked.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be real numbers, got dtype {checked.dtype}.")
    return checked


def _check_finite(**views: View) -> None:
    for name, view in views.items():
        for part in _parts(len(view), _block_rows(view.shape[1])):
            if not _rows(view, part, torch.device("cpu")).isfinite().all():
                raise not_finite_error({name: view})


def _check_groups(
    query_groups: ArrayLike | None, item_groups: ArrayLike | None, n_queries: int, n_items: int
) -> tuple[Ranks, Ranks]:
    if query_groups is None and item_groups is None and n_queries != n_items:
        raise ValueError(
            f"there are {n_queries} rows of one view and {n_items} of the other: pass groups that "
            f"say which of them match."
        )
    checked = []
    for name, groups, n in (("query", query_groups, n_queries), ("item", item_groups, n_items)):
        array: NDArray[Any] = np.arange(n) if groups is None else np.asarray(groups)
        if array.shape != (n,) or array.dtype.kind not in "iu":
            raise ValueError(
                f"{name} groups must be {n} whole numbers, one per row, got an array of shape "
                f"{array.shape} and dtype {array.dtype}."
            )
        checked.append(array.astype(np.int64))
    return checked[0], checked[1]


def _check_ranks(ranks: ArrayLike) -> Ranks:
    array = np.asarray(ranks)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu" or array.min() < 1:
        raise ValueError(
            "ranks must be whole numbers of at least 1, at least one of them, as "
            "retrieval_ranks returns them."
        )
    return array.astype(np.int64)
