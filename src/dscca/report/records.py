"""Records of runs: what is compared with what."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dscca.experiments.planning import Plan
from dscca.experiments.records import Record
from dscca.methods import METHODS, find_method
from dscca.stats import PairedTTest, paired_t_test

_REFERENCE = "ds-dcca"
ABLATED = ("scaling", "context", "start", "warmup", "scale_hidden")
"""Parameters whose values the paper's ablations compare."""


@dataclass(frozen=True)
class Setting:
    """One method with one choice of parameters, and its runs: one for each fold and seed.

    `title` is the method's, followed by the parameters that set it apart from other settings of
    the same method.
    """

    method: str
    title: str
    parameters: Mapping[str, Any]
    runs: tuple[Record, ...]

    def values(self, measure: str, part: str = "test") -> dict[tuple[Any, Any], float]:
        """Return a measure of every run that has it, by fold and seed."""
        figures = ((run, getattr(run, part).get(measure)) for run in self.repeated)
        return {_run_key(run): float(value) for run, value in figures if value is not None}

    @property
    def repeated(self) -> tuple[Record, ...]:
        """The runs over folds where there are several, else those on the standard split."""
        folds = tuple(run for run in self.runs if run.job.fold is not None)
        single = tuple(run for run in self.runs if run.job.fold is None)
        return folds if len(folds) > 1 or not single else single

    @property
    def shown(self) -> Record:
        """The run whose curves are drawn: the first on the standard split, else the first."""
        single = [run for run in self.runs if run.job.fold is None]
        return min(single or self.runs, key=lambda run: tuple(map(str, _run_key(run))))


@dataclass(frozen=True)
class Comparison:
    """The settings that were run on one data set.

    `settings` has the one of each method that did best on validation data (of those with the most
    runs), `others` the rest, `failed` the runs without a result. `reference_row` is the title of
    the setting that tests compare with; by default DS-DCCA, or the best on validation data.
    """

    dataset: str
    title: str
    settings: tuple[Setting, ...]
    others: tuple[Setting, ...] = ()
    failed: tuple[Record, ...] = ()
    reference_row: str | None = None

    @property
    def reference(self) -> Setting | None:
        """What the others are tested against; None if the row that should be has no runs."""
        if self.reference_row is not None:
            rows = (setting for setting in self.settings if setting.title == self.reference_row)
            return next(rows, None)
        named = [setting for setting in self.settings if setting.method == _REFERENCE]
        return max(named or self.settings, key=_validation, default=None)

    @property
    def reference_title(self) -> str:
        """How tables call the reference."""
        if self.reference_row is not None:
            return self.reference_row
        return "" if self.reference is None else method_title(self.reference.method)

    def against_reference(self, setting: Setting, measure: str) -> PairedTTest | None:
        """Return the paired t-test of the reference against a setting over their common runs."""
        reference = self.reference
        if reference is None or setting is reference:
            return None
        ours, theirs = reference.values(measure), setting.values(measure)
        common = [key for key in ours if key in theirs]
        if len(common) < 2:
            return None
        return paired_t_test([ours[key] for key in common], [theirs[key] for key in common])

    def ablations(self) -> dict[str, tuple[Setting, ...]]:
        """Return, by method, its best setting for each value of what was ablated."""
        found = {}
        everything = (*self.settings, *self.others)
        for method in dict.fromkeys(s.method for s in everything):
            variants: dict[str, list[Setting]] = {}
            for setting in everything:
                if setting.method == method:
                    key = {k: v for k, v in setting.parameters.items() if k in ABLATED}
                    variants.setdefault(_canonical(key), []).append(setting)
            if len(variants) > 1:
                found[method] = tuple(_best(settings) for settings in variants.values())
        return found


def compare(records: Iterable[Record]) -> list[Comparison]:
    """Group records by data set, then by method and parameters."""
    datasets: dict[str, list[Record]] = {}
    for record in records:
        key = _canonical([record.job.dataset, record.job.options])
        datasets.setdefault(key, []).append(record)
    return [_comparison(runs) for _, runs in sorted(datasets.items())]


