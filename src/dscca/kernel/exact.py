"""Exact kernel CCA."""

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from dscca.base import TwoViewEstimator, Variates
from dscca.head import CrossScatter, project
from dscca.kernel.functions import (
    FEATURE_ENTRIES,
    KERNELS,
    KernelFunction,
    in_float64,
    kernel_widths,
    require_variation,
)
from dscca.krylov import leading_pairs
from dscca.linalg import SingularCovarianceError, fix_signs
from dscca.parameters import NOT_NEGATIVE, pair_of
from dscca.views import View, require_finite, resolve_device, row_blocks

_NO_CORRELATION = 1e-9
"""Values of ρ below are rounding: one of the directions has no variance."""


class KCCA(TwoViewEstimator):
    r"""Exact kernel CCA with a ridge (Hardoon, Szedmak and Shawe-Taylor 2004).

    With the centred kernel matrices :math:`K_1, K_2` of the n training samples, the leading
    solutions of

    .. math:: K_1 K_2 \beta = \rho \, (K_1^2 + (n - 1) r_1 K_1) \, \alpha, \qquad
       K_2 K_1 \alpha = \rho \, (K_2^2 + (n - 1) r_2 K_2) \, \beta,

    which are the directions of linear CCA in the kernels' feature spaces, with :math:`r_i` added to
    the variance of every direction; the variates of x are :math:`k_c(x, X) \alpha`, ``k_c`` being
    the kernel centred by the training samples, in ``fit`` and ``transform`` alike.

    With :math:`P_i = K_i (K_i + c_i I)^{-1}`, :math:`c_i = (n - 1) r_i`, and
    :math:`\alpha = (K_1 + c_1 I)^{-1} w`, :math:`\beta = (K_2 + c_2 I)^{-1} z`, the problem is
    :math:`\rho w = P_2 z, \rho z = P_1 w`. Two Cholesky factorisations and an iteration for the
    leading pairs solve it to rounding, without an eigen-decomposition of an n x n matrix. Memory is
    that of three such matrices in float64; for many samples there are
    :class:`dscca.NystromCCA` and :class:`dscca.FourierCCA`.

    Parameters
    ----------
    n_components : int
        Number of pairs of variates.
    kernel : str or callable
        A scikit-learn pairwise kernel, or a function of two matrices that returns the matrix of
        kernels between their rows.
    gamma : "median", float or pair of floats
        Parameter of kernels that have it (rbf, poly, sigmoid, laplacian, chi2), for both views or
        each; "median" is 1 / median ‖x - x'‖², for the first three.
    degree, coef0 : float
        Parameters of the polynomial and sigmoid kernels.
    reg : float or pair of floats
        Ridge :math:`r_i` relative to the view's total variance in its feature space,
        :math:`\mathrm{tr} K_i / (n - 1)`, above zero: without a ridge a kernel as rich as the
        Gaussian correlates anything perfectly. A linear kernel with ``reg`` is
        :class:`dscca.LinearCCA` with ``reg`` times the number of features.
    device : str
        "auto" takes a CUDA GPU where there is one; rbf, linear and poly kernels are computed there.

    Attributes
    ----------
    correlations_ : (k,) training correlations, descending
    gamma_, reg_ : the pairs in use
    x_fit_, y_fit_ : (n, p), (n, q) the training samples
    x_dual_, y_dual_ : (n, k) the coefficients α and β; their columns sum to zero
    x_kernel_mean_, y_kernel_mean_ : (n,) means of the kernel matrices' columns
    x_loadings_, y_loadings_, x_patterns_, y_patterns_ : as for every estimator, of the raw features

    Examples
    --------
    A relation that no linear projection shows:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(300, 1))
    >>> y = X**2 + 0.1 * rng.normal(size=(300, 1))
    >>> KCCA(n_components=1, reg=1e-3).fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.9
    True
    """

    _persistent: ClassVar[dict[str, str]] = {
        **TwoViewEstimator._persistent,
        "x_fit_": "n p",
        "y_fit_": "n q",
        "x_dual_": "n k",
        "y_dual_": "n k",
        "x_kernel_mean_": "n",
        "y_kernel_mean_": "n",
    }

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "kernel": [StrOptions(set(KERNELS)), callable],
        "gamma": [StrOptions({"median"}), Interval(Real, 0, None, closed="neither"), "array-like"],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "reg": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "device": [str],
    }

    gamma_: tuple[float | None, float | None]

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: str | float | Sequence[float] = "median",
        degree: float = 3,
        coef0: float = 1,
        reg: float | Sequence[float] = 1e-3,
        device: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.reg = reg
        self.device = device

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit both views; the validation views are checked only, as there is nothing to choose."""
        views = self._check_training(X, y, reset=True)
        self._check_validation(X_val, y_val)
        n, device = len(views[0]), resolve_device(self.device)
        self.reg_ = pair_of("reg", self.reg, NOT_NEGATIVE)
        if 0 in self.reg_:
            raise ValueError(f"reg must be above 0 for exact kernel CCA, got {self.reg!r}.")
        if self.n_components >= n:
            raise ValueError(
                f"n_components={self.n_components} is above {n - 1}, the bound set by {n} samples "
                f"(one is spent on the mean): use n_components <= {n - 1}."
            )
        require_finite({"X": views[0], "y": views[1]})
        require_variation({"X": views[0], "y": views[1]})
        self.gamma_ = kernel_widths(self.gamma, self.kernel, views)
        self.x_fit_, self.y_fit_ = (in_float64(view) for view in views)
        smoothers, means = [], []
        for which, name in enumerate(("X", "y")):
            K, mean = self._centred_kernel(which, device)
            smoothers.append(_Smoother(K, self.reg_[which], name))
            means.append(mean)
            del K  # its place is the next one's
        self.x_kernel_mean_, self.y_kernel_mean_ = means
        self._solve(smoothers[0], smoothers[1])
        return self

    def _centred_kernel(
        self, which: int, device: torch.device
    ) -> tuple[Tensor, NDArray[np.float64]]:
        """Return the centred kernel matrix of a training view, and its columns' means."""
        x = torch.as_tensor((self.x_fit_, self.y_fit_)[which], device=device)
        function, n = self._function(which), len(x)
        K = torch.empty(n, n, dtype=torch.float64, device=device)
        step = max(256, FEATURE_ENTRIES // n)
        for start in range(0, n, step):
            K[start : start + step] = function(x[start : start + step], x)
        mean = K.mean(dim=0)
        K -= mean
        K -= K.mean(dim=1, keepdim=True)
        return K, mean.numpy(force=True)

    def _solve(self, first: "_Smoother", second: "_Smoother") -> None:
        """Set directions, correlations and what interprets them."""
        w, rho, z = leading_pairs(_DualProblem(first, second), self.n_components)
        bound = int((rho > _NO_CORRELATION).sum())
        if bound < self.n_components:
            raise ValueError(
                f"n_components={self.n_components} is above {bound}, the number of pairs of "
                f"directions that carry variance in both views: use n_components <= {bound}."
            )
        alpha, u, x_deviations = first.unit_variance(w)
        beta, v, y_deviations = second.unit_variance(z)
        correlations = (u * v).sum(dim=0) / (len(u) - 1)
        order = correlations.argsort(descending=True, stable=True)
        x, y = fix_signs(torch.cat([alpha, u])[:, order], torch.cat([beta, v])[:, order])
        (alpha, u), (beta, v) = x.chunk(2), y.chunk(2)
        self.x_dual_, self.y_dual_ = alpha.numpy(force=True), beta.numpy(force=True)
        self.correlations_ = correlations[order].clamp(-1, 1).numpy(force=True)
        self.x_deviations_ = x_deviations[order].numpy(force=True)
        self.y_deviations_ = y_deviations[order].numpy(force=True)
        self.x_loadings_, self.x_patterns_ = _interpret(self.x_fit_, u)
        self.y_loadings_, self.y_patterns_ = _interpret(self.y_fit_, v)

    def _function(self, which: int) -> KernelFunction:
        return KernelFunction(self.kernel, self.gamma_[which], self.degree, self.coef0)

    def _project(self, view: View, which: int) -> Variates:
        require_finite({"Xy"[which]: view})
        device, function = resolve_device(self.device), self._function(which)
        fitted = torch.as_tensor((self.x_fit_, self.y_fit_)[which], device=device)
        # The dual coefficients sum to zero: centring each sample's kernels would change nothing.
        return project(
            lambda block: function(block.double(), fitted),
            view,
            (self.x_kernel_mean_, self.y_kernel_mean_)[which],
            (self.x_dual_, self.y_dual_)[which],
            name="Xy"[which],
            device=device,
            rows=max(256, FEATURE_ENTRIES // len(fitted)),
        )

    def fitted_state(self) -> dict[str, Any]:
        """Return what a saved model consists of besides its parameters."""
        return {**super().fitted_state(), "kernel": {"gamma": self.gamma_, "reg": self.reg_}}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`fitted_state` returned."""
        small = state.pop("kernel")
        super().restore_state(state)
        self.gamma_, self.reg_ = small["gamma"], small["reg"]


class _Smoother:
    """``P = K (K + c I)⁻¹`` of a centred kernel matrix, which is overwritten."""

    def __init__(self, K: Tensor, reg: float, name: str) -> None:
        self.c = float(reg * K.diagonal().sum())
        K.diagonal().add_(self.c)
        self.factor, failed = torch.linalg.cholesky_ex(K)
        if failed or self.c <= 0:
            raise SingularCovarianceError(
                f"the kernel matrix of view {name} is not positive definite even with reg={reg:g}: "
                f"raise reg, or use another kernel."
            )

    def solve(self, x: Tensor) -> Tensor:
        """Return ``(K + c I)⁻¹ x``."""
        return torch.cholesky_solve(x, self.factor)

    def unit_variance(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``α = (K + c I)⁻¹ w``, centred, ``K α``, both scaled so that it has unit variance.

        And its standard deviation where α has ``αᵀ (K² + c K) α = wᵀ P w = n - 1``.
        """
        w = w - w.mean(dim=0)
        dual, variates = self.solve(w), self.smooth(w)
        deviations = variates.std(dim=0)
        lengths = (w * variates).sum(dim=0).sqrt()
        relative = deviations * (len(w) - 1) ** 0.5 / lengths
        return (dual - dual.mean(dim=0)) / deviations, variates / deviations, relative

    def smooth(self, x: Tensor) -> Tensor:
        """Return ``P x``."""
        return x - self.c * self.solve(x)


class _DualProblem:
    """The map ``z -> P₂ z`` between spaces with inner products by P₁ and P₂; its adjoint is P₁."""

    def __init__(self, first: _Smoother, second: _Smoother) -> None:
        n = len(first.factor)
        self.first, self.second = first, second
        self.shape, self.device = (n, n), first.factor.device

    def apply(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``P₂ Z``, twice."""
        smoothed = self.second.smooth(Z)
        return smoothed, smoothed

    def adjoint(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``P₁ W``, twice."""
        smoothed = self.first.smooth(W)
        return smoothed, smoothed

    def norms(self, R: Tensor, space: int) -> Tensor:
        """Return the length of each column by the inner product with P₁ or P₂."""
        smoother = (self.first, self.second)[space - 1]
        return (R * smoother.smooth(R)).sum(dim=0).clamp_min(0).sqrt()

    def clear(self, block: Tensor) -> Tensor:
        """Return the block with centred columns, as constants have no length."""
        return block - block.mean(dim=0)


def _interpret(
    x: NDArray[np.float64], variates: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return loadings and patterns of raw features x, whose variates are given."""
    scatter: CrossScatter | None = None
    for part, block in row_blocks(x, device=variates.device, dtype=torch.float64):
        scatter = scatter or CrossScatter(block.mean(dim=0))
        scatter.add(block, variates[part])
    assert scatter is not None
    k = variates.shape[1]
    identity = torch.eye(k, dtype=torch.float64, device=variates.device)
    return scatter.interpret(identity, torch.cov(variates.T).reshape(k, k))
