"""Tables of experiments: figures against scipy's, what is missing, and how it is printed."""

import csv
import io
from statistics import mean, stdev

import numpy as np
import pytest
from scipy import stats

from dscca.experiments import rendering
from dscca.experiments.entries import Figure, Missing, PValue, Runs
from dscca.experiments.tables import make_tables
from experiment_problems import figures, record_runs, small_spec

FOLDS = {
    "CCA": [11.2, 11.9, 11.4, 11.7],
    "NKCCA": [12.5, 12.1, 12.7, 12.2],
    "DCCA": [15.1, 15.4, 15.2, 15.7],
    "DS-DCCA": [16.3, 16.2, 16.6, 16.5],
}
STANDARD = {"CCA": 11.0, "NKCCA": 12.0, "DCCA": 15.0, "DS-DCCA": 16.0}


def by_fold(row, job):
    if row == "DCCA" and job.parameters["reg"] == 1e-2:
        return figures(14.0), figures(19.9)  # a better test figure must not make it the choice
    tc = STANDARD[row] if job.fold is None else FOLDS[row][job.fold]
    return figures(15.0), figures(tc)


def tables(folder, result=by_fold, **changes):
    return make_tables(record_runs(small_spec(folder, **changes), folder / "runs", result))


def line(table, row, measure="tc"):
    return table.entries[row, measure]


def test_figures_over_folds(tmp_path):
    (table,) = tables(tmp_path)
    reference = FOLDS["DS-DCCA"]
    published = {"CCA": 11.5, "DCCA": 15.25, "DS-DCCA": 16.0}
    for row, values in FOLDS.items():
        entries = line(table, row)
        assert entries["mean"].value == pytest.approx(np.mean(values))
        assert entries["mean"].spread == pytest.approx(np.std(values, ddof=1))
        assert entries["single"].value == STANDARD[row]
        assert entries["runs"] == Runs(4, 4)
        if row in published:
            assert entries["difference"].value == pytest.approx(np.mean(values) - published[row])
        if row != "DS-DCCA":
            expected = stats.ttest_rel(values, reference).pvalue
            assert entries["p"] == PValue(pytest.approx(expected), 4)
            closed = 100 * (mean(reference) - mean(values)) / (20 - mean(values))
            assert entries["gap"].value == pytest.approx(closed)
    assert not {"p", "gap"} & set(line(table, "DS-DCCA"))
    assert line(table, "CCA")["paper mean"] == Figure(11.5, 0.25)
    assert line(table, "CCA")["paper p"] == PValue(1.5e-5)
    assert [line(table, row)["mean"].place for row in FOLDS] == [0, 0, 2, 1]
    assert not any(name.startswith("paper") for name in line(table, "NKCCA"))


def test_what_is_missing_says_why(tmp_path):
    def some(row, job):
        if row == "CCA":
            return None
        if row == "NKCCA":
            return "ValueError: no"
        if row == "DCCA" and job.parameters["reg"] == 1e-2:
            return None
        return by_fold(row, job)

    (table,) = tables(tmp_path, some)
    assert line(table, "CCA")["mean"] == Missing("not run")
    assert "ValueError: no" in line(table, "NKCCA")["mean"].reason
    assert line(table, "NKCCA")["runs"] == Runs(0, 4, failed=4)
    assert line(table, "DCCA")["mean"] == Missing("1 of 2 candidates were tried")
    notes = " ".join(table.notes)
    assert "CCA: missing, not run." in notes
    assert "NKCCA: 5 of its candidates and runs failed." in notes


def test_figures_of_fewer_runs_say_so_and_win_nothing(tmp_path):
    def some(row, job):
        if row == "DS-DCCA" and job.fold == 3:
            return "DivergedError: infinite"
        if row == "DCCA" and job.fold == 0:
            return None
        return by_fold(row, job)

    (table,) = tables(tmp_path, some)
    best, second = line(table, "DS-DCCA"), line(table, "DCCA")
    assert best["runs"] == Runs(3, 4, failed=1)
    assert second["runs"] == Runs(3, 4)
    assert best["mean"].value == pytest.approx(mean(FOLDS["DS-DCCA"][:3]))
    assert second["p"].pairs == 2
    expected = stats.ttest_rel(FOLDS["DCCA"][1:3], FOLDS["DS-DCCA"][1:3]).pvalue
    assert second["p"].value == pytest.approx(expected)
    assert "DCCA: p is over the 2 folds of both." in table.notes
    assert [line(table, row)["mean"].place for row in FOLDS] == [2, 1, 0, 0]
    assert "3 of 4, 1 failed" in rendering.markdown(table)


