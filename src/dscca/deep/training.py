"""The training engine. It knows a model that has a loss, and no method."""

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from dscca.deep.checkpoint import Checkpoint
from dscca.deep.network import TwoViewModel, recalibrate
from dscca.deep.optimizers import make_optimizer
from dscca.deep.progress import Progress
from dscca.deep.sources import Batches
from dscca.deep.steps import make_step

Callback = Callable[[dict[str, float]], bool | None]
"""Called after every epoch with its history row; training stops if it returns True."""


class DivergedError(ArithmeticError):
    """Training left the finite numbers; the model holds its best parameters before that."""


@dataclass(frozen=True)
class Options:
    """How to train; the defaults are the paper's recipe."""

    epochs: int = 100
    warmup: int = 0
    optimizer: str = "rmsprop"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    schedule: Literal["constant", "cosine", "step"] = "constant"
    clip: float | None = None
    averaging: float = 0.0
    patience: int | None = None
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"
    seed: int = 0


@dataclass
class State:
    """Where training stands, besides the tensors."""

    epoch: int = 0
    best_epoch: int = -1
    best_criterion: float = float("inf")
    best_scaled: bool = True
    history: list[dict[str, float]] = field(default_factory=list)
    stopped: bool = False


class Trainer:
    """Minimise a model's loss over batches; keep the parameters of the best validation epoch.

    Parameters
    ----------
    model : what is trained, on its device
    batches : training data
    validation : both views of the validation data, on the device
    watched : both views of a sample of training rows, on the device, whose features go to the
        objective's ``validate`` and to `monitor`
    calibration : the same, for the statistics of averaged weights
    monitor : returns the total correlation of validation features, from these training features
        and those, for the history
    """

    def __init__(
        self,
        model: TwoViewModel,
        batches: Batches,
        validation: tuple[Tensor, Tensor],
        options: Options,
        *,
        watched: tuple[Tensor, Tensor],
        calibration: tuple[Tensor, Tensor],
        monitor: Callable[[tuple[Tensor, Tensor], tuple[Tensor, Tensor]], float] | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
    ) -> None:
        self.model, self.batches, self.validation = model, batches, validation
        self.watched, self.calibration, self.monitor = watched, calibration, monitor
        self.options = options
        self.callbacks, self.verbose = callbacks, verbose
        self.device = next(model.parameters()).device
        self.optimizer = make_optimizer(
            options.optimizer, model.parameters(), options.learning_rate, options.weight_decay
        )
        self.state = State()
        self.best = self._snapshot()
        self.average = self._parameters_copy() if options.averaging else None
        self.checkpoint: Checkpoint | None = None

    def run(self) -> State:
        """Train, or go on from the checkpoint; the model ends with its best parameters."""
        state, options = self.state, self.options
        if self.checkpoint is not None:
            self.checkpoint.restore(self)
        devices = [self.device] if self.device.type == "cuda" else []
        with (
            torch.random.fork_rng(devices=devices),
            matmul_precision(self.precision),
            Progress(options.epochs, state.epoch, self.verbose) as progress,
        ):
            self._set_scaled(state.epoch >= options.warmup)
            step = make_step(self)
            while state.epoch < options.epochs and not state.stopped:
                if state.epoch == options.warmup and options.warmup:
                    self._set_scaled(True)
                    step = make_step(self)
                row = self._epoch(step)
                state.stopped = self._ended(row)
                state.epoch += 1
                progress.show(row)
                if self.checkpoint is not None:
                    self.checkpoint.save(self, force=state.stopped or state.epoch == options.epochs)
        self._restore_best()
        return state

    @property
    def precision(self) -> str:
        """What large matrix products run in; "auto" is TF32 where the device has it."""
        if self.options.precision != "auto":
            return self.options.precision
        return "tf32" if self.device.type == "cuda" else "fp32"

    def _epoch(self, step: Callable[[], Tensor]) -> dict[str, float]:
        """Train for one epoch and return its history row."""
        start, epoch = time.perf_counter(), self.state.epoch
        # All randomness of an epoch follows from its seed, so that resuming needs no other state.
        seed = int(np.random.SeedSequence([self.options.seed, epoch]).generate_state(1)[0])
        torch.manual_seed(seed)
        rate = self._learning_rate(epoch)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        self.model.train()
        try:
            for _ in self.batches.start_epoch(torch.Generator().manual_seed(seed)):
                total += step()
        except LinAlgError as error:
            self._diverged(f"a batch of epoch {epoch + 1} ({error})")
        loss = float(total) / self.batches.n_batches
        if not np.isfinite(loss):
            self._diverged(f"the loss of epoch {epoch + 1}")
        row = {"epoch": epoch + 1, "loss": loss, **self._validate(), "learning_rate": rate}
        row["seconds"] = time.perf_counter() - start
        self.state.history.append(row)
        return row

    def _validate(self) -> dict[str, float]:
        """Evaluate this epoch's parameters (their running average, if any); keep the best."""
        backup = None
        if self.average is not None:
            self._update_average()
            backup = self._snapshot()
            self._load({**backup, **self.average})
            recalibrate(self.model, *self.calibration)
        try:
            figures, *features = self.model.evaluate(*self.validation, self.watched)
            row = {name: float(value) for name, value in figures.items()}
        except LinAlgError:
            row = {"val_loss": float("nan")}
        if not np.isfinite(row["val_loss"]):
            self._diverged(f"the validation loss of epoch {self.state.epoch + 1}")
        if self.monitor is not None:
            row["val_tc"] = self.monitor(*features)
        criterion = self.model.objective.criterion(row)
        if criterion < self.state.best_criterion:
            self.state.best_criterion, self.state.best_epoch = criterion, self.state.epoch
            self.state.best_scaled = self.model.net.scaled
            copy_into(self.best, self.model.state_dict())
        if backup is not None:
            self._load(backup)
        return row

    def _ended(self, row: dict[str, float]) -> bool:
        """Return whether a callback or lack of progress ends training."""
        asked = [callback(dict(row)) for callback in self.callbacks]
        patience = self.options.patience
        waited = self.state.epoch - max(self.state.best_epoch, self.options.warmup)
        # Callbacks may return anything, as those made for other ends do; only a truth value stops.
        stop = any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in asked)
        return stop or bool(patience is not None and waited >= patience)

    def _diverged(self, where: str) -> None:
        best = self.state.best_epoch
        self._restore_best()
        kept = f"those of epoch {best + 1} are kept" if best >= 0 else "none are worth keeping"
        raise DivergedError(
            f"{where} is not finite with learning_rate={self.options.learning_rate:g}; of the "
            f"parameters before, {kept}. Use a lower learning_rate, clip, or a larger reg."
        )

    def _learning_rate(self, epoch: int) -> float:
        done = epoch / self.options.epochs
        factor = {
            "constant": 1.0,
            "cosine": 0.5 * (1 + np.cos(np.pi * done)),
            "step": 0.1 ** ((done >= 0.5) + (done >= 0.75)),
        }[self.options.schedule]
        return float(self.options.learning_rate * factor)

    def _set_scaled(self, scaled: bool) -> None:
        self.model.net.scaled = scaled

    def _parameters_copy(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def _snapshot(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def _load(self, values: dict[str, Tensor]) -> None:
        copy_into(self.model.state_dict(), values)

    def _update_average(self) -> None:
        assert self.average is not None
        first = self.state.epoch == 0
        weight = 1.0 if first else 1 - self.options.averaging
        for name, parameter in self.model.named_parameters():
            self.average[name].lerp_(parameter.detach(), weight)

    def _restore_best(self) -> None:
        if self.state.best_epoch >= 0:
            self._load(self.best)
            self._set_scaled(self.state.best_scaled)


@torch.no_grad()
def copy_into(target: dict[str, Tensor], source: dict[str, Tensor]) -> None:
    """Copy values in place, so that captured steps keep seeing them."""
    for name, value in target.items():
        value.copy_(source[name])


@contextmanager
def matmul_precision(precision: str) -> Any:
    """Let large matrix products on a GPU run in TF32, or not."""
    matmul = torch.backends.cuda.matmul
    previous = matmul.fp32_precision
    matmul.fp32_precision = "ieee" if precision == "fp32" else "tf32"
    try:
        yield
    finally:
        matmul.fp32_precision = previous
