"""Carries an experiment out, beside other runners on the same folder, and over interruptions."""

import shutil
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from dscca.datasets import find_dataset
from dscca.datasets.fetch import fetch_verified
from dscca.experiments.jobs import Job
from dscca.experiments.planning import Plan, plan
from dscca.experiments.pool import Pool
from dscca.experiments.records import Record, read_record, read_records, record_path, write_record
from dscca.experiments.spec import Spec
from dscca.locking import LockedError, lock

CHECKPOINTS = ".checkpoints"
_LOCKS = ".locks"
_PAUSE = 0.5

Watch = Callable[[Record, Plan], None]
"""Called with every new record and the plan before it."""


@dataclass
class Runner:
    """Runs what a spec still needs. A job is a lock and a record in `folder`, and runs once.

    The lock is held while the job runs and ends with this process, so whoever comes after a killed
    runner finds its finished jobs recorded and its unfinished ones free. With `retry_failed` jobs
    that failed before this run are tried again.
    """

    spec: Spec
    folder: Path
    pool: Pool
    only: Collection[str] | None = None
    data: Collection[str] | None = None
    retry_failed: bool = False
    watch: Watch | None = None
    unavailable: dict[str, str] = field(default_factory=dict)
    """Data sets whose files are not here, and what to do about it."""

    def run(self) -> Plan:
        """Run until nothing is left that can be run; return where the experiment stands."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._records = read_records(self.folder)
        for record in self._records.values():
            if record.done:  # its runner may have been killed before it could do this
                self._drop_checkpoint(record)
        if self.retry_failed:
            self._records = {i: r for i, r in self._records.items() if r.done}
        self._held: dict[str, ExitStack] = {}
        self._planned: Plan | None = None
        self.unavailable.update(missing_data(self.spec, self.data))
        try:
            while True:
                state = self._plan()
                waiting = [job for job in self._runnable(state) if job.id not in self._held]
                if not waiting and not self._held:
                    return state
                self._start(waiting)
                if not self._held:
                    time.sleep(_PAUSE)  # another runner has all that is left
                for record in self.pool.finished(_PAUSE):
                    self._keep(record, state)
        finally:
            self.pool.close()
            for stack in self._held.values():
                stack.close()

    def _plan(self) -> Plan:
        """Return the plan, made anew if there are new records."""
        if self._planned is None:
            self._planned = plan(self.spec, self._records, only=self.only, data=self.data)
        return self._planned

    def _note(self, record: Record) -> None:
        self._records[record.id], self._planned = record, None

    def _runnable(self, state: Plan) -> list[Job]:
        return [job for job in state.pending if job.dataset not in self.unavailable]

    def _start(self, waiting: list[Job]) -> None:
        """Start jobs that nobody else runs, as many as there is room for."""
        for job in waiting:
            if not self.pool.free:
                return
            stack = ExitStack()
            try:
                stack.enter_context(lock(self.folder / _LOCKS / job.id, timeout=0))
            except LockedError:
                continue
            found = self._found(job)
            if found is not None:
                self._note(found)
                stack.close()
                continue
            self._held[job.id] = stack
            self.pool.submit(job)

    def _found(self, job: Job) -> Record | None:
        """Return the record that another runner has written since we read them."""
        path = record_path(self.folder, job)
        record = read_record(path) if path.exists() else None
        return None if record is not None and self.retry_failed and not record.done else record

    def _keep(self, record: Record, state: Plan) -> None:
        write_record(self.folder, record)
        self._drop_checkpoint(record)
        self._note(record)
        self._held.pop(record.id).close()
        if self.watch is not None:
            self.watch(record, state)

    def _drop_checkpoint(self, record: Record) -> None:
        shutil.rmtree(self.folder / CHECKPOINTS / record.id, ignore_errors=True)


def missing_data(spec: Spec, data: Collection[str] | None = None) -> dict[str, str]:
    """Return the data sets of a spec that are not here and cannot be fetched, and why."""
    missing = {}
    for column in spec.data.values():
        if data is not None and column.key not in data:
            continue
        dataset = find_dataset(column.dataset)
        try:
            fetch_verified(dataset)
            for file in dataset.files:
                if file.needed:
                    dataset.folder.require(*file.names)
        except OSError as error:
            missing[dataset.name] = str(error)
    return missing