def test_seeds_have_extremes(tmp_path):
    def by_seed(row, job):
        return figures(1.0), figures(FOLDS[row][job.parameters.get("random_state", 0)])

    (table,) = tables(tmp_path, by_seed, repeat="seeds\nseeds: 4")
    entries = line(table, "NKCCA")
    assert (entries["max"].value, entries["min"].value) == (12.7, 12.1)
    assert entries["mean"].spread == pytest.approx(stdev(FOLDS["NKCCA"]))
    assert "single" not in entries
    assert line(table, "CCA")["mean"] == Figure(11.2, 0.0, 2, 3)  # without randomness all are one


def test_one_run_has_neither_spread_nor_test(tmp_path):
    (table,) = tables(tmp_path, repeat="once")
    assert set(line(table, "CCA")) == {
        "mean", "gap", "paper mean", "paper p", "difference"
    }  # fmt: skip
    assert line(table, "CCA")["mean"] == Figure(11.0)
    assert line(table, "CCA")["gap"].value == pytest.approx(100 * 5 / 9)


def test_every_measure_by_its_own_hyperparameters_or_one_model(tmp_path):
    validation = {1e-4: (40, 50, 60, 41, 50, 60), 1e-2: (41, 50, 65, 40, 50, 61)}
    test = {1e-4: (30, 50, 60, 31, 50, 60), 1e-2: (20, 40, 50, 21, 40, 50)}

    def by_recall(row, job):
        if row != "DCCA":
            return None
        reg = job.parameters["reg"]
        return figures(1.0, validation[reg]), figures(1.0, test[reg])

    measures = "[x to y R@1, x to y R@10, y to x R@1, recall_sum]"
    changes = {"measures": measures, "rules": "[each, recall_sum]", "repeat": "once"}
    spec = small_spec(tmp_path, **changes, published=False)
    each, one = make_tables(record_runs(spec, tmp_path / "runs", by_recall))
    assert (each.rule, one.rule) == ("each", "recall_sum")
    shown = [line(each, "DCCA", measure)["mean"].value for measure in spec.measures]
    assert shown == [20, 50, 31, 221]
    shown = [line(one, "DCCA", measure)["mean"].value for measure in spec.measures]
    assert shown == [20, 50, 21, 221]
    assert "each measure with those that are best for it" in each.notes[0]
    assert "the best sum of recalls" in one.notes[0]
    header, lines = each.layout()
    assert header[2:] == ["x→y R@1", "x→y R@10", "y→x R@1", "sum of recalls"]
    assert [cells[:2] for cells in lines[:3]] == [
        ["CCA", "ours"],
        ["NKCCA", "ours"],
        ["DCCA", "ours"],
    ]


def test_ties_share_a_place_and_equal_figures_have_none(tmp_path):
    def equal(row, job):
        value = {"CCA": 3.0, "NKCCA": 3.001, "DCCA": 2.0, "DS-DCCA": 1.0}[row]
        return figures(1.0), figures(value)

    (table,) = tables(tmp_path, equal, repeat="once")
    assert [line(table, row)["mean"].place for row in FOLDS] == [1, 1, 2, 0]
    (tmp_path / "same").mkdir()
    (table,) = tables(tmp_path / "same", lambda *_: (figures(1.0), figures(5.0)), repeat="once")
    assert [line(table, row)["mean"].place for row in FOLDS] == [0, 0, 0, 0]


def test_a_measure_that_runs_lack_is_said_to_be_missing(tmp_path):
    """Fewer than ten test samples have no recall at 10."""
    spec = small_spec(tmp_path, published=False, measures="[tc, x to y R@10]", grid="{}")
    (table,) = make_tables(record_runs(spec, tmp_path / "runs", lambda *_: ({"tc": 1}, {"tc": 2})))
    assert line(table, "CCA", "x to y R@10")["mean"] == Missing("its runs have no such figure")


