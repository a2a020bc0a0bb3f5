"""Checking what is added to an index and what is asked of it."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from dscca.retrieval.backends import Id, Vectors
from dscca.views import without_graph


def unit_vectors(variates: ArrayLike, width: int) -> Vectors:
    """Return variates scaled to norm one, row by row; rows of zeros stay as they are."""
    given = without_graph(variates)
    given = given.cpu() if isinstance(given, torch.Tensor) else given
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != width:
        raise ValueError(
            f"variates must have {width} columns, the model's components, one row per sample; got "
            f"shape {values.shape}."
        )
    if not np.isfinite(values).all():
        raise ValueError("variates contain NaN or infinity: remove these rows.")
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0)
    values = values / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return (values / np.where(norms > 0, norms, 1)).astype(np.float32)


def check_ids(ids: Iterable[Id]) -> list[Id]:
    """Return ids as plain text and whole numbers."""
    if isinstance(ids, str | bytes):
        raise TypeError(
            f"ids must be a sequence of ids, got the text {ids!r:.40}: put it in a list."
        )
    checked: list[Id] = []
    for i in ids:
        plain = i.item() if isinstance(i, np.generic) else i
        if isinstance(plain, bool) or not isinstance(plain, str | int):
            raise TypeError(f"ids must be text or whole numbers, got {plain!r:.40}.")
        checked.append(plain)
    return checked


def check_k(k: int) -> int:
    """Refuse what is no number of items to find."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k={k!r} must be a whole number of at least 1.")
    return int(k)


def repeated(ids: list[Id]) -> list[Id]:
    """Return the ids that stand further left as well."""
    seen: set[Id] = set()
    return [i for i in ids if i in seen or seen.add(i)]  # type: ignore[func-returns-value]


def refuse(ids: list[Id], wrong: list[Id], why: str) -> None:
    """Raise an error if any of the ids is wrong."""
    if wrong:
        raise ValueError(
            f"{len(wrong)} of {len(ids)} ids are {why}, the first being {wrong[0]!r:.80}."
        )


def to_json(metadata: Sequence[Any]) -> list[str]:
    """Return each item's metadata as JSON text."""
    texts = []
    for row, value in enumerate(metadata):
        try:
            texts.append(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"metadata of item {row} cannot be written as JSON: {error}"
            ) from error
    return texts
