"""A small experiment, and records that nobody had to train for."""

import hashlib

from dscca.experiments.records import Record
from dscca.experiments.spec import parse_spec

SMALL = {
    "title": "Small",
    "measures": ["tc", "recall_sum"],
    "rules": ["tc"],
    "repeat": "folds",
    "reference": "DS",
    "data": {
        "a": {
            "dataset": "synthetic-nonlinear",
            "options": {"sizes": [300, 100, 100]},
            "folds": 2,
            "parameters": {"n_components": 3},
            "networks": {"hidden": [8], "epochs": 2, "batch_size": 100, "warmup": 1},
        }
    },
    "methods": {
        "CCA": {"method": "cca"},
        "DCCA": {"method": "dcca", "grid": {"reg": [1e-4, 1e-2]}},
        "DS": {"method": "ds-dcca", "takes": {"reg": "DCCA"}, "parameters": {"scale_hidden": [4]}},
    },
}


def small_spec(**changes):
    """Return the small experiment; changes are put over its keys."""
    return parse_spec({**SMALL, **changes}, "small", "small.yaml")


def made_up(job, validation=None, test=None):
    """Return a record with figures that follow from the job alone, or with those given."""
    share = int(hashlib.sha256(job.id.encode()).hexdigest()[:8], 16) / 2**32
    figures = {"tc": 2 + share, "recall_sum": 100 + 50 * share}
    return Record(
        job,
        "done",
        validation={**figures, **(validation or {})},
        test={**figures, **(test or {})},
        seconds=0.0,
    )


class InstantPool:
    """Carries jobs out at once, by a function; keeps what it was given."""

    def __init__(self, run=made_up, workers=2, per_wait=None):
        self.run, self.workers, self.per_wait = run, workers, per_wait
        self.waiting, self.ran, self.closed = [], [], False

    @property
    def free(self):
        return self.workers - len(self.waiting)

    def submit(self, job):
        self.waiting.append(job)

    def finished(self, timeout):
        for job in self.waiting[: self.per_wait]:
            self.waiting.remove(job)
            self.ran.append(job)
            yield self.run(job)

    def close(self):
        self.closed = True
