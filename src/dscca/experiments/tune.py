"""Search beyond the grid, with Optuna: by validation figures alone, resumable, with pruning."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dscca.datasets import TwoViewData, load
from dscca.experiments.running import held_out_figures
from dscca.experiments.spaces import Space, described, points, suggest
from dscca.experiments.spec import DataSpec, Row, Spec, is_deep
from dscca.extras import require
from dscca.locking import LockedError, lock
from dscca.views import resolve_device

Watch = Callable[[Any], None]
"""Called with every finished trial."""

_STARTUP = 5
"""Trials before any is pruned."""
_REPEATS = 5
"""Points in a row that were tried before, after which one is taken that was not."""


@dataclass
class Tuner:
    """Searches a row's parameters on one data set, the standard split's training and validation.

    Test samples are not even loaded. The study is kept in `storage`: a finished trial is never
    repeated, one that was interrupted is run again, with the same values.

    Parameters
    ----------
    spec, data, row : what is searched
    space : from what; see :func:`dscca.experiments.spaces.row_space`
    measure : the validation figure that is to be highest
    storage : a file: SQLite if it ends in .db or .sqlite, else a journal of lines
    fixed : parameters besides those of the spec
    """

    spec: Spec
    data: DataSpec
    row: Row
    space: Space
    measure: str
    storage: Path
    fixed: Mapping[str, Any]
    seed: int = 0
    device: str = "auto"
    watch: Watch | None = None

    def run(self, trials: int) -> Any:
        """Go on until so many trials are finished or the space is used up; return the study."""
        if self.storage.is_dir():
            raise IsADirectoryError(f"--storage {self.storage} is a folder: name a file")
        with _held(self.storage):
            study = self.study
            self._restart_interrupted()
            while self._wanting(trials):
                self._require_runnable()
                untried = self._untried()
                if untried is not None and self._repeats() >= _REPEATS:
                    study.enqueue_trial(untried[0])
                study.sampler = self._sampler()
                trial = study.ask()
                values = suggest(trial, self.space)
                if untried is None or trial.params in untried:
                    self._try(trial, values)
                else:
                    # To samplers and pruners a failed trial is none.
                    trial.set_user_attr("repeats", True)
                    study.tell(trial, state=self._states.FAIL)
        return study

    @cached_property
    def study(self) -> Any:
        """The Optuna study, made or found in the storage."""
        optuna = require("optuna", "tune")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Before scaling networks have joined, and trained, a trial does not show how it will end.
        shared = self._job_parameters({})
        start = 1 + int(shared.get("warmup", 0)) + int(shared.get("epochs", 0)) // 10
        study = optuna.create_study(
            storage=self._opened(optuna),
            study_name=f"{self.spec.name}/{self.data.key}/{self.row.name}/{self.measure}",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(_STARTUP, n_warmup_steps=start),
        )
        facts = {"space": described(self.space), "job": self.job_description()}
        kept = study.user_attrs.get("facts")
        if kept is None:
            study.set_user_attr("facts", facts)
        elif kept != facts:
            changed = [key for key in facts if kept.get(key) != facts[key]]
            raise ValueError(
                f"{self.storage} holds a search of {study.study_name} with another "
                f"{' and '.join(changed)}: go on with the same arguments, or take another --storage"
            )
        return study

    def job_description(self) -> dict[str, Any]:
        """Return what all trials share."""
        return self.spec.job(self.data, self.row, self.fixed).to_json()

    def finished(self) -> list[Any]:
        """Return the trials that count: those that ended, were pruned, or failed by themselves."""
        return [
            trial
            for trial in self.study.get_trials(deepcopy=False)
            if trial.state.is_finished()
            and not trial.user_attrs.get("repeats")
            and not _interrupted(trial)
        ]

    def best(self) -> Any:
        """Return the best trial that ended, or None."""
        ended = [trial for trial in self.finished() if trial.state.name == "COMPLETE"]
        return max(ended, key=lambda trial: trial.value, default=None)

    def values_of(self, trial: Any) -> dict[str, Any]:
        """Return the parameters of a trial."""
        return suggest(_Fixed(trial.params), self.space)

    def _require_runnable(self) -> None:
        """Refuse a device or data that are not here, which would fail every trial for good."""
        resolve_device(self.device)
        _ = self._parts

    def _wanting(self, trials: int) -> bool:
        untried = self._untried()
        return len(self.finished()) < trials and (untried is None or bool(untried))

    def _untried(self) -> Any:
        """Return the points that no trial has finished; None if the space has ranges."""
        every = points(self.space)
        if every is None:
            return None
        tried = [trial.params for trial in self.finished()]
        return [point for point in every if point not in tried]

    def _repeats(self) -> int:
        """Return how many points in a row, the last ones, were tried before."""
        told = [t for t in self.study.get_trials(deepcopy=False) if t.state.is_finished()]
        return next((i for i, t in enumerate(reversed(told)) if "repeats" not in t.user_attrs), 0)

    def _sampler(self) -> Any:
        # Seeded anew for every trial, so that a search that was stopped goes on as it would have.
        trials = self.study.get_trials(deepcopy=False)
        before = sum(t.state.is_finished() and not _interrupted(t) for t in trials)
        seed = np.random.SeedSequence([self.seed, before]).generate_state(1)[0]
        return require("optuna", "tune").samplers.TPESampler(seed=int(seed))

    def _restart_interrupted(self) -> None:
        for trial in self.study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
            self.study.tell(trial.number, state=self._states.FAIL)
            if len(trial.params) == len(self.space):
                self.study.enqueue_trial(trial.params)

    def _try(self, trial: Any, values: dict[str, Any]) -> None:
        optuna = require("optuna", "tune")
        try:
            figures = self._fit(trial, values)
        except optuna.TrialPruned:
            finished = self.study.tell(trial, state=self._states.PRUNED)
        except Exception as error:
            trial.set_user_attr("error", f"{type(error).__name__}: {error}")
            finished = self.study.tell(trial, state=self._states.FAIL)
        else:
            trial.set_user_attr("validation", figures)
            finished = self.study.tell(trial, figures[self.measure])
        if self.watch is not None:
            self.watch(finished)

    def _fit(self, trial: Any, values: dict[str, Any]) -> dict[str, float]:
        optuna = require("optuna", "tune")

        def report(row: dict[str, float]) -> None:
            trial.report(progress(row, self.measure), int(row["epoch"]))
            if trial.should_prune():
                raise optuna.TrialPruned

        parameters = self._job_parameters(values)
        runtime: dict[str, Any] = {"device": self.device, "verbose": 0}
        if is_deep(self.row.method):
            runtime["callbacks"] = [report]
        known = self.row.method.estimator_class()().get_params(deep=False)
        own = {name: value for name, value in runtime.items() if name in known}
        model = self.row.method.estimator_class()(**{**parameters, **own})
        train, validation = self._parts
        model.fit(train.x, train.y, X_val=validation.x, y_val=validation.y)
        return held_out_figures(model, validation)

    @property
    def _states(self) -> Any:
        return require("optuna", "tune").trial.TrialState

    def _job_parameters(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return self.spec.job(self.data, self.row, {**self.fixed, **values}).parameters

    @cached_property
    def _parts(self) -> tuple[TwoViewData, TwoViewData]:
        train, validation = (
            load(self.data.dataset, split, **self.data.options) for split in ("train", "val")
        )
        return train, validation

    def _opened(self, optuna: Any) -> Any:
        self.storage.parent.mkdir(parents=True, exist_ok=True)
        if self.storage.suffix in (".db", ".sqlite"):
            return f"sqlite:///{self.storage}"
        journal = optuna.storages.journal.JournalFileBackend(str(self.storage))
        return optuna.storages.JournalStorage(journal)


def _interrupted(trial: Any) -> bool:
    """Say whether a trial's process was ended; a trial that fails by itself keeps its error."""
    return trial.state.name == "FAIL" and not {"error", "repeats"} & set(trial.user_attrs)


