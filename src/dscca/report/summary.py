"""The head of a report and its end: the table of results, and how they were made."""

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dscca
from dscca.experiments.records import Record
from dscca.report.analysis import DIRECTIONS, ModelView
from dscca.report.blocks import (
    Block,
    Cell,
    Folded,
    Note,
    Row,
    Section,
    Table,
    number_cell,
    text_cell,
)
from dscca.report.records import Comparison, Setting, mean_and_spread, measures
from dscca.report.samples import Samples

_TESTED = ("tc", "recall_sum")
_TITLES = {"tc": "test TC", "recall_sum": "sum of recalls"}
SIGNIFICANT = 0.05


def results_of_records(comparisons: Sequence[Comparison]) -> Section:
    """Return the tables of test figures with paired tests, one per data set."""
    blocks: list[Block | Row | Folded] = []
    for comparison in comparisons:
        heading = f"{comparison.title}. " if len(comparisons) > 1 else ""
        if comparison.settings:
            scores = {
                setting.title: mean_and_spread(values)[0]
                for setting in comparison.settings
                if (values := setting.values("tc"))
            }
            bound = comparison.settings[0].parameters.get("n_components")
            blocks.append(Note(f"{heading}{_best(scores, bound)}"))
            blocks.append(_table(comparison, comparison.settings))
            blocks.append(Note(_how_tested(comparison)))
        if comparison.others:
            table = _table(comparison, (*comparison.settings, *comparison.others))
            number = len(comparison.settings) + len(comparison.others)
            blocks.append(Folded(f"All {number} settings", [table]))
        if comparison.failed:
            rows = [
                [
                    text_cell(run.job.method),
                    text_cell(_run_name(run)),
                    text_cell(run.error or "no reason recorded"),
                ]
                for run in comparison.failed
            ]
            caption = f"Failed runs, left out everywhere else: {len(rows)}."
            blocks.append(Table(("method", "run", "error"), rows, caption))
    return Section("results", "Results", "", blocks)


def results_of_models(views: Sequence[ModelView]) -> Section:
    """Return the table of what models reach on the report's samples."""
    rows = [
        [
            text_cell(view.title),
            number_cell(float(view.correlations.sum())),
            number_cell(len(view.correlations), "{:.0f}"),
            *(number_cell(view.recalls[d].get(k), "{:.1f}") for k in (1, 10) for d in DIRECTIONS),
        ]
        for view in views
    ]
    recalls = [f"{_short(d)} R@{k}" for k in (1, 10) for d in DIRECTIONS]
    columns = ("method", "TC", "pairs", *recalls)
    note = Note("One fitted model each: there are no repeated runs to test differences with.")
    scores = {view.title: float(view.correlations.sum()) for view in views}
    best = Note(_best(scores, len(views[0].correlations)))
    return Section("results", "Results", "", [best, Table(columns, rows), note])


def how_made(
    records: Iterable[Record], views: Sequence[ModelView], samples: Samples | None, command: str
) -> Section:
    """Return versions, hardware, seeds, commands and parameters."""
    records = list(records)
    rows = [
        ("dscca that wrote this page", dscca.__version__),
        ("Python", platform.python_version()),
        ("command", command),
        ("samples shown", "" if samples is None else samples.title),
        ("hardware of the runs", _distinct(run.hardware for run in records)),
        ("device", _distinct(run.device for run in records)),
        ("versions of the runs", _distinct(_versions(run) for run in records)),
        ("commit", _distinct(run.commit for run in records)),
        ("seeds", _distinct(run.job.parameters.get("random_state") for run in records)),
        ("folds", _distinct(run.job.fold for run in records)),
        ("runs", f"{len(records)}, started {_span(records)}" if records else ""),
    ]
    table = Table(("", ""), [[text_cell(name), text_cell(value)] for name, value in rows if value])
    parameters = [
        *((run.job.method, _run_name(run), run.job.parameters) for run in records),
        *((view.name, "model", view.model.get_params(deep=False)) for view in views),
    ]
    details = Table(
        ("method", "run", "parameters"),
        [[text_cell(a), text_cell(b), text_cell(_listed(c))] for a, b, c in parameters],
    )
    folded = Folded("Parameters of every run and model", [details])
    return Section("made", "How it was made", "", [table, folded])


