"""Turning what users pass as views into blocks of tensors, without copying the whole."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_consistent_length, validate_data
from torch import Tensor

View = NDArray[Any] | Tensor
"""A checked view: a numpy array (memory-mapped ones stay so) or a tensor on a GPU."""

_BLOCK_ENTRIES = 2**21
"""Numbers in a block of rows: 8 to 16 MB, which stay in a CPU's cache from copy to product."""


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the device meant by `device`; "auto" is a CUDA GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f'device={device!r} is no device: use "auto", "cpu" or "cuda".') from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f'device={device!r}, but no CUDA GPU is available: use "auto" or "cpu".')
    if resolved.type not in ("cpu", "cuda"):
        raise ValueError(
            f"device={device!r} is not supported (the linear algebra needs float64, training is "
            f'written for CUDA): use "auto", "cpu" or "cuda".'
        )
    return resolved


def check_x(
    estimator: BaseEstimator, X: ArrayLike | Tensor, *, reset: bool, allow_nd: bool = False
) -> View:
    """Check view one as scikit-learn does, leaving its dtype and memory alone."""
    X = without_graph(X)
    if isinstance(X, Tensor):
        _check_tensor(X, "X", allow_nd)
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X
    checked: NDArray[Any] = validate_data(
        estimator,
        X,
        reset=reset,
        dtype="numeric",
        ensure_all_finite=False,
        allow_nd=allow_nd,
        ensure_min_samples=2 if reset else 1,
    )
    _check_numbers(X, checked, "X")
    return checked


def check_y(
    y: ArrayLike | Tensor | None, *, estimator: str, fitting: bool, allow_nd: bool = False
) -> View:
    """Check view two; one dimension is taken as a single column."""
    if y is None:
        raise ValueError(
            f"{estimator} requires y to be passed, but the target y is None: y is the second view."
        )
    y = without_graph(y)
    if isinstance(y, Tensor):
        y = y[:, None] if y.ndim == 1 else y
        _check_tensor(y, "y", allow_nd)
        return y
    checked: NDArray[Any] = check_array(
        y,
        dtype="numeric",
        ensure_all_finite=False,
        ensure_2d=False,
        allow_nd=allow_nd,
        ensure_min_samples=2 if fitting else 1,
        input_name="y",
        estimator=estimator,
    )
    _check_numbers(y, checked, "y")
    if checked.ndim == 0:
        raise ValueError("Expected y to have rows, got a scalar: pass one row per sample.")
    if checked.ndim == 1:
        checked = checked[:, None]
    if checked.shape[1] == 0:
        raise ValueError("Found array with 0 feature(s) in y while a minimum of 1 is required.")
    return checked


def check_paired(X: View, y: View) -> None:
    """Refuse views of different lengths."""
    if len(X) != len(y):
        check_consistent_length(X, y)  # scikit-learn's own message


def without_graph(X: ArrayLike | Tensor) -> Any:
    """Return CPU tensors as numpy arrays sharing their memory; others as they are."""
    if isinstance(X, Tensor):
        X = X.detach()
        X = X.float() if X.dtype == torch.bfloat16 else X
        return X.numpy() if X.device.type == "cpu" else X
    return X


def _check_numbers(given: Any, checked: NDArray[Any], name: str) -> None:
    """Refuse what becomes numbers only by losing its meaning: masks, dates and durations."""
    if np.ma.is_masked(given):
        hidden = int(np.ma.getmaskarray(given).sum())
        raise ValueError(
            f"{name} is a masked array whose mask hides {hidden} values, which would be read as "
            f"data: remove their rows from both views, or impute them."
        )
    if checked.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {checked.dtype} values: convert them to numbers first.")


def _check_tensor(X: Tensor, name: str, allow_nd: bool) -> None:
    if X.ndim < 2 or (X.ndim > 2 and not allow_nd):
        raise ValueError(
            f"Expected 2D array for {name}, got {X.ndim}D: reshape to (n_samples, n_features)."
        )
    if X.is_complex():
        raise ValueError(f"Complex data not supported: {name} has dtype {X.dtype}.")


def working_dtype(*views: View) -> torch.dtype:
    """Return float32 if every view is of at most that precision, else float64."""
    return torch.float32 if all(_is_single(view) for view in views) else torch.float64


