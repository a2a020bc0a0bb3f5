"""NCCA on MNIST halves: neighbours and width chosen on validation digits, then cross-validation.

``python -m benchmarks.mnist_ncca DATA_FOLDER RECORDS.json FOLDS`` with the four original idx files
in the folder. The number of neighbours is chosen first, at the original code's width, then
the width. Test digits are scored by the model of the original's defaults and by the chosen one.
The choice is then scored on FOLDS of the paper's 7 folds. Seconds are CPU seconds of one thread, so
that they stand for the work also on a machine that does other things.
"""

import json
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dscca
from benchmarks.mnist import load
from benchmarks.timing import pin_threads, processor

PAPER = {"n_components": 50, "variance": 0.8, "random_state": 0}
GRID = {"n_neighbors": (20, 10, 15), "width": (0.5, 0.3, 0.4)}
"""The original's defaults come first."""
N_FOLDS = 7


def run(data: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    """Fit one setting and return its record."""
    model = dscca.NCCA(**PAPER, **choice)
    start = time.process_time()
    model.fit(*data["train"], X_val=data["val"][0], y_val=data["val"][1])
    seconds = time.process_time() - start
    record = {
        "method": "NCCA",
        "parameters": {**PAPER, **choice},
        "test_tc": model.score(*data["test"]),
        "val_tc": model.score(*data["val"]),
        "sum_of_singular_values": float(model.singular_values_.sum()),
        "dimensions": [model.x_axes_.shape[1], model.y_axes_.shape[1]],
        "head_reg": model.head_reg_,
        "fit_seconds": seconds,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "hardware": f"{processor()}, CPU seconds of 1 thread",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "dscca": dscca.__version__,
        },
    }
    shown = ("val_tc", "fit_seconds", "peak_memory_mb", "head_reg")
    print(choice, {name: record[name] for name in shown}, flush=True)
    return record


def choose(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of the defaults and of the best validation score."""
    choice = {name: values[0] for name, values in GRID.items()}
    default = best = run(data, choice)
    tried = [{**choice, "val_tc": best["val_tc"]}]
    for name, values in GRID.items():
        for value in values[1:]:
            record = run(data, {**choice, name: value})
            tried.append({**choice, name: value, "val_tc": record["val_tc"]})
            best = max(best, record, key=lambda r: r["val_tc"])
        choice[name] = best["parameters"][name]
    return [
        {"setting": "NCCA, the original's neighbours and width", **default},
        {"setting": "NCCA, chosen on validation digits", **best, "tried": tried},
    ]


def fold(data: dict[str, Any], number: int) -> dict[str, Any]:
    """Return another split: of the 70,000 digits, shuffled, a seventh for testing."""
    x, y = (np.concatenate([part[i] for part in data.values()]) for i in (0, 1))
    parts = np.split(np.random.default_rng(0).permutation(len(x)), N_FOLDS)
    test = parts.pop(number)
    val, train = np.split(
        np.random.default_rng(number).permutation(np.concatenate(parts)), [10_000]
    )
    return {
        name: (x[rows], y[rows]) for name, rows in (("train", train), ("val", val), ("test", test))
    }


def main() -> None:
    pin_threads(1)
    data, path, folds = load(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
    records = choose(data)
    choice = {name: records[1]["parameters"][name] for name in GRID}
    for number in range(folds):
        path.write_text(json.dumps(records, indent=1) + "\n")
        record = run(fold(data, number), choice)
        records.append({"setting": "NCCA, the same on folds of 70,000 digits", **record})
    path.write_text(json.dumps(records, indent=1) + "\n")
    for record in records:
        print(record["setting"], record["test_tc"])


if __name__ == "__main__":
    main()
