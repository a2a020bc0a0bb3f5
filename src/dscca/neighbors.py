"""The nearest of a set of points: exactly by blockwise products, or approximately by faiss."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

Neighbors = tuple[Tensor, Tensor]
"""Numbers of the nearest points, and how much farther they are than the first: both m x k."""

_BLOCK_ENTRIES = 2**23
"""Distances held at a time; the searches of a block share one buffer."""
_MIN_ROWS = 64
"""Queries that are searched at a time at least, so that reading the points pays."""
_GROUP = 64
"""Points whose least distance stands for them in the first round of the search."""
_UNIT = 2.0**20
"""Distances are compared in whole units, of 1 / _UNIT² of the given; see :func:`nearest`."""


def nearest(queries: Tensor, points: Tensor, k: int, *, first: int | None = None) -> Neighbors:
    """Return the `k` points nearest to each query, nearest first.

    The second result is ``‖q - t_j‖² - min_j ‖q - t_j‖²``, all that normalised Gaussian weights
    depend on. It follows from ``‖t‖² - 2 qᵀt`` without the query's norm, so that queries far off
    lose no precision. Rounding of these numbers to steps of ``2⁻⁴⁰`` makes equal distances equal
    whatever queries are searched together: points are to be of about unit norm.

    A first round over groups of points, each represented by its least distance, leaves ``k`` groups
    that are certain to hold the nearest: most of the work is then one product and one minimum.

    Parameters
    ----------
    queries, points : (m, a), (n, a), float64
    k : number of neighbours, at most n
    first : number of the point that the first query is, when queries are points in their order;
        each is then its own nearest neighbour, even among duplicates
    """
    queries, points = queries * _UNIT, points * _UNIT  # exact, and then rounding is one pass
    n, norms = len(points), points.square().sum(dim=1)
    rows = max(_MIN_ROWS, _BLOCK_ENTRIES // n)
    buffer = torch.empty(min(rows, len(queries)), n, dtype=points.dtype, device=points.device)
    indices = torch.empty(len(queries), k, dtype=torch.int64, device=points.device)
    offsets = torch.empty(len(queries), k, dtype=points.dtype, device=points.device)
    for start in range(0, len(queries), rows):
        part = slice(start, start + rows)
        q = queries[part]
        distances = torch.addmm(norms, q, points.T, alpha=-2, out=buffer[: len(q)])
        distances.round_()
        if first is not None:
            lines = torch.arange(len(q), device=points.device)
            distances[lines, lines + (first + start)] = -torch.inf
        values, found = _smallest(distances, k)
        if first is None:
            least = values[:, :1]
        else:
            least = -norms[first + start : first + start + len(q), None]
        indices[part], offsets[part] = found, (values - least).clamp_min(0)
    return indices, offsets.div_(_UNIT**2)


def _smallest(distances: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` smallest entries of each row in order, and their columns."""
    m, n = distances.shape
    groups = n // _GROUP
    if groups < 2 * k:
        values, found = distances.topk(k, largest=False)
        return values, found
    whole = groups * _GROUP
    least = distances[:, :whole].view(m, groups, _GROUP).amin(dim=2)
    chosen = least.topk(k, largest=False, sorted=False)[1]
    members = torch.arange(_GROUP, device=distances.device)
    candidates = (chosen[:, :, None] * _GROUP + members).flatten(start_dim=1)
    rest = torch.arange(whole, n, device=distances.device).expand(m, -1)
    candidates = torch.cat([candidates, rest], dim=1)
    values, place = distances.gather(1, candidates).topk(k, largest=False)
    return values, candidates.gather(1, place)


def nearest_approximately(points: Tensor, k: int, *, seed: int) -> Neighbors:
    """Return about the `k` points nearest to each point, as :func:`nearest` with ``first=0`` does.

    Points are sorted into ``4 √n`` cells by k-means, and those of the nearest cells searched (by
    faiss, in an inverted file). Unlike with a graph of neighbours, the result does not depend on
    the number of threads. The returned distances are exact.
    """
    faiss = _faiss()
    n, a = points.shape
    data = points.float().numpy(force=True)
    cells = min(n, round(4 * n**0.5))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(a), a, cells)
    index.cp.seed, index.cp.min_points_per_centroid = seed, 1
    index.train(data)
    index.add(data)
    # Some twenty times as many candidates as neighbours, from 32 cells at least.
    index.nprobe = min(cells, max(32, -(-20 * k * cells // n)))
    found = torch.from_numpy(index.search(data, k)[1]).to(points.device)
    own = torch.arange(n, device=points.device)[:, None]
    # The point itself comes first; where ties kept it out, it takes the place of the farthest.
    is_own = found == own
    is_own[:, -1] |= ~is_own.any(dim=1)
    found = torch.cat([own, found[~is_own].view(n, k - 1)], dim=1)
    offsets = torch.empty(n, k, dtype=points.dtype, device=points.device)
    rows = max(1, _BLOCK_ENTRIES // (k * a))
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        difference = points[found[part].clamp_min(0)] - points[part, None]
        offsets[part] = difference.square().sum(dim=2)
    short = (found < 0).any(dim=1).nonzero().flatten()
    for i in short.tolist():  # cells with too few points
        found[i : i + 1], offsets[i : i + 1] = nearest(points[i : i + 1], points, k, first=i)
    order = offsets.argsort(dim=1, stable=True)
    return found.gather(1, order), offsets.gather(1, order)


def _faiss() -> Any:
    try:
        return import_module("faiss")
    except ImportError as error:
        raise ImportError(
            'neighbors="approximate" needs faiss: pip install "dscca[faiss]", or use "exact".'
        ) from error
