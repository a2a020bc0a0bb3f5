"""A worker process: reads jobs as JSON lines, answers each with its record.

It ends when its standard input does, in the middle of a job too: whoever reads its answers is gone.
"""

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner is interrupted, and ends its workers
    settings: dict[str, Any] = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not come between the answers
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(sys.stdin, jobs), daemon=True).start()

    import torch

    from dscca.experiments.jobs import Job
    from dscca.experiments.running import run_job

    torch.set_num_threads(settings["threads"])
    folder = settings["checkpoints"]
    while True:
        job = Job.from_json(json.loads(jobs.get()))
        checkpoints = None if folder is None else Path(folder) / job.id
        record = asdict(run_job(job, device=settings["device"], checkpoints=checkpoints))
        answers.write(json.dumps(record) + "\n")
        answers.flush()


def _read(source: TextIO, jobs: "queue.Queue[str]") -> None:
    for line in source:
        jobs.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
