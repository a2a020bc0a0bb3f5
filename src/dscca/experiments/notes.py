"""What readers of a table must know: the rule, what its figures are, what is missing and why."""

from collections.abc import Collection, Iterable, Mapping

from dscca.datasets import find_dataset
from dscca.experiments.entries import PAPER, Line, Missing, PValue, Runs, measure_title
from dscca.experiments.planning import Cell
from dscca.experiments.spec import EACH, DataSpec, Spec


def notes(
    spec: Spec,
    data: DataSpec,
    rule: str,
    entries: Mapping[tuple[str, str], Line],
    cells: Collection[Cell | None],
) -> Iterable[str]:
    """Yield the sentences under a table."""
    rule_said = rule_text(rule)
    yield f"{rule_said[0].upper()}{rule_said[1:]}."
    if data.upper_bound is not None and "tc" in spec.measures:
        yield f"TC is {data.upper_bound:g} at most."
    if any("R@" in measure for measure in spec.measures):
        x, y = find_dataset(data.dataset).views
        yield f"x: {x}; y: {y}."
    if spec.repeat != "once":
        yield f"Mean ± standard deviation over {spec.repeat}."
    there = {statistic for line in entries.values() for statistic in line}
    if there & {"p", PAPER + "p"}:
        yield f"p: paired t-test against {spec.reference}."
    if there & {"gap", PAPER + "gap"}:
        yield f"Gap: the share of a row's distance to that bound which {spec.reference} closes."
    if "single" in there:
        yield (
            "One split: the standard one, whose test samples took no part in the choice of "
            "hyperparameters; test folds hold samples that did, as in the paper."
        )
    if data.stands_in_for is not None:
        yield f"Stands in for {data.stands_in_for}; figures of the two do not compare."
    if data.key in spec.published and spec.paper:
        yield f"Paper: Friedlander and Wolf (2022), {spec.paper[0].lower()}{spec.paper[1:]}."
    reasons: dict[str, list[str]] = {}
    for (row, _), line in entries.items():
        p, runs = line.get("p"), line.get("runs")
        if isinstance(mean := line["mean"], Missing):
            reasons.setdefault(f"missing, {mean.reason}", []).append(row)
        if isinstance(p, PValue) and isinstance(runs, Runs) and p.pairs != runs.asked:
            reasons.setdefault(f"p is over the {p.pairs} {spec.repeat} of both", []).append(row)
    for cell in cells:
        if cell is not None and cell.failed:
            of = "of its candidates and runs"
            reasons.setdefault(f"{cell.failed} {of} failed", []).append(cell.row.name)
    rows = {row for row, _ in entries}
    for reason, names in reasons.items():
        who = "All rows" if set(names) == rows else ", ".join(dict.fromkeys(names))
        yield f"{who}: {reason}."


def rule_text(rule: str) -> str:
    """Say how hyperparameters are chosen."""
    if rule == EACH:
        return "hyperparameters by validation: each measure with those that are best for it"
    return f"hyperparameters by validation: the best {measure_title(rule)}"
