"""Figures that compare methods: ablations, time and memory."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dscca.plot.axes import axes_or_current, finite_vector, plain, require_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def ablation_bars(
    scores: Mapping[str, ArrayLike],
    *,
    reference: str | None = None,
    measure: str = "test TC",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw a bar per variant: the mean of its scores, with their standard deviation.

    The axis starts near the smallest score, since ablations differ by little: it is no picture of
    ratios.

    Parameters
    ----------
    scores : variant -> its score, or one for each run
    reference : the variant that the others are to be compared with, set off by its colour
    measure : what the scores are
    """
    require_named(scores, "scores")
    if reference is not None and reference not in scores:
        raise ValueError(f"reference={reference!r} is none of {', '.join(scores)}.")
    ax = axes_or_current(ax)
    runs = [finite_vector(values, f"the scores of {name}") for name, values in scores.items()]
    means = [float(run.mean()) for run in runs]
    spreads = [float(run.std(ddof=1)) if len(run) > 1 else 0.0 for run in runs]
    places = np.arange(len(runs))
    colours = ["C0" if reference in (None, name) else "0.7" for name in scores]
    ax.barh(places, means, xerr=spreads, color=colours, height=0.7, ecolor="0.3", capsize=2)
    ax.set_yticks(places, [plain(name) for name in scores])
    ax.invert_yaxis()
    low = min(m - s for m, s in zip(means, spreads, strict=True))
    high = max(m + s for m, s in zip(means, spreads, strict=True))
    margin = 0.15 * (high - low) or 0.05 * abs(high) or 1.0
    ax.set_xlim(low - margin, high + margin)
    ax.set_xlabel(plain(measure))
    return ax


def time_and_memory(
    seconds: Mapping[str, float], memory_mb: Mapping[str, float], *, ax: "Axes | None" = None
) -> "Axes":
    """Draw what each method took: seconds to fit, against its peak memory.

    Parameters
    ----------
    seconds, memory_mb : method -> its figure, positive, for the same methods
    """
    require_named(seconds, "seconds")
    if set(seconds) != set(memory_mb):
        odd = sorted(set(seconds) ^ set(memory_mb))
        raise ValueError(f"seconds and memory are needed for the same methods, not {odd}.")
    ax = axes_or_current(ax)
    ax.set_xscale("log")
    for name, time in seconds.items():
        figures = finite_vector([time, memory_mb[name]], f"the figures of {name}")
        if figures.min() <= 0:
            raise ValueError(f"the figures of {name} must be above 0, got {figures}.")
        ax.plot([figures[0]], [figures[1]], "o")
        ax.annotate(
            plain(name), (figures[0], figures[1]), xytext=(5, 4), textcoords="offset points"
        )
    ax.margins(x=0.25, y=0.15)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("seconds to fit")
    ax.set_ylabel("peak memory, MB")
    return ax