def progress(row: Mapping[str, float], measure: str) -> float:
    """Return the figure of an epoch that trials are compared by before they end.

    It is validation TC, or the validation recall of methods that are trained for retrieval.
    """
    return row["val_recall"] if measure != "tc" and "val_recall" in row else row["val_tc"]


def override(spec_row: str, data: str, values: Mapping[str, Any]) -> str:
    """Return what ``--set`` takes to run a spec with the values found.

    Names that a dotted key could not hold are written as a mapping.

    >>> override("DCCA", "mnist", {"reg": 0.001})
    'methods.DCCA.data.mnist.grid={"reg": [0.001]}'
    >>> override("r=0.1", "mnist", {"reg": 0.001})
    'methods={"r=0.1": {"data": {"mnist": {"grid": {"reg": [0.001]}}}}}'
    """
    grid = {name: [value] for name, value in values.items()}
    if set(".=") & {*spec_row, *data}:
        content = {spec_row: {"data": {data: {"grid": grid}}}}
        return f"methods={json.dumps(content, ensure_ascii=False)}"
    return f"methods.{spec_row}.data.{data}.grid={json.dumps(grid)}"


class _Fixed:
    """Stands in for a trial whose parameters are known."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters

    def suggest_categorical(self, name: str, _: Any) -> Any:
        return self.parameters[name]

    def suggest_float(self, name: str, *_: Any, **__: Any) -> Any:
        return self.parameters[name]

    suggest_int = suggest_float


@contextmanager
def _held(storage: Path) -> Iterator[None]:
    """Hold a storage against other searches, which can take hours: nobody waits for them."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock(storage.with_name(f".{storage.name}.lock"), timeout=0))
        except LockedError as error:
            raise LockedError(f"another search is writing to {storage}: wait for it.") from error
        yield
