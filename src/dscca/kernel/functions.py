"""Kernel functions and feature maps, on tensors in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics.pairwise import kernel_metrics, pairwise_kernels
from torch import Tensor

from dscca.views import View, device_of, row_blocks

KERNELS = frozenset(kernel_metrics()) - {"precomputed"}
"""Names of kernels: scikit-learn's."""

_OF_SQUARED_DISTANCE = frozenset({"rbf", "poly", "polynomial", "sigmoid"})
_WITH_GAMMA = _OF_SQUARED_DISTANCE | {"laplacian", "chi2"}

_WIDTH_ROWS = 2000
"""Rows, drawn at random, between all of which distances are taken for the median rule."""

FEATURE_ENTRIES = 2**25
"""Numbers in a block of features: 256 MB."""


@dataclass(frozen=True)
class KernelFunction:
    """A kernel k(a, b) with its parameters.

    rbf is ``exp(-gamma ‖a - b‖²)``, linear ``aᵀb``, poly ``(gamma aᵀb + coef0)^degree``; these run
    where the data are, all others go through scikit-learn, or the callable, on the CPU.
    """

    kernel: str | Callable[..., Any]
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the matrix of k over all pairs of rows of a and b."""
        if self.kernel == "rbf":
            assert self.gamma is not None
            return gaussian(a, b, self.gamma)
        if self.kernel == "linear":
            return a @ b.T
        if self.kernel in ("poly", "polynomial"):
            gamma = 1 / a.shape[1] if self.gamma is None else self.gamma
            return (a @ b.T).mul_(gamma).add_(self.coef0).pow_(self.degree)
        return self._on_cpu(a, b)

    def _on_cpu(self, a: Tensor, b: Tensor) -> Tensor:
        arrays = a.numpy(force=True), b.numpy(force=True)
        if callable(self.kernel):
            K = np.asarray(self.kernel(*arrays), dtype=np.float64)
            if K.shape != (len(a), len(b)):
                raise ValueError(
                    f"the kernel returned shape {K.shape} for {len(a)} and {len(b)} rows: a "
                    f"callable takes two matrices and returns ({len(a)}, {len(b)})."
                )
        else:
            K = pairwise_kernels(
                *arrays,
                metric=self.kernel,
                filter_params=True,
                gamma=self.gamma,
                degree=self.degree,
                coef0=self.coef0,
            )
        return torch.from_numpy(np.ascontiguousarray(K)).to(a)


def gaussian(a: Tensor, b: Tensor, gamma: float) -> Tensor:
    """Return ``exp(-gamma ‖a_i - b_j‖²)`` for all pairs of rows."""
    centre = b.mean(dim=0)  # distances are differences of squares, which a large mean would swamp
    a, b = a - centre, b - centre
    K = (a @ b.T).mul_(2)
    K -= a.square().sum(dim=1, keepdim=True)
    K -= b.square().sum(dim=1)
    return K.clamp_(max=0).mul_(gamma).exp_()


def kernel_widths(
    gamma: Any, kernel: str | Callable[..., Any], views: tuple[View, View]
) -> tuple[float | None, float | None]:
    """Return the `gamma` of each view: the given number, or by the median rule, or not needed.

    The median rule is ``gamma = 1 / median ‖x - x'‖²`` over pairs of distinct samples (Lopez-Paz et
    al. 2014); distances are taken between all of 2,000 rows, drawn with a fixed seed.
    """
    if kernel not in _WITH_GAMMA:
        return None, None
    if isinstance(gamma, str):
        if kernel not in _OF_SQUARED_DISTANCE:
            raise ValueError(f'gamma="median" does not suit kernel={kernel!r}: give a number.')
        return median_width(views[0]), median_width(views[1])
    pair = tuple(float(v) for v in np.atleast_1d(np.asarray(gamma, dtype=np.float64)))
    if len(pair) > 2 or any(not (0 < v < np.inf) for v in pair):
        raise ValueError(
            f'gamma must be "median", one number > 0 or a pair of them, got {gamma!r}.'
        )
    return pair[0], pair[-1]


def median_width(view: View) -> float:
    """Return ``1 / median ‖x - x'‖²`` over pairs of samples that differ."""
    rows = np.random.default_rng(0).permutation(len(view))[:_WIDTH_ROWS]
    x = torch.from_numpy(in_float64(view, np.sort(rows)))
    squares = torch.pdist(x - x.mean(dim=0)).square()
    return float(1 / squares[squares > 0].median())


def in_float64(view: View, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Return a copy of a view, or of some of its rows, as a numpy array."""
    part = view if rows is None else view[rows]
    if isinstance(part, Tensor):
        part = part.double().numpy(force=True)
    return np.array(part, dtype=np.float64)


def require_variation(views: dict[str, View]) -> None:
    """Refuse views, given by name, whose samples are all alike."""
    for name, view in views.items():
        blocks = row_blocks(view, device=device_of(view), dtype=torch.float64)
        first = torch.from_numpy(in_float64(view[:1])).to(device_of(view))
        if all(bool((block == first).all()) for _, block in blocks):
            raise ValueError(f"view {name} is constant: a correlation needs variation.")


@dataclass(frozen=True)
class FourierMap:
    """Random Fourier features ``cos(xᵀ w_j + b_j)`` (Rahimi and Recht 2007)."""

    weights: Tensor
    phases: Tensor

    @property
    def rank(self) -> int:
        """Number of features."""
        return len(self.phases)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features of rows x."""
        return torch.addmm(self.phases, x, self.weights).cos_()


@dataclass(frozen=True)
class LandmarkMap:
    """Kernels with landmarks, ``k(x, l_j)``, or, given a factor L, the solution z of ``L z = k``.

    With ``L Lᵀ = K_mm`` the products ``zᵀz'`` are the Nyström approximation of the kernel, as with
    ``z = K_mm^-½ k``, from which z differs by a rotation only.
    """

    kernel: KernelFunction
    landmarks: Tensor
    factor: Tensor | None = None

    @property
    def rank(self) -> int:
        """Number of features."""
        return len(self.landmarks)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features of rows x."""
        K = self.kernel(x, self.landmarks)
        if self.factor is None:
            return K
        return torch.linalg.solve_triangular(self.factor.T, K, upper=True, left=False)
