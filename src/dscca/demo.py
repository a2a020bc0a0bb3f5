"""The demonstration behind ``dscca demo``."""

import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dscca.datasets import TwoViewSplits, embedded_digits
from dscca.experiments import machine
from dscca.experiments.jobs import Job
from dscca.experiments.records import Record, write_record
from dscca.experiments.running import measure_fit
from dscca.experiments.spec import is_deep
from dscca.methods import METHODS, Method, find_method
from dscca.report import Samples, report_models
from dscca.report.page import require_libraries
from dscca.views import resolve_device

N_COMPONENTS = 20
DEFAULT = ("cca", "nkcca", "dcca", "ds-dcca")
REPORT = "report.html"
_SHOWN = (1, 5, 10, 15, 20)

_DEEP = {"hidden": (400, 400), "epochs": 30, "random_state": 0}
_SMALLER: dict[str, dict[str, Any]] = {
    "fkcca": {"rank": 1000, "random_state": 0},
    "nkcca": {"rank": 1000, "random_state": 0},
    "ds-dcca": {"scale_hidden": (64,), "warmup": 10},
    "ds-ranking-cca": {"scale_hidden": (64,), "warmup": 10},
}
"""What a minute on a laptop affords, in place of the paper's sizes."""


def run(output: Path, names: Sequence[str] = DEFAULT, *, show: bool = False) -> dict[str, float]:
    """Fit methods to the embedded digits, show held-out total correlations, write a report.

    Returns the total correlation of each on the test digits. Models are saved in folders of
    `output`, named as the methods, and records of the fits and ``report.html`` beside them; with
    `show` the report is opened in the browser.
    """
    methods = list(METHODS) if "all" in names else [find_method(name) for name in names]
    require_libraries()
    console = Console()
    data = embedded_digits()
    console.print(
        f"Left and right halves of {len(data.X_train):,} handwritten digits for training, "
        f"{len(data.X_val):,} for validation, {len(data.X_test):,} for testing.",
        highlight=False,
    )
    table = Table("method", f"TC of {N_COMPONENTS}", *(f"pair {i}" for i in _SHOWN), "seconds")
    models, records = {}, []
    for method in methods:
        console.print(f"Fitting {method.title}", highlight=False)
        model, record = _fit(method, data)
        table.add_row(
            method.title,
            f"{record.test['tc']:.2f}",
            *(f"{record.correlations[i - 1]:.3f}" for i in _SHOWN),
            f"{record.fit_seconds:.1f}",
        )
        model.save(output / method.name)
        write_record(output, record)
        models[method.name] = model
        records.append(record)
    console.print(table)
    console.print(
        f"TC: the sum of the correlations of {N_COMPONENTS} pairs of variates on digits that took "
        f"no part in fitting. Models and records saved in {output}.",
        highlight=False,
    )
    page = report_models(
        models,
        Samples.of(data.test),
        output / REPORT,
        records=records,
        title="Left and right halves of handwritten digits",
        command="dscca demo",
    )
    console.print(f"Report: {page.resolve()}", highlight=False, markup=False, soft_wrap=True)
    if show:
        webbrowser.open(page.resolve().as_uri())
    return {record.job.method: record.test["tc"] for record in records}


def _fit(method: Method, data: TwoViewSplits) -> tuple[Any, Record]:
    """Return a fitted model, and the record of its fit."""
    smaller = {**(_DEEP if is_deep(method) else {}), **_SMALLER.get(method.name, {})}
    chosen = {**method.fixed, **method.default, "n_components": N_COMPONENTS, **smaller}
    job = Job("embedded-digits", method.name, chosen)
    circumstances = machine.Circumstances(str(resolve_device("auto")))
    start = time.perf_counter()
    model = method.make(**chosen)
    model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
    seconds = round(time.perf_counter() - start, 3)
    facts = measure_fit(model, data)
    return model, Record(job, "done", **facts, fit_seconds=seconds, **circumstances.facts())
