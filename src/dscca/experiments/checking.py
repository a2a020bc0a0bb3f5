"""Checks of what a spec's file says: every error names file, key and what is allowed."""

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from itertools import product
from typing import Any, NoReturn, get_args, get_type_hints

from sklearn.utils._param_validation import InvalidParameterError

from dscca.datasets import find_dataset
from dscca.experiments.spec import (
    EACH,
    MEASURES,
    Choices,
    DataSpec,
    Row,
    Spec,
    SpecError,
    is_deep,
    parameter_names,
)
from dscca.methods import find_method
from dscca.values import merged

_REPEATS = get_args(get_type_hints(Spec)["repeat"])
_STATISTICS = ("mean", "std", "p", "max", "min", "gap")
_SPEC_KEYS = [f.name for f in fields(Spec) if f.name != "name"]
_DATA_KEYS = [f.name for f in fields(DataSpec) if f.name != "key"]
_CHOICE_KEYS = [f.name for f in fields(Choices)]
_ROW_KEYS = ["method", *_CHOICE_KEYS, "data", "only"]
_RUNTIME = ("device", "verbose", "checkpoint_dir", "callbacks", "random_state", "encoders")
"""Parameters that the runner sets, or that no file can hold."""


class Checker:
    """Makes a spec of a file's content; `origin` names the file in errors."""

    def __init__(self, origin: str) -> None:
        self.origin = origin

    def spec(self, content: Mapping[str, Any], name: str) -> Spec:
        """Return the spec that the content describes."""
        self.plain("", content)
        self.keys("", content, _SPEC_KEYS, needed=("title", "measures", "rules", "data", "methods"))
        data = {k: self.data(k, v) for k, v in self.table(content, "data").items()}
        rows = self.table(content, "methods")
        measures = self.choices_of("measures", content["measures"], MEASURES)
        rules = self.choices_of("rules", content["rules"], (*MEASURES, EACH))
        reference = content.get("reference")
        if reference is not None:
            self.one_of("reference", reference, rows)
        repeat = self.one_of("repeat", content.get("repeat", "once"), _REPEATS)
        if repeat == "folds":
            for key, column in data.items():
                if column.folds is None:
                    self.fail(f"data.{key}.folds", "is needed where folds are repeated")
        methods = {key: self.row(key, value, data, rows) for key, value in rows.items()}
        self.no_cycles(methods)
        spec = Spec(
            name=name,
            title=self.text("title", content["title"]),
            paper=self.text("paper", content.get("paper", "")),
            measures=measures,
            rules=rules,
            repeat=repeat,
            seeds=self.count("seeds", content.get("seeds", 1)),
            reference=reference,
            gap=self.switch("gap", content.get("gap", False)),
            data=data,
            methods=methods,
            published=self.published(content.get("published") or {}, data, rows, measures),
            deviations=tuple(self.deviations(content.get("deviations") or [])),
        )
        self.takes(spec)
        return spec

    def data(self, key: str, value: Any) -> DataSpec:
        """Return one data set's part."""
        where = f"data.{key}"
        self.keys(where, value, _DATA_KEYS, needed=("dataset",))
        try:
            dataset = find_dataset(self.text(f"{where}.dataset", value["dataset"]))
        except ValueError as error:
            self.fail(f"{where}.dataset", str(error))
        for part in ("options", "parameters", "networks", "search"):
            self.table(value, part, where)
        for option in value.get("options") or {}:
            self.one_of(f"{where}.options", option, dataset.options, "key")
        folds = value.get("folds")
        if folds is not None:
            self.count(f"{where}.folds", folds, least=2)
            if dataset.n_folds is not None and folds > dataset.n_folds:
                self.fail(f"{where}.folds", f"is {folds}, and {dataset.name} has {dataset.n_folds}")
        parts = {k: v for k, v in value.items() if v is not None}
        for part in ("title", "stands_in_for"):
            self.text(f"{where}.{part}", parts.get(part, key))
        if "upper_bound" in parts:
            self.number(f"{where}.upper_bound", parts["upper_bound"])
        return DataSpec(**{"key": key, "title": dataset.title, **parts, "dataset": dataset.name})

    def row(
        self, key: str, value: Any, data: Mapping[str, DataSpec], rows: Mapping[str, Any]
    ) -> Row:
        """Return one method's part, its parameters tried on the estimator."""
        where = f"methods.{key}"
        self.keys(where, value, _ROW_KEYS, needed=("method",))
        try:
            method = find_method(self.text(f"{where}.method", value["method"]))
        except ValueError as error:
            self.fail(f"{where}.method", str(error))
        own = self.table(value, "data", where)
        for name in own:
            self.one_of(f"{where}.data", name, data)
        only = self.choices_of(f"{where}.only", value.get("only", list(data)), data)
        known = [name for name in parameter_names(method) if name not in _RUNTIME]
        choices = {}
        for name in only:
            place = f"{where}.data.{name}"
            self.keys(place, own.get(name) or {}, _CHOICE_KEYS)
            base = {k: value[k] for k in _CHOICE_KEYS if value.get(k) is not None}
            parts = merged(base, {k: v for k, v in (own.get(name) or {}).items() if v is not None})
            for part in _CHOICE_KEYS:
                for parameter in self.table(parts, part, place):
                    self.one_of(f"{place}.{part}", parameter, known)
            for parameter, values in parts.get("grid", {}).items():
                if not isinstance(values, list) or not values:
                    self.fail(
                        f"{place}.grid.{parameter}", "must be a list of values to choose from"
                    )
            for parameter, other in parts.get("takes", {}).items():
                self.one_of(f"{place}.takes.{parameter}", other, [r for r in rows if r != key])
            choices[name] = Choices(**parts)
        row = Row(key, method, choices)
        for name in only:
            self.try_parameters(row, data[name], known)
        return row

    def try_parameters(self, row: Row, data: DataSpec, known: Collection[str]) -> None:
        """Refuse values that the estimator would refuse, and names that no method has."""
        for name in data.parameters:
            self.one_of(f"data.{data.key}.parameters", name, known)
        for part in ("networks", "search") if is_deep(row.method) else ():
            for name in getattr(data, part):
                self.one_of(f"data.{data.key}.{part}", name, _deep_parameters())
        choices = row.choices[data.key]
        given = {**row.method.fixed, **row.method.default, **data.parameters}
        if is_deep(row.method):
            given |= {k: v for k, v in {**data.networks, **data.search}.items() if k in known}
        given |= choices.parameters
        for values in product(*choices.grid.values()):
            parameters = {**given, **dict(zip(choices.grid, values, strict=True))}
            try:
                row.method.estimator_class()(**parameters)._validate_params()
            except InvalidParameterError as error:
                self.fail(f"methods.{row.name} on {data.key}", str(error))

    def no_cycles(self, rows: Mapping[str, Row]) -> None:
        """Refuse rows that wait for each other's choices, or for a row that is not run."""
        for row in rows.values():
            for key in row.choices:
                reached, waiting = set(), list(row.choices[key].takes.values())
                while waiting:
                    other = waiting.pop()
                    if other == row.name or key not in rows[other].choices:
                        self.fail(
                            f"methods.{row.name}.takes",
                            f"waits for {other}, which waits for it or is not run on {key}",
                        )
                    if other not in reached:
                        reached.add(other)
                        waiting.extend(rows[other].choices[key].takes.values())

    def takes(self, spec: Spec) -> None:
        """Refuse to take from a row what it neither sets nor searches."""
        for row in spec.methods.values():
            for key, choices in row.choices.items():
                for parameter, other in choices.takes.items():
                    theirs = spec.methods[other]
                    chosen = {**theirs.choices[key].takes, **theirs.choices[key].grid}
                    given = spec.job(spec.data[key], theirs, chosen).parameters
                    if parameter not in given:
                        self.fail(
                            f"methods.{row.name}.takes.{parameter}",
                            f"is not given on {key} by {other}, which gives {', '.join(given)}",
                        )

    def published(
        self,
        value: Any,
        data: Mapping[str, DataSpec],
        rows: Mapping[str, Any],
        measures: Collection[str],
    ) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        """Return the paper's figures, a bare number being a mean."""
        result: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for key, by_row in self.table({"published": value}, "published").items():
            self.one_of("published", key, data)
            for row, by_measure in self.table({key: by_row}, key, "published").items():
                self.one_of(f"published.{key}", row, rows)
                place = f"published.{key}.{row}"
                figures = {}
                for measure, figure in self.table({row: by_measure}, row, place).items():
                    self.one_of(place, measure, measures)
                    named = figure if isinstance(figure, dict) else {"mean": figure}
                    for statistic, number in named.items():
                        self.one_of(f"{place}.{measure}", statistic, _STATISTICS)
                        self.number(f"{place}.{measure}.{statistic}", number)
                    figures[measure] = {k: float(v) for k, v in named.items()}
                result.setdefault(key, {})[row] = figures
        return result

    def deviations(self, value: Any) -> list[dict[str, str]]:
        """Return where we differ from the paper, and why."""
        if not isinstance(value, list):
            self.fail("deviations", "must be a list of entries with what and why")
        for i, entry in enumerate(value):
            self.keys(f"deviations[{i}]", entry, ("what", "why"), needed=("what", "why"))
            for key, said in entry.items():
                self.text(f"deviations[{i}].{key}", said)
        return value

    def keys(
        self, where: str, value: Any, allowed: Collection[str], needed: Collection[str] = ()
    ) -> None:
        """Refuse anything but a mapping with these keys."""
        if not isinstance(value, Mapping):
            self.fail(where, f"must be a mapping of {', '.join(allowed)}; it is {value!r:.50}")
        for key in value:
            self.one_of(f"{where}.{key}" if where else str(key), key, allowed, "key")
        for key in needed:
            if value.get(key) in (None, ""):
                self.fail(f"{where}.{key}" if where else key, "is missing")

    def table(self, content: Mapping[str, Any], key: str, where: str = "") -> dict[str, Any]:
        """Return the mapping under a key, empty if it is not there."""
        value = content.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            place = f"{where}.{key}" if where else key
            self.fail(place, f"must be a mapping of names to values; it is {value!r:.50}")
        return value

    def choices_of(self, where: str, value: Any, allowed: Collection[str]) -> tuple[str, ...]:
        """Return a list of allowed names."""
        if not isinstance(value, list) or not value:
            self.fail(where, f"must be a list from {', '.join(allowed)}; it is {value!r:.50}")
        return tuple(self.one_of(where, item, allowed) for item in value)

    def one_of(self, where: str, value: Any, allowed: Collection[str], what: str = "value") -> Any:
        """Return a value that is allowed."""
        if value not in list(allowed):  # mappings and sets cannot look for a list
            self.fail(where, f"has the {what} {value!r}; allowed are {', '.join(allowed)}")
        return value

    def plain(self, where: str, value: Any) -> None:
        """Refuse values that records, which are JSON, could not hold."""
        if isinstance(value, Mapping):
            for key, item in value.items():
                self.plain(f"{where}.{key}" if where else str(key), item)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self.plain(f"{where}[{i}]", item)
        elif isinstance(value, float) and not math.isfinite(value):
            self.fail(where, f"must be a finite number; it is {value}")
        elif value is not None and not isinstance(value, str | int | float):
            self.fail(where, f"must be text, a number, a list or a mapping; it is {value!r:.50}")

    def text(self, where: str, value: Any) -> str:
        """Return a text."""
        if not isinstance(value, str):
            self.fail(where, f"must be text; it is {value!r:.50}")
        return value

    def switch(self, where: str, value: Any) -> bool:
        """Return true or false."""
        if not isinstance(value, bool):
            self.fail(where, f"must be true or false; it is {value!r:.50}")
        return value

    def number(self, where: str, value: Any) -> None:
        """Refuse what is no number."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(where, f"must be a number; it is {value!r:.50}")

    def count(self, where: str, value: Any, least: int = 1) -> int:
        """Return a whole number."""
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fail(where, f"must be a whole number of at least {least}; it is {value!r}")
        return value

    def fail(self, where: str, problem: str) -> NoReturn:
        """Say what is wrong where."""
        raise SpecError(f"{self.origin}: {where or 'the file'} {problem}")


def _deep_parameters() -> list[str]:
    """Return the parameters that some deep method has."""
    from dscca.methods import METHODS

    names = [n for m in METHODS if is_deep(m) for n in parameter_names(m) if n not in _RUNTIME]
    return list(dict.fromkeys(names))
