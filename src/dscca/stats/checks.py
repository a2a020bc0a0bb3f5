"""What several of the functions share: checks of input, standardisation, chunks of resamples."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

_CHUNK_BYTES = 2**26
"""Working memory for one chunk of resamples, unless a single resample needs more."""

_CONSTANT = 10 * float(np.finfo(np.float64).eps)
"""A column with largest magnitude one and a standard deviation up to this is constant."""


def paired_views(
    x: ArrayLike, y: ArrayLike, names: tuple[str, str], minimum: int
) -> tuple[Float[np.ndarray, "n p"], Float[np.ndarray, "n q"]]:
    """Return two float64 matrices with the same number of rows, or raise."""
    views = []
    for values, name in zip((x, y), names, strict=True):
        array = np.asarray(values, dtype=np.float64)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] == 0:
            raise ValueError(
                f"{name} must have samples as rows and at least one column, got shape "
                f"{array.shape}; reshape it."
            )
        if not np.isfinite(array).all():
            count = np.count_nonzero(~np.isfinite(array))
            raise ValueError(
                f"{name} must be finite but has {count} NaN or infinite entries; drop those rows "
                "from both sides, or impute them."
            )
        views.append(array)
    if len(views[0]) != len(views[1]):
        raise ValueError(
            f"{names[0]} has {len(views[0])} rows but {names[1]} has {len(views[1])}; pass the "
            "same samples on both sides, in the same order."
        )
    if len(views[0]) < minimum:
        raise ValueError(f"At least {minimum} pairs are needed, got {len(views[0])}; add samples.")
    return views[0], views[1]


def require_samples_for_ranks(n: int, p: int, q: int) -> None:
    """Raise unless ``p + q <= n - 1``, as correlations are one by necessity otherwise."""
    if p + q > n - 1:
        raise ValueError(
            f"At least p + q + 1 = {p + q + 1} samples are needed for views of ranks p = {p} and "
            f"q = {q}, got {n}: with fewer, canonical correlations equal one whatever the data. "
            "Add samples, or reduce the views first, for example by PCA."
        )


def require_confidence(confidence: float) -> None:
    """Raise unless a confidence level lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(
            f"confidence must lie strictly between 0 and 1, got {confidence}; 0.95 is usual."
        )


def standardised(X: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
    """Return the columns with mean 0 and variance 1; constant columns become exactly zero."""
    largest = np.abs(X).max(axis=0)
    Z = X / np.where(largest > 0, largest, 1.0)
    Z -= Z.mean(axis=0)
    deviation = Z.std(axis=0)
    varies = deviation > _CONSTANT
    return np.where(varies, Z, 0.0) / np.where(varies, deviation, 1.0)


def chunks(total: int, bytes_each: int) -> Iterator[int]:
    """Yield the sizes of consecutive chunks of ``total`` resamples that fit the memory."""
    size = max(1, _CHUNK_BYTES // bytes_each)
    for start in range(0, total, size):
        yield min(size, total - start)
