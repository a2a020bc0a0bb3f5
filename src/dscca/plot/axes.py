"""What all figures share: the axes they draw on, and checks of what they are given."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dscca.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_or_current(ax: "Axes | None") -> "Axes":
    """Return `ax`, or pyplot's current axes; pyplot is touched only then."""
    matplotlib = require("matplotlib", "plot")
    if ax is None:
        current: Axes = require("matplotlib.pyplot", "plot", "matplotlib").gca()
        return current
    if not isinstance(ax, matplotlib.axes.Axes):
        raise TypeError(f"ax must be one matplotlib Axes, got {type(ax).__name__}.")
    return ax


def finite_vector(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return values as a vector of floats, all finite and at least one."""
    vector = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise ValueError(
            f"{name} must be one or more finite numbers in a row, got shape {vector.shape}."
        )
    return vector


def require_named(values: Mapping[str, Any], name: str) -> None:
    """Refuse an empty mapping, and what is none."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must map names to values, got {type(values).__name__}.")
    if not values:
        raise ValueError(f"{name} is empty: there is nothing to draw.")


def plain(text: object) -> str:
    """Return text in which matplotlib reads no formulas."""
    return str(text).replace("$", r"\$")
