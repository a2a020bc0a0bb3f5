"""What the runs of a row say of one measure: means, spreads, and comparisons of two rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from dscca.experiments.planning import Cell
from dscca.experiments.records import Record
from dscca.stats import PairedTTest, paired_t_test


@dataclass(frozen=True)
class Summary:
    """Test figures of a row by one measure, a place for every fold or seed that was asked for."""

    values: tuple[float | None, ...]
    failed: int = 0
    single: float | None = None
    """On the standard split, no sample of whose test part took part in a choice."""

    @property
    def known(self) -> list[float]:
        """The figures of the runs that ended well."""
        return [value for value in self.values if value is not None]

    @property
    def complete(self) -> bool:
        """Whether every run that was asked for ended well."""
        return bool(self.values) and None not in self.values

    @property
    def mean(self) -> float | None:
        """Their mean."""
        return fmean(self.known) if self.known else None

    @property
    def std(self) -> float | None:
        """Their standard deviation, by n - 1."""
        return stdev(self.known) if len(self.known) > 1 else None


def summarize(
    cell: Cell, measure: str, rule: str, repeat: Literal["folds", "seeds", "once"]
) -> Summary:
    """Return a cell's figures by a measure, with the hyperparameters that a rule chose."""
    standard = cell.single(measure, rule)
    runs = [standard] if repeat == "once" else cell.runs(measure, rule)
    return Summary(
        tuple(_figure(record, measure) for record in runs),
        sum(record is not None and not record.done for record in runs),
        _figure(standard, measure),
    )


def compare(row: Summary, reference: Summary) -> PairedTTest | None:
    """Return a paired t-test of a row against the reference, over the runs that both have.

    None if these are fewer than two.
    """
    pairs = [
        (a, b)
        for a, b in zip(row.values, reference.values, strict=False)
        if a is not None and b is not None
    ]
    return paired_t_test(*zip(*pairs, strict=True)) if len(pairs) > 1 else None


def gap_closed(value: float, reference: float, bound: float) -> float | None:
    """Return how much of the gap between a value and its upper bound a reference closes, per cent.

    None if there is no gap.

    >>> gap_closed(46.0, 47.0, 50.0)
    25.0
    """
    return 100 * (reference - value) / (bound - value) if value < bound else None


def places(values: Sequence[float | None]) -> list[int]:
    """Return 1 for the highest of some values, 2 for the next, 0 for all others; equals share.

    Nothing is best among fewer than two different values.

    >>> places([3.0, 5.0, None, 4.0, 5.0])
    [0, 1, 0, 2, 1]
    """
    known = sorted({value for value in values if value is not None}, reverse=True)
    if len(known) < 2:
        return [0] * len(values)
    return [known.index(v) + 1 if v is not None and v in known[:2] else 0 for v in values]


def _figure(record: Record | None, measure: str) -> float | None:
    return record.test.get(measure) if record is not None and record.done else None
