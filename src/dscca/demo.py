"""The demonstration behind ``dscca demo``."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from dscca.datasets import embedded_digits
from dscca.linear import LinearCCA

N_COMPONENTS = 20


def run(output: Path) -> None:
    """Fit to the embedded digits, print held-out correlations, save the model to `output`."""
    console = Console()
    data = embedded_digits()
    console.print(
        f"Left and right halves of {len(data.X_train):,} handwritten digits for training, "
        f"{len(data.X_val):,} for validation, {len(data.X_test):,} for testing."
    )
    model = LinearCCA(N_COMPONENTS, reg="auto")
    model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
    held_out = model.canonical_correlations(data.X_test, data.y_test)
    table = Table("pair", "training", "held out", title="Linear CCA: canonical correlations")
    for i, (train, test) in enumerate(zip(model.correlations_, held_out, strict=True), start=1):
        table.add_row(str(i), f"{train:.3f}", f"{test:.3f}")
    table.add_section()
    table.add_row("sum", f"{model.correlations_.sum():.2f}", f"{held_out.sum():.2f}")
    console.print(table)
    model.save(output)
    console.print(
        f"Regularisers chosen on the validation digits: {model.reg_[0]:g} and {model.reg_[1]:g}. "
        f"Model saved to {output}.",
        highlight=False,
    )
