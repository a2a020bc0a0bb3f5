"""Kernel CCA by random Fourier features."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils import check_random_state

from dscca.kernel.features import FeatureMap, FeatureMapCCA
from dscca.kernel.functions import (
    FourierMap,
    kernel_widths,
)
from dscca.views import View


class FourierCCA(FeatureMapCCA):
    r"""Kernel CCA by random Fourier features, FKCCA (Lopez-Paz et al. 2014, section 4.1).

    Linear CCA of the features

    .. math:: z(x) = \cos(W^\top x + b), \quad w_j \sim N(0, 2\gamma I), \; b_j \sim U(0, 2\pi),

    whose products, times 2 / rank, approach the Gaussian kernel
    :math:`\exp(-\gamma \|x - x'\|^2)` with an error of the order of rank^-½, so that the model
    approaches :class:`dscca.KCCA` with the same ``gamma`` and ``reg``.

    Parameters
    ----------
    n_components : int
        Number of pairs of variates.
    rank : int or pair of ints
        Number of features, for both views or each; the paper takes 6,000.
    gamma : "median", float or pair of floats
        Width of the kernel; "median" is 1 / median ‖x - x'‖², as in the original.
    reg : float, pair of floats or "auto"
        Ridge added to each covariance of features, relative to their *total* variance: unlike the
        mean variance it means the same at every rank, and for :class:`dscca.KCCA`. The original
        adds 1e-10 absolutely, in these units about 3e-13 at rank 1,000: practically nothing, the
        number of features being what regularises. "auto" chooses each view's from 1e-12, 1e-11,
        ..., 1e-2 by total correlation on ``X_val, y_val``.
    random_state : int, RandomState or None
        Draws the features.
    device : str
        "auto" takes a CUDA GPU where there is one.

    Attributes
    ----------
    correlations_ : (k,) training correlations, descending
    gamma_, reg_ : the pairs in use
    x_weights_, x_phases_, y_weights_, y_phases_ : (p, d), (d,), ... the random features
    x_rotations_, y_rotations_ : (d, k) directions in the space of features
    x_feature_mean_, y_feature_mean_ : (d,) training means of the features
    x_loadings_, y_loadings_, x_patterns_, y_patterns_ : as for every estimator, of the raw features

    Examples
    --------
    A relation that no linear projection shows:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(1000, 1))
    >>> y = X**2 + 0.1 * rng.normal(size=(1000, 1))
    >>> model = FourierCCA(n_components=1, rank=50, reg=1e-4, random_state=0)
    >>> model.fit(X[:500], y[:500]).score(X[500:], y[500:]) > 0.9
    True
    """

    _persistent: ClassVar[dict[str, str]] = {
        **FeatureMapCCA._persistent,
        "x_weights_": "p d",
        "y_weights_": "q e",
        "x_phases_": "d",
        "y_phases_": "e",
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        rank: int | Sequence[int] = 1000,
        gamma: str | float | Sequence[float] = "median",
        reg: str | float | Sequence[float] = 1e-10,
        random_state: Any = None,
        device: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.gamma = gamma
        self.reg = reg
        self.random_state = random_state
        self.device = device

    def _draw_maps(
        self, views: tuple[View, View], ranks: tuple[int, int], device: torch.device
    ) -> tuple[FeatureMap, FeatureMap]:
        self.gamma_ = kernel_widths(self.gamma, "rbf", views)
        random = check_random_state(self.random_state)
        drawn = []
        for view, rank, gamma in zip(views, ranks, self.gamma_, strict=True):
            assert gamma is not None
            weights = random.normal(size=(view.shape[1], rank)) * np.sqrt(2 * gamma)
            drawn.append((weights, random.uniform(0, 2 * np.pi, size=rank)))
        (self.x_weights_, self.x_phases_), (self.y_weights_, self.y_phases_) = drawn
        return self._stored_map(0, device), self._stored_map(1, device)

    def _stored_map(self, which: int, device: torch.device) -> FeatureMap:
        weights, phases = (self.x_weights_, self.y_weights_), (self.x_phases_, self.y_phases_)
        return FourierMap(
            torch.as_tensor(weights[which], device=device),
            torch.as_tensor(phases[which], device=device),
        )
