"""Search beyond the grid: its space, pruning, interruptions, and what it never sees."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from dscca.experiments import tune
from dscca.experiments.planning import plan
from dscca.experiments.spaces import Range, parse_range, row_space
from dscca.experiments.spec import load_spec
from dscca.locking import LockedError, lock
from dscca.values import parse_yaml
from tune_problems import SPEC, tuner

optuna = pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def _one_thread():
    """Networks this small are slower with more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def spec_file(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SPEC)
    return path


def history(search):
    return [(search.values_of(t), t.value, t.state.name) for t in search.finished()]


def test_the_space_is_the_specs_grid_with_what_the_row_takes():
    spec = load_spec("beyond")
    row, data = spec.methods["DS-DCCA beyond"], spec.data["mnist"]
    source = spec.methods["DS-DCCA"].choices["mnist"].grid
    assert row_space(spec, data, row) == source | row.choices["mnist"].grid


def test_a_grid_is_tried_once_and_then_done(tmp_path):
    search = tuner(tmp_path)
    seen = []
    search.watch = seen.append
    search.run(100)
    tried = [search.values_of(trial) for trial in search.finished()]
    grid = [{"reg": r, "dropout": d} for r in (1e-4, 1e-2) for d in (0.0, 0.2, 0.4)]
    assert sorted(map(str, tried)) == sorted(map(str, grid))
    assert len(seen) == 6
    assert search.best().value == max(t.value for t in seen if t.state.name == "COMPLETE")


def test_values_are_validation_figures_of_the_same_training(tmp_path):
    """The best trial's figure is what a record of the same job says of validation data."""
    from dscca.experiments.running import run_job

    search = tuner(tmp_path, "DS-DCCA")
    search.run(3)
    best = search.best()
    overridden = load_spec(
        str(tmp_path / "small.yaml"),
        overrides={
            "methods.DS-DCCA.data.small.grid": {k: [v] for k, v in search.values_of(best).items()}
        },
    )
    row, data = overridden.methods["DS-DCCA"], overridden.data["small"]
    job = overridden.job(data, row, search.values_of(best))
    assert job.parameters["random_state"] == 0
    record = run_job(job, device="cpu")
    assert record.validation["tc"] == pytest.approx(best.value, abs=1e-5)
    assert best.user_attrs["validation"] == pytest.approx(record.validation, abs=1e-5)


def test_test_data_are_not_even_loaded(tmp_path, monkeypatch):
    loaded = []

    def watched(name, split, **options):
        loaded.append(split)
        return original(name, split, **options)

    original = tune.load
    monkeypatch.setattr(tune, "load", watched)
    tuner(tmp_path, "CCA").run(2)
    assert loaded == ["train", "val"]


def test_a_killed_search_goes_on_as_if_nothing_had_been(tmp_path):
    (tmp_path / "whole").mkdir()
    whole = tuner(tmp_path / "whole")
    whole.run(5)
    script = Path(__file__).with_name("tune_problems.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, script, tmp_path], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    resumed = tuner(tmp_path)
    assert len(resumed.finished()) == 2
    kept = [trial.datetime_complete for trial in resumed.finished()]
    resumed.run(5)
    assert [trial.datetime_complete for trial in resumed.finished()[:2]] == kept
    for (values, value, state), (expected, target, ended) in zip(
        history(resumed), history(whole), strict=True
    ):
        assert (values, state) == (expected, ended)
        if state == "COMPLETE":
            assert value == pytest.approx(target, abs=1e-4)


def test_trials_that_fall_behind_are_stopped(tmp_path):
    rates = [10.0**-k for k in (2, 3, 7, 8, 9, 10, 11, 12, 13, 14)]
    search = tuner(tmp_path, space={"learning_rate": rates})
    search.run(10)
    pruned = [trial for trial in search.finished() if trial.state.name == "PRUNED"]
    assert pruned
    for trial in pruned:
        assert trial.last_step < 6
        assert search.values_of(trial)["learning_rate"] < 1e-3
    assert search.values_of(search.best())["learning_rate"] >= 1e-3
    # No trial is stopped before there is something to compare it with.
    assert not [trial for trial in search.finished()[:5] if trial.state.name == "PRUNED"]


def test_nothing_is_stopped_before_its_scaling_networks_have_trained(tmp_path):
    space = {"learning_rate": [10.0**-k for k in range(2, 12)]}
    search = tuner(tmp_path, "DS-DCCA", space, fixed={"warmup": 5, "reg": 1e-4})
    search.run(10)
    steps = [t.last_step for t in search.finished() if t.state.name == "PRUNED"]
    assert all(step > 5 for step in steps)


def test_failures_are_kept_and_do_not_end_the_search(tmp_path):
    search = tuner(tmp_path, space={"batch_size": [100, 2, 90]})
    search.run(3)
    failed = [trial for trial in search.finished() if trial.state.name == "FAIL"]
    assert [search.values_of(trial)["batch_size"] for trial in failed] == [2]
    assert "batches of 2 samples" in failed[0].user_attrs["error"]
    assert search.best().state.name == "COMPLETE"


def test_ranges_are_drawn_from(tmp_path):
    space = {"weight_decay": Range(1e-6, 1e-2, log=True), "batch_size": Range(60, 120)}
    search = tuner(tmp_path, space=space)
    search.run(4)
    for trial in search.finished():
        values = search.values_of(trial)
        assert 1e-6 <= values["weight_decay"] <= 1e-2
        assert isinstance(values["batch_size"], int)
        assert 60 <= values["batch_size"] <= 120


def test_another_search_in_the_same_file_is_refused(tmp_path):
    tuner(tmp_path, "CCA").run(1)
    with pytest.raises(ValueError, match="with another space: go on with the same arguments"):
        tuner(tmp_path, "CCA", {"reg": [1.0, 2.0]}).run(1)
    with lock(tmp_path / ".journal.log.lock"), pytest.raises(LockedError, match="another search"):
        tuner(tmp_path, "CCA").run(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:1", "with numbers"),
        ("1", "with numbers"),
        ("1:2:cubic", "with numbers"),
        ("2:1", "must be below"),
        ("0:1:log", "begins above 0"),
    ],
)
def test_ranges_are_checked(text, message):
    with pytest.raises(ValueError, match=message):
        parse_range(f"reg={text}", text)


