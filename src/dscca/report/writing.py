"""From records or fitted models to a page on disk."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from dscca.experiments.planning import plan
from dscca.experiments.records import Record
from dscca.experiments.spec import Spec
from dscca.persistence import write_atomically
from dscca.report import sections, summary
from dscca.report.analysis import ModelView, view_model
from dscca.report.blocks import Section
from dscca.report.page import render, require_libraries
from dscca.report.records import (
    Comparison,
    compare,
    compare_planned,
    mean_and_spread,
    method_place,
    method_title,
)
from dscca.report.samples import Samples
from dscca.report.series import group_of_models, groups_of_records

MAX_POINTS = 10_000


def report_records(
    records: Iterable[Record],
    output: str | PathLike[str],
    *,
    spec: Spec | None = None,
    title: str = "Results",
    command: str = "",
) -> Path:
    """Write a page on the runs that records tell of: what was reached, learned and spent.

    Parameters
    ----------
    records : as in the JSON files that experiments and ``dscca demo`` leave
    output : the HTML file to write, replaced in one step
    spec : the experiment whose table to show: its rows, with what it chose on validation data. By
        default records are grouped by method and parameters.
    title : of the page
    command : what made it, for the page's last section

    Returns
    -------
    Path of the page
    """
    records = list(records)
    if spec is None:
        return _write(output, title, records, compare(records), [], None, command)
    comparisons = compare_planned(plan(spec, {record.id: record for record in records}))
    if not comparisons:
        raise ValueError(f"there are no records of the runs that {spec.name} needs.")
    settings = [setting for comparison in comparisons for setting in comparison.settings]
    used = {run.id: run for setting in settings for run in setting.runs}
    return _write(output, title, list(used.values()), comparisons, [], None, command)


def report_models(
    models: Mapping[str, Any],
    samples: Samples,
    output: str | PathLike[str],
    *,
    records: Iterable[Record] = (),
    title: str = "Report",
    command: str = "",
    max_points: int = MAX_POINTS,
    seed: int = 0,
) -> Path:
    """Write a page on fitted models: what they make of samples that took no part in fitting.

    Parameters
    ----------
    models : names of methods, as in ``dscca models``, or of your own -> fitted estimators
    samples : paired samples; of more than `max_points` that many are drawn at random, and the page
        says so
    output, records, title, command : as for :func:`report_records`
    seed : of what is drawn at random, and of t-SNE

    Returns
    -------
    Path of the page
    """
    if not models:
        raise ValueError("there are no models to report on.")
    require_libraries()
    shown = samples.at_most(max_points, seed)
    views = []
    for name, model in models.items():
        print(f"Looking at {name}", file=sys.stderr, flush=True)
        views.append(view_model(name, method_title(name), model, shown, seed=seed))
    records = list(records)
    return _write(output, title, records, compare(records), views, shown, command)


def _write(
    output: str | PathLike[str],
    title: str,
    records: list[Record],
    comparisons: Sequence[Comparison],
    views: Sequence[ModelView],
    samples: Samples | None,
    command: str,
) -> Path:
    if not comparisons and not views:
        raise ValueError("there are neither records nor models to report on.")
    groups = groups_of_records(comparisons)
    if views and samples is not None and not groups:
        groups = [group_of_models(samples.title, views)]
    results = (
        summary.results_of_records(comparisons) if comparisons else summary.results_of_models(views)
    )
    found: list[Section | None] = [
        results,
        sections.training(groups),
        sections.spectra(groups),
        None if samples is None else sections.variates(views, samples),
        None if samples is None else sections.scales(views, samples),
        sections.retrieval(views),
        sections.recalls(groups),
        sections.ablations(_ablations(comparisons)),
        sections.costs(groups),
        summary.how_made(records, views, samples, command),
    ]
    page = render(title, _subtitle(records, samples), [part for part in found if part], samples)
    path = Path(output)
    write_atomically(path, page.encode("utf-8"))
    return path


def _ablations(comparisons: Sequence[Comparison]) -> dict[str, dict[str, Any]]:
    found = {}
    for comparison in comparisons:
        for method, settings in comparison.ablations().items():
            values = {s.title: s.values("tc") for s in settings}
            bars = {title: mean_and_spread(v) for title, v in values.items() if v}
            if len(bars) > 1:
                found[f"{method_title(method)}, {comparison.title}"] = bars
    return found


def _subtitle(records: Sequence[Record], samples: Samples | None) -> str:
    parts = []
    if records:
        methods = sorted({run.job.method for run in records}, key=method_place)
        runs = "1 run" if len(records) == 1 else f"{len(records)} runs"
        parts.append(f"{runs} of {', '.join(map(method_title, methods))}.")
    if samples is not None:
        parts.append(f"{samples.title}.")
        if samples.total > len(samples):
            parts.append(
                f"Of {samples.total:,} samples {len(samples):,}, drawn at random, are shown."
            )
    return " ".join(parts)
