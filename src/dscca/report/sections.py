"""The sections of a report. Each returns None where there is nothing to show."""

from collections.abc import Mapping, Sequence

from dscca.report import charts
from dscca.report.analysis import DIRECTIONS, ModelView
from dscca.report.blocks import (
    Answers,
    Block,
    Chart,
    Folded,
    Note,
    Row,
    Section,
    Table,
    number_cell,
    text_cell,
)
from dscca.report.samples import Samples
from dscca.report.scales import NEIGHBORS
from dscca.report.series import Group, Spread

_HISTORY = {
    "val_tc": "validation TC",
    "val_recall": "validation recall",
    "loss": "loss",
}


def training(groups: Sequence[Group]) -> Section | None:
    """Show how deep methods trained."""
    blocks: list[Block | Row | Folded] = []
    for group in groups:
        runs = [series.training for series in group.series]
        figures = {
            what: figure
            for column, what in _HISTORY.items()
            if (figure := charts.training(runs, column, what)) is not None
        }
        if figures:
            blocks.append(
                Chart(figures, f"Training curves, {group.title}", _heading(group, groups))
            )
    if not blocks:
        return None
    return Section(
        "training",
        "Training",
        "Epoch by epoch. A dot marks the epoch whose parameters were kept; the shaded part is the "
        "warm-up, before the scaling networks join.",
        blocks,
    )


def spectra(groups: Sequence[Group]) -> Section | None:
    """Show canonical correlations by component."""
    blocks = [
        Chart(
            {"": charts.spectra(found)},
            f"Canonical correlations by component, {group.title}",
            _heading(group, groups),
        )
        for group in groups
        if (found := {s.title: s.correlations for s in group.series if len(s.correlations)})
    ]
    if not blocks:
        return None
    return Section(
        "correlations",
        "Canonical correlations",
        "The correlation of every pair of variates on samples that took no part in fitting. Their "
        "sum is the total correlation (TC).",
        blocks,
    )


def recalls(groups: Sequence[Group]) -> Section | None:
    """Show recall at k."""
    blocks = []
    for group in groups:
        figures = {
            direction: charts.recall(found)
            for direction in DIRECTIONS
            if (found := {s.title: s.recalls[direction] for s in group.series if s.recalls})
        }
        if figures:
            blocks.append(Chart(figures, f"Recall at k, {group.title}", _heading(group, groups)))
    if not blocks:
        return None
    return Section(
        "recall",
        "Recall",
        "How often a sample's other view is among the k best of all test samples, by the cosine of "
        "their projections.",
        blocks,
    )


def costs(groups: Sequence[Group]) -> Section | None:
    """Show time and memory."""
    blocks: list[Block | Row | Folded] = []
    for group in groups:
        heading = _heading(group, groups)
        seconds = {s.title: s.seconds for s in group.series if s.seconds}
        memory = {s.title: s.memory_mb for s in group.series if s.memory_mb}
        pair: list[Block] = []
        if seconds:
            figure = charts.bars(seconds, "seconds to fit")
            pair.append(Chart({"": figure}, f"Seconds to fit, {group.title}", heading))
        if memory:
            figure = charts.bars(memory, "peak memory, MB")
            pair.append(Chart({"": figure}, f"Peak memory, {group.title}", heading))
        if pair:
            blocks.append(Row(pair))
    if not blocks:
        return None
    return Section(
        "costs",
        "Time and memory",
        "Means over the runs; memory is the peak of the process, or of the GPU.",
        blocks,
    )


def variates(views: Sequence[ModelView], samples: Samples) -> Section | None:
    """Show the leading pairs of variates."""
    if not views:
        return None
    figures = {}
    for view in views:
        x, y = view.variates
        for pair in range(x.shape[1]):
            figures[f"{view.title}, pair {pair + 1} ({view.correlations[pair]:.3f})"] = (
                charts.points(
                    x[:, pair],
                    y[:, pair],
                    labels=samples.labels,
                    axes=(f"x variate {pair + 1}", f"y variate {pair + 1}"),
                )
            )
    return Section(
        "variates",
        "Leading variates",
        "Every point is a sample: its variate in one view against that in the other. Hover or tap "
        "to see it.",
        [Chart(figures, "Scatter of the leading variates", samples=True)],
    )


def scales(views: Sequence[ModelView], samples: Samples) -> Section | None:
    """Show the scales of dynamically-scaled models."""
    blocks: list[Block | Row | Folded] = []
    rows = []
    for view in views:
        if view.no_scales:
            blocks.append(Note(f"{view.title}: nothing to show, {view.no_scales}."))
        if view.scales is None:
            continue
        pair: list[Block] = []
        for name, found in zip(("x", "y"), view.scales, strict=True):
            if found.embedding is None:
                pair.append(Note(f"The scales of view {name} are the same for every sample."))
                continue
            figure = charts.points(
                found.embedding[:, 0], found.embedding[:, 1], labels=samples.labels, axes=None
            )
            title = f"{view.title}, scales of view {name}"
            pair.append(Chart({"": figure}, f"t-SNE of the {title}", title, samples=True))
            if found.accuracy is not None and found.input_accuracy is not None:
                rows.append(
                    [
                        text_cell(view.title),
                        text_cell(f"view {name}"),
                        number_cell(100 * found.accuracy, "{:.1f} %"),
                        number_cell(100 * found.input_accuracy, "{:.1f} %"),
                    ]
                )
        blocks.append(Row(pair))
    if not blocks:
        return None
    if rows:
        blocks.append(
            Table(
                ("method", "view", "in scale space", "in input space"),
                rows,
                f"Share of samples whose class most of their {NEIGHBORS} nearest neighbours have, "
                "each sample judged by the others.",
            )
        )
    return Section(
        "scales",
        "Scales",
        "The numbers by which a second network multiplies the last layer's parameters, one set for "
        "every sample, laid out in the plane by t-SNE. Samples lie close that are treated alike. "
        "Classes give the colours and took no part in training.",
        blocks,
    )


def retrieval(views: Sequence[ModelView]) -> Section | None:
    """Show queries and what was found for them."""
    if not views:
        return None
    best = max(views, key=lambda view: sum(sum(r.values()) for r in view.recalls.values()))
    blocks = [Answers(f"{best.title}, from {d}", d[0], d[-1], best.answers[d]) for d in DIRECTIONS]
    return Section(
        "retrieval",
        "Retrieval examples",
        f"Drawn at random from the queries that {best.title} (the best at recall here) answers "
        "right, then from those it does not. The sample's own other view is outlined and ticked.",
        blocks,
    )


def ablations(found: Mapping[str, Mapping[str, Spread]]) -> Section | None:
    """Show variants of a method: ``heading -> variant -> (mean, spread)``."""
    blocks = [
        Chart({"": charts.bars(v, "test TC", from_zero=False)}, f"Ablations of {heading}", heading)
        for heading, v in found.items()
    ]
    if not blocks:
        return None
    return Section(
        "ablations",
        "Ablations",
        "Test TC of variants of a method, each with its best setting on validation data. The axes "
        "do not start at zero.",
        blocks,
    )


def _heading(group: Group, groups: Sequence[Group]) -> str:
    return group.title if len(groups) > 1 else ""
