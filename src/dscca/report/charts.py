"""Interactive charts as plotly figures in plain data; the page adds colours of its theme.

plotly reads a part of HTML in every text it draws (names, ticks, titles, hover), so whatever comes
from outside passes :func:`safe`. Hover texts of samples are drawn by the page as plain text.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Figure = dict[str, Any]

PALETTE = (
    "#3b7dd8", "#d9791a", "#2a9d6f", "#d1495b", "#8c6bb1",
    "#b08a1e", "#2799a8", "#c460a8", "#7a8288", "#6f9a37",
)  # fmt: skip
"""Colours with a contrast of at least 3 on the page's light and dark grounds."""
_GPU_POINTS = 2000
"""Points beyond which a scatter is drawn by WebGL."""
_LABELS_SHOWN = 40
_NAME_LENGTH = 40


def safe(text: object) -> str:
    """Return text in which plotly finds nothing but characters, and not too many of them.

    >>> safe("<b>&")
    '&lt;b&gt;&amp;'
    """
    cleaned = "".join(c if c.isprintable() else " " for c in str(text))
    short = cleaned if len(cleaned) <= _NAME_LENGTH else f"{cleaned[: _NAME_LENGTH - 1]}…"
    return html.escape(short, quote=False)


def packed(values: ArrayLike) -> dict[str, str]:
    """Return numbers as plotly's typed arrays: float32 or int32, in base64."""
    array = np.asarray(values)
    kind = "i4" if array.dtype.kind in "iub" else "f4"
    return {
        "dtype": kind,
        "bdata": base64.b64encode(array.astype(f"<{kind}").tobytes()).decode("ascii"),
    }


def training(runs: Sequence[Mapping[str, Any]], column: str, what: str) -> Figure | None:
    """Draw a column of the histories: a line per run, its best epoch a dot, warm-ups dashed.

    Parameters
    ----------
    runs : with title, history, and maybe warmup and best_epoch
    column : of the history; for ``loss`` the validation loss is drawn too, dotted
    """
    traces: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    ends: dict[int, list[str]] = {}
    for i, run in enumerate(runs):
        history, colour = run["history"], PALETTE[i % len(PALETTE)]
        if not history or column not in history:
            continue
        title, epochs = safe(run["title"]), list(history["epoch"])
        for name, dash in ((column, "solid"), (f"val_{column}", "dot")):
            if name not in history:
                continue
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": title if name == column else f"{title}, validation",
                    "legendgroup": str(i),
                    "x": epochs,
                    "y": list(history[name]),
                    "line": {"color": colour, "width": 2, "dash": dash},
                    "hovertemplate": "epoch %{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
                }
            )
        best = run.get("best_epoch")
        if best in epochs:
            marked = f"val_{column}" if f"val_{column}" in history else column
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{title}, best epoch",
                    "legendgroup": str(i),
                    "showlegend": False,
                    "x": [best],
                    "y": [history[marked][epochs.index(best)]],
                    "marker": {"color": colour, "size": 10, "line": {"width": 2}},
                    "hovertemplate": "best epoch %{x}: %{y:.4g}<extra></extra>",
                }
            )
        if run.get("warmup"):
            ends.setdefault(int(run["warmup"]), []).append(title)
    if not traces:
        return None
    for end, titles in ends.items():
        shapes.append(
            {
                "type": "rect",
                "yref": "paper",
                "x0": 0,
                "x1": end,
                "y0": 0,
                "y1": 1,
                "line": {"width": 0},
                "fillcolor": "#8a8f98",
                "opacity": 0.13,
                "layer": "below",
            }
        )
        annotations.append(
            {
                "text": f"warm-up of {', '.join(titles)}",
                "x": end,
                "y": 1,
                "yref": "paper",
                "xanchor": "right",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 11},
            }
        )
    layout = _layout("epoch", what, shapes=shapes, annotations=annotations)
    return {"data": traces, "layout": layout}


def spectra(correlations: Mapping[str, ArrayLike], upper_bound: float = 1.0) -> Figure:
    """Draw canonical correlations by component, and the bound that none exceeds."""
    traces, longest = [], 1
    for i, (title, values) in enumerate(correlations.items()):
        vector = np.asarray(values, dtype=float)
        longest = max(longest, len(vector))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": safe(title),
                "x": list(range(1, len(vector) + 1)),
                "y": [round(float(v), 5) for v in vector],
                "line": {"color": PALETTE[i % len(PALETTE)], "width": 2},
                "marker": {"size": 5},
                "hovertemplate": "pair %{x}: %{y:.3f}<extra>%{fullData.name}</extra>",
            }
        )
    traces.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "upper bound",
            "x": [1, longest],
            "y": [upper_bound, upper_bound],
            "line": {"color": "#8a8f98", "width": 1.5, "dash": "dash"},
            "hoverinfo": "skip",
        }
    )
    return {"data": traces, "layout": _layout("component", "correlation on held-out samples")}


