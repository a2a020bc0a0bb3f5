"""Any spec in miniature: the same rows, rules and repetitions, in seconds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dscca.experiments.spec import Choices, DataSpec, Row, Spec

_DATA: dict[str, Any] = {
    "dataset": "synthetic-nonlinear",
    "options": {"sizes": [400, 120, 120], "widths": [12, 10]},
    "upper_bound": 4,
    "search": {},
}
_SMALL: dict[str, Any] = {
    "n_components": 4,
    "rank": 30,
    "hidden": [12],
    "scale_hidden": [6],
    "epochs": 3,
    "warmup": 1,
    "batch_size": 100,
}
_REPEATS = 2


def smoke(spec: Spec) -> Spec:
    """Return a spec on small synthetic data, with small networks, few epochs and short grids."""
    data = {key: _small_data(column) for key, column in spec.data.items()}
    rows = {name: _small_row(row) for name, row in spec.methods.items()}
    seeds = min(spec.seeds, _REPEATS)
    return replace(spec, seeds=seeds, data=data, methods=rows, published={})


def _small_data(column: DataSpec) -> DataSpec:
    changes: dict[str, Any] = {**_DATA, "parameters": _small(column.parameters)}
    changes["networks"] = {**_small(column.networks), "batch_size": _SMALL["batch_size"]}
    changes["networks"] |= {k: _SMALL[k] for k in ("hidden", "epochs", "warmup")}
    if column.folds is not None:
        changes["folds"] = _REPEATS
    return replace(column, **changes)


def _small_row(row: Row) -> Row:
    choices = {key: _small_choices(value) for key, value in row.choices.items()}
    fixed, default = _small(row.method.fixed), _small(row.method.default)
    return replace(row, method=replace(row.method, fixed=fixed, default=default), choices=choices)


def _small_choices(choices: Choices) -> Choices:
    """Keep two values of the first searched parameter that is no size, one of all others."""
    grid, searched = {}, False
    for name, values in choices.grid.items():
        small = [_small({name: value})[name] for value in values]
        distinct = [v for i, v in enumerate(small) if v not in small[:i]]
        grid[name] = distinct[: 1 if searched else 2]
        searched |= len(grid[name]) > 1
    return replace(choices, parameters=_small(choices.parameters), grid=grid)


def _small(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the sizes among them made small; what is off stays off."""
    return {k: _SMALL[k] if k in _SMALL and v else v for k, v in parameters.items()}
