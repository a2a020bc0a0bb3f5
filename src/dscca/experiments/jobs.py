"""One training, described in full."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self


@dataclass(frozen=True)
class Job:
    """One method, with all its parameters, on one split of one data set.

    The device and the number of threads are not part of it: they change times, not results.
    """

    dataset: str
    method: str
    """A name of :data:`dscca.methods.METHODS`."""
    parameters: dict[str, Any]
    """Of the estimator, its ``random_state`` included."""
    fold: int | None = None
    """None is the standard split."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the data set's loader."""

    @cached_property
    def id(self) -> str:
        """The first 64 bits of the SHA-256 of the job's canonical JSON, in hexadecimal.

        >>> Job("mnist", "dcca", {"hidden": (8, 8)}).id
        '56c2503b6bf323cc'
        >>> Job("mnist", "dcca", {"hidden": [8, 8]}).id
        '56c2503b6bf323cc'
        """
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON has it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the job that :meth:`to_json` described."""
        return cls(**value)

    def __str__(self) -> str:
        where = "standard split" if self.fold is None else f"fold {self.fold}"
        return f"{self.method} on {self.dataset}, {where}"
