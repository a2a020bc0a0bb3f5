"""FourierCCA and NystromCCA against the published algorithm in R, on MNIST halves.

``python -m benchmarks.kernel [ROWS]`` needs Rscript with kernlab. R runs with its own
BLAS, which should be a fast one: on Debian, libopenblas0-pthread; both run with the same threads.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import THREADS, pin_threads, show
from dscca import FourierCCA, NystromCCA
from dscca.datasets import load_splits
from dscca.kernel.functions import median_width

RANKS = (1000, 2000)
REPEATS = 5
REPEATS_R = 1
COMPONENTS = 50


def in_r(folder: Path, views: tuple[Any, Any], method: str, rank: int) -> tuple[float, float]:
    """Return seconds and training total correlation of the published algorithm."""
    paths = []
    for name, view in zip("xy", views, strict=True):
        paths.append(str(folder / f"{name}.bin"))
        np.asarray(view, dtype=np.float64).T.tofile(paths[-1])
    gammas = [str(median_width(view)) for view in views]
    script = str(Path(__file__).with_name("reference_rcca.R"))
    sizes = [str(size) for size in views[0].shape]
    threads = {"OPENBLAS_NUM_THREADS": str(THREADS), "OMP_NUM_THREADS": str(THREADS)}
    done = subprocess.run(
        ["Rscript", script, *paths, *sizes, method, str(rank), *gammas, str(REPEATS_R)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **threads},
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return min(float(line[0]) for line in lines), float(lines[-1][1])


def in_dscca(estimator: Any, views: tuple[Any, Any], rank: int) -> tuple[float, float]:
    """Return the same of this package; the data are read from the start, as in R."""
    seconds = []
    for repeat in range(REPEATS):
        model = estimator(COMPONENTS, rank=rank, random_state=repeat, device="cpu")
        start = time.perf_counter()
        model.fit(*views)
        seconds.append(time.perf_counter() - start)
    return min(seconds), float(model.correlations_.sum())


def blas_of_r() -> str:
    """Return the name of the BLAS library that R loads."""
    call = ["Rscript", "-e", "cat(as.character(getRversion()), extSoftVersion()[['BLAS']])"]
    out = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout
    version, _, path = out.partition(" ")
    package = next(iter(re.findall("openblas|mkl|blis|atlas", os.path.realpath(path))), "reference")
    return f"R {version} with {package} BLAS"


def main() -> None:
    pin_threads()
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    data = load_splits("mnist")
    views = (data.X_train[:rows], data.y_train[:rows])
    table = []
    for name, estimator, method in (
        ("Fourier", FourierCCA, "fourier"),
        ("Nyström", NystromCCA, "nystrom"),
    ):
        for rank in RANKS:
            ours, tc = in_dscca(estimator, views, rank)
            with tempfile.TemporaryDirectory() as folder:
                theirs, reference_tc = in_r(Path(folder), views, method, rank)
            table.append(
                [
                    name,
                    f"{rank:,}",
                    f"{ours:.1f}",
                    f"{theirs:.1f}",
                    f"{theirs / ours:.1f}",
                    f"{tc:.2f}",
                    f"{reference_tc:.2f}",
                ]
            )
            print(table[-1], flush=True)
    title = (
        f"fit, {rows:,} MNIST halves, {COMPONENTS} components; {blas_of_r()}, torch with MKL; "
        f"best of {REPEATS}, R once"
    )
    columns = ("features", "rank", "dscca, s", "R, s", "R / dscca", "training TC", "R's")
    show("kernel", title, table, columns)


if __name__ == "__main__":
    main()
