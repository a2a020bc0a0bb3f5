"""One pass over views in blocks of rows: their moments, and linear projections of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dscca.moments import Moments
from dscca.views import View, not_finite_error, resolve_device, row_blocks, working_dtype

_NAMES = ("X", "y", "variates of X", "variates of y")


def moments_of(
    *views: View, device: str | torch.device = "cpu", names: Sequence[str] = _NAMES
) -> Moments:
    """Return the moments of the rows of all `views`, side by side, in one blockwise pass."""
    return fold_moments(*views, device=device, n_folds=1, names=names)[0]


def fold_moments(
    *views: View,
    device: str | torch.device = "cpu",
    n_folds: int,
    names: Sequence[str] = _NAMES,
) -> list[Moments]:
    """Return the moments of every fold; row i is in fold ``i % n_folds``.

    The views are called `names` where values that are not finite are reported.
    """
    folds: list[Moments | None] = [None] * n_folds
    dtype, shift = working_dtype(*views), _near_mean(*views)
    blocks = row_blocks(
        *views, device=resolve_device(device), dtype=dtype, multiple=n_folds, shift=shift
    )
    for _, block in blocks:
        for i in range(min(n_folds, len(block))):
            rows = block if n_folds == 1 else block[i::n_folds].contiguous()
            part, held = Moments.of(rows, shift), folds[i]
            if not part.scatter.diagonal().isfinite().all():
                raise not_finite_error(dict(zip(names, views, strict=False)))
            if held is None:
                folds[i] = part
            else:
                held.merge(part)
    return [fold for fold in folds if fold is not None]


def _near_mean(*views: View) -> Tensor:
    """Return the mean of the views' first rows, side by side, representable in their precision."""
    dtype, few = working_dtype(*views), slice(0, 256)
    with np.errstate(invalid="ignore", over="ignore"):
        means = [
            (view[few] if isinstance(view, Tensor) else torch.tensor(np.array(view[few], float)))
            .double()
            .mean(dim=0)
            .cpu()
            for view in views
        ]
    return torch.cat(means).to(dtype).double()


def project_linear(
    view: View,
    mean: NDArray[np.float64],
    A: NDArray[np.float64],
    *,
    device: torch.device,
    name: str = "X",
) -> NDArray[Any]:
    """Return ``(view - mean) A``, in float64 block by block, rounded to the view's precision.

    The view is called `name` where values that are not finite are reported.
    """
    dtype = working_dtype(view)
    numpy_dtype = np.float32 if dtype == torch.float32 else np.float64
    out = np.empty((len(view), A.shape[1]), dtype=numpy_dtype)
    m = torch.as_tensor(mean, device=device)
    weights = torch.as_tensor(A, device=device)
    for part, block in row_blocks(view, device=device, dtype=torch.float64):
        block -= m
        variates: Tensor = block @ weights
        if not variates.isfinite().all():
            raise not_finite_error({name: view})
        out[part] = variates.numpy(force=True)
    return out
