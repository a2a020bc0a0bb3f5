"""The contract every estimator keeps: two views in, correlated variates out."""

from abc import ABC, abstractmethod
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import _get_feature_names, check_is_fitted

from dscca import metrics, persistence
from dscca.linalg import CanonicalDirections
from dscca.streaming import moments_of
from dscca.views import View, check_paired, check_x, check_y

Variates = NDArray[Any]

_INPUT_FACTS = ("n_features_in_", "feature_names_in_", "n_features_y_", "feature_names_y_")


class TwoViewEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of all estimators: ``fit(X, y)`` with ``y`` the second view.

    Views are paired row by row and may be numpy arrays (memory-mapped ones are read in blocks),
    pandas or polars frames, torch tensors on any device, or anything ``numpy.asarray`` takes; a
    one-dimensional ``y`` is one column. Variates come back as numpy arrays (or frames, see
    ``set_output``), float32 for views of at most that precision and float64 otherwise.

    A subclass implements ``fit`` and ``_project``, and sets in ``fit``:

    ``n_features_y_``
        number of features of view two (scikit-learn sets ``n_features_in_`` for view one; names of
        either view's columns, where it has any, are kept and checked)
    ``correlations_``
        correlation of each pair of variates on the training data, in descending order
    ``x_loadings_``, ``y_loadings_``
        correlation of each feature with each variate of its view, on the training data
    ``x_patterns_``, ``y_patterns_``
        least-squares coefficients that reconstruct a view's features from its variates
    ``x_deviations_``, ``y_deviations_``
        training standard deviations of the variates before they were scaled to one: less than 1
        where a regulariser holds a direction of little variance back; see :meth:`embed`
    """

    _persistent: ClassVar[dict[str, str]] = {
        "correlations_": "k",
        "x_loadings_": "p k",
        "y_loadings_": "q k",
        "x_patterns_": "p k",
        "y_patterns_": "q k",
        "x_deviations_": "k",
        "y_deviations_": "k",
    }
    """Fitted arrays that are saved, with their shapes in symbols shared by all of them."""

    _training_only: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be missing from a saved model, as only fitting uses them."""

    n_features_y_: int
    feature_names_y_: NDArray[np.object_]
    correlations_: NDArray[np.float64]
    x_loadings_: NDArray[np.float64]
    y_loadings_: NDArray[np.float64]
    x_patterns_: NDArray[np.float64]
    y_patterns_: NDArray[np.float64]
    x_deviations_: NDArray[np.float64]
    y_deviations_: NDArray[np.float64]

    @abstractmethod
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Learn the projections of both views from paired training samples.

        Parameters
        ----------
        X : (n_samples, p), view one
        y : (n_samples, q), view two, row i paired with row i of X
        X_val, y_val : validation samples, used for choices and never for fitting
        """

    @abstractmethod
    def _project(self, view: View, which: int) -> Variates:
        """Return the variates of a checked view; `which` is 0 for view one, 1 for view two."""

    def transform(self, X: ArrayLike, y: ArrayLike | None = None) -> Any:
        """Return the variates of view one, or of both views as a pair if `y` is given."""
        check_is_fitted(self)
        X = check_x(self, X, reset=False, allow_nd=self._allow_nd())
        if y is None:
            return self._project(X, 0)
        y = self._check_second(y)
        check_paired(X, y)
        second = self._project(y, 1)
        return self._project(X, 0), _wrap_data_with_container("transform", second, y, self)

    def transform_y(self, y: ArrayLike) -> Any:
        """Return the variates of view two."""
        check_is_fitted(self)
        second = self._check_second(y)
        return _wrap_data_with_container("transform", self._project(second, 1), y, self)

    def embed(self, X: ArrayLike, y: ArrayLike | None = None) -> Any:
        """Return the projections that retrieval compares, of view one or of both views.

        They are the variates as the regularised problem defines them, ``Σ^-1/2 U`` (equation 5 of
        the paper), before :meth:`transform` scales each to unit variance. Correlations are the
        same; cosines are not: scaling amplifies the directions that the regulariser holds back,
        which are mostly noise on other samples.
        """
        check_is_fitted(self)
        if y is not None:
            first, second = self._variates(X, y)
            return self._unscaled(first, 0), self._unscaled(second, 1)
        view = check_x(self, X, reset=False, allow_nd=self._allow_nd())
        return self._unscaled(self._project(view, 0), 0)

    def embed_y(self, y: ArrayLike) -> Variates:
        """Return the projections of view two that retrieval compares; see :meth:`embed`."""
        check_is_fitted(self)
        return self._unscaled(self._project(self._check_second(y), 1), 1)

    def canonical_correlations(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Return the correlation of each pair of variates on the given data; nothing is refitted.

        On data that took no part in fitting, independent views score about 0.
        """
        return metrics.canonical_correlations(*self._variates(X, y))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the total correlation (TC) on the given data, at most ``n_components``."""
        return float(self.canonical_correlations(X, y).sum())

    def explained_covariance(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Return the share of the views' cross-covariance that the first k pairs account for.

        With reconstructions ``x̂ = P x*`` and ``ŷ = Q y*`` from the first k variates, entry k is
        ``1 - ‖S12 - cov(x̂, ŷ)‖² / ‖S12‖²`` on the given data, in Frobenius norms.
        """
        xc, yc = self._variates(X, y)
        X = check_x(self, X, reset=False).reshape(len(xc), -1)
        y = self._check_second(y).reshape(len(yc), -1)
        p, q, k = self.x_patterns_.shape[0], self.y_patterns_.shape[0], xc.shape[1]
        S = moments_of(X, y, xc, yc).covariance().numpy(force=True)
        S12, C = S[:p, p : p + q], S[p + q : p + q + k, p + q + k :]
        joint = self.x_patterns_.T @ S12 @ self.y_patterns_
        PP, QQ = self.x_patterns_.T @ self.x_patterns_, self.y_patterns_.T @ self.y_patterns_
        total, unexplained = (S12**2).sum(), []
        for j in range(1, k + 1):
            c = C[:j, :j]
            fit = (c * joint[:j, :j]).sum()
            norm = ((PP[:j, :j] @ c) * (c @ QQ[:j, :j])).sum()
            unexplained.append((total - 2 * fit + norm) / total if total > 0 else 1.0)
        return 1.0 - np.array(unexplained)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to `path`, to be read by :func:`dscca.load`.

        A path that ends in ``.safetensors`` is one file, any other a folder that holds it. The file
        is replaced in one step: a failure leaves an older model whole.
        """
        check_is_fitted(self)
        persistence.save(self, path)

    def fitted_state(self) -> dict[str, Any]:
        """Return what a saved model consists of besides its parameters: arrays and small values."""
        names = [*self._persistent, *_INPUT_FACTS]
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`fitted_state` returned."""
        for name, value in state.items():
            if name not in self._persistent and name not in _INPUT_FACTS:
                raise ValueError(f"unexpected entry {name}")
            setattr(self, name, value)
        for width, names in (
            (self.n_features_in_, getattr(self, "feature_names_in_", None)),
            (self.n_features_y_, getattr(self, "feature_names_y_", None)),
        ):
            if not isinstance(width, int) or width < 1:
                raise TypeError(f"the number of features is {width!r}, no whole number")
            if names is not None and np.shape(names) != (width,):
                raise ValueError(f"the names of features do not fit their number, {width}")

    def _set_spectrum(self, found: CanonicalDirections) -> None:
        """Set what describes the pairs of variates found."""
        self.correlations_ = found.correlations.numpy(force=True)
        self.x_deviations_, self.y_deviations_ = (d.numpy(force=True) for d in found.deviations)

    def _unscaled(self, variates: Variates, which: int) -> Variates:
        return variates * (self.x_deviations_, self.y_deviations_)[which].astype(variates.dtype)

    @property
    def _n_features_out(self) -> int:
        return len(self.correlations_)

    def _allow_nd(self) -> bool:
        return False

    def _check_second(self, y: ArrayLike) -> View:
        name = type(self).__name__
        view = check_y(y, estimator=name, fitting=False, allow_nd=self._allow_nd())
        if view.shape[1] != self.n_features_y_:
            raise ValueError(
                f"y has {view.shape[1]} features, but {name} is expecting {self.n_features_y_} "
                f"features as input for its second view."
            )
        known, names = getattr(self, "feature_names_y_", None), _get_feature_names(y)
        if known is not None and names is not None and not np.array_equal(known, names):
            raise ValueError(
                f"The feature names of y should match those that were passed during fit, and in "
                f"their order: {list(known)[:5]} ..., got {list(names)[:5]} ..."
            )
        return view

    def _variates(self, X: ArrayLike, y: ArrayLike) -> tuple[Variates, Variates]:
        check_is_fitted(self)
        first = check_x(self, X, reset=False, allow_nd=self._allow_nd())
        second = self._check_second(y)
        check_paired(first, second)
        return self._project(first, 0), self._project(second, 1)

    def _check_training(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[View, View]:
        """Check both views for fitting and remember their widths."""
        nd = self._allow_nd()
        if reset:
            self.__dict__.pop("correlations_", None)  # a fit that fails leaves no fitted model
        first = check_x(self, X, reset=reset, allow_nd=nd)
        if reset:
            second = check_y(y, estimator=type(self).__name__, fitting=True, allow_nd=nd)
            self.n_features_y_ = int(second.shape[1])
            self.__dict__.pop("feature_names_y_", None)
            if (names := _get_feature_names(y)) is not None:
                self.feature_names_y_ = names
        else:
            second = self._check_second(y)
        check_paired(first, second)
        return first, second

    def _check_validation(
        self, X_val: ArrayLike | None, y_val: ArrayLike | None
    ) -> tuple[View, View] | None:
        if (X_val is None) != (y_val is None):
            given, missing = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
            raise ValueError(f"{given} came without {missing}: pass both views or neither.")
        if X_val is None or y_val is None:
            return None
        first, second = self._check_training(X_val, y_val, reset=False)
        if len(first) < 2:
            raise ValueError(f"validation needs at least 2 samples, got {len(first)}.")
        return first, second

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "correlations_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
