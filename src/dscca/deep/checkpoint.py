"""Checkpoints of a training run: it survives being killed and ends with the same parameters."""

import json
import time
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from dscca import integrity
from dscca.persistence import write_atomically

if TYPE_CHECKING:
    from dscca.deep.training import Trainer

FILE_NAME = "checkpoint.safetensors"
_SHARE = 20
"""A checkpoint is written when this many times its last writing time has passed: at most 5%."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, or belongs to another run."""


class Checkpoint:
    """The state at the end of an epoch in one file, replaced atomically.

    Model, optimiser, running average, best parameters and history are in it; all randomness of an
    epoch follows from the seed and the epoch's number, so nothing else is needed.
    """

    def __init__(self, folder: str | PathLike[str], facts: dict[str, Any]) -> None:
        self.path = Path(folder) / FILE_NAME
        self.facts = json.loads(json.dumps(facts, default=lambda number: number.item()))
        self._written, self._cost = -float("inf"), 0.0

    def save(self, trainer: "Trainer", *, force: bool = False) -> None:
        """Write the state, unless the last writing was a short while ago."""
        now = time.monotonic()
        if not force and now - self._written < _SHARE * self._cost:
            return
        tensors = {**_prefixed("model", trainer.model.state_dict()), **_optimizer_state(trainer)}
        tensors |= _prefixed("best", trainer.best)
        tensors |= _prefixed("average", trainer.average or {})
        tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        header = {"facts": json.dumps(self.facts), "state": json.dumps(asdict(trainer.state))}
        header[integrity.KEY] = _checksum(header, tensors)
        write_atomically(self.path, to_bytes(tensors, metadata=header))
        self._written = time.monotonic()
        self._cost = self._written - now

    def restore(self, trainer: "Trainer") -> None:
        """Take the state back if there is a checkpoint of the same run."""
        if not self.path.exists():
            return
        header, tensors = self._read()
        try:
            facts, state = json.loads(header["facts"]), json.loads(header["state"])
            different = {k for k in {*facts, *self.facts} if facts.get(k) != self.facts.get(k)}
            if not different:
                _restore(trainer, tensors, state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise CheckpointError(
                f"{self.path} is damaged ({type(error).__name__}: {error}): remove it to start "
                f"again."
            ) from error
        if different:
            raise CheckpointError(
                f"{self.path} belongs to another run: {', '.join(sorted(different))} differ. "
                f"Remove it or give another checkpoint_dir."
            )

    def _read(self) -> tuple[dict[str, str], dict[str, Tensor]]:
        try:
            with safe_open(self.path, framework="pt") as file:
                header = dict(file.metadata() or {})
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise CheckpointError(
                f"{self.path} is damaged ({error}): remove it to start again."
            ) from error
        if not {"facts", "state"} <= set(header):
            raise CheckpointError(f"{self.path} is no checkpoint of dscca: remove it.")
        if header.get(integrity.KEY) != _checksum(header, tensors):
            raise CheckpointError(
                f"{self.path} is damaged (its content does not fit its checksum): remove it to "
                f"start again."
            )
        return header, tensors


def _checksum(header: dict[str, str], tensors: dict[str, Tensor]) -> str:
    arrays = {name: value.reshape(-1).view(torch.uint8).numpy() for name, value in tensors.items()}
    return integrity.checksum([header["facts"], header["state"]], arrays)


def _prefixed(prefix: str, values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _optimizer_state(trainer: "Trainer") -> dict[str, Tensor]:
    state = {}
    for i, parameter in enumerate(trainer.model.parameters()):
        for key, value in trainer.optimizer.state.get(parameter, {}).items():
            state[f"optimizer/{i}/{key}"] = torch.as_tensor(value)
    return state


def _restore(trainer: "Trainer", tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    if set(state) != set(asdict(trainer.state)):
        raise ValueError("its state has other entries")
    _copy(trainer.model.state_dict(), tensors, "model")
    _copy(trainer.best, tensors, "best")
    _copy(trainer.average or {}, tensors, "average")
    parameters = list(trainer.model.parameters())
    for name, value in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "optimizer":
            index, _, key = rest.partition("/")
            parameter = parameters[int(index)]
            trainer.optimizer.state[parameter][key] = value.to(parameter.device)
    for key, value in state.items():
        setattr(trainer.state, key, value)


@torch.no_grad()
def _copy(target: dict[str, Tensor], tensors: dict[str, Tensor], prefix: str) -> None:
    for name, value in target.items():
        stored = tensors[f"{prefix}/{name}"]
        if stored.shape != value.shape:
            raise ValueError(f"{name} has shape {tuple(stored.shape)}, not {tuple(value.shape)}")
        value.copy_(stored)
