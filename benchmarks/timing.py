"""What the benchmarks share: pinned threads, interleaved repetitions, tables that are kept."""

import json
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from dscca.experiments.machine import processor

THREADS = 2
RECORDS = Path(__file__).parents[1] / "results" / "benchmarks"
_PAUSE = 0.2


def pin_threads(threads: int = THREADS) -> None:
    """Give torch and every BLAS the same number of threads."""
    torch.set_num_threads(threads)
    threadpool_limits(threads)


def interleaved(variants: dict[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
    """Return the median seconds of each variant, run in turns after one warm-up.

    Before each there is a pause, in which the threads of the library that ran last go to sleep.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(repeats + 1):
        for name, call in variants.items():
            time.sleep(_PAUSE)
            start = time.perf_counter()
            call()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: sorted(taken)[len(taken) // 2] for name, taken in times.items()}


@contextmanager
def watched_memory() -> Iterator[list[int]]:
    """Give a list whose only number is the largest RssAnon of the process so far, in KB."""
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            status = Path("/proc/self/status").read_text()
            peak[0] = max(peak[0], int(status.split("RssAnon:")[1].split()[0]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()


def show(record: str, title: str, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    """Print a table and keep it as ``results/benchmarks/RECORD.json``."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)
    kept = {"title": title, "columns": columns, "rows": rows, "machine": machine()}
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{record}.json").write_text(json.dumps(kept, indent=1) + "\n")


def machine() -> str:
    """Describe what the figures were measured on."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scikit-learn"))
    return f"{processor()}, {THREADS} threads, Python {platform.python_version()}, {versions}"