def compare_planned(plan: Plan) -> list[Comparison]:
    """Return the rows of an experiment's table, with the hyperparameters its first rule chose."""
    spec = plan.spec
    measure, rule = spec.measures[0], spec.rules[0]
    found = []
    for data in spec.data.values():
        settings, failed = [], []
        for name, row in spec.methods.items():
            cell = plan.cells.get((data.key, name))
            if cell is None:
                continue
            planned = [*cell.runs(measure, rule), cell.single(measure, rule)]
            runs = {run.id: run for run in planned if run is not None}.values()
            failed += [run for run in runs if not run.done]
            done = tuple(run for run in runs if run.done)
            if done:
                settings.append(Setting(row.method.name, name, _chosen(done[0]), done))
        if settings or failed:
            found.append(
                Comparison(
                    data.dataset,
                    data.title,
                    tuple(settings),
                    failed=tuple(failed),
                    reference_row=spec.reference,
                )
            )
    return found


def measures(settings: Sequence[Setting]) -> list[str]:
    """Return which measures the test figures hold, in their order."""
    found: dict[str, None] = {}
    for setting in settings:
        for run in setting.runs:
            found |= dict.fromkeys(run.test)
    return list(found)


def mean_and_spread(values: Mapping[Any, float]) -> tuple[float, float | None]:
    """Return the mean of runs, and their standard deviation if there are several."""
    array = np.array(list(values.values()))
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None


def method_title(name: str) -> str:
    """Return the paper's name of a method, or its own if it is none of the package."""
    try:
        return find_method(name).title
    except ValueError:
        return name


def _comparison(records: list[Record]) -> Comparison:
    done = [record for record in records if record.done]
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in done:
        chosen = _chosen(record)
        groups.setdefault(record.job.method, {}).setdefault(_canonical(chosen), []).append(record)
    best, others = [], []
    for method, variants in sorted(groups.items(), key=lambda group: method_place(group[0])):
        parameters = [_chosen(runs[0]) for runs in variants.values()]
        settings = [
            Setting(method, _title(method, own, parameters), own, tuple(runs))
            for own, runs in zip(parameters, variants.values(), strict=True)
        ]
        first = _best(settings)
        best.append(first)
        others += [setting for setting in settings if setting is not first]
    job = records[0].job
    title = job.dataset + (f" ({_listed(job.options)})" if job.options else "")
    return Comparison(
        job.dataset,
        title,
        tuple(best),
        tuple(others),
        tuple(record for record in records if not record.done),
    )


def _chosen(record: Record) -> dict[str, Any]:
    return {k: v for k, v in record.job.parameters.items() if k != "random_state"}


def method_place(method: str) -> tuple[int, str]:
    """Return what puts methods in the order of ``dscca models``, and others after them."""
    names = [known.name for known in METHODS]
    return names.index(method) if method in names else len(names), method


def _title(method: str, own: dict[str, Any], all_parameters: list[dict[str, Any]]) -> str:
    differing = {
        name: own.get(name)
        for name in dict.fromkeys(k for parameters in all_parameters for k in parameters)
        if len({_canonical(parameters.get(name)) for parameters in all_parameters}) > 1
    }
    return method_title(method) + (f" ({_listed(differing)})" if differing else "")


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in values.items())


def _best(settings: Sequence[Setting]) -> Setting:
    most = max(len(setting.repeated) for setting in settings)
    return max((s for s in settings if len(s.repeated) == most), key=_validation)


def _validation(setting: Setting) -> float:
    values = setting.values("tc", "validation")
    return mean_and_spread(values)[0] if values else -np.inf


def _run_key(run: Record) -> tuple[int | None, Any]:
    """Return what pairs runs of different methods; those without randomness have no seed."""
    return run.job.fold, run.job.parameters.get("random_state", 0)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
