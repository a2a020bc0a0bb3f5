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


def test_overlays_are_found_beside_the_records(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    overlay = "title: Half of it\ndeviations: [{what: few epochs, why: time}]\n"
    (tmp_path / "results" / "short.yaml").write_text(overlay)
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "_runs", dict)
    assert "| DS-DCCA |" in docs.spec_table("ablation/mnist+short")
    assert docs.deviations_list("ablation+short").endswith("- few epochs: time.\n")


def test_tables_of_experiments():
    """Ours come from the records of the runs; the paper's figures are there without any."""
    page = "Above\n<!-- table: spec:total_correlation/mnist -->\nold\n<!-- end -->\nbelow\n"
    text = docs.rewritten(page)
    assert docs.rewritten(text) == text
    assert text.startswith("Above\n<!-- table: spec:total_correlation/mnist -->\n\n| method | TC |")
    assert "| DS-DCCA |" in text
    assert "47.50** ± 0.03" in text
    assert docs.spec_table("retrieval/flickr8k/recall_sum") in docs.spec_table("retrieval/flickr8k")
    page = "<!-- table: deviations:ablation -->\n<!-- end -->"
    assert "\n- XRMB's acoustic view has 273 features" in docs.rewritten(page)
    with pytest.raises(ValueError, match="has the rules each, recall_sum"):
        docs.spec_table("retrieval/flickr8k/tc")


def test_deviations_say_why_and_where():
    text = docs.deviations_list("total_correlation,ablation")
    line = next(line for line in text.splitlines() if "TF32 on GPUs" in line)
    assert "the paper's GPU computed all in float32" in line
    assert "`total_correlation`" in line
    assert "`ablation`" in line
    assert len(set(text.splitlines())) == len(text.splitlines())
