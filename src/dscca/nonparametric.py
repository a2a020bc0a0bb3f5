"""Nonparametric CCA: the maximally correlated functions under an estimated joint density."""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from dscca.base import TwoViewEstimator, Variates
from dscca.deep.preparation import hold_out
from dscca.density import (
    Extension,
    SingularFunctions,
    extend,
    gaussian_weights,
    row_stochastic,
    singular_functions,
)
from dscca.head import BLOCK_ROWS, feature_covariances, feature_sums, fit_head, project
from dscca.linalg import Covariances
from dscca.neighbors import nearest, nearest_approximately
from dscca.parameters import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, SIZE, pair_of
from dscca.reduction import Rows, blocks, principal_axes, row_moments
from dscca.views import View, not_finite_error, resolve_device

_EPS = float(np.finfo(np.float64).eps)


class NCCA(TwoViewEstimator):
    r"""Nonparametric canonical correlation analysis (Michaeli, Wang and Livescu 2016).

    Among all functions of either view, those of unit variance that correlate most are the singular
    functions of the views' joint density relative to the product of its marginals. Here the density
    is estimated from Gaussian weights on nearest neighbours,

    .. math:: S(x, y) = \sum_j w(x, x_j) \, w(y, y_j), \quad
       w(x, x_j) \propto \exp(-\|x - x_j\|^2 / (2 h^2)), \quad \sum_j w(x, x_j) = 1

    over the neighbours of x and y among the training points, scaled towards unit row and column
    sums (algorithm 1 there). Each view is reduced by PCA and scaled to unit mean squared norm, so
    the width h is relative. :func:`dscca.density.singular_functions` has the decomposition and its
    extension to new points; as for every representation, linear CCA on the training samples'
    functions ends it.

    Parameters
    ----------
    n_components : int
        Number of pairs of functions, and of variates.
    n_neighbors : int or pair
        Neighbours that carry weight, at most the number of training samples; a pair gives view
        one's and view two's, here and below.
    width : float or pair
        Standard deviation h of the Gaussian, relative to the root of the view's mean squared norm.
    variance : float, pair or None
        Share of a view's variance that its principal components are to hold: the fewest that do
        are kept. The paper takes 0.8 for MNIST and Flickr8k.
    dimensions : float, int, pair or None
        Number of principal components in place of `variance`, or as a float, their share of the
        features: the paper takes 0.2 for XRMB. With neither all that vary are kept.
    balancing : int
        Rounds of scaling towards unit row and column sums.
    head_reg : float, pair or "auto"
        Regulariser of the linear CCA, relative to the mean variance of the functions; "auto"
        chooses each view's by total correlation on the validation samples.
    validation_fraction : float
        Share of the samples held out for ``head_reg="auto"`` if no validation views are given.
    neighbors : "exact" or "approximate"
        How the training points' neighbours are found. "approximate" takes much less than n² steps,
        for n above some 100,000, and needs ``pip install "dscca[faiss]"``; new points are always
        searched exactly.
    random_state : None, int or RandomState
        Seeds held-out rows and the iterations' starting vector.
    device : str
        Where distances are computed; "auto" takes a CUDA GPU where there is one.

    Attributes
    ----------
    correlations_ : (k,) training correlations of the variates, descending
    singular_values_ : (k,) the density's, at most 1; smoothing lowers them, and few neighbours or a
        small width raise them, since each sample is its own neighbour
    n_neighbors_, width_, head_reg_ : pairs in use
    x_mean_, x_axes_ : (p,), (p, a) reduction: ``(X - x_mean_) @ x_axes_``; likewise for y
    x_points_, x_masses_, x_values_ : (n, a), (n,), (n, k) what new points are compared with; see
        :class:`dscca.density.Extension`; likewise for y
    x_feature_mean_, x_rotations_ : (k,), (k, k) the head; likewise for y

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, size=1200)
    >>> X, y = np.column_stack([np.cos(angle), np.sin(angle)]), np.cos(2 * angle)
    >>> model = NCCA(random_state=0).fit(X[:1000], y[:1000])
    >>> model.canonical_correlations(X[1000:], y[1000:]).round(2)
    array([1., 1.])
    """

    _persistent: ClassVar[dict[str, str]] = {
        **TwoViewEstimator._persistent,
        "singular_values_": "k",
        "x_mean_": "p",
        "y_mean_": "q",
        "x_axes_": "p a",
        "y_axes_": "q b",
        "x_points_": "n a",
        "y_points_": "n b",
        "x_masses_": "n",
        "y_masses_": "n",
        "x_values_": "n k",
        "y_values_": "n k",
        "x_feature_mean_": "k",
        "y_feature_mean_": "k",
        "x_rotations_": "k k",
        "y_rotations_": "k k",
    }
    _training_only: ClassVar[tuple[str, ...]] = ("random_state",)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "width": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "variance": [Interval(Real, 0, 1, closed="right"), "array-like", None],
        "dimensions": [Interval(Real, 0, None, closed="neither"), "array-like", None],
        "balancing": [Interval(Integral, 0, None, closed="left")],
        "head_reg": [Interval(Real, 0, None, closed="left"), "array-like", StrOptions({"auto"})],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "neighbors": [StrOptions({"exact", "approximate"})],
        "random_state": ["random_state"],
        "device": [str],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int | tuple[int, int] = 20,
        width: float | tuple[float, float] = 0.5,
        variance: float | tuple[float, float] | None = None,
        dimensions: float | tuple[float, float] | None = None,
        balancing: int = 15,
        head_reg: float | tuple[float, float] | str = "auto",
        validation_fraction: float = 0.1,
        neighbors: str = "exact",
        random_state: Any = None,
        device: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.width = width
        self.variance = variance
        self.dimensions = dimensions
        self.balancing = balancing
        self.head_reg = head_reg
        self.validation_fraction = validation_fraction
        self.neighbors = neighbors
        self.random_state = random_state
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
        """Estimate the density and fit the head.

        Validation samples choose the head's regulariser; ``head_reg="auto"`` without them holds out
        a share of the samples.
        """
        views = self._check_training(X, y, reset=True)
        given = self._check_validation(X_val, y_val)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        n = len(views[0])
        rows, held_out = np.arange(n), None
        if isinstance(self.head_reg, str):
            rows, held_out = hold_out(n, self.validation_fraction, self.n_components, seed, given)
        self._check_sizes(len(rows))
        W_x, W_y = (self._weights(view, rows, which, seed) for which, view in enumerate(views))
        found = singular_functions(W_x, W_y, self.n_components, balancing=self.balancing, seed=seed)
        self.singular_values_ = found.correlations
        for side, extension in zip("xy", (found.x_extension, found.y_extension), strict=True):
            setattr(self, f"{side}_masses_", extension.masses.numpy())
            setattr(self, f"{side}_values_", extension.values.numpy())
        validation = None
        if held_out is not None:
            names = ("X", "y") if given is None else ("X_val", "y_val")
            validation = self._covariances(given or views, held_out, names)
        return self._fit_head(views, rows, found, validation)

    def _check_sizes(self, n: int) -> None:
        """Set what is one value per view, and refuse what `n` training samples do not allow."""
        if self.n_components >= n:
            raise ValueError(
                f"n_components={self.n_components} is above {n - 1}, the bound set by {n} training "
                f"samples (one pair of functions is constant): use n_components <= {n - 1}."
            )
        neighbors = pair_of("n_neighbors", self.n_neighbors, COUNT)
        if max(neighbors) > n:
            raise ValueError(
                f"n_neighbors={max(neighbors)} is above {n}, the number of training samples: use "
                f"n_neighbors <= {n}."
            )
        self.n_neighbors_ = (int(neighbors[0]), int(neighbors[1]))
        width = pair_of("width", self.width, POSITIVE)
        self.width_ = (float(width[0]), float(width[1]))

    def _weights(self, view: View, rows: Rows, which: int, seed: int) -> csr_array[np.float64]:
        """Return a view's matrix of neighbours' weights, after fitting its reduction."""
        name, device = "Xy"[which], resolve_device(self.device)
        variance = pair_of("variance", self.variance, SHARE)
        dimensions = pair_of("dimensions", self.dimensions, SIZE)
        moments = row_moments(view, rows, device, name)
        axes = principal_axes(moments, share=variance[which], size=dimensions[which], name=name)
        points = torch.cat([(block - moments.mean) @ axes for block in blocks(view, rows, device)])
        for what, value in (("mean", moments.mean), ("axes", axes), ("points", points)):
            setattr(self, f"{'xy'[which]}_{what}_", value.numpy(force=True))
        k = self.n_neighbors_[which]
        if self.neighbors == "exact":
            indices, offsets = nearest(points, points, k, first=0)
        else:
            indices, offsets = nearest_approximately(points, k, seed=seed)
        return row_stochastic(indices, gaussian_weights(offsets, self.width_[which]), len(rows))

    def _covariances(
        self, views: tuple[View, View], rows: Rows, names: tuple[str, str]
    ) -> Covariances:
        """Return the covariances of the functions at the chosen rows of both views."""
        device = resolve_device(self.device)
        features = []
        for which, (view, name) in enumerate(zip(views, names, strict=True)):
            encode = self._encoder(which, device)
            features.append(torch.cat([encode(block) for block in blocks(view, rows, device)]))
            if not features[which].isfinite().all():
                raise not_finite_error({name: view})
        return feature_covariances((features[0], features[1]), _EPS)

    def _fit_head(
        self,
        views: tuple[View, View],
        rows: Rows,
        found: SingularFunctions,
        validation: Covariances | None,
    ) -> Self:
        """Fit linear CCA to the functions at the training points, and interpret the variates."""
        device = resolve_device(self.device)
        raw = zip(*(blocks(view, rows, device) for view in views), strict=True)
        parts = [torch.from_numpy(f).to(device) for f in (found.x, found.y)]
        features = zip(*(torch.split(f, BLOCK_ROWS) for f in parts), strict=True)
        train, scatters = feature_sums(zip(raw, features, strict=True), _EPS)
        reg: Any = (
            "auto" if validation is not None else pair_of("head_reg", self.head_reg, NOT_NEGATIVE)
        )
        head, self.head_reg_ = fit_head(train, validation or train, self.n_components, reg)
        self.x_feature_mean_, self.y_feature_mean_ = train.mean_x.numpy(), train.mean_y.numpy()
        self.x_rotations_, self.y_rotations_ = head.A.numpy(), head.B.numpy()
        self.x_loadings_, self.x_patterns_ = scatters[0].interpret(head.A, train.S11)
        self.y_loadings_, self.y_patterns_ = scatters[1].interpret(head.B, train.S22)
        self._set_spectrum(head)
        return self

    def _encoder(self, which: int, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the functions of a view at any points."""
        side = "xy"[which]
        mean, axes, points, masses, values = (
            torch.from_numpy(getattr(self, f"{side}_{what}_")).to(device)
            for what in ("mean", "axes", "points", "masses", "values")
        )
        k, width = self.n_neighbors_[which], self.width_[which]

        def encode(block: Tensor) -> Tensor:
            indices, offsets = nearest((block.double() - mean) @ axes, points, k)
            return extend(Extension(masses, values), indices, gaussian_weights(offsets, width))

        return encode

    def _project(self, view: View, which: int) -> Variates:
        device, side = resolve_device(self.device), "xy"[which]
        mean, A = getattr(self, f"{side}_feature_mean_"), getattr(self, f"{side}_rotations_")
        encode = self._encoder(which, device)
        return project(encode, view, mean, A, name="Xy"[which], device=device)

    def fitted_state(self) -> dict[str, Any]:
        """Return what a saved model consists of."""
        small = {
            "n_neighbors": self.n_neighbors_,
            "width": self.width_,
            "head_reg": self.head_reg_,
        }
        return {**super().fitted_state(), "density": small}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`fitted_state` returned."""
        small = state.pop("density")
        super().restore_state(state)
        neighbors = pair_of("n_neighbors", small["n_neighbors"], COUNT)
        if max(neighbors) > len(self.x_points_):
            raise ValueError(f"n_neighbors={max(neighbors)} is above the number of points")
        self.n_neighbors_ = neighbors
        self.width_ = pair_of("width", small["width"], POSITIVE)
        self.head_reg_ = pair_of("head_reg", small["head_reg"], NOT_NEGATIVE)
