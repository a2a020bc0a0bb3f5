"""Sizes of networks: one for each view, and those that the paper's ablations compare."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any


def widths_per_view(name: str, value: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return widths for both views, or a pair of them, as a pair."""
    try:
        nested = len(value) == 2 and not any(isinstance(v, Integral) for v in value)
        pair = tuple(tuple(widths) for widths in (value if nested else (value,)))
    except TypeError:
        pair = ((None,),)
    if not all(isinstance(n, Integral) for widths in pair for n in widths):
        raise ValueError(
            f"{name} must be a sequence of whole widths or a pair of them, got {value!r}."
        )
    first, second = (tuple(int(n) for n in widths) for widths in (pair[0], pair[-1]))
    if any(n < 1 for n in (*first, *second)):
        raise ValueError(f"{name} must hold widths of at least 1, got {value!r}.")
    return first, second


def matched_outputs_width(
    in_features: int,
    out_features: int,
    scale_hidden: Sequence[int],
    context_size: int | None = None,
) -> int:
    """Width at which a network that scales outputs is as large as one that scales parameters.

    For the paper's ablation "Scaling outputs": ``DynamicLinear(..., scale_hidden=(width,),
    scaling="outputs")`` has as many parameters, as nearly as whole units allow, as the layer of
    these sizes with ``scaling="parameters"``. `context_size` is that of z unless given.
    """
    c = in_features if context_size is None else context_size
    target = _count((c, *scale_hidden, out_features * in_features + out_features))
    return _nearest(lambda width: _count((c, width, out_features)), target, 1)


def widened(
    in_features: int,
    hidden: Sequence[int],
    out_features: int,
    target: int,
    layers: Sequence[int] = (1,),
) -> tuple[int, ...]:
    """Widen some of an MLP's hidden layers alike until it has about `target` parameters.

    For the paper's ablations "Wide 2" (layers (1,), counted from 0) and "Wide 1&2" ((0, 1)). Each
    of `layers` gets the same number of units more; returns the widths of all hidden layers.
    """
    if not layers or not set(layers) <= set(range(len(hidden))):
        raise ValueError(
            f"layers must hold numbers from 0 to {len(hidden) - 1}, got {tuple(layers)}."
        )

    def widths(more: int) -> tuple[int, ...]:
        return tuple(n + more if i in layers else n for i, n in enumerate(hidden))

    def count(more: int) -> int:
        return _count((in_features, *widths(more), out_features))

    if target < count(0):
        raise ValueError(
            f"target must be at least the {count(0)} parameters there already are, got {target}; "
            "start from narrower layers."
        )
    return widths(_nearest(count, target, 0))


def _nearest(count: Callable[[int], int], target: int, least: int) -> int:
    """Return the n >= least whose increasing count(n) is nearest to target."""
    n = least + bisect_left(range(least, target + least), target, key=count)
    return min((max(n - 1, least), n), key=lambda m: abs(count(m) - target))


def _count(sizes: Sequence[int]) -> int:
    """Parameters of the linear layers between these sizes, of which the last has a bias."""
    return sum(a * b for a, b in pairwise(sizes)) + sizes[-1]
