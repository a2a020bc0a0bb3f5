"""The progress bar of training."""

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from dscca.progress import TerminalBar


class Progress(TerminalBar):
    """Epoch, loss, validation total correlation and time left."""

    def __init__(self, total: int, done: int, verbose: int) -> None:
        columns = (
            TextColumn("epoch {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
        )
        super().__init__(*columns, total=total, done=done, verbose=bool(verbose), figures="")

    def show(self, row: dict[str, float]) -> None:
        """Advance by one epoch with its history row."""
        figures = f"loss {row['loss']:.3f}  validation loss {row['val_loss']:.3f}"
        if "val_tc" in row:
            figures += f"  validation TC {row['val_tc']:.2f}"
        self.advance(1, figures=figures)