def _table(comparison: Comparison, settings: Sequence[Setting]) -> Table:
    shown = [m for m in _TESTED if m in measures(settings)] or measures(settings)[:1]
    single = [m for m in measures(settings) if "R@" in m]
    columns = ["method"]
    for measure in shown:
        columns += [_TITLES.get(measure, measure), f"{comparison.reference_title} ahead by", "p"]
    columns += [_short(measure) for measure in single]
    columns += ["runs", "seconds to fit", "peak MB", "parameters"]
    rows = []
    for setting in settings:
        row = [text_cell(setting.title)]
        for measure in shown:
            row += _tested(comparison, setting, measure)
        row += [_average(setting, measure, "{:.1f}") for measure in single]
        row.append(number_cell(len(setting.repeated), "{:.0f}"))
        for name, form in (
            ("fit_seconds", "{:.1f}"),
            ("peak_memory_mb", "{:,.0f}"),
            ("n_parameters", "{:,.0f}"),
        ):
            figures = {
                i: value for i, run in enumerate(setting.runs) if (value := getattr(run, name))
            }
            row.append(number_cell(mean_and_spread(figures)[0] if figures else None, form))
        rows.append(row)
    strong = next((i for i, s in enumerate(settings) if s is comparison.reference), None)
    return _without_empty_columns(Table(columns, rows, strong=strong))


def _tested(comparison: Comparison, setting: Setting, measure: str) -> list[Cell]:
    figure = _average(setting, measure, "{:.1f}" if measure.startswith("recall") else "{:.2f}")
    test = comparison.against_reference(setting, measure)
    if test is None:
        return [figure, number_cell(None), number_cell(None)]
    low, high = test.interval
    difference = number_cell(
        test.mean_difference, "{:+.2f}", f"95 % interval {low:+.2f} to {high:+.2f}"
    )
    star = "significant" if test.p_value < SIGNIFICANT else "not significant"
    return [figure, difference, number_cell(test.p_value, "{:.2g}", f"{star}, n={test.n_pairs}")]


def _average(setting: Setting, measure: str, form: str) -> Cell:
    values = setting.values(measure)
    if not values:
        return number_cell(None)
    mean, spread = mean_and_spread(values)
    cell = number_cell(mean, form)
    return cell if spread is None else Cell(f"{cell.text} ± {form.format(spread)}", mean)


def _how_tested(comparison: Comparison) -> str:
    several = any(len(setting.repeated) > 1 for setting in comparison.settings)
    reference = comparison.reference
    if not several:
        return "One run of each method: there are no repeated runs to test differences with."
    shown = comparison.settings if reference is None else (reference,)
    folds = any(run.job.fold is not None for setting in shown for run in setting.repeated)
    over = "folds" if folds else "seeds"
    if reference is None:
        return (
            f"Mean ± standard deviation over {over}. There are no runs of "
            f"{comparison.reference_row} to test differences with."
        )
    overlap = (
        " Training sets of folds overlap, so these p-values are somewhat too small."
        if folds
        else ""
    )
    return (
        f"Mean ± standard deviation over {over}. Differences to {reference.title} are tested by "
        f"two-sided paired t-tests over the {over} that both methods have.{overlap}"
    )


def _best(scores: Mapping[str, float], bound: int | None) -> str:
    """Return the summary: which methods have the highest total correlations."""
    ordered = sorted(scores.items(), key=lambda item: item[1], reverse=True)
    if not ordered:
        return "No run has a total correlation."
    first, *rest = (f"{title} {score:.2f}" for title, score in ordered)
    of = f" of at most {bound}" if bound else ""
    behind = f", followed by {', '.join(rest[:3])}" if rest else ""
    return f"Highest total correlation (TC){of}, held out: {first}{behind}."


def _short(measure: str) -> str:
    return measure.replace(" to ", "→")


def _without_empty_columns(table: Table) -> Table:
    kept = [i for i in range(len(table.columns)) if any(row[i].key != "" for row in table.rows)]
    return Table(
        [table.columns[i] for i in kept],
        [[row[i] for i in kept] for row in table.rows],
        table.caption,
        table.strong,
    )


def _run_name(run: Record) -> str:
    fold, seed = run.job.fold, run.job.parameters.get("random_state")
    parts = ["standard split" if fold is None else f"fold {fold}"]
    return ", ".join(parts if seed is None else [*parts, f"seed {seed}"])


def _versions(run: Record) -> str:
    return ", ".join(f"{name} {value}" for name, value in run.versions.items())


def _distinct(values: Iterable[Any]) -> str:
    found = dict.fromkeys(str(value) for value in values if value not in (None, ""))
    return "; ".join(found)


def _span(records: Sequence[Record]) -> str:
    times = sorted(run.started for run in records if run.started)
    if not times:
        return "at unknown times"
    return times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"


def _listed(parameters: Any) -> str:
    return ", ".join(
        f"{name}={json.dumps(value, default=lambda v: type(v).__name__)}"
        for name, value in parameters.items()
        if value is not None
    )
