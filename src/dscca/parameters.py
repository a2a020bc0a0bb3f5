"""Parameters that are one value for both views, or a pair."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Kind:
    """What values of a parameter are allowed."""

    valid: Callable[[Any], bool]
    words: str


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and bool(value >= 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and bool(0 <= value < np.inf)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and bool(value > 0)


COUNT = Kind(_is_count, "a whole number >= 1")
NOT_NEGATIVE = Kind(_is_number, "a number >= 0")
POSITIVE = Kind(_is_positive, "a number > 0")
SHARE = Kind(lambda v: v is None or (_is_positive(v) and v <= 1), "a share in (0, 1], or None")
SIZE = Kind(lambda v: SHARE.valid(v) or _is_count(v), "a count, a share in (0, 1], or None")


def pair_of(name: str, value: Any, kind: Kind) -> tuple[Any, Any]:
    """Return one value for both views, or a pair, as a pair of plain numbers (or None)."""
    pair = tuple(value) if np.iterable(value) else (value, value)
    if len(pair) != 2 or not all(kind.valid(v) for v in pair):
        raise ValueError(f"{name} must be {kind.words}, or a pair of such, got {value!r}.")
    first, second = (v.item() if isinstance(v, np.generic) else v for v in pair)
    return first, second
