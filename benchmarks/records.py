"""What every record of a fit holds."""

import json
import resource
import time
from pathlib import Path
from typing import Any

import torch

from dscca.datasets import TwoViewSplits
from dscca.experiments import machine


def fit(model: Any, data: TwoViewSplits) -> dict[str, Any]:
    """Fit a model, with validation samples, and return what it took and what came of it."""
    start, busy = time.perf_counter(), time.process_time()
    model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "test_tc": model.score(data.X_test, data.y_test),
        "val_tc": model.score(data.X_val, data.y_val),
        "fit_seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_rss_mb": peak / 1e6,
        **made_on(),
    }


def made_on() -> dict[str, Any]:
    """Return hardware and versions."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"hardware": machine.hardware(device), "versions": machine.versions()}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records in a file, none if it is not there."""
    return json.loads(path.read_text()) if path.exists() else []


def write(path: Path, records: list[dict[str, Any]]) -> None:
    """Write the records to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records, indent=1) + "\n")
