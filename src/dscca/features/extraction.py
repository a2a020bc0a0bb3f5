"""The part that all encoders share: shards on disk, resumption, left-out items, the report.

Items are encoded in batches that depend on their position alone, so a run that was killed and
started again multiplies the same matrices as one that was not, and ends with the same bytes.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from dscca.features.files import write_features
from dscca.features.progress import ItemProgress
from dscca.persistence import write_atomically

OnError = Literal["skip", "zero", "fail"]
_FORMAT = "dscca-features-1"


class UnusableItemError(ValueError):
    """An item has no features, and leaving it out was not allowed."""


@dataclass(frozen=True)
class Items:
    """What is to be encoded: a name and a stamp per item; other content, another stamp."""

    ids: Sequence[str]
    stamps: Sequence[str]

    def __post_init__(self) -> None:
        if not self.ids:
            raise ValueError("there are no items to encode.")
        seen: set[str] = set()
        for name in self.ids:
            if name in seen:
                raise ValueError(f"two items are called {name}: names must differ.")
            seen.add(name)


@dataclass(frozen=True)
class Batch:
    """Rows of one batch, the positions of their items, and why the other items have none."""

    positions: list[int]
    features: NDArray[np.float32]
    problems: dict[int, str] = field(default_factory=dict)


Encode = Callable[[Sequence[range]], Iterator[Batch]]
"""Encodes ranges of positions, one batch each, in order; it may read ahead."""


@dataclass(frozen=True)
class Report:
    """What became of the items; kept as JSON beside the features."""

    output: str
    items: int
    rows: int
    width: int
    left_out: dict[str, str]
    """Items without a row, and why."""
    zero_filled: dict[str, str]
    """Items whose row is zero, and why."""
    about: dict[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)
    reused: int = 0
    """Items taken from an earlier run that was interrupted."""

    @property
    def path(self) -> Path:
        """Where the report is kept: ``feats.json`` beside ``feats.npz``."""
        return Path(self.output).with_suffix(".json")


def extract(
    output: Path,
    items: Items,
    encode: Encode,
    *,
    width: int,
    about: dict[str, Any],
    batch_size: int,
    shard_batches: int,
    dtype: Literal["float32", "float16"] = "float32",
    on_error: OnError = "skip",
    notes: dict[str, Any] | None = None,
    verbose: bool = False,
) -> Report:
    """Encode `items` and write `output` (.npz) with its report.

    Finished shards lie in ``OUTPUT.parts`` until the end. A later run takes those whose items,
    encoder and batches are its own and makes the others.
    """
    _check(output, dtype, on_error, batch_size)
    about = {**about, "dtype": dtype, "batch_size": batch_size}
    folder = output.with_name(output.name + ".parts")
    size = batch_size * shard_batches
    shards = [
        _Shard(folder / f"{k:06d}.safetensors", range(start, min(start + size, len(items.ids))))
        for k, start in enumerate(range(0, len(items.ids), size))
    ]
    keys = [_key(items, shard.positions, about) for shard in shards]
    problems: dict[int, str] = {}
    missing, reused = [], 0
    for shard, key in zip(shards, keys, strict=True):
        found = shard.problems(key, width)
        if found is None:
            missing.append((shard, key))
        else:
            problems |= found
            reused += len(shard.positions)
    _refuse(problems, items, on_error)
    batches = encode([part for shard, _ in missing for part in shard.batches(batch_size)])
    with ItemProgress(len(items.ids), reused, verbose) as progress:
        for shard, key in missing:
            made = []
            for _ in shard.batches(batch_size):
                batch = next(batches)
                _refuse(batch.problems, items, on_error)
                made.append(batch)
                progress.advance(len(batch.positions) + len(batch.problems))
            problems |= shard.write(made, key, width, dtype, items)
    report = _assemble(output, items, shards, problems, width, about, dtype, on_error)
    report = Report(**{**asdict(report), "notes": notes or {}, "reused": reused})
    facts = {name: value for name, value in asdict(report).items() if name != "reused"}
    write_atomically(report.path, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
    _remove(folder, shards)
    return report


@dataclass(frozen=True)
class _Shard:
    path: Path
    positions: range

    def batches(self, size: int) -> list[range]:
        first, stop = self.positions.start, self.positions.stop
        return [range(start, min(start + size, stop)) for start in range(first, stop, size)]

    def problems(self, key: str, width: int) -> dict[int, str] | None:
        """Return what the shard on disk says it lacks; None if it is not this run's."""
        try:
            with safe_open(self.path, framework="numpy") as file:
                header = file.metadata() or {}
                if header.get("key") != key:
                    return None
                problems = {int(i): why for i, why in json.loads(header["problems"]).items()}
                shape = file.get_slice("features").get_shape()
        except (OSError, SafetensorError, ValueError, KeyError, AttributeError):
            return None  # absent or damaged: made again
        whole = list(shape) == [len(self.positions) - len(problems), width]
        return problems if whole else None

    def write(
        self, batches: list[Batch], key: str, width: int, dtype: str, items: Items
    ) -> dict[int, str]:
        problems: dict[int, str] = {}
        for batch in batches:
            problems |= batch.problems
        done = [position for batch in batches for position in batch.positions]
        if sorted([*done, *problems]) != list(self.positions) or done != sorted(done):
            raise AssertionError("an encoder did not account for every item of its batches")
        features = np.concatenate([batch.features.reshape(-1, width) for batch in batches])
        with np.errstate(over="ignore"):
            features = features.astype(dtype)
        finite = np.isfinite(features).all(axis=1)
        if not finite.all():
            name = items.ids[done[int(np.argmin(finite))]]
            raise ValueError(
                f"the features of {name} are not finite in {dtype}: "
                + ("store float32." if dtype == "float16" else "the encoder is broken.")
            )
        header = {"key": key, "problems": json.dumps(problems)}
        write_atomically(self.path, to_bytes({"features": features}, metadata=header))
        return problems

    def features(self) -> NDArray[Any]:
        with safe_open(self.path, framework="numpy") as file:
            array: NDArray[Any] = file.get_tensor("features")
        return array


