"""The progress bar of feature extraction."""

from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from dscca.progress import TerminalBar


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        seconds, items = task.elapsed, task.completed - task.fields["reused"]
        return Text(f"{items / seconds:.1f}/s" if seconds else "")


class ItemProgress(TerminalBar):
    """Items done, items per second and time left."""

    def __init__(self, total: int, done: int, verbose: bool) -> None:
        columns = (
            TextColumn("{task.completed}/{task.total} items"),
            BarColumn(),
            _Speed(),
            TimeRemainingColumn(),
        )
        super().__init__(*columns, total=total, done=done, verbose=verbose, reused=done)
