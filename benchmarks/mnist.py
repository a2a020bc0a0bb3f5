"""MNIST halves at the paper's settings: time, and total correlation on the test set.

``python -m benchmarks.mnist DATA_FOLDER RECORDS.json`` with the four original idx files in the
folder; groups of settings and their order are below. Records that are in the file already are
kept, and with ``--checkpoints`` an interrupted run goes on where it was.
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dscca
from dscca.datasets.mnist import halves, read_idx

PAPER = {"n_components": 50, "hidden": (800, 800), "epochs": 100, "batch_size": 750}
GROUPS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "dcca": {
        "DCCA": ("DCCA", {}),
        "DCCA, weights averaged": ("DCCA", {"averaging": 0.9}),
        "DS-DCCA (128, c)": ("DSDCCA", {"scale_hidden": (128,)}),
        "DS-DCCA (128, c), weights averaged": (
            "DSDCCA",
            {"scale_hidden": (128,), "averaging": 0.9},
        ),
    },
    "baselines": {
        "DCCAE": ("DCCAE", {"reconstruction": 1e-3}),
        "Soft-CCA": ("SoftCCA", {"decorrelation": 10.0, "memory": 0.97}),
        "Soft-HGR": ("SoftHGR", {}),
        "ℓ0-CCA": ("L0CCA", {"sparsity": 0.5, "noise": 0.1, "reduction": "sum"}),
    },
}


def load(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return training (50,000), validation (10,000) and test halves."""
    x, y = halves(read_idx(folder / "train-images-idx3-ubyte.gz"))
    test = halves(read_idx(folder / "t10k-images-idx3-ubyte.gz"))
    return {"train": (x[:50_000], y[:50_000]), "val": (x[50_000:], y[50_000:]), "test": test}


def run(
    name: str,
    setting: tuple[str, dict[str, Any]],
    data: dict[str, Any],
    seed: int,
    checkpoints: Path | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Train one setting and return its record."""
    method, options = setting
    parameters = {**PAPER, **options, **changes, "random_state": seed, "verbose": 0}
    epochs: list[float] = []
    model = getattr(dscca, method)(
        **parameters,
        callbacks=[lambda row: epochs.append(row["seconds"])],
        checkpoint_dir=None if checkpoints is None else checkpoints / f"{name}, seed {seed}",
    )
    start = time.perf_counter()
    model.fit(*data["train"], X_val=data["val"][0], y_val=data["val"][1])
    beside_training = time.perf_counter() - start - sum(epochs)  # a resumed run has fewer epochs
    training = float(model.history_["seconds"].sum())
    return {
        "setting": name,
        "method": method,
        "parameters": parameters,
        "test_tc": model.score(*data["test"]),
        "val_tc": model.score(*data["val"]),
        "best_epoch": model.best_epoch_,
        "head_reg": model.head_reg_,
        "fit_seconds": training + beside_training,
        "training_seconds": training,
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "dscca": dscca.__version__,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("seeds", type=int, nargs="?", default=1)
    parser.add_argument("--group", choices=GROUPS, default="dcca")
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--precision", help="of the large products; bf16 for CPUs that have it")
    arguments = parser.parse_args()
    changes = {"precision": arguments.precision} if arguments.precision else {}
    data = load(arguments.data)
    if torch.cuda.is_available():  # context, libraries, kernels
        run("", ("DSDCCA", {"scale_hidden": (128,)}), data, 0, epochs=3, warmup=1)
    file = arguments.records
    records = json.loads(file.read_text()) if file.exists() else []
    done = {(record["setting"], record["parameters"]["random_state"]) for record in records}
    for name, setting in GROUPS[arguments.group].items():
        for seed in range(arguments.seeds):
            if (name, seed) in done:
                continue
            record = run(name, setting, data, seed, arguments.checkpoints, **changes)
            records.append(record)
            print(
                f"{name:36} seed {seed}  test TC {record['test_tc']:.3f}  best epoch "
                f"{record['best_epoch']:3}  fit {record['fit_seconds']:.2f} s, of which training "
                f"{record['training_seconds']:.2f} s",
                flush=True,
            )
            file.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
