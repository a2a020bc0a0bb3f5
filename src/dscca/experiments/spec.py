"""What an experiment consists of: the YAML files in ``specs/``, read and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml

from dscca.experiments.jobs import Job
from dscca.methods import Method
from dscca.values import merged, parse_yaml

EACH = "each"
"""The rule by which every measure is shown with the hyperparameters that are best for it."""

RECALLS = tuple(f"{way} R@{k}" for way in ("x to y", "y to x") for k in (1, 5, 10))
MEASURES = ("tc", *RECALLS, "recall_sum")
"""What is measured on validation and test samples."""


class SpecError(ValueError):
    """A spec says something that cannot be run."""


@dataclass(frozen=True)
class DataSpec:
    """One column of a table: a data set, and what all methods there share."""

    key: str
    title: str
    dataset: str
    options: dict[str, Any] = field(default_factory=dict)
    folds: int | None = None
    upper_bound: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    """Of every method."""
    networks: dict[str, Any] = field(default_factory=dict)
    """Of deep methods, where they have such a parameter."""
    search: dict[str, Any] = field(default_factory=dict)
    """Changes to deep methods while hyperparameters are searched, where they have them."""
    stands_in_for: str | None = None


@dataclass(frozen=True)
class Choices:
    """Parameters of a row on one data set: given, searched, and taken from other rows' choices."""

    parameters: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    takes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    name: str
    method: Method
    choices: dict[str, Choices]
    """By data set; a row without a data set is not run there."""


@dataclass(frozen=True)
class Spec:
    """An experiment: rows by data sets, how hyperparameters are chosen, and the paper's figures."""

    name: str
    title: str
    paper: str
    measures: tuple[str, ...]
    rules: tuple[str, ...]
    """Each the name of a validation figure, or "each"."""
    repeat: Literal["folds", "seeds", "once"]
    seeds: int
    reference: str | None
    gap: bool
    data: dict[str, DataSpec]
    methods: dict[str, Row]
    published: dict[str, dict[str, dict[str, dict[str, float]]]]
    """Data set, row, measure, statistic."""
    deviations: tuple[dict[str, str], ...]

    @property
    def criteria(self) -> tuple[str, ...]:
        """The validation figures that choose hyperparameters, each once."""
        asked = [m for rule in self.rules for m in (self.measures if rule == EACH else (rule,))]
        return tuple(dict.fromkeys(asked))

    def job(
        self,
        data: DataSpec,
        row: Row,
        choice: Mapping[str, Any],
        *,
        fold: int | None = None,
        seed: int = 0,
        searching: bool = False,
    ) -> Job:
        """Return the training of a row with chosen values."""
        known = parameter_names(row.method)
        parameters = {**row.method.fixed, **row.method.default, **data.parameters}
        if is_deep(row.method):
            parameters |= {k: v for k, v in data.networks.items() if k in known}
        parameters |= {**row.choices[data.key].parameters, **choice}
        if searching and is_deep(row.method):
            parameters |= {k: v for k, v in data.search.items() if k in known}
        if "random_state" in known:
            parameters["random_state"] = seed
        return Job(data.dataset, row.method.name, parameters, fold, data.options)


def spec_names() -> list[str]:
    """Return the names of the specs that come with the package."""
    folder = files("dscca.experiments") / "specs"
    return sorted(path.name[:-5] for path in folder.iterdir() if path.name.endswith(".yaml"))


def load_spec(
    name: str, overlays: Sequence[str | Path] = (), overrides: Mapping[str, Any] | None = None
) -> Spec:
    """Read a spec of the package by its name, or any YAML file by its path, and check it.

    A file may extend another spec, ``extends: total_correlation``, or a file, by its path from
    there, and then says what differs.
    `overlays` are YAML files and `overrides` values by dotted key (``data.mnist.folds``); they are
    put over the spec in this order. Deviations that an overlay lists are added to the spec's.
    """
    origin, content = _read(name)
    for overlay in overlays:
        changes = _mapping(str(overlay), Path(overlay).read_bytes())
        content = _over(content, changes)
        origin = f"{origin} with {overlay}"
    for key, value in (overrides or {}).items():
        content = merged(content, _nested(key.split("."), value))
    return parse_spec(content, Path(name).stem, origin)


def parse_spec(content: Mapping[str, Any], name: str, origin: str) -> Spec:
    """Check what a spec's file says and return the spec; `origin` is for errors."""
    from dscca.experiments.checking import Checker

    return Checker(origin).spec(content, name)


def is_deep(method: Method) -> bool:
    """Return whether a method trains networks."""
    return _facts(method.estimator)[0]


def parameter_names(method: Method) -> tuple[str, ...]:
    """Return the parameters that a method's estimator has."""
    return _facts(method.estimator)[1]


@cache
def _facts(estimator: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether an estimator of that name is deep, and its parameters."""
    from dscca import all_estimators
    from dscca.deep.estimator import DeepEstimator

    cls = all_estimators()[estimator]
    return issubclass(cls, DeepEstimator), tuple(cls().get_params(deep=False))


def _read(name: str, extending: tuple[str, ...] = ()) -> tuple[str, dict[str, Any]]:
    """Return the file of a spec, as errors name it, and its content over what it extends."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        origin, text = str(path), path.read_bytes()
    elif name in spec_names():
        origin = f"{name}.yaml"
        text = (files("dscca.experiments") / "specs" / origin).read_bytes()
    else:
        raise SpecError(
            f"no spec {name}: there are {', '.join(spec_names())}, or give the path of a .yaml file"
        )
    content = _mapping(origin, text)
    base = content.pop("extends", None)
    if base is None:
        return origin, content
    if Path(str(base)).suffix in (".yaml", ".yml"):
        base, name = str((path.parent / base).resolve()), str(path.resolve())
    if base in (*extending, name):
        raise SpecError(f"{origin}: extends goes in a circle, {' > '.join((*extending, name))}")
    return origin, _over(_read(str(base), (*extending, name))[1], content)


def _over(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's content with changes put over it; deviations are added."""
    together = merged(content, changes)
    listed = [value.get("deviations") or [] for value in (content, changes)]
    if all(isinstance(entries, list) for entries in listed):
        together["deviations"] = [*listed[0], *listed[1]]
    return together


def _mapping(origin: str, text: bytes) -> dict[str, Any]:
    try:
        content = parse_yaml(text.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(f"{origin} is no YAML file: {error}") from error
    if not isinstance(content, dict):
        raise SpecError(f"{origin} must be a mapping of keys to values, and is {content!r:.50}")
    return content


def _nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    return {keys[0]: value if len(keys) == 1 else _nested(keys[1:], value)}
