"""Flickr8k at the paper's settings: recall in both directions on the 1,000 test images.

``python -m benchmarks.flickr8k RECORDS.json`` trains the settings below on the official
split and keeps one record per setting and seed; what is in the file already is not run again, and
with ``--checkpoints`` a run goes on where it was stopped. ``--search`` tries the paper's grid and
records validation recalls only. The features are those that ``dscca data`` keeps. The protocol is
``--epochs 500 --seeds 5``, for a GPU.
"""

import argparse
import json
import time
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dscca
from benchmarks import records
from benchmarks.timing import pin_threads
from dscca.datasets import TwoViewData, TwoViewSplits, load_splits
from dscca.metrics import evaluate_retrieval

KS = (1, 5, 10)
NETWORKS = {"n_components": 128, "hidden": (1024, 512), "batch_size": 1024, "verbose": 0}
RANKING = {"margin": 0.8, "alpha": 0.9}
CHOSEN = "margin, alpha and scale of Ranking CCA by validation recall in runs of 30 to 150 epochs"
SCALING = {"scale_hidden": (128,), "warmup": 50}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "CCA": ("LinearCCA", {"n_components": 128, "reg": "auto"}),
    "DCCA": ("DCCA", NETWORKS),
    "R. CCA": ("RankingCCA", {**NETWORKS, **RANKING}),
    "DS-R. CCA, z": ("DSRankingCCA", {**NETWORKS, **RANKING, **SCALING, "context": "z"}),
    "DS-R. CCA, x": ("DSRankingCCA", {**NETWORKS, **RANKING, **SCALING, "context": "x"}),
    "DS-R. CCA, z and x": ("DSRankingCCA", {**NETWORKS, **RANKING, **SCALING, "context": "zx"}),
}
GRID = {"margin": (0.4, 0.5, 0.6, 0.7, 0.8), "alpha": (0.85, 0.9, 0.95, 0.97)}


class OutOfTimeError(Exception):
    """The time that was given is over; the run's checkpoint stays."""


def recalls(model: Any, part: TwoViewData, power: float = 0.0) -> dict[str, float]:
    """Return recalls in per cent: image to text, then text to image.

    They are by cosine, of variates multiplied by that power of their training correlations.
    """
    weights = model.correlations_.clip(0) ** power
    table = evaluate_retrieval(*(v * weights for v in model.embed(part.x, part.y)), ks=KS)
    directions = {"image to text": "x to y", "text to image": "y to x"}
    return {
        f"{name} R@{k}": 100 * float(table.loc[direction, f"R@{k}"])
        for name, direction in directions.items()
        for k in KS
    }


def fit(
    method: str,
    parameters: dict[str, Any],
    data: TwoViewSplits,
    folder: Path | None,
    deadline: float,
) -> tuple[Any, dict[str, Any]]:
    """Train one model and return it with the facts that its record shares with all others."""

    def in_time(row: dict[str, float]) -> None:
        if time.monotonic() > deadline:
            raise OutOfTimeError

    estimator = getattr(dscca, method)
    own = dict(parameters)
    if method != "LinearCCA":
        own |= {"checkpoint_dir": folder, "callbacks": (in_time,)}
    start = time.perf_counter()
    model = estimator(**own).fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
    seconds = time.perf_counter() - start
    history = getattr(model, "history_", None)
    validation = recalls(model, data.val)
    return model, {
        "method": method,
        "parameters": parameters,
        "validation": validation,
        "validation_sum": sum(validation.values()),
        "validation_weighted": recalls(model, data.val, 1.0),
        "validation_tc": model.score(data.X_val, data.y_val),
        "best_epoch": getattr(model, "best_epoch_", None),
        "head_reg": getattr(model, "head_reg_", getattr(model, "reg_", None)),
        "fit_seconds": seconds if history is None else float(history["seconds"].sum()),
        **records.made_on(),
    }


def jobs(arguments: argparse.Namespace) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield setting, method and parameters of every run, a seed of all settings after another."""
    deep = {"epochs": arguments.epochs, "precision": arguments.precision}
    grid = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    for seed in range(arguments.seeds):
        for name in arguments.only or SETTINGS:
            method, parameters = SETTINGS[name]
            if method == "LinearCCA":
                if seed == 0:
                    yield name, method, parameters
                continue
            for choice in grid if arguments.search and "margin" in parameters else [{}]:
                known = getattr(dscca, method)().get_params()
                own = {k: v for k, v in arguments.set.items() if k in known}
                changes = {**deep, "random_state": seed, **choice, **own}
                if "warmup" in parameters:
                    changes.setdefault("warmup", min(parameters["warmup"], arguments.epochs // 2))
                yield name, method, {**parameters, **changes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--only", action="append", choices=list(SETTINGS), help="settings to run")
    parser.add_argument("--set", type=json.loads, default={}, help="changed parameters, as JSON")
    parser.add_argument("--search", action="store_true", help="the paper's grid, validation only")
    parser.add_argument("--checkpoints", type=Path, help="folder for runs that were stopped")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--minutes", type=float, default=np.inf, help="time until a run is stopped")
    arguments = parser.parse_args()

    pin_threads(arguments.threads)
    data = load_splits("flickr8k")
    deadline = time.monotonic() + 60 * arguments.minutes
    kept = records.read(arguments.records)
    for name, method, parameters in jobs(arguments):
        asked = json.loads(json.dumps(parameters))
        if any(r["setting"] == name and r["parameters"] == asked for r in kept):
            continue
        checkpoints = None
        if arguments.checkpoints is not None:
            label = zlib.crc32(json.dumps([name, asked]).encode())
            checkpoints = arguments.checkpoints / f"{label:08x}"
        try:
            model, facts = fit(method, parameters, data, checkpoints, deadline)
        except OutOfTimeError:
            print(f"{name}: stopped, to go on from {checkpoints}")
            return
        record = {"setting": name, "chosen": CHOSEN, **facts}
        if not arguments.search:
            record["test"] = recalls(model, data.test)
            record["test_sum"] = sum(record["test"].values())
            record["test_weighted"] = recalls(model, data.test, 1.0)
            record["test_tc"] = model.score(data.X_test, data.y_test)
        kept.append(record)
        records.write(arguments.records, kept)
        shown = record.get("test", record["validation"])
        print(
            f"{name:20} seed {parameters.get('random_state')}  "
            + "  ".join(f"{value:.1f}" for value in shown.values())
            + f"  sum {sum(shown.values()):.1f}  best epoch {record['best_epoch']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
