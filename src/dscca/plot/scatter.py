"""Figures with points: variates and the embedded scales."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dscca.plot.axes import axes_or_current, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def variates(
    x: ArrayLike,
    y: ArrayLike,
    *,
    pair: int = 1,
    labels: ArrayLike | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw one pair of variates against each other, and name their correlation.

    Parameters
    ----------
    x, y : (n_samples, n_components), as from ``transform``
    pair : which pair, counted from 1
    labels : class of every sample: its colour
    """
    ax = axes_or_current(ax)
    first, second = _matrix(x, "x"), _matrix(y, "y")
    if first.shape != second.shape:
        raise ValueError(f"x and y must have one shape, got {first.shape} and {second.shape}.")
    if not 1 <= pair <= first.shape[1]:
        raise ValueError(f"pair={pair}: there are pairs 1 to {first.shape[1]}.")
    u, v = first[:, pair - 1], second[:, pair - 1]
    _points(ax, u, v, labels)
    ax.set_xlabel(f"x variate {pair}")
    ax.set_ylabel(f"y variate {pair}")
    ax.set_title(f"correlation {np.corrcoef(u, v)[0, 1]:.3f}")
    return ax


def scales(
    embedding: ArrayLike, *, labels: ArrayLike | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Draw an embedding of a view's scales in the plane, without axes: only nearness has a meaning.

    Parameters
    ----------
    embedding : (n_samples, 2), as from :func:`dscca.report.embed_scales`
    labels : class of every sample: its colour
    """
    ax = axes_or_current(ax)
    points = _matrix(embedding, "embedding")
    if points.shape[1] != 2:
        raise ValueError(f"embedding must have two columns, got {points.shape[1]}.")
    _points(ax, points[:, 0], points[:, 1], labels)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_aspect("equal", "datalim")
    return ax


def _points(ax: "Axes", u: NDArray[Any], v: NDArray[Any], labels: ArrayLike | None) -> None:
    size = float(np.clip(4000 / len(u), 2.5, 18))
    style = {"s": size, "linewidths": 0, "alpha": 0.8}
    if labels is None:
        ax.scatter(u, v, **style)  # type: ignore[arg-type]
        return
    classes = np.asarray(labels)
    if classes.shape != u.shape:
        raise ValueError(f"there are {classes.shape} labels for {len(u)} points.")
    from matplotlib import colormaps

    names = np.unique(classes)
    colours = colormaps["tab10" if len(names) <= 10 else "turbo"]
    for i, name in enumerate(names):
        rows = classes == name
        colour = colours(i if len(names) <= 10 else i / (len(names) - 1))
        ax.scatter(u[rows], v[rows], color=[colour], label=plain(name), **style)  # type: ignore[arg-type]
    legend = ax.legend(frameon=False, markerscale=(24 / size) ** 0.5, handletextpad=0.1)
    legend.set_loc("best") if len(u) < 2000 else legend.set_loc("upper right")


def _matrix(values: ArrayLike, name: str) -> NDArray[Any]:
    matrix = np.asarray(values)
    if matrix.ndim != 2 or 0 in matrix.shape or not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be a finite matrix with rows, got shape {matrix.shape}.")
    return matrix
