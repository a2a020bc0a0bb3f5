"""What the benchmarks share: pinned threads, interleaved repetitions, a table of ratios."""

import platform
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

THREADS = 2
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


def show(title: str, rows: list[tuple[str, ...]], columns: tuple[str, ...]) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def machine() -> str:
    """Describe what the figures were measured on."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{platform.machine()}, {THREADS} threads, {versions}"
