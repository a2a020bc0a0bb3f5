"""Figures with lines: training, spectra of correlations, recall."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dscca.plot.axes import axes_or_current, finite_vector, plain, require_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {
    "loss": "training loss",
    "val_loss": "validation loss",
    "val_tc": "validation TC",
    "val_recall": "validation recall",
}


def training_curves(
    history: pd.DataFrame | Mapping[str, Sequence[float]],
    *,
    columns: Sequence[str] = ("loss", "val_loss"),
    warmup: int | None = None,
    best_epoch: int | None = None,
    label: str = "",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw what a training history says, epoch by epoch.

    Parameters
    ----------
    history : ``history_`` of a deep model, or the same columns as a mapping
    columns : which of its columns to draw
    warmup : epochs before the scaling networks joined: shaded
    best_epoch : the epoch whose parameters were kept (``best_epoch_``): a dot on every line
    label : put before the columns' names, where several runs share the axes
    """
    ax = axes_or_current(ax)
    table = pd.DataFrame(history)
    missing = [column for column in ("epoch", *columns) if column not in table]
    if missing or not len(table):
        raise ValueError(
            f"the history has no {', '.join(missing) or 'epochs'}; it holds "
            f"{len(table)} rows of {', '.join(map(str, table.columns))}."
        )
    if best_epoch is not None and best_epoch not in set(table["epoch"]):
        raise ValueError(f"best_epoch={best_epoch} is none of the history's epochs.")
    for column in columns:
        name = _NAMES.get(column, column)
        (line,) = ax.plot(
            table["epoch"], table[column], label=plain(f"{label} {name}".strip()), linewidth=1.5
        )
        if best_epoch is not None:
            best = table.loc[table["epoch"] == best_epoch, column]
            ax.plot([best_epoch], best, "o", color=line.get_color(), label="_best epoch")
    if warmup:
        ax.axvspan(0, warmup, color="0.5", alpha=0.12, linewidth=0, label="warm-up")
    ax.set_xlabel("epoch")
    ax.set_xlim(left=0)
    ax.legend(frameon=False)
    return ax


def correlation_spectra(
    correlations: Mapping[str, ArrayLike],
    *,
    upper_bound: float = 1.0,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the canonical correlations of each method, in the order of its components.

    Parameters
    ----------
    correlations : method -> its correlations, as from ``canonical_correlations``
    upper_bound : what none can exceed: a dashed line
    """
    require_named(correlations, "correlations")
    ax = axes_or_current(ax)
    for name, values in correlations.items():
        vector = finite_vector(values, f"the correlations of {name}")
        ax.plot(np.arange(1, len(vector) + 1), vector, ".-", label=plain(name), linewidth=1.2)
    ax.axhline(upper_bound, color="0.4", linestyle="--", linewidth=1, label="upper bound")
    ax.set_xlabel("component")
    ax.set_ylabel("correlation")
    ax.legend(frameon=False)
    return ax


def recall_curve(recalls: Mapping[str, Mapping[Any, float]], *, ax: "Axes | None" = None) -> "Axes":
    """Draw recall at k against k.

    Parameters
    ----------
    recalls : name -> {k: recall in per cent}; k may be text, as JSON has it
    """
    require_named(recalls, "recalls")
    ax = axes_or_current(ax)
    for name, curve in recalls.items():
        require_named(curve, f"the recalls of {name}")
        points = sorted((int(k), float(value)) for k, value in curve.items())
        ax.plot(*zip(*points, strict=True), ".-", label=plain(name), linewidth=1.2)
    ax.set_xscale("log")
    ticks = sorted({int(k) for curve in recalls.values() for k in curve})
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 100)
    ax.set_xlabel("k")
    ax.set_ylabel("recall at k, per cent")
    ax.legend(frameon=False)
    return ax
