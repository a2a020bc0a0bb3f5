"""The linear CCA that ends every representation, fitted on features of the training samples.

A representation is any function from a block of a view to its features: a network's encoder, a
kernel's feature map. What is here knows nothing else of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dscca.linalg import (
    CanonicalDirections,
    Covariances,
    SingularCovarianceError,
    canonical_correlations_of,
    canonical_directions,
    whitening,
)
from dscca.moments import Moments, RunningMoments
from dscca.regularization import choose_regularizer
from dscca.views import View, not_finite_error, working_dtype

Encode = Callable[[Tensor, int], Tensor]
"""Returns the features of a block of a view, 0 or 1."""

BLOCK_ROWS = 8192
"""Rows that are encoded at a time outside training."""


_NARROW = 1024
"""Features, of both views together, up to which a GPU is slower than a CPU at their algebra."""


def row_chunks(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut row numbers into runs that are encoded at a time."""
    for start in range(0, len(rows), BLOCK_ROWS):
        yield rows[start : start + BLOCK_ROWS]


@dataclass
class CrossScatter:
    """Streamed covariance of a view's raw entries with its features, and their variances."""

    shift: Tensor
    n: int = 0
    x: Any = 0.0
    xx: Any = 0.0
    f: Any = 0.0
    xf: Any = 0.0

    def add(self, x: Tensor, f: Tensor) -> None:
        """Add rows x (flattened) with their features f, both in float64."""
        x = x - self.shift
        self.n += len(x)
        self.x, self.f = self.x + x.sum(dim=0), self.f + f.sum(dim=0)
        self.xx, self.xf = self.xx + x.square().sum(dim=0), self.xf + x.T @ f

    def deviations(self) -> Tensor:
        """Return the standard deviation of each entry."""
        variances = (self.xx - self.x.square() / self.n) / (self.n - 1)
        return torch.as_tensor(variances).clamp_min(0).sqrt()

    def covariance(self) -> Tensor:
        """Return cov(x, f)."""
        return torch.as_tensor((self.xf - torch.outer(self.x, self.f / self.n)) / (self.n - 1))

    def interpret(self, A: Tensor, S: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return loadings and patterns of the view's raw entries; see TwoViewEstimator.

        A turns features, whose covariance is S, into variates.
        """
        A, S = A.to(self.shift), S.to(self.shift)
        joint = self.covariance() @ A
        deviations = self.deviations()
        loadings = joint / deviations.where(deviations > 0, 1.0)[:, None]
        patterns = joint @ (A.T @ S @ A).pinverse()
        return loadings.numpy(force=True), patterns.numpy(force=True)


def encode_both(encode: Encode, views: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the features of both views."""
    return encode(views[0], 0), encode(views[1], 1)


def feature_covariances(features: tuple[Tensor, Tensor], eps: float) -> Covariances:
    """Return the covariances of both views' features, whose rounding unit is `eps`."""
    joint = torch.cat([f.double() for f in features], dim=1)
    return _covariances(Moments.of(joint), features[0].shape[1], eps)


def training_sums(
    encode: Encode, blocks: Iterable[Sequence[Tensor]], eps: float
) -> tuple[Covariances, tuple[CrossScatter, CrossScatter]]:
    """Return the covariances of the training features, and theirs with the raw views.

    Parameters
    ----------
    encode : the representation
    blocks : pairs of blocks of both views' training rows
    eps : rounding unit of the features
    """
    return feature_sums(((raw, encode_both(encode, raw)) for raw in blocks), eps)


def feature_sums(
    blocks: Iterable[tuple[Sequence[Tensor], Sequence[Tensor]]], eps: float
) -> tuple[Covariances, tuple[CrossScatter, CrossScatter]]:
    """Return the same as :func:`training_sums` from rows of both views with their features."""
    sums = RunningMoments()
    scatters: list[CrossScatter] = []
    for raw, encoded in blocks:
        features = [f.double() for f in encoded]
        flat = [view.flatten(start_dim=1).double() for view in raw]
        if not scatters:
            scatters = [CrossScatter(x.mean(dim=0)) for x in flat]
        for scatter, x, f in zip(scatters, flat, features, strict=True):
            scatter.add(x, f)
        sums.add(torch.cat(features, dim=1))
    return _covariances(sums.finish(), features[0].shape[1], eps), (scatters[0], scatters[1])


def _covariances(moments: Moments, d: int, eps: float) -> Covariances:
    """Return covariances; those of few features on the CPU, where their algebra is quicker."""
    if len(moments.mean) <= _NARROW:
        moments = moments.copy()
    moments.eps = eps
    return Covariances.of(moments, d)


def monitor_total_correlation(train: Covariances, validation: Covariances, k: int) -> float:
    """Return the validation TC of a head with a small fixed regulariser, to watch training by.

    Constant features carry no correlation.
    """
    try:
        W1 = whitening(train.S11, 1e-3, eps=train.eps, view="X")
        W2 = whitening(train.S22, 1e-3, eps=train.eps, view="y")
    except SingularCovarianceError:
        return 0.0
    U, _, Vh = torch.linalg.svd(W1.T @ train.S12 @ W2, full_matrices=False)
    return float(canonical_correlations_of(W1 @ U[:, :k], W2 @ Vh[:k].T, validation).sum())


def fit_head(
    train: Covariances,
    validation: Covariances,
    n_components: int,
    reg: Literal["auto"] | tuple[float, float],
) -> tuple[CanonicalDirections, tuple[float, float]]:
    """Fit linear CCA to training features, its regularisers chosen on validation features."""
    if isinstance(reg, str):
        reg = choose_regularizer([(train, validation)], n_components).reg
    return canonical_directions(train, n_components, reg), reg


def project(
    encode: Callable[[Tensor], Tensor],
    view: View,
    mean: NDArray[np.float64],
    A: NDArray[np.float64],
    *,
    name: str,
    device: torch.device,
    rows: int = BLOCK_ROWS,
) -> NDArray[Any]:
    """Return ``(features - mean) A`` of a view, `rows` rows at a time, in the view's precision."""
    dtype = working_dtype(view)
    numpy_dtype = "float32" if dtype == torch.float32 else "float64"
    m, weights = torch.as_tensor(mean, device=device), torch.as_tensor(A, device=device)
    out = np.empty((len(view), A.shape[1]), dtype=numpy_dtype)
    for start in range(0, len(view), rows):
        part = slice(start, start + rows)
        few = view[part]
        block = few if isinstance(few, Tensor) else torch.from_numpy(np.array(few, numpy_dtype))
        variates = (encode(block.to(device, dtype)).double() - m) @ weights
        if not variates.isfinite().all():
            raise not_finite_error({name: view})
        out[part] = variates.numpy(force=True)
    return out
