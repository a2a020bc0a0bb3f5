"""Tables of experiments as text: for terminals, Markdown, LaTeX, and CSV."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import rich.box
import rich.table
from rich.text import Text

from dscca.experiments.entries import Entry, Figure, Missing, PValue, Runs, Table
from dscca.experiments.spec import Spec

FORMATS = ("terminal", "markdown", "latex", "csv")

_STYLES = {0: "", 1: "bold", 2: "underline"}
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # at the head of a line it would be an argument of the \\ before
    "*": "{*}",
    "±": r"$\pm$",
    "→": r"$\to$",
    "ℓ": r"$\ell$",
    "θ": r"$\theta$",
    **{c: rf"\{c}" for c in "&%$#_{}"},
}


def markdown(table: Table) -> str:
    """Return a table in Markdown, the best in bold, the second best underlined.

    Without its title, which the page gives it.
    """
    header, lines = table.layout()
    rows = [
        list(map(markdown_text, header)),
        [":--" if i < 1 else "--:" for i in range(len(header))],
    ]
    rows += [[_cell(entry, _markdown_mark, markdown_text) for entry in line] for line in lines]
    body = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    return f"{body}\n{' '.join(map(markdown_text, table.notes))}\n"


def latex(table: Table) -> str:
    """Return a LaTeX table, for a document that uses booktabs."""
    header, lines = table.layout()
    rows = [[_cell(entry, _latex_mark, latex_text) for entry in line] for line in lines]
    labels = 1 if len(table.measures) == 1 else 2
    columns = "l" * labels + "r" * (len(header) - labels)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            f"{' & '.join(map(latex_text, header))} \\\\",
            r"\midrule",
            *(f"{' & '.join(cells)} \\\\" for cells in rows),
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{latex_text(table.title)}. {' '.join(map(latex_text, table.notes))}}}",
            r"\end{table}",
            "",
        ]
    )


def terminal(table: Table) -> rich.table.Table:
    """Return a table for a terminal, never narrower than what its cells say."""
    header, lines = table.layout()
    shown = rich.table.Table(
        title=Text(table.title), caption=Text(" ".join(table.notes)), box=rich.box.SIMPLE
    )
    shown.title_justify = shown.caption_justify = "left"
    for i, name in enumerate(header):
        shown.add_column(Text(name), justify="left" if i == 0 else "right", no_wrap=True)
    for line in lines:
        if line[0] and len(table.measures) > 1:
            shown.add_section()
        shown.add_row(*map(_terminal_cell, line))
    return shown


def comma_separated(tables: Sequence[Table]) -> str:
    """Return tables as one of CSV: a line for every row and measure, numbers in full."""
    lines: list[dict[str, Any]] = []
    for table in tables:
        for (row, measure), entries in table.entries.items():
            line = {"data": table.data, "rule": table.rule, "method": row, "measure": measure}
            for statistic in table.statistics:
                if statistic in entries:
                    line |= _numbers(statistic.replace(" ", "_"), entries[statistic])
            lines.append(line)
    columns = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def deviations(spec: Spec) -> list[str]:
    """Return a line for everything in which a spec differs from the paper."""
    return [f"- {entry['what']}: {entry['why']}." for entry in spec.deviations]


def markdown_text(text: str) -> str:
    r"""Return text with what Markdown would read escaped.

    >>> markdown_text("a|b_c")
    'a\\|b\\_c'
    """
    return re.sub(r"([\\`*_|<>\[\]~])", r"\\\1", text)


def latex_text(text: str) -> str:
    r"""Return text with what LaTeX would read escaped.

    >>> latex_text("gap, % of ℓ0")
    'gap, \\% of $\\ell$0'
    """
    return "".join(_LATEX.get(c, c) for c in text)


def plain(entry: str | Entry | None) -> str:
    """Return what a cell says."""
    match entry:
        case None:
            return ""
        case str():
            return entry
        case PValue(value):
            return f"{value:.3f}" if value >= 1e-3 or not value else f"{value:.2e}"
        case Runs(done, asked, failed):
            return f"{done} of {asked}" + (f", {failed} failed" if failed else "")
        case Missing():
            return "missing"
        case Figure():
            return _number(entry) + _spread(entry)


def _number(figure: Figure) -> str:
    sign = "+" if figure.signed else ""
    text = f"{figure.value:{sign}.{figure.decimals}f}"
    return text.lstrip("+-") if not float(text) else text


def _spread(figure: Figure) -> str:
    return "" if figure.spread is None else f" ± {figure.spread:.{figure.spread_decimals}f}"


def _cell(
    entry: str | Entry | None, mark: Callable[[str, int], str], escape: Callable[[str], str]
) -> str:
    if isinstance(entry, Figure):
        return mark(escape(_number(entry)), entry.place) + escape(_spread(entry))
    return escape(plain(entry))


def _markdown_mark(text: str, place: int) -> str:
    return {1: f"**{text}**", 2: f"<ins>{text}</ins>"}.get(place, text)


def _latex_mark(text: str, place: int) -> str:
    number = re.sub(r"^-", "$-$", text)
    return {1: rf"\textbf{{{number}}}", 2: rf"\underline{{{number}}}"}.get(place, number)


def _terminal_cell(entry: str | Entry | None) -> Text:
    if isinstance(entry, Figure):
        return Text.assemble((_number(entry), _STYLES[entry.place]), _spread(entry))
    return Text(plain(entry), style="dim" if isinstance(entry, Missing) else "")


def _numbers(name: str, entry: Entry) -> dict[str, Any]:
    match entry:
        case Figure(value, spread):
            # Whatever was rounded off in print is kept, but for float arithmetic's own noise.
            numbers = {name: float(f"{value:.12g}")}
            return (
                numbers if spread is None else {**numbers, f"{name}_std": float(f"{spread:.12g}")}
            )
        case PValue(value, pairs):
            return {name: value} if pairs is None else {name: value, f"{name}_pairs": pairs}
        case Runs(done, asked, failed):
            return {name: done, f"{name}_asked": asked, f"{name}_failed": failed}
        case Missing(reason):
            return {"missing": reason}