def _assemble(
    output: Path,
    items: Items,
    shards: list[_Shard],
    problems: dict[int, str],
    width: int,
    about: dict[str, Any],
    dtype: str,
    on_error: OnError,
) -> Report:
    if len(problems) == len(items.ids):
        first = min(problems)
        raise UnusableItemError(
            f"none of the {len(items.ids)} items could be encoded; {items.ids[first]}: "
            f"{problems[first]}"
        )
    kept = [i for i in range(len(items.ids)) if on_error == "zero" or i not in problems]

    def blocks() -> Iterator[NDArray[Any]]:
        for shard in shards:
            features = shard.features()
            if on_error != "zero":
                yield features
                continue
            filled = np.zeros((len(shard.positions), width), dtype=dtype)
            filled[[i not in problems for i in shard.positions]] = features
            yield filled

    ids = [items.ids[i] for i in kept]
    write_features(output, blocks(), (len(kept), width), dtype, ids, about)
    named = {items.ids[i]: problems[i] for i in sorted(problems)}
    left_out, zero_filled = ({}, named) if on_error == "zero" else (named, {})
    return Report(str(output), len(items.ids), len(kept), width, left_out, zero_filled, about)


def _check(output: Path, dtype: str, on_error: str, batch_size: int) -> None:
    if output.suffix.lower() != ".npz":
        raise ValueError(f"{output} does not end in .npz, the format of features with their ids.")
    if dtype not in ("float32", "float16"):
        raise ValueError(f"dtype={dtype!r}: features are stored as float32 or float16.")
    if on_error not in ("skip", "zero", "fail"):
        raise ValueError(f"on_error={on_error!r} is none of skip, zero, fail.")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} is below 1.")


def _refuse(problems: dict[int, str], items: Items, on_error: OnError) -> None:
    if problems and on_error == "fail":
        first = min(problems)
        raise UnusableItemError(
            f"{items.ids[first]}: {problems[first]}. Repair or remove it, or go on without such "
            f'items by on_error="skip" (or "zero").'
        )


def _key(items: Items, positions: range, about: dict[str, Any]) -> str:
    part = slice(positions.start, positions.stop)
    facts = [_FORMAT, about, list(items.ids[part]), list(items.stamps[part])]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _remove(folder: Path, shards: Iterable[_Shard]) -> None:
    """Remove the shards, and what a killed run left of earlier ones; nothing else."""
    for pattern in ("[0-9]*.safetensors", ".[0-9]*.safetensors.*.tmp"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def shard_batches(batch_size: int, items: int = 256) -> int:
    """Return how many batches make a shard of at least `items` items."""
    return max(1, math.ceil(items / max(1, batch_size)))
