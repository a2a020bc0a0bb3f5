"""Pairs of views whose population correlations are known.

Draws come from PCG64's raw output through the normal quantile function, so they are the same on
every machine up to the rounding of that function.
"""

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.datasets.cache import DataFolder
from dscca.datasets.samples import Samples
from dscca.datasets.splits import Indices, Split, random_keys

SIZES = (8000, 1000, 1000)
CORRELATIONS = (0.95, 0.9, 0.8, 0.7, 0.5)
_SHOWN = 50


def load_linear(
    folder: DataFolder,
    fold: int | None,
    seed: int,
    *,
    correlations: Sequence[float] = CORRELATIONS,
    widths: tuple[int, int] = (20, 15),
    sizes: tuple[int, int, int] = SIZES,
) -> Samples:
    """Gaussian views with given canonical correlations.

    x = A [u, e], y = B [v, f] with invertible A and B, independent standard normal entries but for
    corr(uᵢ, vᵢ) = ρᵢ. Correlations do not change under invertible linear maps, so the population
    canonical correlations are the ρᵢ and zeros, and no linear map of fewer dimensions does better.
    """
    rho = _checked(fold, correlations, widths)
    latents = _latents(sum(sizes), rho, widths, seed)
    x, y = (z @ _invertible(z.shape[1], seed, 10 + i) for i, z in enumerate(latents))
    known = {"linear": _padded(rho, min(widths)), "nonlinear": mehler_spectrum(rho, _SHOWN)}
    return _samples(x, y, None, sizes, known)


def load_nonlinear(
    folder: DataFolder,
    fold: int | None,
    seed: int,
    *,
    correlations: Sequence[float] = CORRELATIONS,
    widths: tuple[int, int] = (20, 15),
    sizes: tuple[int, int, int] = SIZES,
) -> Samples:
    """Gaussian latents seen through invertible nonlinear maps.

    x = C w(A [u, e]) with orthogonal A and C and a strictly increasing w in each coordinate, and y
    likewise. A bijection of a view changes no nonlinear correlation, so the population's are those
    of the latents: by Mehler's expansion the products Π ρᵢ^kᵢ (see :func:`mehler_spectrum`). What
    a linear map reaches is less, and not known in closed form.
    """
    rho = _checked(fold, correlations, widths)
    x, y = (
        _warp(z @ _orthogonal(z.shape[1], seed, 10 + i)) @ _orthogonal(z.shape[1], seed, 20 + i)
        for i, z in enumerate(_latents(sum(sizes), rho, widths, seed))
    )
    return _samples(x, y, None, sizes, {"nonlinear": mehler_spectrum(rho, _SHOWN)})


def load_classes(
    folder: DataFolder,
    fold: int | None,
    seed: int,
    *,
    correlations: Sequence[float] = CORRELATIONS,
    n_classes: int = 4,
    sizes: tuple[int, int, int] = SIZES,
) -> Samples:
    """Make views whose pairing depends on a class that both of them show.

    x = [P_c u, a_c + noise], y = [Q_c v, b_c + noise] with corr(uᵢ, vᵢ) = ρᵢ and orthogonal P_c,
    Q_c of each class c. One linear map of x serves the classes on average only, where a map scaled
    by the input can serve each of them. Known of the population:

    - linear: the correlations of the exact covariances, in which the classes' rotations cancel;
    - nonlinear: the noise is bounded, so each view determines its class. The classes' functions of
      a view do not mix, so every product of Mehler's expansion comes once for each class; of the
      constants, which come with correlation 1, one less than there are classes are left.
    """
    k = len(correlations)
    rho = _checked(fold, correlations, (k, k))
    if n_classes < 2:
        raise ValueError(f"n_classes={n_classes}: there must be 2 at least.")
    n = sum(sizes)
    classes = (random_keys(n, seed, 30) % np.uint64(n_classes)).astype(np.int64)
    views, rotations, places = [], [], []
    for i, z in enumerate(_latents(n, rho, (k, k), seed)):
        rotation = np.stack([_orthogonal(k, seed, 40 + i, c) for c in range(n_classes)])
        # The corners of a simplex in rotated axes: all equally far from each other.
        place = np.eye(n_classes) @ _orthogonal(n_classes, seed, 50 + i)
        noise = _half_width(n_classes) * (2 * uniform((n, n_classes), seed, 60 + i) - 1)
        views.append(
            np.hstack([np.einsum("nk,nkj->nj", z, rotation[classes]), place[classes] + noise])
        )
        rotations.append(rotation)
        places.append(place)
    spectrum = np.repeat(mehler_spectrum(rho, _SHOWN), n_classes)
    nonlinear = np.concatenate([np.ones(n_classes - 1), spectrum])[:_SHOWN]
    known = {"linear": _linear_of_classes(rho, rotations, places), "nonlinear": nonlinear}
    return _samples(views[0], views[1], classes, sizes, known)


