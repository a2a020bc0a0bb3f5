"""Progress bars on terminals, silent elsewhere."""

import sys
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn


class TerminalBar:
    """A bar of the given columns on a terminal's standard error; elsewhere it does nothing."""

    def __init__(
        self, *columns: ProgressColumn, total: int, done: int, verbose: bool, **fields: Any
    ) -> None:
        self._bar: Progress | None = None
        if verbose and sys.stderr.isatty():
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task: Any = self._bar.add_task("", total=total, completed=done, **fields)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def advance(self, steps: int, **fields: Any) -> None:
        """Count `steps` more as done and show new values of the columns' fields."""
        if self._bar is not None:
            self._bar.update(self._task, advance=steps, **fields)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
