"""Regularised linear CCA, from covariances summed in one pass over the data."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from dscca.base import TwoViewEstimator, Variates
from dscca.linalg import CanonicalDirections, Covariances, canonical_directions
from dscca.moments import Moments
from dscca.parameters import NOT_NEGATIVE, pair_of
from dscca.regularization import RegularizerChoice, choose_regularizer
from dscca.streaming import fold_moments, moments_of, project_linear
from dscca.views import View, check_x, resolve_device

_CV_FOLDS = 5


class LinearCCA(TwoViewEstimator):
    r"""Regularised linear canonical correlation analysis (Vinod 1976).

    Solves, for the leading ``n_components`` pairs of directions,

    .. math:: \max_{A, B} \mathrm{tr}(A^\top S_{12} B) \quad \text{s.t.} \quad
       A^\top (S_{11} + r_1 \bar s_1 I) A = I, \; B^\top (S_{22} + r_2 \bar s_2 I) B = I

    (equation 5 of the paper for the identity as feature extractor), where :math:`\bar s` is a
    view's mean variance: ``reg`` is relative, so rescaling or rotating a view changes nothing.
    With ``reg=0`` the solution is invariant to every invertible affine map of either view.

    Data are read once, in blocks, in their own precision; sums are kept in float64.

    Parameters
    ----------
    n_components : int
        Number of pairs of directions, at most the smaller rank of the two views.
    reg : float, pair of floats or "auto"
        Ridge added to each covariance's diagonal, relative to the view's mean variance; a pair
        gives view one's and view two's. "auto" chooses each view's from 1e-8, 1e-7, ..., 1e2 by
        total correlation on ``X_val, y_val``, or without these by 5-fold cross-validation (row i
        is in fold i mod 5).
    device : str
        "auto" takes a CUDA GPU where there is one.

    Attributes
    ----------
    correlations_ : (k,) training correlations, descending
    x_rotations_, y_rotations_ : (p, k), (q, k) directions A and B; ``(X - x_mean_) @ x_rotations_``
        has unit variance
    x_mean_, y_mean_ : (p,), (q,) training means
    x_loadings_, y_loadings_ : correlations of features with their view's variates
    x_patterns_, y_patterns_ : least-squares coefficients from variates back to features
    coef_ : (q, p) coefficients of :meth:`predict`
    reg_ : the pair of regularisers in use
    reg_choice_ : what ``reg="auto"`` tried, otherwise None
    moments_ : sums that :meth:`partial_fit` adds to
    ranks_ : rank of either view's covariance; with ``reg=0`` directions without variance are
        left out, so duplicated or constant columns do no harm

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> shared = rng.normal(size=(500, 1))
    >>> X = np.hstack([shared + rng.normal(size=(500, 1)), rng.normal(size=(500, 2))])
    >>> y = np.hstack([rng.normal(size=(500, 1)), shared + rng.normal(size=(500, 1))])
    >>> LinearCCA(n_components=1).fit(X, y).correlations_.round(2)
    array([0.46])
    """

    _persistent: ClassVar[dict[str, str]] = {
        **TwoViewEstimator._persistent,
        "x_rotations_": "p k",
        "y_rotations_": "q k",
        "x_mean_": "p",
        "y_mean_": "q",
        "coef_": "q p",
    }

    moments_: Moments

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "reg": [Interval(Real, 0, None, closed="left"), "array-like", StrOptions({"auto"})],
        "device": [str],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        reg: float | Sequence[float] | str = 0.0,
        device: str = "auto",
    ) -> None:
        self.n_components = n_components
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
        """Fit both views' directions; the validation views serve ``reg="auto"`` only."""
        self.__dict__.pop("moments_", None)  # a fit that fails leaves no sums to go on from
        first, second = self._check_training(X, y, reset=True)
        validation = self._check_validation(X_val, y_val)
        self._check_bounds(len(first))
        if not isinstance(self.reg, str):
            self.reg_choice_: RegularizerChoice | None = None
            moments = moments_of(first, second, device=self.device)
            return self._solve(moments, pair_of("reg", self.reg, NOT_NEGATIVE))
        if validation is None:
            moments, folds = self._folds(first, second)
        else:
            moments = moments_of(first, second, device=self.device)
            held_out = moments_of(*validation, device=self.device, names=("X_val", "y_val"))
            folds = [(moments, held_out)]
        p = self.n_features_in_
        self.reg_choice_ = choose_regularizer(
            [(Covariances.of(a, p), Covariances.of(b, p)) for a, b in folds], self.n_components
        )
        return self._solve(moments, self.reg_choice_.reg)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Add paired samples to all those seen so far, and solve again.

        The first call may be preceded by :meth:`fit` or :func:`dscca.load`. The model is fitted
        once there are more samples than features, or with a regulariser, than components.
        """
        if isinstance(self.reg, str):
            raise ValueError('reg="auto" needs fit: partial_fit sees no data to choose on.')
        started = hasattr(self, "moments_")
        moments = moments_of(
            *self._check_training(X, y, reset=not started), device=self.device
        ).copy()
        if started:
            moments.merge(self.moments_)
        reg = pair_of("reg", self.reg, NOT_NEGATIVE)
        needed = max(self.n_features_in_, self.n_features_y_) + 1 if 0 in reg else self.n_components
        if moments.n_samples <= needed:
            self.moments_ = moments
            return self
        self._check_bounds(moments.n_samples)
        self.reg_choice_ = None
        return self._solve(moments, reg)

    def inverse_transform(
        self, X: ArrayLike, y: ArrayLike | None = None
    ) -> Variates | tuple[Variates, Variates]:
        """Return the features that variates stand for, by least squares on the training data.

        Takes variates of view one, or of both views, and returns the same.
        """
        check_is_fitted(self)
        first = self._check_variates(X, "X") @ self.x_patterns_.T + self.x_mean_
        if y is None:
            return first
        return first, self._check_variates(y, "y") @ self.y_patterns_.T + self.y_mean_

    def predict(self, X: ArrayLike) -> Variates:
        """Return view two's features as the least-squares fit to view one's variates."""
        check_is_fitted(self)
        view = check_x(self, X, reset=False)
        device = resolve_device(self.device)
        prediction = project_linear(view, self.x_mean_, self.coef_.T, device=device)
        return prediction + self.y_mean_.astype(prediction.dtype)

    def _project(self, view: View, which: int) -> Variates:
        mean, A = (self.x_mean_, self.x_rotations_), (self.y_mean_, self.y_rotations_)
        device = resolve_device(self.device)
        return project_linear(view, *(mean, A)[which], device=device, name="Xy"[which])

    def _check_bounds(self, n_samples: int) -> None:
        bound = min(self.n_features_in_, self.n_features_y_, n_samples - 1)
        if self.n_components > bound:
            raise ValueError(
                f"n_components={self.n_components} is above {bound}, the bound set by "
                f"{self.n_features_in_} features in X, {self.n_features_y_} in y and {n_samples} "
                f"samples (one is spent on the mean): use n_components <= {bound}."
            )

    def _folds(self, first: View, second: View) -> tuple[Moments, list[tuple[Moments, Moments]]]:
        """Return the moments of all data, and those of training and validation part per fold."""
        needed = 2 * _CV_FOLDS
        if len(first) < needed:
            raise ValueError(
                f'reg="auto" cross-validates on {_CV_FOLDS} folds of at least 2 samples, so it '
                f"needs {needed} samples, got {len(first)}: pass X_val and y_val, or a number."
            )
        parts = fold_moments(first, second, device=self.device, n_folds=_CV_FOLDS)
        total = parts[0].copy()
        parts = [part.copy() for part in parts]
        for part in parts[1:]:
            total.merge(part)
        return total, [(total.without(part), part) for part in parts]

    def _solve(self, moments: Moments, reg: tuple[float, float]) -> Self:
        cov = Covariances.of(moments, self.n_features_in_)
        for view, S in (("X", cov.S11), ("y", cov.S22)):
            smallest = _smallest_variance(cov.eps)
            if S.diagonal().max() < smallest:
                raise ValueError(
                    f"view {view} is constant, or all its deviations are below {smallest**0.5:.0e} "
                    f"and their squares lost to rounding: a correlation needs variation. Rescale "
                    f"the view if it has any."
                )
        found = canonical_directions(cov, self.n_components, reg)
        self.moments_ = moments.copy()
        self.reg_, self.ranks_ = reg, found.ranks
        self._set_spectrum(found)
        self.x_mean_, self.y_mean_ = _numpy(cov.mean_x), _numpy(cov.mean_y)
        self.x_rotations_, self.y_rotations_ = _numpy(found.A), _numpy(found.B)
        self._interpret(cov, found)
        return self

    def _interpret(self, cov: Covariances, found: CanonicalDirections) -> None:
        """Set loadings, patterns and prediction coefficients; see the class docstring."""
        SA, SB = cov.S11 @ found.A, cov.S22 @ found.B
        self.x_loadings_ = _numpy(_per_deviation(SA, cov.S11))
        self.y_loadings_ = _numpy(_per_deviation(SB, cov.S22))
        gram = found.A.T @ SA
        self.x_patterns_ = _numpy(gram.pinverse() @ SA.T).T
        self.y_patterns_ = _numpy((found.B.T @ SB).pinverse() @ SB.T).T
        self.coef_ = _numpy(found.A @ (gram.pinverse() @ (found.A.T @ cov.S12))).T

    def fitted_state(self) -> dict[str, Any]:
        """Return what a saved model consists of; the sums let a stream go on after loading."""
        small = {
            "n_samples": self.moments_.n_samples,
            "eps": self.moments_.eps,
            "reg": self.reg_,
            "ranks": self.ranks_,
        }
        return {
            **super().fitted_state(),
            "linear": small,
            "scatter": _numpy(self.moments_.scatter),
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`fitted_state` returned."""
        small, scatter = state.pop("linear"), torch.from_numpy(state.pop("scatter"))
        super().restore_state(state)
        mean = torch.from_numpy(np.concatenate([self.x_mean_, self.y_mean_]))
        if (len(self.x_mean_), len(self.y_mean_)) != (self.n_features_in_, self.n_features_y_):
            raise ValueError("the numbers of features do not fit the arrays")
        if scatter.shape != (len(mean), len(mean)) or scatter.dtype != torch.float64:
            raise ValueError(f"scatter is {scatter.dtype} of shape {tuple(scatter.shape)}")
        n_samples, eps = int(small["n_samples"]), float(small["eps"])
        if n_samples < 2 or not 0 < eps < 1:
            raise ValueError(f"sums of {n_samples} samples with rounding unit {eps}")
        self.moments_ = Moments(n_samples, mean, scatter, eps)
        self.reg_, self.reg_choice_ = pair_of("reg", small["reg"], NOT_NEGATIVE), None
        x_rank, y_rank = small["ranks"]
        self.ranks_ = int(x_rank), int(y_rank)

    def _check_variates(self, variates: ArrayLike, name: str) -> NDArray[Any]:
        array = np.asarray(variates)
        if array.ndim != 2 or array.shape[1] != len(self.correlations_):
            raise ValueError(
                f"inverse_transform takes variates of shape (n_samples, "
                f"{len(self.correlations_)}) for {name}, got {array.shape}."
            )
        return array


def _smallest_variance(eps: float) -> float:
    """Return the variance that still has all its digits where products have rounding unit `eps`."""
    single = torch.finfo(torch.float32)
    return float(single.tiny if eps >= single.eps else torch.finfo(torch.float64).tiny)


def _per_deviation(S: Any, covariance: Any) -> Any:
    deviations = covariance.diagonal().sqrt()
    return S / deviations.where(deviations > 0, 1.0)[:, None]


def _numpy(tensor: Any) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.numpy(force=True)
    return array