def test_command(tmp_path, spec_file, run_dscca):
    arguments = ("tune", spec_file, "--data", "small", "--row", "CCA")
    storage = ("--storage", tmp_path / "cca.db", "--device", "cpu")
    code, out, _ = run_dscca(*arguments, *storage, "--trials", "1")
    assert code == 0
    assert "[1/1] tc " in out
    code, out, _ = run_dscca(*arguments, *storage, "--trials", "3")
    assert out.count("(reg=") == 2  # the first trial is not repeated
    assert "best of 3: validation tc " in out
    option = out.split("to use it: --set '")[1].split("'")[0]
    key, _, value = option.partition("=")
    assert key == "methods.CCA.data.small.grid"
    from dscca.values import parse_value

    spec = load_spec(str(spec_file), overrides={key: parse_value(value)})
    (job,) = plan(spec, {}, only=["CCA"]).pending
    assert job.parameters["reg"] in (1e-3, 1e-1, 10.0)


def test_what_is_not_here_fails_no_trial(tmp_path, monkeypatch):
    search = tuner(tmp_path, device="warp")
    with pytest.raises(ValueError, match="device='warp' is no device"):
        search.run(2)
    monkeypatch.setenv("DSCCA_DATA", str(tmp_path))
    monkeypatch.setenv("DSCCA_CACHE", str(tmp_path))
    search.device, search.data = "cpu", replace(search.data, dataset="mocha", options={})
    with pytest.raises(FileNotFoundError, match=r"fsew0.npz"):
        search.run(2)
    assert search.study.get_trials() == []


@pytest.mark.parametrize("row", ["CCA", "r=0.1", "it's \U0001f600, v.2"])
def test_what_was_found_can_be_put_over_a_row_of_any_name(tmp_path, row):
    from dscca.cli.options import parse_assignments

    content = parse_yaml(SPEC)
    content["methods"][row] = {"method": "cca"}
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(content))
    overrides = parse_assignments([tune.override(row, "small", {"reg": 0.5})])
    spec = load_spec(str(path), overrides=overrides)
    assert spec.methods[row].choices["small"].grid == {"reg": [0.5]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--data": "cifar"}, "--data cifar: take from small"),
        ({"--row": "KCCA"}, "--row KCCA: take from CCA, DCCA, DS-DCCA"),
        ({"--measure": "accuracy"}, "--measure accuracy: take from tc, x to y R@1"),
        ({"--range": "width=1:2"}, "NAME from device, n_components, reg"),
        ({"--range": "reg=-1:2"}, "--range reg=-1:2: The 'reg' parameter"),
        ({"--storage": "."}, "is a folder: name a file"),
    ],
)
def test_command_refuses(spec_file, run_dscca, changes, message, monkeypatch):
    monkeypatch.chdir(spec_file.parent)
    given = {"--data": "small", "--row": "CCA", "--storage": "s.log", **changes}
    code, _, err = run_dscca("tune", spec_file, *(part for pair in given.items() for part in pair))
    assert code == 2
    assert message in err
