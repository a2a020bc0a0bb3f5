"""Linear and kernel CCA on MNIST halves at the paper's settings: total correlation, time, memory.

``python -m benchmarks.mnist_classical RECORDS.json [SETTING ...]`` adds a record of every setting
named, or of all of them; each runs in a process of its own, so that its peak of resident memory is
its own.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import dscca
from benchmarks import records
from benchmarks.timing import pin_threads
from dscca.datasets import load_splits

KERNEL = {"reg": 1e-12, "random_state": 0}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "CCA": ("LinearCCA", {"reg": "auto"}),
    **{
        f"{title}, rank {rank:,}": (method, {**KERNEL, "rank": rank})
        for title, method in (("FKCCA", "FourierCCA"), ("NKCCA", "NystromCCA"))
        for rank in (1000, 2000, 6000)
    },
    "NKCCA whitened, rank 1,000": (
        "NystromCCA",
        {**KERNEL, "rank": 1000, "features": "whitened"},
    ),
}


def run(name: str) -> dict[str, Any]:
    """Fit one setting and return its record."""
    method, options = SETTINGS[name]
    parameters = {"n_components": 50, **options}
    model = getattr(dscca, method)(**parameters)
    facts = records.fit(model, load_splits("mnist"))
    train_tc, reg = float(model.correlations_.sum()), model.reg_
    fixed = {"setting": name, "method": method, "parameters": parameters}
    return {**fixed, "train_tc": train_tc, "reg": reg, **facts}


def main() -> None:
    if sys.argv[1] == "--one":
        pin_threads()
        print(json.dumps(run(sys.argv[2])))
        return
    path, names = Path(sys.argv[1]), sys.argv[2:] or list(SETTINGS)
    kept = records.read(path)
    for name in names:
        command = [sys.executable, "-m", "benchmarks.mnist_classical", "--one", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        record = json.loads(done.stdout)
        print(
            f"{name:36} test TC {record['test_tc']:.3f}  fit {record['fit_seconds']:.1f} s  "
            f"peak {record['peak_rss_mb']:,.0f} MB",
            flush=True,
        )
        kept = [old for old in kept if old["setting"] != name] + [record]
        kept.sort(key=lambda record: list(SETTINGS).index(record["setting"]))
        records.write(path, kept)


if __name__ == "__main__":
    main()
