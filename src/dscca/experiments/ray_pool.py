"""Jobs on a Ray cluster."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from dscca.experiments.jobs import Job
from dscca.experiments.pool import ATTEMPTS, died
from dscca.experiments.records import Record
from dscca.extras import require

_PASSED_ON = ("DSCCA_DATA", "DSCCA_CACHE")


@dataclass
class RayPool:
    """Runs jobs as tasks of a Ray cluster, which retries those whose worker dies.

    Records come back to this process, which alone writes them. Every node needs dscca installed and
    the data under the same path.
    """

    workers: int = 1
    """Jobs that are submitted at a time; Ray places them."""
    device: str = "auto"
    threads: int | None = None
    address: str | None = None
    """Of a cluster that is there; without it one is started on this machine, and ended after."""
    gpus: float = 0.0
    """Share of a GPU that each job asks for; 0.25 puts four on one."""
    _tasks: dict[Any, Job] = field(default_factory=dict)
    _remote: Any = None

    @property
    def free(self) -> int:
        """How many jobs can be submitted now."""
        return self.workers - len(self._tasks)

    def submit(self, job: Job) -> None:
        """Hand a job to the cluster."""
        threads = self.threads or 1
        if self._remote is None:
            self._remote = self._connect(threads)
        self._tasks[self._remote.remote(job.to_json(), self.device, threads)] = job

    def finished(self, timeout: float) -> Iterator[Record]:
        """Yield the records of jobs that have ended, after waiting for some until the timeout."""
        if not self._tasks:
            return
        ray = require("ray", "ray")
        ready, _ = ray.wait(list(self._tasks), num_returns=1, timeout=timeout)
        for task in ready:
            job = self._tasks.pop(task)
            try:
                yield Record(**{**ray.get(task), "job": job})
            except ray.exceptions.RayTaskError as error:
                # A job's own errors are in its record: with this one no job could begin.
                raise error.cause from error
            except ray.exceptions.RayError as error:
                yield died(job, str(error).strip().splitlines()[0])

    def close(self) -> None:
        """Leave the cluster; its tasks of this run end."""
        if self._remote is not None:
            require("ray", "ray").shutdown()
            self._remote = None

    def _connect(self, threads: int) -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray = require("ray", "ray")
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        here = {"num_cpus": self.workers * threads, "include_dashboard": False}
        ray.init(
            address=self.address or "local",
            runtime_env={"env_vars": passed_on},
            log_to_driver=False,
            **({} if self.address else here),
        )
        task = ray.remote(_run)
        return task.options(num_cpus=threads, num_gpus=self.gpus, max_retries=ATTEMPTS - 1)


def _run(job: dict[str, Any], device: str, threads: int) -> dict[str, Any]:
    import torch

    from dscca.experiments.running import run_job

    torch.set_num_threads(threads)
    return asdict(run_job(Job.from_json(job), device=device))
