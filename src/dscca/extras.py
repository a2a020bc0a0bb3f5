"""Libraries that only some of the package needs."""

from importlib import import_module
from typing import Any


def require(module: str, extra: str, package: str | None = None) -> Any:
    """Import an optional library, or say which extra of dscca brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ModuleNotFoundError(
            f'this needs {package or module}, an extra: pip install "dscca[{extra}]"',
            name=error.name,
        ) from error
