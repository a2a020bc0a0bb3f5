"""The demonstration behind ``dscca demo``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dscca.datasets import TwoViewSplits, embedded_digits
from dscca.methods import METHODS, Method, find_method

N_COMPONENTS = 20
DEFAULT = ("cca", "dcca", "ds-dcca")
_SHOWN = (1, 5, 10, 15, 20)

_DEEP = {"hidden": (400, 400), "epochs": 30, "random_state": 0}
_SMALLER: dict[str, dict[str, Any]] = {
    "fkcca": {"rank": 1000, "random_state": 0},
    "nkcca": {"rank": 1000, "random_state": 0},
    "ds-dcca": {"scale_hidden": (64,), "warmup": 10},
    "ds-ranking-cca": {"scale_hidden": (64,), "warmup": 10},
}
"""What a minute on a laptop affords, in place of the paper's sizes."""


def run(output: Path, names: Sequence[str] = DEFAULT) -> dict[str, float]:
    """Fit methods to the embedded digits, show held-out total correlations, save the models.

    Returns the total correlation of each on the test digits. Models are saved in folders of
    `output`, named as the methods.
    """
    methods = list(METHODS) if "all" in names else [find_method(name) for name in names]
    console = Console()
    data = embedded_digits()
    console.print(
        f"Left and right halves of {len(data.X_train):,} handwritten digits for training, "
        f"{len(data.X_val):,} for validation, {len(data.X_test):,} for testing.",
        highlight=False,
    )
    table = Table("method", f"TC of {N_COMPONENTS}", *(f"pair {i}" for i in _SHOWN), "seconds")
    scores = {}
    for method in methods:
        console.print(f"Fitting {method.title}", highlight=False)
        start = time.perf_counter()
        model = _fit(method, data)
        seconds = time.perf_counter() - start
        correlations = model.canonical_correlations(data.X_test, data.y_test)
        scores[method.name] = float(correlations.sum())
        table.add_row(
            method.title,
            f"{scores[method.name]:.2f}",
            *(f"{correlations[i - 1]:.3f}" for i in _SHOWN),
            f"{seconds:.1f}",
        )
        model.save(output / method.name)
    console.print(table)
    console.print(
        f"TC: the sum of the correlations of {N_COMPONENTS} pairs of variates on digits that took "
        f"no part in fitting. Models saved in {output}.",
        highlight=False,
    )
    return scores


def _fit(method: Method, data: TwoViewSplits) -> Any:
    from dscca.deep.estimator import DeepEstimator

    deep = issubclass(method.estimator_class(), DeepEstimator)
    parameters = {**(_DEEP if deep else {}), **_SMALLER.get(method.name, {})}
    model = method.make(n_components=N_COMPONENTS, **parameters)
    return model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
