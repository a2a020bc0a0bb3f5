"""What README and docs say is what the records say."""

from pathlib import Path

import pytest

from benchmarks import docs

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", docs.PAGES)
def test_tables_are_current(page):
    text = (ROOT / page).read_text()
    assert docs.rewritten(text) == text, f"run python -m benchmarks.docs: {page} is out of date"


def test_tables_are_there():
    text = (ROOT / "docs" / "performance.md").read_text()
    assert "<!-- table: runs:mnist/dcca -->" in text
    assert docs.runs_table("mnist/dcca") in text
