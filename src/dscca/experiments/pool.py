"""What carries jobs out: the interface, and worker processes on this machine."""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dscca.experiments.jobs import Job
from dscca.experiments.records import Record
from dscca.views import resolve_device

ATTEMPTS = 2
"""How often a job is tried whose worker dies."""


class Pool(Protocol):
    """Carries jobs out beside each other."""

    @property
    def free(self) -> int:
        """How many jobs can be submitted now."""

    def submit(self, job: Job) -> None:
        """Start a job."""

    def finished(self, timeout: float) -> Iterator[Record]:
        """Yield the records of jobs that have ended, after waiting for some until the timeout."""

    def close(self) -> None:
        """End everything."""


def died(job: Job, how: str) -> Record:
    """Return the record of a job whose worker died every time."""
    return Record(
        job,
        "failed",
        f"WorkerDied: its process ended {ATTEMPTS} times ({how}); if memory is short, use fewer "
        "workers",
    )


@dataclass
class _Worker:
    process: "subprocess.Popen[str]"
    job: Job | None = None


@dataclass
class LocalPool:
    """Worker processes, which speak JSON lines and end when this process does, however it ends.

    Several of them may share one GPU.
    """

    workers: int = 1
    device: str = "auto"
    threads: int | None = None
    """Of each worker; by default the processors are shared out."""
    checkpoints: Path | None = None
    """Folder in which unfinished trainings are kept."""
    _running: list[_Worker] = field(default_factory=list)
    _attempts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        resolve_device(self.device)  # a device that is not here would fail every job

    @property
    def free(self) -> int:
        """How many jobs can be submitted now."""
        return self.workers - sum(worker.job is not None for worker in self._running)

    def submit(self, job: Job) -> None:
        """Give a job to an idle worker, or to a new one."""
        idle = [worker for worker in self._running if worker.job is None]
        worker = idle[0] if idle else self._start()
        worker.job = job
        self._attempts[job.id] = self._attempts.get(job.id, 0) + 1
        assert worker.process.stdin is not None
        with suppress(BrokenPipeError):  # if it died, finished() finds that out
            worker.process.stdin.write(json.dumps(job.to_json()) + "\n")
            worker.process.stdin.flush()

    def finished(self, timeout: float) -> Iterator[Record]:
        """Yield the records of jobs that have ended, after waiting for some until the timeout."""
        busy = [worker for worker in self._running if worker.job is not None]
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore
            ready = [key.data for key, _ in selector.select(timeout)] if busy else []
        for worker in ready:
            job, line = worker.job, worker.process.stdout.readline()
            worker.job = None
            if line.endswith("\n"):
                yield Record(**{**json.loads(line), "job": job})
                continue
            how = self._end(worker)
            if self._attempts[job.id] < ATTEMPTS:
                self.submit(job)
            else:
                yield died(job, how)

    def close(self) -> None:
        """End all workers."""
        for worker in list(self._running):
            worker.process.kill()
            self._end(worker)

    def _start(self) -> _Worker:
        threads = self.threads or max(1, (os.cpu_count() or 1) // self.workers)
        settings: dict[str, Any] = {
            "device": self.device,
            "threads": threads,
            "checkpoints": None if self.checkpoints is None else str(self.checkpoints),
        }
        process = subprocess.Popen(
            # -P: a file of the current folder must not take the place of a library's module.
            [sys.executable, "-P", "-m", "dscca.experiments.worker", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
        worker = _Worker(process)
        self._running.append(worker)
        return worker

    def _end(self, worker: _Worker) -> str:
        """Forget a worker that has ended, and say how it did."""
        self._running.remove(worker)
        for pipe in (worker.process.stdin, worker.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what was still to be written has no reader
                pipe.close()
        code = worker.process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
