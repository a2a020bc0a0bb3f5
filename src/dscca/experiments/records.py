"""What is kept of every job: a small JSON file, named by the job's hash."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from dscca.experiments.jobs import Job
from dscca.persistence import write_atomically


class RecordError(ValueError):
    """A file among the records is none."""


@dataclass(frozen=True)
class Record:
    """What came of a job; of a failed one, its error and nothing else.

    `validation` and `test` hold ``tc``, the recalls in per cent (``x to y R@1``, ...), and their
    sum ``recall_sum``. Hyperparameters are chosen by `validation` alone.
    """

    job: Job
    status: Literal["done", "failed"]
    error: str | None = None
    validation: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    correlations: list[float] = field(default_factory=list)
    """Canonical correlations of the test samples."""
    recall_curve: dict[str, dict[str, float]] = field(default_factory=dict)
    """Direction, then k, then recall at k of the test samples, in per cent."""
    best_epoch: int | None = None
    n_epochs: int | None = None
    warmup: int | None = None
    history: dict[str, list[float | None]] | None = None
    """Of some epochs, ``epoch`` among its columns; thinned evenly where there were many."""
    n_parameters: int | None = None
    reg: list[float] | None = None
    """The regularisers of the linear CCA at the end, where they were chosen."""
    fit_seconds: float | None = None
    seconds: float | None = None
    peak_memory_mb: float | None = None
    device: str = "cpu"
    hardware: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    started: str = ""

    @property
    def id(self) -> str:
        """The job's hash."""
        return self.job.id

    @property
    def done(self) -> bool:
        """Whether the job ended well."""
        return self.status == "done"

    def to_json(self) -> dict[str, Any]:
        """Return the record as it is kept."""
        return {"id": self.id, **asdict(self), "job": self.job.to_json()}


def record_path(folder: Path, job: Job) -> Path:
    """Return where the record of a job is kept."""
    return folder / f"{job.id}.json"


def write_record(folder: Path, record: Record) -> Path:
    """Keep a record; a reader, or a crash, sees all of it or nothing."""
    path = record_path(folder, record.job)
    text = json.dumps(_finite(record.to_json()), indent=1, allow_nan=False)
    write_atomically(path, (text + "\n").encode())
    return path


def read_record(path: Path) -> Record:
    """Return the record in a file, which must be the one of its job."""
    try:
        value = json.loads(path.read_bytes())
        identity = value.pop("id")
        job = Job.from_json(value.pop("job"))
        unknown = sorted(value.keys() - {f.name for f in fields(Record)})
        record = Record(job, **{k: v for k, v in value.items() if k not in unknown})
        _check(record)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(
            f"{path} is no record of an experiment ({type(error).__name__}: {error}): give records "
            f"a folder of their own. If it was one, remove it, and its job runs again."
        ) from error
    if unknown:
        raise RecordError(
            f"{path} holds {', '.join(unknown)}, which this version of dscca does not know: use "
            f"the one that wrote it, or another folder of results."
        )
    if identity != record.id:
        raise RecordError(
            f"{path} was changed: its id does not fit its job, whose hash is {record.id}. Remove "
            f"it, and the job runs again."
        )
    return record


def read_records(folder: Path) -> dict[str, Record]:
    """Return all records in a folder, by id."""
    return {record.id: record for record in _records(folder)}


def _records(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.glob("*.json")):
        yield read_record(path)


def _check(record: Record) -> None:
    """Refuse a record whose status or figures are none."""
    if record.status not in ("done", "failed"):
        raise ValueError(f"its status is {record.status!r:.20}")
    for name in ("validation", "test"):
        for measure, figure in getattr(record, name).items():
            if figure is not None and not isinstance(figure, int | float):
                raise ValueError(f"its {name} {measure} is {figure!r:.20}")


def _finite(value: Any) -> Any:
    """Return JSON without the numbers it cannot hold: None stands for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
