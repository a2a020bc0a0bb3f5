"""From a spec and the records there are: the jobs that are still needed, and a table's cells."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from dscca.experiments.jobs import Job
from dscca.experiments.records import Record
from dscca.experiments.spec import EACH, DataSpec, Row, Spec

Choice = dict[str, Any]


@dataclass
class Cell:
    """One row of a spec on one data set: what was chosen, and the runs with it.

    Runs and choices are kept per criterion: the validation figure that chose the hyperparameters.
    """

    data: DataSpec
    row: Row
    chosen: dict[str, Choice] = field(default_factory=dict)
    tried: int = 0
    """Candidates with a record, by all criteria together."""
    candidates: int = 0
    failed: int = 0
    """Records of failures among candidates and runs."""
    reason: str = ""
    """Why something is missing; empty if nothing is."""
    repeated: dict[str, list[Record | None]] = field(default_factory=dict)
    standard: dict[str, Record | None] = field(default_factory=dict)
    needed: dict[str, Record | None] = field(default_factory=dict)
    """All runs with chosen values by their job, each once."""

    def runs(self, measure: str, rule: str) -> list[Record | None]:
        """Return the runs over folds or seeds, None in the place of one that is missing."""
        return self.repeated.get(_criterion(measure, rule), [])

    def single(self, measure: str, rule: str) -> Record | None:
        """Return the run on the standard split."""
        return self.standard.get(_criterion(measure, rule))


@dataclass
class Plan:
    """Where an experiment stands."""

    spec: Spec
    pending: list[Job]
    """Jobs known to be needed that have no record, in the order of the spec, each once."""
    cells: dict[tuple[str, str], Cell]
    """By data set and row."""


def plan(
    spec: Spec,
    records: Mapping[str, Record],
    *,
    only: Collection[str] | None = None,
    data: Collection[str] | None = None,
) -> Plan:
    """Return where an experiment stands, on some rows and data sets or on all.

    The candidates of a row are its grid's points, on the standard split with seed 0. When all of
    them have a record, the one with the best validation figure is chosen, and its runs are needed:
    on the standard split, and over folds or seeds. A row that takes another's choice waits for it.
    """
    state = _Planning(spec, records)
    for column in spec.data.values():
        if data is not None and column.key not in data:
            continue
        for name, row in spec.methods.items():
            if column.key in row.choices and (only is None or name in only):
                state.cell(column, row)
    return Plan(spec, list(state.pending.values()), state.cells)


def best_candidate(
    candidates: list[tuple[Choice, Record]], criterion: str
) -> tuple[Choice, Record] | None:
    """Return the candidate of the highest validation figure, the first of equals.

    It sees validation figures alone. None if no candidate has one.
    """
    figures = [
        record.validation.get(criterion) if record.done else None for _, record in candidates
    ]
    known = [(figure, -i) for i, figure in enumerate(figures) if figure is not None]
    return candidates[-max(known)[1]] if known else None


class _Planning:
    def __init__(self, spec: Spec, records: Mapping[str, Record]) -> None:
        self.spec, self.records = spec, records
        self.pending: dict[str, Job] = {}
        self.cells: dict[tuple[str, str], Cell] = {}
        self.points: dict[tuple[str, str, str], list[tuple[Choice, Job]]] = {}

    def cell(self, data: DataSpec, row: Row) -> Cell:
        """Return a row's cell, made once, after those whose choices it takes."""
        key = (data.key, row.name)
        if key not in self.cells:
            others = {
                parameter: self.cell(data, self.spec.methods[other])
                for parameter, other in row.choices[data.key].takes.items()
            }
            cell = self.cells[key] = Cell(data, row)
            tried: dict[str, Record | None] = {}
            for criterion in self.spec.criteria:
                self._choose(cell, criterion, others, tried)
                if criterion in cell.chosen:
                    self._repeat(cell, criterion)
            cell.candidates = len(tried)
            cell.tried = sum(record is not None for record in tried.values())
            known = [r for r in {**tried, **cell.needed}.values() if r is not None]
            cell.failed = sum(not record.done for record in known)
            cell.reason = self._reason(cell, others)
        return self.cells[key]

    def _choose(
        self,
        cell: Cell,
        criterion: str,
        others: Mapping[str, Cell],
        tried: dict[str, Record | None],
    ) -> None:
        if any(criterion not in other.chosen for other in others.values()):
            return
        taken = {
            parameter: self.spec.job(other.data, other.row, other.chosen[criterion]).parameters[
                parameter
            ]
            for parameter, other in others.items()
        }
        points = self._points(cell, taken)
        if len(points) == 1:
            cell.chosen[criterion] = points[0][0]
            return
        found = []
        for point, job in points:
            tried[job.id] = record = self._record(job)
            if record is not None:
                found.append((point, record))
        best = best_candidate(found, criterion)
        if len(found) == len(points) and best is not None:
            cell.chosen[criterion] = best[0]

    def _points(self, cell: Cell, taken: Choice) -> list[tuple[Choice, Job]]:
        """Return a cell's candidates: the points of its grid, with what it takes."""
        key = (cell.data.key, cell.row.name, json.dumps(taken, sort_keys=True))
        if key not in self.points:
            grid = cell.row.choices[cell.data.key].grid
            points: list[Choice] = [
                {**taken, **dict(zip(grid, values, strict=True))}
                for values in product(*grid.values())
            ]
            job = partial(self.spec.job, cell.data, cell.row, searching=True)
            self.points[key] = [(point, job(point)) for point in points]
        return self.points[key]

    def _repeat(self, cell: Cell, criterion: str) -> None:
        def record(**where: Any) -> Record | None:
            job = self.spec.job(cell.data, cell.row, cell.chosen[criterion], **where)
            cell.needed[job.id] = self._record(job)
            return cell.needed[job.id]

        cell.standard[criterion] = record()
        if self.spec.repeat == "folds":
            cell.repeated[criterion] = [record(fold=i) for i in range(cell.data.folds or 0)]
        elif self.spec.repeat == "seeds":
            cell.repeated[criterion] = [record(seed=i) for i in range(self.spec.seeds)]

    def _record(self, job: Job) -> Record | None:
        """Return a job's record; without one it is pending."""
        record = self.records.get(job.id)
        if record is None:
            self.pending.setdefault(job.id, job)
        return record

    def _reason(self, cell: Cell, others: Mapping[str, Cell]) -> str:
        waiting = [o.row.name for o in others.values() if len(o.chosen) < len(self.spec.criteria)]
        if waiting:
            return f"waits for the choice of {', '.join(waiting)}"
        if len(cell.chosen) < len(self.spec.criteria):
            done = f"{cell.tried} of {cell.candidates} candidates were tried"
            return f"{done}, and all failed" if cell.tried == cell.candidates else done
        runs = list(cell.needed.values())
        missing = sum(record is None for record in runs)
        errors = [record.error for record in runs if record is not None and not record.done]
        if errors:
            return f"{len(errors)} of {len(runs)} runs failed: {errors[0]}"
        return f"{missing} of {len(runs)} runs are missing" if missing else ""


def _criterion(measure: str, rule: str) -> str:
    return measure if rule == EACH else rule
