"""Tables of README and docs, made from the records in ``results/``.

``python -m benchmarks.docs`` rewrites what stands between ``<!-- table: NAME -->`` and
``<!-- end -->``; a test checks that nothing is out of date.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/design.md", "docs/performance.md")
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


def rewritten(text: str) -> str:
    """Return a page with its tables made anew."""

    def block(match: re.Match[str]) -> str:
        kind, _, name = match[2].partition(":")
        make = {"benchmark": benchmark_table, "runs": runs_table}[kind]
        return f"{match[1]}\n{make(name)}\n{match[4]}"

    return _BLOCK.sub(block, text)


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
