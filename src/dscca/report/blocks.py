"""What a page is made of: sections of tables, charts, examples and notes, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dscca.report.charts import Figure


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what it shows, and what it is sorted by."""

    text: str
    key: float | str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table that readers sort by any column; numbers are set to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    strong: int | None = None
    """Number of the row that is set off."""
    kind: str = "table"


@dataclass(frozen=True)
class Chart:
    """One chart, or several of which readers choose one.

    Attributes
    ----------
    figures : option -> figure; a single one has no choice
    label : what the chart shows, for those who do not see it
    samples : whether its points are samples, which the page shows on hover
    """

    figures: Mapping[str, Figure]
    label: str
    title: str = ""
    samples: bool = False
    kind: str = "chart"


@dataclass(frozen=True)
class Answers:
    """Queries of one direction with what was found; `query`, `items` are views, "x" or "y"."""

    title: str
    query: str
    items: str
    answers: Sequence[Any]
    kind: str = "answers"


@dataclass(frozen=True)
class Note:
    """A sentence or two."""

    text: str
    kind: str = "note"


Block = Table | Chart | Answers | Note


@dataclass(frozen=True)
class Row:
    """Blocks side by side where the screen is wide enough."""

    blocks: Sequence[Block]
    kind: str = "row"


@dataclass(frozen=True)
class Folded:
    """Blocks that are shown when asked for."""

    summary: str
    blocks: Sequence[Block]
    kind: str = "folded"


@dataclass(frozen=True)
class Section:
    """A headed part of the page."""

    name: str
    title: str
    lead: str = ""
    blocks: Sequence[Block | Row | Folded] = field(default_factory=tuple)


def text_cell(text: object, note: str = "") -> Cell:
    """Return a cell of text."""
    return Cell(str(text), str(text).casefold(), note)


def number_cell(value: float | None, shown: str = "{:.2f}", note: str = "") -> Cell:
    """Return a cell of a number, or a dash, which is sorted last, for None."""
    if value is None:
        return Cell("—", "", note)
    return Cell(shown.format(value), float(value), note)
