"""What happens to the data before training: holding out, checking, standardising."""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dscca.deep.network import Standardize
from dscca.deep.sources import take
from dscca.head import row_chunks
from dscca.views import View, not_finite_error

_RESOLVED = 0.01
"""Share of a feature's standard deviation that float32's rounding of its mean may make up."""


@dataclass(frozen=True)
class FittingData:
    """What a model is fitted on."""

    views: tuple[View, View]
    rows: NDArray[np.int64]
    """Rows of the views that train."""
    held_out: tuple[View, View]
    """The views that the validation samples come from."""
    validation: tuple[Tensor, Tensor]
    """The validation samples, on the device."""
    inputs: tuple[Standardize, Standardize]
    batch_size: int
    seed: int
    device: torch.device

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of a sample of each view."""
        return tuple(tuple(view.shape[1:]) for view in self.views)

    def training_rows(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return some rows of both views, on the device."""
        x, y = (take(view, rows, self.device) for view in self.views)
        return x, y

    def training_blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all training rows of both views, block by block, on the device."""
        return (self.training_rows(chunk) for chunk in row_chunks(self.rows))


def prepare(
    views: tuple[View, View],
    given: tuple[View, View] | None,
    *,
    n_components: int,
    batch_size: int,
    fraction: float,
    scale: str | None,
    seed: int,
    device: torch.device,
) -> FittingData:
    """Check the views' values and decide what trains, and what validates, on which scale."""
    rows, validation_rows = hold_out(len(views[0]), fraction, n_components, seed, given)
    size = min(batch_size, len(rows))
    if size <= n_components:
        raise ValueError(
            f"batches of {size} samples cannot carry n_components={n_components}, any "
            f"{n_components + 1} samples correlate perfectly: use a batch_size and at "
            f"least as many training samples well above that."
        )
    held_out = given if given is not None else views
    x_val, y_val = (take(view, validation_rows, device) for view in held_out)
    x_input, y_input = (
        standardizer(view, rows, scale, device, name)
        for view, name in zip(views, "Xy", strict=True)
    )
    names = ("X", "y") if given is None else ("X_val", "y_val")
    for name, part, whole in zip(names, (x_val, y_val), held_out, strict=True):
        if not part.isfinite().all():
            raise not_finite_error({name: whole})
    return FittingData(
        views, rows, held_out, (x_val, y_val), (x_input, y_input), size, seed, device
    )


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
        raise ValueError(
            f"view {name} is constant, at least in float32, in which networks train: a correlation "
            f"needs variation. If it is not, centre and rescale it."
        )
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