def points(
    u: ArrayLike,
    v: ArrayLike,
    *,
    labels: NDArray[Any] | None,
    axes: tuple[str, str] | None,
) -> Figure:
    """Draw samples in the plane by class; ``customdata`` is their row, for the page's hover.

    Without `axes` the plane has none, and one unit is as long in both directions.
    """
    a, b = np.asarray(u), np.asarray(v)
    kind = "scattergl" if len(a) > _GPU_POINTS else "scatter"
    size = float(np.clip(220 / np.sqrt(len(a)), 2.5, 7))
    classes = np.unique(labels) if labels is not None else np.array([])
    coloured = labels is not None and len(classes) <= _LABELS_SHOWN
    groups = (
        [(safe(name), np.flatnonzero(labels == name)) for name in classes]
        if coloured
        else [("samples", np.arange(len(a)))]
    )
    traces = [
        {
            "type": kind,
            "mode": "markers",
            "name": name,
            "x": packed(a[rows]),
            "y": packed(b[rows]),
            "customdata": [int(row) for row in rows],
            "marker": {"color": PALETTE[i % len(PALETTE)], "size": size, "opacity": 0.75},
            "hoverinfo": "none",
            "showlegend": coloured,
        }
        for i, (name, rows) in enumerate(groups)
    ]
    layout = _layout(*(axes or ("", "")))
    layout["legend"] |= {"itemsizing": "constant"}
    if axes is None:
        for axis in ("xaxis", "yaxis"):
            layout[axis] |= {"visible": False}
        layout["yaxis"] |= {"scaleanchor": "x"}
        layout["margin"] = {"l": 8, "r": 8, "t": 8, "b": 8}
        layout["height"] = 460
    return {"data": traces, "layout": layout}


def recall(curves: Mapping[str, Mapping[Any, float]]) -> Figure:
    """Draw recall at k: ``title -> {k: per cent}``."""
    traces, places = [], set()
    for i, (title, curve) in enumerate(curves.items()):
        found = sorted((int(k), float(value)) for k, value in curve.items())
        places |= {k for k, _ in found}
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": safe(title),
                "x": [k for k, _ in found],
                "y": [round(value, 3) for _, value in found],
                "line": {"color": PALETTE[i % len(PALETTE)], "width": 2},
                "marker": {"size": 5},
                "hovertemplate": "R@%{x}: %{y:.1f} %<extra>%{fullData.name}</extra>",
            }
        )
    layout = _layout("k, places looked at", "recall at k, per cent")
    ticks = sorted(places)
    layout["xaxis"] |= {
        "type": "log",
        "tickvals": ticks,
        "ticktext": [str(k) for k in ticks],
        "tickangle": 0,
    }
    layout["yaxis"] |= {"range": [0, 102]}
    return {"data": traces, "layout": layout}


def bars(
    values: Mapping[str, tuple[float, float | None]], what: str, *, from_zero: bool = True
) -> Figure:
    """Draw a horizontal bar per name: a figure, and its standard deviation over runs.

    Parameters
    ----------
    from_zero : whether bars are ratios; else the axis starts near the smallest, and is marked so
    """
    names = list(values)
    means = [values[name][0] for name in names]
    spreads = [values[name][1] or 0.0 for name in names]
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "x": means,
        "y": [str(i) for i in range(len(names))],
        "marker": {"color": [PALETTE[i % len(PALETTE)] for i in range(len(names))]},
        "hovertemplate": "%{x:.4g}<extra></extra>",
    }
    if any(spreads):
        trace["error_x"] = {"type": "data", "array": spreads, "thickness": 1.5, "width": 4}
    layout = _layout(what, "")
    layout |= {"showlegend": False, "height": 80 + 40 * len(names), "bargap": 0.35}
    layout["margin"] = {"l": 10, "r": 16, "t": 8, "b": 44}
    layout["yaxis"] |= {
        "type": "category",
        "autorange": "reversed",
        "automargin": True,
        "tickvals": [str(i) for i in range(len(names))],
        "ticktext": [f"{safe(name)}  {mean:.4g}" for name, mean in zip(names, means, strict=True)],
        "showgrid": False,
    }
    if not from_zero:
        low = min(m - s for m, s in zip(means, spreads, strict=True))
        high = max(m + s for m, s in zip(means, spreads, strict=True))
        margin = 0.25 * (high - low) or 0.05 * abs(high) or 1.0
        layout["xaxis"] |= {"range": [low - margin, high + margin / 2]}
    return {"data": [trace], "layout": layout}


def _layout(x: str, y: str, **more: Any) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": x, "standoff": 8}, "zeroline": False, "automargin": True},
        "yaxis": {"title": {"text": y, "standoff": 8}, "zeroline": False, "automargin": True},
        "margin": {"l": 52, "r": 12, "t": 26, "b": 76},
        "height": 380,
        "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        "hovermode": "closest",
        "dragmode": "pan",
        **more,
    }
