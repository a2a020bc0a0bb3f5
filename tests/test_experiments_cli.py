"""``dscca run`` and ``dscca table`` as a user calls them."""

import json

import pytest
import yaml

from dscca.experiments.planning import plan
from dscca.experiments.records import read_records
from dscca.experiments.smoke import smoke
from dscca.experiments.spec import load_spec, spec_names
from runner_problems import SMALL


@pytest.fixture
def small_file(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


def test_every_spec_runs_in_miniature(run_dscca, tmp_path):
    code, _, err = run_dscca("run", "all", "--smoke", "--workers", 2, "--results", tmp_path)
    assert (code, err) == (0, "")
    records = read_records(tmp_path)
    for name in spec_names():
        state = plan(smoke(load_spec(name)), records)
        assert state.pending == []
        assert {cell.reason for cell in state.cells.values()} == {""}
    for form in ("terminal", "markdown", "latex", "csv"):
        shown = ("table", "ablation", "--smoke", "--results", tmp_path, "--format", form)
        code, out, _ = run_dscca(*shown)
        assert code == 0
        assert "DCCA wide 2" in out
        assert "missing" not in out


def test_failures_show_in_the_exit_code(run_dscca, tmp_path, small_file):
    too_many = ("--set", "data.a.parameters.n_components=18", "--only", "CCA")
    run = ("run", small_file, *too_many, "--results", tmp_path / "runs")
    code, out, _ = run_dscca(*run)
    assert code == 1
    assert "3 failed (--retry-failed tries them again)" in out
    assert "n_components=18" in out
    code, out, _ = run_dscca(*run)
    assert code == 1
    assert out.count("\n") == 2  # nothing ran again


def test_a_dry_run_says_what_is_missing_and_runs_nothing(run_dscca, tmp_path, small_file):
    code, out, _ = run_dscca("run", small_file, "--dry-run", "--results", tmp_path / "runs")
    assert code == 0
    assert "0 of 2 candidates were" in " ".join(out.split())
    assert "5 jobs are known to be needed" in out
    assert not (tmp_path / "runs").exists()


def test_an_overlay_and_single_values_change_a_spec(run_dscca, tmp_path, small_file):
    overlay = tmp_path / "short.yaml"
    overlay.write_text("methods: {DCCA: {grid: {reg: [0.001]}}}\n")
    run = ("run", small_file, "--with", overlay, "--set", "data.a.networks.epochs=3")
    code, _, _ = run_dscca(*run, "--results", tmp_path / "runs", "--only", "DCCA", "--threads", 1)
    assert code == 0
    jobs = [json.loads(p.read_text())["job"] for p in (tmp_path / "runs").glob("*.json")]
    assert sorted(str(job["fold"]) for job in jobs) == ["0", "1", "None"]
    assert {(j["parameters"]["reg"], j["parameters"]["epochs"]) for j in jobs} == {(0.001, 3)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "magic"), "no spec magic: there are ablation, "),
        (("run", "ablation", "--only", "X"), "--only X: take from DCCA, "),
        (("run", "ablation", "--set", "data.mnist.fold=3"), "data.mnist.fold has the key 'fold'"),
        (("run", "ablation", "--executor", "slurm"), "--executor slurm: take local or ray"),
        (("table", "ablation", "--format", "word"), "--format word: take from "),
    ],
)
def test_wrong_calls_are_told_what_is_right(run_dscca, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, _, err = run_dscca(*arguments)
    assert code == 2
    assert said in err
