"""What a table holds: typed entries, by row, measure and statistic."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A number, maybe with a spread."""

    value: float
    spread: float | None = None
    decimals: int = 2
    spread_decimals: int = 2
    signed: bool = False
    place: int = 0
    """1 for the best of its column, 2 for the second best."""


@dataclass(frozen=True)
class PValue:
    """The p-value of a comparison with the reference, and over how many pairs it was made."""

    value: float
    pairs: int | None = None


@dataclass(frozen=True)
class Runs:
    """How many runs a figure comes from, of how many asked for."""

    done: int
    asked: int
    failed: int = 0


@dataclass(frozen=True)
class Missing:
    """A figure that is not there."""

    reason: str


Entry = Figure | PValue | Runs | Missing
Line = dict[str, Entry]
"""What there is of a row by one measure: statistic, entry."""

PAPER = "paper "
_SHOWN = {"tc": "TC", "recall_sum": "sum of recalls"}


@dataclass(frozen=True)
class Table:
    """One data set of an experiment by one rule of choosing hyperparameters."""

    title: str
    data: str
    rule: str
    rows: tuple[str, ...]
    measures: tuple[str, ...]
    statistics: tuple[str, ...]
    """In the order of columns: those of ours, the paper's with "paper " before, the difference."""
    titles: dict[str, str]
    """Of statistics."""
    entries: dict[tuple[str, str], Line]
    """By row and measure."""
    notes: tuple[str, ...]

    def layout(self) -> tuple[list[str], list[list[str | Entry | None]]]:
        """Return column titles and lines.

        With one measure the statistics are columns; with several, lines of every row.
        """
        if len(self.measures) == 1:
            measure = self.measures[0]
            titles = {**self.titles, "mean": measure_title(measure)}
            lines = [
                [row, *(self.entries[row, measure].get(s) for s in self.statistics)]
                for row in self.rows
            ]
            return ["method", *(titles[s] for s in self.statistics)], lines
        header = ["method", "", *map(measure_title, self.measures)]
        lines = []
        for row in self.rows:
            first = True
            for statistic in self.statistics:
                found = [self.entries[row, m].get(statistic) for m in self.measures]
                if any(entry is not None for entry in found):
                    lines.append([row if first else "", self.titles[statistic], *found])
                    first = False
        return header, lines


def measure_title(measure: str) -> str:
    """Return a measure as readers see it.

    >>> measure_title("x to y R@5"), measure_title("tc")
    ('x→y R@5', 'TC')
    """
    return _SHOWN.get(measure, measure.replace(" to ", "→"))
