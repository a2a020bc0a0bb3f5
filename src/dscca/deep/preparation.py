"""What happens to the data before training: holding out, checking, standardising."""

import math
import zlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dscca.deep.head import row_chunks
from dscca.deep.network import Standardize
from dscca.deep.sources import take
from dscca.views import View, not_finite_error

_RESOLVED = 0.01
"""Share of a feature's standard deviation that float32's rounding of its mean may make up."""


def hold_out(
    n: int,
    fraction: float,
    n_components: int,
    seed: int,
    given: tuple[View, View] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows for training, and those of the validation views (given, or held out)."""
    if given is not None:
        rows, validation = np.arange(n), np.arange(len(given[0]))
    else:
        size = max(math.ceil(fraction * n), n_components + 1)
        if size >= n:
            raise ValueError(
                f"{n} samples are too few to hold out {size} for validation, which "
                f"n_components={n_components} needs: pass more samples, or X_val and y_val."
            )
        shuffled = np.random.default_rng(seed).permutation(n)
        rows, validation = np.sort(shuffled[size:]), np.sort(shuffled[:size])
    if len(validation) <= n_components:
        raise ValueError(
            f"{len(validation)} validation samples cannot carry n_components={n_components}: "
            f"pass at least {n_components + 1}, better several times as many."
        )
    return rows, validation


def standardizer(
    view: View,
    rows: NDArray[np.int64],
    scale: str | None,
    device: torch.device,
    name: str,
) -> Standardize:
    """Return the standardisation of a view by its training rows, which must be finite."""
    n, shift = 0, None
    total = squares = torch.zeros((), dtype=torch.float64, device=device)
    for chunk in row_chunks(rows):
        block = take(view, chunk, device).double()
        shift = block.mean(dim=0) if shift is None else shift
        block = block - shift
        n, total, squares = n + len(block), total + block.sum(0), squares + block.square().sum(0)
    if not (total.isfinite().all() and squares.isfinite().all()):
        raise not_finite_error({name: view})
    assert shift is not None
    variances = (squares / n - (total / n).square()).clamp_min(0)
    if not variances.max() > 0:
        raise ValueError(f"view {name} is constant: a correlation needs variation.")
    mean, deviations = shift + total / n, variances.sqrt()
    if (
        (mean.abs() * torch.finfo(torch.float32).eps > _RESOLVED * deviations)
        .logical_and(deviations > 0)
        .any()
    ):
        raise ValueError(
            f"view {name} holds features whose mean is so far above their variation that float32, "
            f"in which networks train, does not resolve it: centre view {name} first."
        )
    if scale is None:
        mean, deviations = torch.zeros(()), torch.ones(())
    elif scale == "view":
        mean, deviations = mean.mean(), variances.mean().sqrt()
    deviations = deviations.where(deviations > 0, 1.0)
    return Standardize(mean.float().cpu(), deviations.float().cpu())


def fingerprint(view: View) -> dict[str, Any]:
    """Return shape, dtype and checksum of a view."""
    checksum = 0
    step = max(1, 2**22 // max(1, math.prod(view.shape[1:])))
    for start in range(0, len(view), step):
        rows = view[start : start + step]
        array = rows.numpy(force=True) if isinstance(rows, Tensor) else rows
        checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
    return {"shape": list(view.shape), "dtype": str(view.dtype), "crc32": checksum}
