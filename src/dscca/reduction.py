"""Principal axes of a view, from its training rows read in blocks."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dscca.head import row_chunks
from dscca.moments import Moments
from dscca.views import View, not_finite_error

Rows = NDArray[np.int64]

_RANK = 1e-12
"""Share of the largest variance under which a principal component is rounding."""


def blocks(view: View, rows: Rows, device: torch.device) -> Iterator[Tensor]:
    """Yield the chosen rows of a view in float64, block by block."""
    for chunk in row_chunks(rows):
        if isinstance(view, Tensor):
            yield view[torch.from_numpy(chunk).to(view.device)].to(device, torch.float64)
        else:
            yield torch.from_numpy(np.asarray(view[chunk], dtype=np.float64)).to(device)


def row_moments(view: View, rows: Rows, device: torch.device, name: str) -> Moments:
    """Return the moments of the chosen rows, which must be finite and vary; `name` is the view's.

    They are taken from the first row, so that a constant view has no variance at all.
    """
    first = next(blocks(view, rows[:1], device))[0]
    parts = (Moments.of(block - first, first) for block in blocks(view, rows, device))
    moments = next(parts)
    for part in parts:
        moments.merge(part)
    variances = moments.scatter.diagonal()
    if not variances.isfinite().all():
        raise not_finite_error({name: view})
    if not (variances > 0).any():
        raise ValueError(f"view {name} is constant: a correlation needs variation.")
    return moments


def principal_axes(
    moments: Moments, *, share: float | None, size: float | None, name: str
) -> Tensor:
    """Return principal axes (p x a), scaled so that projections have unit mean squared norm.

    Parameters
    ----------
    moments : of the view's training rows
    share : the fewest axes are kept that hold this share of the variance
    size : number of axes, or if no whole number, their share of the features; with neither, all
        axes are kept along which the view varies, and distances are what they were
    name : the view's name, for messages
    """
    if share is not None and size is not None:
        raise ValueError(
            f"variance={share} and dimensions={size} both say how many principal components of "
            f"view {name} to keep: pass one of them, and None for the other."
        )
    values, vectors = torch.linalg.eigh(moments.scatter / moments.n_samples)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    p, rank = len(values), int((values > _RANK * values[0]).sum())
    keep = rank
    if share is not None:
        held = values.cumsum(0) / values.sum()
        keep = min(rank, int((held < share).sum()) + 1)
    elif size is not None:
        wanted = int(size) if isinstance(size, int) else max(1, round(size * p))
        if wanted > p:
            raise ValueError(
                f"dimensions={size} is above {p}, the number of features of view {name}: use "
                f"dimensions <= {p}."
            )
        keep = min(rank, wanted)
    return vectors[:, :keep] / values[:keep].sum().sqrt()
