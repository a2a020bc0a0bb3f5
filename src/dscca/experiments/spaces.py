"""What a search beyond the grid chooses from: the grid's values, and ranges beside them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from sklearn.utils._param_validation import InvalidParameterError

from dscca.experiments.spec import DataSpec, Row, Spec, parameter_names
from dscca.values import parse_value


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included, whole ones if both are; maybe by their log."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


Space = dict[str, list[Any] | Range]
"""By parameter: the values to choose from, or the range to draw from."""


def row_space(spec: Spec, data: DataSpec, row: Row) -> Space:
    """Return what a row searches on a data set.

    That is its grid, and for a value that it takes from another row, what that row searches.
    """
    choices = row.choices[data.key]
    space: Space = {}
    for parameter, other in choices.takes.items():
        theirs = row_space(spec, data, spec.methods[other])
        if parameter in theirs:
            space[parameter] = theirs[parameter]
    return space | choices.grid


def fixed_takes(spec: Spec, data: DataSpec, row: Row, space: Space) -> dict[str, Any]:
    """Return the values that a row takes from other rows which do not search them."""
    values = {}
    for parameter, other in row.choices[data.key].takes.items():
        if parameter not in space:
            theirs = spec.methods[other]
            inherited = fixed_takes(spec, data, theirs, space)
            values[parameter] = spec.job(data, theirs, inherited).parameters[parameter]
    return values


def with_ranges(space: Space, ranges: Sequence[str], row: Row, base: Mapping[str, Any]) -> Space:
    """Return a space with ranges, written NAME=LOW:HIGH or NAME=LOW:HIGH:log, put over it.

    Both ends are tried on the row's estimator, with `base` as its other parameters.
    """
    result = dict(space)
    known = [name for name in parameter_names(row.method) if name != "random_state"]
    for text in ranges:
        name, equals, ends = text.partition("=")
        if not equals or name not in known:
            raise ValueError(
                f"--range {text}: write NAME=LOW:HIGH or NAME=LOW:HIGH:log, with NAME from "
                f"{', '.join(known)}"
            )
        result[name] = drawn = parse_range(text, ends)
        for end in (drawn.low, drawn.high):
            try:
                row.method.estimator_class()(**{**base, name: end})._validate_params()
            except InvalidParameterError as error:
                raise ValueError(f"--range {text}: {error}") from error
    return result


def parse_range(text: str, ends: str) -> Range:
    """Return the range written LOW:HIGH or LOW:HIGH:log; `text` is for errors.

    >>> parse_range("", "1e-6:0.1:log"), parse_range("", "64:512").whole
    (Range(low=1e-06, high=0.1, log=True), True)
    """
    low, high, *scale = [parse_value(part) for part in ends.split(":")] + [None] * (":" not in ends)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (low, high))
    if not numbers or scale not in ([], ["log"]):
        raise ValueError(f"--range {text}: write NAME=LOW:HIGH or NAME=LOW:HIGH:log with numbers")
    if not low < high:
        raise ValueError(f"--range {text}: the lower end {low} must be below the upper one, {high}")
    if scale and low <= 0:
        raise ValueError(f"--range {text}: a logarithmic range begins above 0, not at {low}")
    return Range(low, high, bool(scale))


def suggest(trial: Any, space: Space) -> dict[str, Any]:
    """Return the values that an Optuna trial takes; a grid's are known to it by their JSON."""
    values: dict[str, Any] = {}
    for name, choices in space.items():
        if isinstance(choices, Range):
            draw = trial.suggest_int if choices.whole else trial.suggest_float
            values[name] = draw(name, choices.low, choices.high, log=choices.log)
        else:
            values[name] = json.loads(trial.suggest_categorical(name, labels(choices)))
    return values


def labels(values: Sequence[Any]) -> list[str]:
    """Return values of a grid as Optuna can keep them."""
    return [json.dumps(value) for value in values]


def points(space: Space) -> list[dict[str, Any]] | None:
    """Return all points of a space as Optuna keeps them; None if it has ranges."""
    grids = [labels(c) for c in space.values() if not isinstance(c, Range)]
    if len(grids) < len(space):
        return None
    return [dict(zip(space, values, strict=True)) for values in product(*grids)]


def described(space: Space) -> dict[str, Any]:
    """Return a space as JSON has it."""
    return {
        name: asdict(choices) if isinstance(choices, Range) else json.loads(json.dumps(choices))
        for name, choices in space.items()
    }