def mehler_spectrum(correlations: Sequence[float] | NDArray[Any], n: int) -> NDArray[np.float64]:
    """Return the n largest nonlinear canonical correlations of Gaussian pairs.

    For independent pairs (uᵢ, vᵢ) of standard normals with corr(uᵢ, vᵢ) = ρᵢ, products of Hermite
    polynomials are the singular functions of conditional expectation, with singular values
    Π |ρᵢ|^kᵢ over all numbers kᵢ >= 0 that are not all 0 (Mehler 1866, Lancaster 1958).
    """
    rho = np.sort(np.abs(np.asarray(correlations, dtype=np.float64)))[::-1]
    rho = rho[rho > 0]
    found: list[float] = []
    # Each product is made once: factors are appended in an order that never goes back.
    waiting = [(-value, i) for i, value in enumerate(rho)]
    heapq.heapify(waiting)
    while waiting and len(found) < n:
        value, last = heapq.heappop(waiting)
        found.append(-value)
        for i in range(last, len(rho)):
            heapq.heappush(waiting, (value * rho[i], i))
    return _padded(np.array(found), n)


def uniform(shape: tuple[int, ...], *seed: int) -> NDArray[np.float64]:
    """Return uniform draws in the open interval (0, 1)."""
    keys = random_keys(int(np.prod(shape)), *seed)
    return ((keys >> np.uint64(12)).astype(np.float64) + 0.5).reshape(shape) * 2.0**-52


def normal(shape: tuple[int, ...], *seed: int) -> NDArray[np.float64]:
    """Return standard normal draws."""
    from scipy.special import ndtri

    return np.asarray(ndtri(uniform(shape, *seed)))


def _latents(
    n: int, rho: NDArray[np.float64], widths: tuple[int, int], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    k = len(rho)
    u, v = normal((n, widths[0]), seed, 1), normal((n, widths[1]), seed, 2)
    v[:, :k] = rho * u[:, :k] + np.sqrt(1 - rho**2) * v[:, :k]
    return u, v


def _orthogonal(width: int, *seed: int) -> NDArray[np.float64]:
    q, r = np.linalg.qr(normal((width, width), *seed))
    return np.asarray(q * np.sign(np.diag(r)))


def _invertible(width: int, *seed: int) -> NDArray[np.float64]:
    """Return a matrix with condition number 10."""
    scales = np.geomspace(1.0, 10.0, width)
    return (_orthogonal(width, *seed, 1) * scales) @ _orthogonal(width, *seed, 2)


def _warp(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply increasing functions in turn: exponential, logarithmic, cubic and wavy."""
    columns = np.arange(z.shape[1]) % 4
    warped = z + 0.9 * np.sin(2 * z) / 2
    first, second, third = (z[:, columns == i] for i in range(3))
    warped[:, columns == 0] = np.exp(first)
    warped[:, columns == 1] = np.sign(second) * np.log1p(5 * np.abs(second))
    warped[:, columns == 2] = third**3 + 0.1 * third
    return warped


def _linear_of_classes(
    rho: NDArray[np.float64],
    rotations: list[NDArray[np.float64]],
    places: list[NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return the singular values of S11^-½ S12 S22^-½ for the mixture's exact covariances."""
    k, n_classes = len(rho), len(places[0])
    noise = _half_width(n_classes) ** 2 / 3
    centred = [place - place.mean(0) for place in places]
    roots = [np.linalg.cholesky(c.T @ c / n_classes + noise * np.eye(n_classes)) for c in centred]
    shared = np.linalg.solve(roots[0], centred[0].T @ centred[1] / n_classes)
    context = np.linalg.svd(np.linalg.solve(roots[1], shared.T), compute_uv=False)
    average = np.mean([p.T @ np.diag(rho) @ q for p, q in zip(*rotations, strict=True)], axis=0)
    latent = np.linalg.svd(average, compute_uv=False)
    return np.sort(np.concatenate([latent, context]))[::-1][: k + n_classes]


def _half_width(n_classes: int) -> float:
    """Return how far noise reaches: two corners differ in some axis by sqrt(2 / n_classes)."""
    return 0.5 / float(np.sqrt(n_classes))


def _checked(
    fold: int | None, correlations: Sequence[float], widths: tuple[int, int]
) -> NDArray[np.float64]:
    rho = np.asarray(correlations, dtype=np.float64)
    if fold is not None:
        raise ValueError(f"fold={fold}: synthetic data have no folds; take another seed.")
    if rho.ndim != 1 or not 0 < len(rho) <= min(widths):
        raise ValueError(
            f"{rho.size} correlations: give between 1 and the narrower view's {min(widths)}."
        )
    if not ((rho >= 0) & (rho < 1)).all():
        raise ValueError(f"correlations={list(correlations)}: each must be in [0, 1).")
    return np.sort(rho)[::-1]


def _padded(values: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    return np.concatenate([values, np.zeros(max(0, n - len(values)))])[:n]


def _samples(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    labels: NDArray[np.int64] | None,
    sizes: tuple[int, int, int],
    known: dict[str, NDArray[np.float64]],
) -> Samples:
    bounds = np.cumsum(sizes)
    split = Split(*np.split(np.arange(len(x)), bounds[:2]))

    def take(rows: Indices) -> dict[str, Any]:
        part: dict[str, Any] = {"x": x[rows], "y": y[rows], "ids": rows}
        part |= {"x": part["x"].astype(np.float32), "y": part["y"].astype(np.float32)}
        return part if labels is None else {**part, "labels": labels[rows]}

    return Samples(split, take, known)