def test_markdown(tmp_path):
    (table,) = tables(tmp_path)
    lines = rendering.markdown(table).split("\n")
    assert lines[0].split(" | ")[:2] == ["| method", "TC"]
    assert lines[1].count("--:") == lines[0].count("|") - 2
    assert lines[2].startswith("| CCA | 11.55 ± 0.31 | ")
    assert lines[2].endswith("| 11.00 | 4 of 4 | 11.50 ± 0.25 | 1.50e-05 | +0.05 |")
    assert "<ins>15.35</ins> ± 0.26" in lines[4]
    assert "**16.40** ± 0.18" in lines[5]
    assert rendering.markdown_text("a_b*c|d") == r"a\_b\*c\|d"


def test_latex_is_escaped(tmp_path):
    spec = small_spec(tmp_path, title="'50% & more_of #1 {x} ~ ^'")
    plan = record_runs(spec, tmp_path / "runs", by_fold)
    (table,) = make_tables(plan)
    text = rendering.latex(table)
    assert r"\textbf{16.40} $\pm$ 0.18" in text
    assert r"\underline{15.35} $\pm$ 0.26" in text
    assert r"gap \%" in text
    assert r"50\% \& more\_of \#1 \{x\} \textasciitilde{} \textasciicircum{}" in text
    body = text[text.index("\\midrule") : text.index("\\bottomrule")]
    columns = text[text.index("{tabular}{") + 10 :].split("}")[0]
    rows = [row for row in body.split("\n")[1:] if row]
    assert [row.count(" & ") + 1 for row in rows] == [len(columns)] * 4


def test_csv_has_numbers_in_full(tmp_path):
    text = rendering.comma_separated(tables(tmp_path))
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(text))}
    for row, values in FOLDS.items():
        assert float(rows[row]["mean"]) == pytest.approx(mean(values), rel=1e-11)
        assert float(rows[row]["mean_std"]) == pytest.approx(stdev(values), rel=1e-11)
        assert (rows[row]["runs"], rows[row]["runs_asked"]) == ("4", "4")
    assert (rows["CCA"]["data"], rows["CCA"]["measure"], rows["CCA"]["rule"]) == (
        "digits",
        "tc",
        "tc",
    )
    assert rows["NKCCA"]["paper_mean"] == ""


@pytest.mark.parametrize("row", ["[ours]", "*ours"])
def test_latex_reads_no_arguments_into_rows(row):
    r"""After ``\\`` LaTeX takes a star or a bracket, on the next line too, for an argument."""
    assert rendering.latex_text(row)[0] not in "[*"


def test_command(tmp_path, run_dscca):
    record_runs(small_spec(tmp_path), tmp_path / "runs", by_fold)
    arguments = ("table", tmp_path / "small.yaml", "--results", tmp_path / "runs")
    code, out, _ = run_dscca(*arguments)
    assert code == 0
    for text in ("11.55 ± 0.31", "16.40 ± 0.18", "11.50 ± 0.25", "1.50e-05", "4 of 4"):
        assert text in out
    assert "…" not in out  # nothing is cut off, however narrow the terminal
    code, out, _ = run_dscca(*arguments, "--format", "markdown", "--data", "digits")
    assert code == 0
    assert out.startswith("### Digits: total correlation\n\n| method | TC |")
    assert run_dscca(*arguments, "--format", "latex")[1].startswith("\\begin{table}")
    assert run_dscca(*arguments, "--format", "csv")[1].startswith("data,rule,method,measure,mean")


def test_command_shows_deviations(run_dscca, tmp_path):
    code, out, _ = run_dscca(
        "table", "ablation", "--results", tmp_path, "--deviations", "--data", "xrmb"
    )
    assert code == 0
    assert "All rows: missing, not run." in " ".join(out.split())
    assert "- XRMB's acoustic view has 273 features" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("magic",), "no spec magic: there are ablation, "),
        (
            ("ablation", "--format", "word"),
            "--format word: take from terminal, markdown, latex, csv",
        ),
        (("ablation", "--data", "cifar"), "ablation has no data cifar: there are mnist, xrmb"),
        (("ablation", "--results", __file__), "is a file, not a folder"),
    ],
)
def test_command_refuses(run_dscca, arguments, message):
    code, _, err = run_dscca("table", *arguments)
    assert code == 2
    assert message in err
