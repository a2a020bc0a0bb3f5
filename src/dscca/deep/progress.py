"""A progress bar on terminals, silent elsewhere."""

import sys
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """Epoch, loss, validation total correlation and time left, on a terminal's standard error."""

    def __init__(self, total: int, done: int, verbose: int) -> None:
        self._bar: Bar | None = None
        if verbose and sys.stderr.isatty():
            self._bar = Bar(
                TextColumn("epoch {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task: Any = self._bar.add_task("", total=total, completed=done, figures="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def show(self, row: dict[str, float]) -> None:
        """Advance by one epoch with its history row."""
        if self._bar is not None:
            figures = f"loss {row['loss']:.3f}  validation loss {row['val_loss']:.3f}"
            if "val_tc" in row:
                figures += f"  validation TC {row['val_tc']:.2f}"
            self._bar.update(self._task, advance=1, figures=figures)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
