"""MNIST halves at the paper's settings: time, and total correlation on the test set.

``python -m benchmarks.mnist RECORDS.json SEEDS`` takes the digits from where ``dscca data`` keeps
them; settings and their order are below.
"""

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

import dscca
from dscca.datasets import TwoViewSplits, load_splits

PAPER = {"n_components": 50, "hidden": (800, 800), "epochs": 100, "batch_size": 750}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "DCCA": ("DCCA", {}),
    "DCCA, weights averaged": ("DCCA", {"averaging": 0.9}),
    "DS-DCCA (128, c)": ("DSDCCA", {"scale_hidden": (128,)}),
    "DS-DCCA (128, c), weights averaged": ("DSDCCA", {"scale_hidden": (128,), "averaging": 0.9}),
}


def run(name: str, data: TwoViewSplits, seed: int, **changes: Any) -> dict[str, Any]:
    """Train one setting and return its record."""
    method, options = SETTINGS[name]
    parameters = {**PAPER, **options, **changes, "random_state": seed, "verbose": 0}
    model = getattr(dscca, method)(**parameters)
    start = time.perf_counter()
    model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
    seconds = time.perf_counter() - start
    training = float(model.history_["seconds"].sum())
    return {
        "setting": name,
        "method": method,
        "parameters": parameters,
        "test_tc": model.score(data.X_test, data.y_test),
        "val_tc": model.score(data.X_val, data.y_val),
        "best_epoch": model.best_epoch_,
        "head_reg": model.head_reg_,
        "fit_seconds": seconds,
        "training_seconds": training,
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "dscca": dscca.__version__,
        },
    }


def main() -> None:
    data = load_splits("mnist")
    target, seeds = Path(sys.argv[1]), range(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    if torch.cuda.is_available():
        run("DS-DCCA (128, c)", data, 0, epochs=3, warmup=1)  # context, libraries, kernels
    records = []
    for name in SETTINGS:
        for seed in seeds:
            record = run(name, data, seed)
            records.append(record)
            print(
                f"{name:36} seed {seed}  test TC {record['test_tc']:.3f}  best epoch "
                f"{record['best_epoch']:3}  fit {record['fit_seconds']:.2f} s, of which training "
                f"{record['training_seconds']:.2f} s",
                flush=True,
            )
            target.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
