"""A progress bar with items per second on terminals, silent elsewhere."""

import sys
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        seconds, items = task.elapsed, task.completed - task.fields["reused"]
        return Text(f"{items / seconds:.1f}/s" if seconds else "")


class ItemProgress:
    """Items done, items per second and time left, on a terminal's standard error."""

    def __init__(self, total: int, done: int, verbose: bool) -> None:
        self._bar: Progress | None = None
        if verbose and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.completed}/{task.total} items"),
                BarColumn(),
                _Speed(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task: Any = self._bar.add_task("", total=total, completed=done, reused=done)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def advance(self, items: int) -> None:
        """Count `items` more as done."""
        if self._bar is not None:
            self._bar.advance(self._task, items)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
