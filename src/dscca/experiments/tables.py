"""The tables of an experiment: ours beside the paper's, with what is missing and why."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from dscca.experiments.entries import PAPER, Figure, Line, Missing, PValue, Runs, Table
from dscca.experiments.notes import notes
from dscca.experiments.planning import Cell, Plan
from dscca.experiments.spec import DataSpec, Spec
from dscca.experiments.summaries import Summary, compare, gap_closed, places, summarize

_ORDER = ("mean", "p", "max", "min", "gap", "single", "runs")


def make_tables(plan: Plan, data: Collection[str] | None = None) -> list[Table]:
    """Return a table for every data set of a plan, or for some, and every rule."""
    spec = plan.spec
    for key in data or ():
        if key not in spec.data:
            raise ValueError(f"{spec.name} has no data {key}: there are {', '.join(spec.data)}")
    return [
        _table(spec, column, rule, plan)
        for column in spec.data.values()
        if data is None or column.key in data
        for rule in spec.rules
    ]


def _table(spec: Spec, data: DataSpec, rule: str, plan: Plan) -> Table:
    rows = tuple(name for name, row in spec.methods.items() if data.key in row.choices)
    cells = {row: plan.cells.get((data.key, row)) for row in rows}
    entries: dict[tuple[str, str], Line] = {}
    for measure in spec.measures:
        summaries = {
            row: Summary(()) if cell is None else summarize(cell, measure, rule, spec.repeat)
            for row, cell in cells.items()
        }
        for row in rows:
            line = _ours(spec, data, measure, row, summaries, cells[row])
            paper = spec.published.get(data.key, {}).get(row, {}).get(measure, {})
            entries[row, measure] = line | _theirs(spec, measure, paper, summaries[row].mean)
        complete = {row: summaries[row].complete for row in rows}
        _mark(entries, rows, measure, "mean", complete)
        _mark(entries, rows, measure, PAPER + "mean", dict.fromkeys(rows, True))
    found = {statistic for line in entries.values() for statistic in line}
    order = [*_ORDER, *(PAPER + statistic for statistic in _ORDER), "difference"]
    return Table(
        title=f"{data.title}: {spec.title[0].lower()}{spec.title[1:]}",
        data=data.key,
        rule=rule,
        rows=rows,
        measures=spec.measures,
        statistics=tuple(statistic for statistic in order if statistic in found),
        titles=_titles(spec),
        entries=entries,
        notes=tuple(notes(spec, data, rule, entries, list(cells.values()))),
    )


def _ours(
    spec: Spec,
    data: DataSpec,
    measure: str,
    row: str,
    summaries: Mapping[str, Summary],
    cell: Cell | None,
) -> Line:
    """Return what our runs say; `gap` is what the reference closes of the row's gap."""
    own = summaries[row]
    line: Line = {}
    if own.mean is None:
        line["mean"] = Missing(_reason(cell))
    else:
        line["mean"] = _figure(spec, measure, own.mean, own.std)
    if spec.repeat == "seeds" and own.known:
        line["max"] = _figure(spec, measure, max(own.known))
        line["min"] = _figure(spec, measure, min(own.known))
    if spec.repeat != "once" and (own.known or own.failed):
        line["runs"] = Runs(len(own.known), len(own.values), own.failed)
    if spec.repeat == "folds" and own.single is not None:
        line["single"] = _figure(spec, measure, own.single)
    reference = summaries.get(spec.reference or "")
    if reference is None or row == spec.reference:
        return line
    test = compare(own, reference) if spec.repeat != "once" else None
    if test is not None:
        line["p"] = PValue(test.p_value, test.n_pairs)
    if spec.gap and measure == "tc" and data.upper_bound is not None:
        closed = (
            gap_closed(own.mean, reference.mean, data.upper_bound)
            if own.mean is not None and reference.mean is not None
            else None
        )
        if closed is not None:
            line["gap"] = Figure(closed, decimals=0)
    return line


def _reason(cell: Cell | None) -> str:
    """Say why a row has no figure."""
    if cell is None:
        return "not run"
    runs = [record for records in cell.repeated.values() for record in records]
    nothing = not cell.tried and not any((*runs, *cell.standard.values()))
    return "not run" if nothing else cell.reason or "its runs have no such figure"


def _theirs(spec: Spec, measure: str, paper: Mapping[str, float], mean: float | None) -> Line:
    """Return the paper's figures, and how far our mean is from its."""
    line: Line = {}
    for statistic, value in paper.items():
        if statistic == "p":
            line[PAPER + "p"] = PValue(value)
        elif statistic == "gap":
            line[PAPER + "gap"] = Figure(value, decimals=0)
        elif statistic != "std":
            spread = paper.get("std") if statistic == "mean" else None
            line[PAPER + statistic] = _figure(spec, measure, value, spread)
    if mean is not None and "mean" in paper:
        difference = _figure(spec, measure, mean - paper["mean"])
        line["difference"] = replace(difference, signed=True)
    return line


def _figure(spec: Spec, measure: str, value: float, spread: float | None = None) -> Figure:
    decimals = 2 if measure == "tc" else 1
    return Figure(value, spread, decimals, 3 if spec.repeat == "seeds" else 2)


def _mark(
    entries: dict[tuple[str, str], Line],
    rows: Iterable[str],
    measure: str,
    statistic: str,
    complete: Mapping[str, bool],
) -> None:
    """Mark the best and second best row; rows that lack runs do not take part."""
    lines = [entries[row, measure] for row in rows]
    figures = [
        entry if isinstance(entry := line.get(statistic), Figure) and complete[row] else None
        for row, line in zip(rows, lines, strict=True)
    ]
    found = places([None if f is None else round(f.value, f.decimals) for f in figures])
    for line, figure, place in zip(lines, figures, found, strict=True):
        if figure is not None:
            line[statistic] = replace(figure, place=place)


def _titles(spec: Spec) -> dict[str, str]:
    own = {
        "mean": "ours",
        "p": "p",
        "max": "maximum",
        "min": "minimum",
        "gap": "gap %",
        "single": "one split",
        "runs": spec.repeat,
        "difference": "difference",
    }
    paper = {PAPER + s: f"paper's {own[s]}" for s in own} | {PAPER + "mean": "paper"}
    return {**own, **paper}
