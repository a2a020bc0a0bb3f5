"""The command ``dscca``: parse, call, print. One module per group of commands."""

import sys

import typer
import yaml

from dscca.cli import features, models

app = typer.Typer(
    name="dscca",
    help="Correlated representations of paired data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(models.app)
app.add_typer(features.app)


def main() -> None:
    """Run the command line; an error is one line and exit code 2."""
    try:
        app()
    except (ValueError, TypeError, OSError, ModuleNotFoundError, yaml.YAMLError) as error:
        print("dscca:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
