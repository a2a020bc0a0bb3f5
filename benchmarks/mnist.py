"""MNIST halves at the paper's settings: time, and total correlation on the test set.

``python -m benchmarks.mnist RECORDS.json SEEDS`` takes the digits from where ``dscca data`` keeps
them; groups of settings and their order are below. Records that are in the file already are kept,
and with ``--checkpoints`` an interrupted run goes on where it was.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

import dscca
from benchmarks import records
from dscca.datasets import TwoViewSplits, load_splits

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
    # Chosen on validation digits: by short runs over some of the paper's grid, and for Soft-CCA as
    # the best of four whole runs.
    "baselines": {
        "DCCAE": ("DCCAE", {"reconstruction": 1e-3}),
        "Soft-CCA": ("SoftCCA", {"decorrelation": 10.0, "memory": 0.97}),
        "Soft-HGR": ("SoftHGR", {}),
        "ℓ0-CCA": ("L0CCA", {"sparsity": 0.5, "noise": 0.1, "reduction": "sum"}),
    },
}


def run(
    name: str,
    setting: tuple[str, dict[str, Any]],
    data: TwoViewSplits,
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
    facts = records.fit(model, data)
    training = float(model.history_["seconds"].sum())
    # A resumed run has trained for fewer epochs than its history says.
    facts["fit_seconds"] += training - sum(epochs)
    return {
        "setting": name,
        "method": method,
        "parameters": parameters,
        "best_epoch": model.best_epoch_,
        "head_reg": model.head_reg_,
        "training_seconds": training,
        **facts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path)
    parser.add_argument("seeds", type=int, nargs="?", default=1)
    parser.add_argument("--group", choices=GROUPS, default="dcca")
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--precision", help="of the large products; bf16 for CPUs that have it")
    arguments = parser.parse_args()
    changes = {"precision": arguments.precision} if arguments.precision else {}
    data = load_splits("mnist")
    if torch.cuda.is_available():  # context, libraries, kernels
        run("", ("DSDCCA", {"scale_hidden": (128,)}), data, 0, epochs=3, warmup=1)
    file = arguments.records
    kept = records.read(file)
    done = {(record["setting"], record["parameters"]["random_state"]) for record in kept}
    for name, setting in GROUPS[arguments.group].items():
        for seed in range(arguments.seeds):
            if (name, seed) in done:
                continue
            record = run(name, setting, data, seed, arguments.checkpoints, **changes)
            kept.append(record)
            print(
                f"{name:36} seed {seed}  test TC {record['test_tc']:.3f}  best epoch "
                f"{record['best_epoch']:3}  fit {record['fit_seconds']:.2f} s, of which training "
                f"{record['training_seconds']:.2f} s",
                flush=True,
            )
            records.write(file, kept)


if __name__ == "__main__":
    main()
