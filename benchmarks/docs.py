"""Tables of README and docs, made from the records in ``results/``.

``python -m benchmarks.docs`` rewrites what stands between ``<!-- table: NAME -->`` and
``<!-- end -->``; a test checks that nothing is out of date.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from dscca.experiments.planning import plan
from dscca.experiments.records import Record, read_records
from dscca.experiments.rendering import deviations, markdown, markdown_text
from dscca.experiments.spec import Spec, load_spec
from dscca.experiments.tables import make_tables

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/design.md", "docs/performance.md", "docs/reproduction.md")
_BLOCK = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def benchmark_table(name: str) -> str:
    """Return the table that a benchmark kept."""
    record = _read(f"benchmarks/{name}.json")
    table = _markdown(record["columns"], record["rows"])
    return f"{record['title']}.\n\n{table}\n{record['machine']}.\n"


def runs_table(name: str) -> str:
    """Return test TC and times of training runs, over their seeds, one row per setting."""
    records = _read(f"{name}.json")
    settings = list(dict.fromkeys(record["setting"] for record in records))
    columns = ["setting", "test TC", "seconds", "seeds"]
    with_memory = "peak_rss_mb" in records[0]
    rows = []
    for setting in settings:
        runs = [record for record in records if record["setting"] == setting]
        rows.append(
            [
                setting,
                _spread([run["test_tc"] for run in runs]),
                _spread([run["fit_seconds"] for run in runs]),
                str(len(runs)),
            ]
        )
        if with_memory:
            rows[-1].append(f"{max(run['peak_rss_mb'] for run in runs) / 1e3:.1f}")
    if with_memory:
        columns.append("peak memory, GB")
    first = records[0]
    versions = ", ".join(f"{k} {v}" for k, v in first["versions"].items())
    table = _markdown(columns, rows)
    return f"{table}\n{first['hardware']}, {versions}.\n"


MNIST = {
    "CCA": ("classical", "CCA"),
    "FKCCA": ("classical", "FKCCA, rank 6,000"),
    "NKCCA": ("classical", "NKCCA, rank 6,000"),
    "NCCA": ("ncca", "NCCA, chosen on validation digits"),
    "DCCA": ("dcca", "DCCA"),
    "DCCAE": ("baselines", "DCCAE"),
    "Soft-CCA": ("baselines", "Soft-CCA"),
    "Soft-HGR": ("baselines", "Soft-HGR"),
    "ℓ0-CCA": ("baselines", "ℓ0-CCA"),
    "DS-DCCA": ("dcca", "DS-DCCA (128, c)"),
}
"""Where the record of every method of the paper's first table is."""


def paper_table(name: str) -> str:
    """Return test TC beside the paper's; a method without a record is shown as missing."""
    published = _read("paper/total_correlation.json")
    rows = []
    for method, (file, setting) in MNIST.items():
        path = f"{name}/{file}.json"
        records = _read(path) if (ROOT / "results" / path).exists() else []
        scores = [record["test_tc"] for record in records if record["setting"] == setting]
        theirs = published[name][method]
        ours = _spread(scores) if scores else "missing"
        difference = f"{mean(scores) - theirs:+.2f}" if scores else ""
        rows.append([method, ours, str(len(scores)), f"{theirs:.2f}", difference])
    columns = ("method", "test TC of 50", "runs", "paper", "difference")
    return f"{_markdown(columns, rows)}\nPaper: {published['source']}; ours: one standard split.\n"


def spec_table(name: str) -> str:
    """Return a table of the experiments: SPEC/DATA, or SPEC/DATA/RULE for one rule of several.

    With +NAME after it, ``results/NAME.yaml`` is put over the spec, as ``--with`` does.
    """
    where, spec = _spec(name)
    _, data, *rule = where.split("/")
    state = plan(spec, _runs(), data=[data])
    tables = [table for table in make_tables(state, [data]) if table.rule in (rule or spec.rules)]
    if not tables:
        raise ValueError(f"{name}: {spec.name} has the rules {', '.join(spec.rules)}")
    return "\n".join(map(markdown, tables))


def deviations_list(names: str) -> str:
    """Return where specs (separated by commas) differ from the paper, and why.

    Each may have +NAME, its overlay. What holds for several is listed once, with their names; an
    overlay's name stands at what it adds.
    """
    found: dict[str, list[str]] = {}
    specs = [(name, *_spec(name)) for name in names.split(",")]
    for name, where, spec in specs:
        for line in deviations(spec):
            listed = found.setdefault(markdown_text(line), [])
            if f"`{where}`" not in listed:
                listed.append(f"`{name}`")
    if len(specs) == 1:
        return "\n".join(found) + "\n"
    return "".join(f"{line} ({', '.join(where)})\n" for line, where in found.items())


def _spec(name: str) -> tuple[str, Spec]:
    """Return what stands before the overlays, and the spec with them."""
    where, *overlays = name.split("+")
    files = [ROOT / "results" / f"{overlay}.yaml" for overlay in overlays]
    return where, load_spec(where.split("/")[0], files)


def scales_table(name: str) -> str:
    """Return how many neighbours share a sample's class, among scales and among inputs."""
    record = _read(f"{name}.json")
    rows = [
        [view, *(f"{100 * shares[f'in {space} space']:.1f}%" for space in ("scale", "input"))]
        for view, shares in record["accuracy"].items()
    ]
    return _markdown(("digit told by its neighbours", "in scale space", "in input space"), rows)


def search_table(name: str) -> str:
    """Return what a search on validation data tried."""
    records = _read(f"{name}.json")
    columns = ("margin", "alpha", "reduction", "scale", "epochs")
    rows = [
        [
            *(str(record["parameters"][column]) for column in columns),
            f"{record['validation_sum']:.1f}",
            str(record["best_epoch"]),
        ]
        for record in records
    ]
    return _markdown((*columns, "sum of validation recalls", "best epoch"), rows)


def rewritten(text: str) -> str:
    """Return a page with its tables made anew."""

    def block(match: re.Match[str]) -> str:
        kind, _, name = match[2].partition(":")
        make = {
            "benchmark": benchmark_table,
            "runs": runs_table,
            "search": search_table,
            "scales": scales_table,
            "paper": paper_table,
            "spec": spec_table,
            "deviations": deviations_list,
        }[kind]
        return f"{match[1]}\n{make(name)}\n{match[4]}"

    return _BLOCK.sub(block, text)


@cache
def _runs() -> dict[str, Record]:
    return read_records(ROOT / "results" / "runs")


def _read(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text())


def _spread(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):.2f}{spread}"


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> None:
    for page in PAGES:
        path = ROOT / page
        path.write_text(rewritten(path.read_text()))


if __name__ == "__main__":
    main()
