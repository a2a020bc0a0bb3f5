"""The command ``dscca``: parse, call, print. One module per group of commands."""

import sys
from typing import Any, NoReturn

import typer
import yaml

from dscca.cli import data, evaluate, experiments, features, index, models, report, tables, tune

app = typer.Typer(
    name="dscca",
    help="Correlated representations of paired data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(models.app)
app.add_typer(evaluate.app)
app.add_typer(index.app, name="index")
app.add_typer(data.app, name="data", no_args_is_help=True)
app.add_typer(features.app)
app.add_typer(experiments.app)
app.add_typer(report.app)
app.add_typer(tables.app)
app.add_typer(tune.app)

_ERRORS = (ValueError, TypeError, OSError, ArithmeticError, ImportError, yaml.YAMLError)

_UsageError: Any = typer.BadParameter.__mro__[1]
"""What typer raises for arguments that do not fit; it has no public name there."""


def main() -> None:
    """Run the command line; an error is one line and exit code 2."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="dscca", standalone_mode=False)
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx else "dscca"
        _fail(f"{error.format_message()} Try {command} --help.")
    except _ERRORS as error:
        _fail(str(error))
    sys.exit(code)


def _fail(message: str) -> NoReturn:
    print("dscca:", " ".join(message.split()), file=sys.stderr)
    sys.exit(2)