def _is_single(view: View) -> bool:
    if isinstance(view, Tensor):
        return view.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return view.dtype in (np.float16, np.float32)


def row_blocks(
    *views: View,
    device: torch.device,
    dtype: torch.dtype,
    multiple: int = 1,
    shift: Tensor | None = None,
    rows: int | None = None,
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the rows of 2-D `views` side by side, block by block, less `shift`, if given.

    The blocks share one buffer: each is overwritten by the next one. All but the last have a number
    of rows that is a multiple of `multiple`: about `rows`, or as many as make matrix products fast.
    """
    n, widths = len(views[0]), [view.shape[1] for view in views]
    rows = max(1, (rows or block_rows(*views)) // multiple) * multiple
    staging = torch.empty(min(rows, n), sum(widths), dtype=dtype)
    buffer = staging if device.type == "cpu" else torch.empty_like(staging, device=device)
    on_host = [view for view in views if not isinstance(view, Tensor)]
    for start in range(0, n, rows):
        part = slice(start, min(start + rows, n))
        size = part.stop - part.start
        if on_host:
            _fill(staging[:size], views, widths, part, shift, on_host=True)
            if buffer is not staging:
                buffer[:size] = staging[:size]
        if len(on_host) < len(views):
            _fill(buffer[:size], views, widths, part, shift, on_host=False)
        yield part, buffer[:size]


def shared(array: NDArray[Any]) -> Tensor:
    """Return a tensor that shares a numpy array's memory, where its byte order and strides allow.

    It is for reading only: the memory may be that of a read-only file.
    """
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def block_rows(*views: View) -> int:
    """Return how many rows of the given views make a block."""
    return max(256, _BLOCK_ENTRIES // sum(view.shape[1] for view in views))


def _fill(
    target: Tensor,
    views: Sequence[View],
    widths: list[int],
    part: slice,
    shift: Tensor | None,
    *,
    on_host: bool,
) -> None:
    shifts = [None] * len(widths) if shift is None else torch.split(shift, widths)
    columns = torch.split(target, widths, dim=1)
    for view, column, s in zip(views, columns, shifts, strict=True):
        if isinstance(view, Tensor) and not on_host:
            column.copy_(view[part])
            if s is not None:
                column -= s.to(column)
        elif not isinstance(view, Tensor) and on_host:
            rows = view[part]
            if s is not None and rows.dtype.name in ("float32", "float64"):
                torch.sub(shared(rows), s.to(column.dtype), out=column)
                continue
            np.copyto(column.numpy(), rows, casting="unsafe")
            if s is not None:
                column -= s.to(column)


def device_of(view: View) -> torch.device:
    """Return where a view lies."""
    return view.device if isinstance(view, Tensor) else torch.device("cpu")


def require_finite(views: dict[str, View]) -> None:
    """Refuse views, given by name, that hold NaN or infinity."""
    for view in views.values():
        blocks = row_blocks(view, device=device_of(view), dtype=working_dtype(view))
        if not all(bool(block.isfinite().all()) for _, block in blocks):
            raise not_finite_error(views)


def not_finite_error(views: dict[str, View]) -> ValueError:
    """Say which view holds NaN or infinity, in how many rows and where first."""
    for name, view in views.items():
        step = max(1, _BLOCK_ENTRIES // max(1, int(np.prod(view.shape[1:]))))
        bad: list[int] = []
        has_nan = False
        for start in range(0, len(view), step):
            rows = (
                torch.as_tensor(np.array(view[start : start + step], dtype=np.float64))
                if (not isinstance(view, Tensor))
                else view[start : start + step]
            )
            flat = rows.flatten(start_dim=1)
            broken = ~flat.isfinite().all(dim=1)
            has_nan |= bool(flat.isnan().any())
            bad += [start + int(i) for i in broken.nonzero().flatten()]
        if bad:
            kind = "NaN" if has_nan else "infinity"
            return ValueError(
                f"Input {name} contains {kind}: {len(bad)} of {len(view)} rows, the first being "
                f"row {bad[0]}. Remove these rows from both views or impute them."
            )
    return ValueError(
        "the products of the given data are not finite, although the data are: rescale the views "
        "or pass them as float64."
    )
