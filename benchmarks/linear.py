"""LinearCCA against its peers, and against the matrix products it cannot do without."""

import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.timing import interleaved, pin_threads, show, watched_memory
from dscca import LinearCCA

N_COMPONENTS = 50
NIPALS_COMPONENTS = 2  # its time is proportional to them: all 50 would take a quarter of an hour
MAPPED_ROWS = 1_000_000


def main() -> None:
    pin_threads()
    against_peers()
    memory_mapped()


def against_peers() -> None:
    from cca_zoo.linear import CCA as ZooCCA  # noqa: N811
    from sklearn.cross_decomposition import CCA as SklearnCCA  # noqa: N811

    rng = np.random.default_rng(0)
    latent = rng.normal(size=(20_000, 100))
    X = latent @ rng.normal(size=(100, 500)) + 10 * rng.normal(size=(20_000, 500))
    y = latent @ rng.normal(size=(100, 300)) + 10 * rng.normal(size=(20_000, 300))
    variants = {
        "three Gram products": lambda: (X.T @ X, X.T @ y, y.T @ y),
        "dscca.LinearCCA": lambda: LinearCCA(N_COMPONENTS, device="cpu").fit(X, y),
        "cca_zoo CCA": lambda: ZooCCA(N_COMPONENTS).fit([X, y]),
    }
    seconds = interleaved(variants, repeats=7)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops before it has converged
        SklearnCCA(NIPALS_COMPONENTS).fit(X, y)
    name = f"scikit-learn CCA, only {NIPALS_COMPONENTS} components, once"
    seconds[name] = time.perf_counter() - start
    floor = seconds["three Gram products"]
    rows = [(name, f"{s:.3f}", f"{s / floor:.2f}") for name, s in seconds.items()]
    title = f"fit, 20,000 x (500, 300) float64, {N_COMPONENTS} components"
    show("linear", title, rows, ("", "seconds", "times the products"))


def memory_mapped() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "views.npy"
        views = np.lib.format.open_memmap(path, "w+", np.float32, (MAPPED_ROWS, 400))
        rng = np.random.default_rng(0)
        for start in range(0, MAPPED_ROWS, 50_000):
            block = rng.normal(size=(50_000, 400)).astype(np.float32)
            block[:, 200:] += 0.5 * block[:, :200]
            views[start : start + 50_000] = block
        views.flush()
        del views
        # A process of its own, so that its memory is that of the fit.
        subprocess.run([sys.executable, "-m", "benchmarks.linear", str(path)], check=True)


def measure_mapped(path: str) -> None:
    """Fit to a memory-mapped file; print time and the largest RssAnon of the process."""
    pin_threads()
    views = np.load(path, mmap_mode="r")
    X, y = views[:, :200], views[:, 200:]

    def products() -> None:
        for start in range(0, MAPPED_ROWS, 10_000):
            x_block, y_block = X[start : start + 10_000], y[start : start + 10_000]
            _ = x_block.T @ x_block, x_block.T @ y_block, y_block.T @ y_block

    variants = {
        "three fp32 Gram products": products,
        "dscca.LinearCCA": lambda: LinearCCA(10, device="cpu").fit(X, y),
    }
    with watched_memory() as peak:
        seconds = interleaved(variants, repeats=3)
    floor = seconds["three fp32 Gram products"]
    rows = [(name, f"{s:.2f}", f"{s / floor:.2f}") for name, s in seconds.items()]
    title = f"fit, memory-mapped {MAPPED_ROWS:,} x (200, 200) float32; RssAnon {peak[0] >> 10} MB"
    show("linear-mapped", title, rows, ("", "seconds", "times the products"))


if __name__ == "__main__":
    measure_mapped(sys.argv[1]) if len(sys.argv) > 1 else main()
