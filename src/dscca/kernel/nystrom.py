"""Kernel CCA by Nyström's method."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from dscca.kernel.features import FeatureMap, FeatureMapCCA
from dscca.kernel.functions import (
    KERNELS,
    KernelFunction,
    LandmarkMap,
    in_float64,
    kernel_widths,
)
from dscca.linalg import SingularCovarianceError
from dscca.views import View


class NystromCCA(FeatureMapCCA):
    r"""Kernel CCA by Nyström's method, NKCCA (Lopez-Paz et al. 2014, section 4.2).

    Linear CCA of the kernels with landmarks :math:`l_1, \ldots, l_m` drawn from the training
    samples of either view, independently:

    .. math:: z(x) = (k(x, l_1), \ldots, k(x, l_m)) \quad\text{or}\quad
       z(x) = K_{mm}^{-1/2} (k(x, l_1), \ldots, k(x, l_m)).

    The first, the raw columns of the kernel matrix, is the original's; the second is Nyström's
    approximation of the kernel's own feature space, in which a ridge is that of exact kernel CCA:
    with all samples as landmarks it is :class:`dscca.KCCA`. Without a ridge both span the same
    space and are the same model.

    Parameters
    ----------
    n_components : int
        Number of pairs of variates.
    rank : int or pair of ints
        Number of landmarks, for both views or each; the paper takes 6,000.
    kernel : str or callable
        A scikit-learn pairwise kernel, or a function of two matrices that returns the matrix of
        kernels between their rows.
    features : "columns" or "whitened"
        The raw columns, or those times :math:`K_{mm}^{-1/2}`.
    gamma : "median", float or pair of floats
        Parameter of kernels that have it; "median" is 1 / median ‖x - x'‖², as in the original.
    degree, coef0 : float
        Parameters of the polynomial and sigmoid kernels.
    reg : float, pair of floats or "auto"
        Ridge relative to the total variance of the features; see :class:`dscca.FourierCCA`.
    random_state : int, RandomState or None
        Draws the landmarks.
    device : str
        "auto" takes a CUDA GPU where there is one.

    Attributes
    ----------
    correlations_ : (k,) training correlations, descending
    gamma_, reg_ : the pairs in use
    x_landmarks_, y_landmarks_ : (m, p), (m, q)
    x_rotations_, y_rotations_ : (m, k); variates are ``(k(x, landmarks) - mean) @ rotations``
        for either kind of features
    x_feature_mean_, y_feature_mean_ : (m,) training means of the kernels with landmarks
    x_loadings_, y_loadings_, x_patterns_, y_patterns_ : as for every estimator, of the raw features

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(1000, 1))
    >>> y = X**2 + 0.1 * rng.normal(size=(1000, 1))
    >>> model = NystromCCA(n_components=1, rank=20, reg=1e-4, random_state=0)
    >>> model.fit(X[:500], y[:500]).score(X[500:], y[500:]) > 0.9
    True
    """

    _persistent: ClassVar[dict[str, str]] = {
        **FeatureMapCCA._persistent,
        "x_landmarks_": "d p",
        "y_landmarks_": "e q",
    }

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FeatureMapCCA._parameter_constraints,
        "kernel": [StrOptions(set(KERNELS)), callable],
        "features": [StrOptions({"columns", "whitened"})],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        rank: int | Sequence[int] = 1000,
        kernel: str | Callable[..., Any] = "rbf",
        features: str = "columns",
        gamma: str | float | Sequence[float] = "median",
        degree: float = 3,
        coef0: float = 1,
        reg: str | float | Sequence[float] = 1e-10,
        random_state: Any = None,
        device: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.kernel = kernel
        self.features = features
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.reg = reg
        self.random_state = random_state
        self.device = device

    def _draw_maps(
        self, views: tuple[View, View], ranks: tuple[int, int], device: torch.device
    ) -> tuple[FeatureMap, FeatureMap]:
        n = len(views[0])
        if max(ranks) > n:
            raise ValueError(f"rank={max(ranks)} landmarks of {n} samples: use rank <= {n}.")
        self.gamma_ = kernel_widths(self.gamma, self.kernel, views)
        random = check_random_state(self.random_state)
        rows = [np.sort(random.permutation(n)[:rank]) for rank in ranks]
        self.x_landmarks_, self.y_landmarks_ = (
            in_float64(view, chosen) for view, chosen in zip(views, rows, strict=True)
        )
        maps = self._stored_map(0, device), self._stored_map(1, device)
        if self.features == "columns":
            return maps
        return _whitened(maps[0], "X"), _whitened(maps[1], "y")

    def _stored_map(self, which: int, device: torch.device) -> LandmarkMap:
        function = KernelFunction(self.kernel, self.gamma_[which], self.degree, self.coef0)
        landmarks = (self.x_landmarks_, self.y_landmarks_)[which]
        return LandmarkMap(function, torch.as_tensor(landmarks, device=device))


def _whitened(plain: LandmarkMap, name: str) -> LandmarkMap:
    """Return the map to K_mm^-½ k, up to rotation."""
    K = plain.kernel(plain.landmarks, plain.landmarks)
    # What rounding may leave below zero; landmarks that coincide then cost nothing but a feature.
    K.diagonal().add_(len(K) * torch.finfo(K.dtype).eps * K.diagonal().mean())
    L, failed = torch.linalg.cholesky_ex(K)
    if failed:
        raise SingularCovarianceError(
            f"the kernel between the landmarks of view {name} is not positive definite: use "
            f'another kernel, or features="columns".'
        )
    return LandmarkMap(plain.kernel, plain.landmarks, L)
