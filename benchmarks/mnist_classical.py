"""Kernel CCA on MNIST halves at the paper's settings: test total correlation, time and memory.

``python -m benchmarks.mnist_classical DATA_FOLDER RECORDS.json [SETTING ...]`` adds a record of
every setting named, or of all of them; each runs in a process of its own, so that its peak of
resident memory is its own.
"""

import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import dscca
from benchmarks.mnist import load
from benchmarks.timing import pin_threads, processor

PAPER = {"n_components": 50, "reg": 1e-12, "random_state": 0}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{title}, rank {rank:,}": (method, {"rank": rank})
    for title, method in (("FKCCA", "FourierCCA"), ("NKCCA", "NystromCCA"))
    for rank in (1000, 2000, 6000)
}
SETTINGS["NKCCA whitened, rank 1,000"] = ("NystromCCA", {"rank": 1000, "features": "whitened"})
SETTINGS |= {
    f"{name}, reg chosen": (method, {**options, "reg": "auto"})
    for name, (method, options) in SETTINGS.items()
    if "whitened" not in name
}


def run(name: str, folder: Path) -> dict[str, Any]:
    """Fit one setting and return its record."""
    data = load(folder)
    method, options = SETTINGS[name]
    parameters = {**PAPER, **options}
    model = getattr(dscca, method)(**parameters)
    start = time.perf_counter()
    model.fit(*data["train"], X_val=data["val"][0], y_val=data["val"][1])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "setting": name,
        "method": method,
        "parameters": parameters,
        "test_tc": model.score(*data["test"]),
        "val_tc": model.score(*data["val"]),
        "train_tc": float(model.correlations_.sum()),
        "reg": model.reg_,
        "fit_seconds": seconds,
        "peak_rss_mb": peak / 1e6,
        "hardware": torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"{processor()}, {torch.get_num_threads()} threads",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "dscca": dscca.__version__,
        },
    }


def main() -> None:
    if sys.argv[1] == "--one":
        pin_threads()
        print(json.dumps(run(sys.argv[2], Path(sys.argv[3]))))
        return
    folder, path, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:] or list(SETTINGS)
    records = json.loads(path.read_text()) if path.exists() else []
    for name in names:
        command = [sys.executable, "-m", "benchmarks.mnist_classical", "--one", name, folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        record = json.loads(done.stdout)
        print(
            f"{name:36} test TC {record['test_tc']:.3f}  fit {record['fit_seconds']:.1f} s  "
            f"peak {record['peak_rss_mb']:,.0f} MB",
            flush=True,
        )
        records = [old for old in records if old["setting"] != name] + [record]
        records.sort(key=lambda record: list(SETTINGS).index(record["setting"]))
        path.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
