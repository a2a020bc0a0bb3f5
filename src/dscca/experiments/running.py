"""One job, from its data to its record."""

import json
import shutil
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.datasets import TwoViewData, TwoViewSplits, find_dataset, load_splits
from dscca.deep.checkpoint import CheckpointError
from dscca.experiments import machine
from dscca.experiments.jobs import Job
from dscca.experiments.records import Record
from dscca.experiments.spec import RECALLS
from dscca.methods import find_method
from dscca.metrics import canonical_correlations, evaluate_retrieval
from dscca.views import resolve_device

HISTORY_ROWS = 200
CURVE = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_DIGITS = 6


def run_job(job: Job, *, device: str = "auto", checkpoints: Path | None = None) -> Record:
    """Train, measure, and return the record; an error becomes the record of a failure.

    With a folder for checkpoints, a deep method's training goes on from where it was stopped.
    """
    place = str(resolve_device(device))
    circumstances = machine.Circumstances(place)
    try:
        facts = _measure(job, place, checkpoints)
    except Exception as error:
        facts = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    return Record(job, **facts, **circumstances.facts())


def measure_fit(model: Any, data: TwoViewSplits) -> dict[str, Any]:
    """Return what a record holds of a fitted model."""
    projections = {part: model.embed(views.x, views.y) for part, views in _held_out(data)}
    curves = {part: _recall_curve(*pair) for part, pair in projections.items()}
    spectra = {part: canonical_correlations(*pair) for part, pair in projections.items()}
    return {
        **{part: _figures(spectra[part], curves[part]) for part in projections},
        "correlations": _rounded(spectra["test"]),
        "recall_curve": {
            way: {k: _rounded(v) for k, v in curve.items()} for way, curve in curves["test"].items()
        },
        **_training_facts(model),
    }


def held_out_figures(model: Any, part: TwoViewData) -> dict[str, float]:
    """Return what a record holds of one part of the data."""
    projections = model.embed(part.x, part.y)
    return _figures(canonical_correlations(*projections), _recall_curve(*projections))


def _measure(job: Job, device: str, checkpoints: Path | None) -> dict[str, Any]:
    data = splits_of(job)
    estimator = find_method(job.method).estimator_class()
    runtime = {"device": device, "verbose": 0, "checkpoint_dir": checkpoints}
    known = estimator().get_params(deep=False)
    own = {name: value for name, value in runtime.items() if name in known}
    model = estimator(**{**job.parameters, **own})
    fit = partial(model.fit, data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
    clock = time.perf_counter()
    try:
        fit()
    except CheckpointError:  # damaged, or from before a change: a checkpoint saves time only
        assert checkpoints is not None
        shutil.rmtree(checkpoints)
        fit()
    seconds = time.perf_counter() - clock
    facts = measure_fit(model, data)
    if facts["history"] is not None:
        # A resumed run has trained for longer than its last process saw.
        seconds = max(seconds, float(model.history_["seconds"].sum()))
    return {"status": "done", **facts, "fit_seconds": round(seconds, 3)}


@lru_cache(maxsize=2)
def _splits(dataset: str, fold: int | None, options: str) -> TwoViewSplits:
    chosen = json.loads(options)
    if fold is not None and find_dataset(dataset).n_folds is None:
        return load_splits(dataset, seed=fold + 1, **chosen)
    return load_splits(dataset, fold, **chosen)


def splits_of(job: Job) -> TwoViewSplits:
    """Return a job's data, the last of which are remembered.

    Where a data set has no folds of its own, "fold" i is its split by another seed.
    """
    return _splits(job.dataset, job.fold, json.dumps(job.options, sort_keys=True))


def _held_out(data: TwoViewSplits) -> tuple[tuple[str, TwoViewData], ...]:
    return ("validation", data.val), ("test", data.test)


def _recall_curve(x: NDArray[Any], y: NDArray[Any]) -> dict[str, dict[str, float]]:
    """Return recalls in per cent: direction, then k."""
    ks = [k for k in CURVE if k <= len(x)]
    table = evaluate_retrieval(x, y, ks=ks)
    return {
        str(way): {str(k): 100 * float(row[f"R@{k}"]) for k in ks} for way, row in table.iterrows()
    }


def _figures(correlations: NDArray[Any], curve: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return what is measured on validation and test samples alike."""
    recalls = {
        name: curve[way][k]
        for name in RECALLS
        for way, _, k in [name.partition(" R@")]
        if k in curve[way]
    }
    figures = {"tc": float(correlations.sum()), **recalls, "recall_sum": sum(recalls.values())}
    return {name: round(value, _DIGITS) for name, value in figures.items()}


def _training_facts(model: Any) -> dict[str, Any]:
    """Return what only deep methods know of themselves, and the final regularisers."""
    history = getattr(model, "history_", None)
    reg = getattr(model, "head_reg_", getattr(model, "reg_", None))
    net = getattr(model, "net_", None)
    return {
        "best_epoch": getattr(model, "best_epoch_", None),
        "n_epochs": getattr(model, "n_iter_", None) if history is not None else None,
        "warmup": getattr(model, "warmup", None) if history is not None else None,
        "history": None if history is None else _thinned(history, model.best_epoch_),
        "n_parameters": None if net is None else sum(p.numel() for p in net.parameters()),
        "reg": None if reg is None else [float(value) for value in np.atleast_1d(reg)],
    }


def _thinned(history: Any, best_epoch: int) -> dict[str, list[float]]:
    """Return at most HISTORY_ROWS rows of a history, the best epoch among them."""
    rows = np.unique(np.linspace(0, len(history) - 1, min(len(history), HISTORY_ROWS)).astype(int))
    rows = np.union1d(rows, [best_epoch - 1])
    columns = [c for c in history.columns if c not in ("seconds", "learning_rate")]
    kept = {str(c): _rounded(history[c].to_numpy()[rows]) for c in columns}
    return {"epoch": [int(row) + 1 for row in rows], **kept}


def _rounded(values: Any) -> Any:
    """Return numbers with few digits, a list of them or one."""
    if np.ndim(values) == 0:
        return float(f"{values:.{_DIGITS}g}")
    return [float(f"{value:.{_DIGITS}g}") for value in values]
