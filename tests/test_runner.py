"""Carrying experiments out: once each, over kills and failures, beside other runners."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

from dscca.experiments.planning import plan
from dscca.experiments.pool import LocalPool
from dscca.experiments.records import (
    Record,
    RecordError,
    read_record,
    read_records,
    record_path,
    write_record,
)
from dscca.experiments.runner import Runner
from dscca.experiments.running import run_job
from runner_problems import SMALL, InstantPool, made_up, small_spec

N_JOBS = 3 + 2 + 2 + 3
TIMELESS = {"seconds": None, "fit_seconds": None, "peak_memory_mb": None, "started": ""}


def results(folder):
    """Return what all records say, but for times and memory."""
    return {
        i: replace(r, **TIMELESS, hardware="", commit=None) for i, r in read_records(folder).items()
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The records of the small experiment, carried out by a worker process."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    state = Runner(small_spec(), folder, LocalPool(threads=1)).run()
    assert all(cell.reason == "" for cell in state.cells.values())
    return results(folder)


def test_every_job_is_recorded_once(tmp_path):
    pool, seen = InstantPool(), []
    state = Runner(small_spec(), tmp_path, pool, watch=lambda r, p: seen.append(r.id)).run()
    assert state.pending == []
    assert len(pool.ran) == N_JOBS
    assert seen == [job.id for job in pool.ran]
    assert set(read_records(tmp_path)) == set(seen)
    assert pool.closed
    again = InstantPool()
    Runner(small_spec(), tmp_path, again).run()
    assert again.ran == []


def test_plans_are_made_for_new_records_only(tmp_path, monkeypatch):
    """Waiting for trainings must not cost the processor that they need."""
    made = []
    monkeypatch.setattr(
        "dscca.experiments.runner.plan", lambda *a, **k: made.append(a) or plan(*a, **k)
    )

    class SlowPool(InstantPool):
        waits = 0

        def finished(self, timeout):
            self.waits += 1
            if self.waits % 5 == 0:
                yield from super().finished(timeout)

    pool = SlowPool()
    Runner(small_spec(), tmp_path, pool).run()
    assert len(pool.ran) == N_JOBS
    assert len(made) <= N_JOBS + 1


def test_a_record_reads_as_it_was_written(tmp_path):
    job = plan(small_spec(), {}).pending[3]
    record = run_job(job)
    path = write_record(tmp_path, record)
    assert read_record(path) == record
    assert record.done
    assert len(record.correlations) == 3
    assert record.test["tc"] == pytest.approx(sum(record.correlations), rel=1e-4)
    assert record.test["x to y R@5"] == record.recall_curve["x to y"]["5"]
    assert record.history["epoch"] == [1, 2]
    assert path.stat().st_size < 5000


def test_failures_are_recorded_and_do_not_stop_the_rest(tmp_path):
    def run(job):
        failing = job.method == "dcca" and job.fold == 0
        return Record(job, "failed", "ValueError: <no>") if failing else made_up(job)

    state = Runner(small_spec(), tmp_path, InstantPool(run)).run()
    assert state.cells["a", "DCCA"].reason == "1 of 3 runs failed: ValueError: <no>"
    assert state.cells["a", "DS"].reason == ""
    pool = InstantPool()
    Runner(small_spec(), tmp_path, pool).run()
    assert pool.ran == []
    state = Runner(small_spec(), tmp_path, pool, retry_failed=True).run()
    assert [(job.method, job.fold) for job in pool.ran] == [("dcca", 0)]
    assert state.cells["a", "DCCA"].reason == ""


def test_what_a_method_refuses_is_the_record_of_a_failure():
    job = plan(small_spec(), {}).pending[0]
    record = run_job(replace(job, parameters={**job.parameters, "n_components": 50}))
    assert record.status == "failed"
    assert "n_components=50" in record.error
    assert record.validation == record.test == {}


def test_a_device_that_is_not_here_is_refused_before_it_fails_every_job(run_dscca, tmp_path):
    smoke = ("run", "seeds", "--smoke", "--results", tmp_path / "runs")
    code, _, err = run_dscca(*smoke, "--device", "warp")
    assert code == 2
    assert "device='warp' is no device" in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("seeds", "--set", "seeds"), "--set seeds: write NAME=VALUE"),
        (("all", "--only", "DCCA"), "--only DCCA: take from "),
    ],
)
def test_command_refuses_before_any_work(run_dscca, tmp_path, arguments, message):
    code, _, err = run_dscca("run", *arguments, "--smoke", "--results", tmp_path / "runs")
    assert code == 2
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_text_of_specs_and_errors_is_printed_as_it_is(run_dscca, tmp_path, monkeypatch):
    def run(job):
        return Record(job, "failed", "ValueError: no [/b] in [bold]")

    monkeypatch.setattr("dscca.cli.experiments._pool", lambda *_: InstantPool(run))
    methods = {"CCA [/b]": SMALL["methods"]["CCA"]}
    spec = {**SMALL, "title": "[red]Small[/x]", "methods": methods, "reference": None}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(spec))
    arguments = ("run", tmp_path / "mine.yaml", "--results", tmp_path / "runs")
    code, out, _ = run_dscca(*arguments)
    assert code == 1
    assert "[red]Small[/x]: records in" in out
    assert all(f"[{n}/3] cca" in out for n in (1, 2, 3))  # two of them finish together
    assert "[3/3] cca on synthetic-nonlinear, fold 1: ValueError: no [/b] in [bold]" in out
    code, out, _ = run_dscca(*arguments, "--dry-run")
    assert code == 0
    assert "CCA [/b]" in out


def test_data_that_is_not_there_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("DSCCA_DATA", str(tmp_path))
    monkeypatch.setenv("DSCCA_CACHE", str(tmp_path))
    data = {**SMALL["data"], "b": {**SMALL["data"]["a"], "dataset": "mocha", "options": {}}}
    pool = InstantPool()
    runner = Runner(small_spec(data=data), tmp_path / "runs", pool)
    state = runner.run()
    assert {job.dataset for job in pool.ran} == {"synthetic-nonlinear"}
    assert "fsew0.npz" in runner.unavailable["mocha"]
    assert {job.dataset for job in state.pending} == {"mocha"}
    assert state.cells["b", "CCA"].reason == "3 of 3 runs are missing"


def test_two_runners_share_a_folder_without_repeating_a_job(tmp_path):
    def slowly(job):
        time.sleep(0.02)
        return made_up(job)

    pools = [InstantPool(slowly, workers=1), InstantPool(slowly, workers=2)]
    runners = [Runner(small_spec(), tmp_path, pool) for pool in pools]
    threads = [threading.Thread(target=runner.run) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ran = [job.id for pool in pools for job in pool.ran]
    assert len(ran) == len(set(ran)) == N_JOBS
    assert set(read_records(tmp_path)) == set(ran)


def test_a_changed_or_damaged_record_is_refused(tmp_path):
    Runner(small_spec(), tmp_path, InstantPool(), only=["CCA"]).run()
    path = next(tmp_path.glob("*.json"))
    content = json.loads(path.read_text())
    content["job"]["fold"] = 7
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match="its id does not fit its job"):
        read_records(tmp_path)
    path.write_text("{")
    with pytest.raises(RecordError, match=f"{path.name} is no record"):
        Runner(small_spec(), tmp_path, InstantPool()).run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"energy": 3}, "holds energy, which this version of dscca does not know"),
        ({"status": "running"}, "its status is 'running'"),
        ({"test": {"tc": "high"}}, "its test tc is 'high'"),
        ({"validation": None}, "is no record of an experiment"),
    ],
)
def test_a_record_that_says_something_else_is_refused(tmp_path, change, message):
    path = write_record(tmp_path, made_up(plan(small_spec(), {}).pending[0]))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RecordError, match=message):
        read_records(tmp_path)


def test_a_job_whose_worker_is_killed_is_tried_again(uninterrupted, tmp_path, monkeypatch):
    pool = LocalPool(threads=1)
    killed = []

    submit = pool.submit

    def submit_and_kill(job):
        submit(job)
        if not killed:
            killed.append(pool._running[0].process.pid)
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(pool, "submit", submit_and_kill)
    Runner(small_spec(), tmp_path, pool).run()
    assert killed
    assert results(tmp_path) == uninterrupted


def test_a_job_that_kills_every_worker_is_recorded_as_failed(tmp_path):
    job, other = plan(small_spec(), {}).pending[:2]
    pool = LocalPool(threads=1)
    records = []
    pool.submit(job)
    try:
        while not records:
            pool._running[0].process.kill()
            records += pool.finished(10)
        assert records[0].status == "failed"
        assert "ended 2 times (signal SIGKILL)" in records[0].error
        pool.submit(other)
        while len(records) < 2:
            records += pool.finished(10)
        assert records[1].done
    finally:
        pool.close()


def test_killing_the_runner_changes_nothing_of_the_results(uninterrupted, tmp_path):
    path, folder = tmp_path / "small.yaml", tmp_path / "runs"
    path.write_text(yaml.safe_dump(SMALL))
    command = [sys.executable, "-c", "from dscca.cli import main; main()", "run", str(path)]
    command += ["--results", str(folder), "--threads", "1"]
    for records in (1, 4):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while len(list(folder.glob("*.json"))) < records and process.poll() is None:
                time.sleep(0.01)
            assert process.poll() is None
            process.send_signal(signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert results(folder) == uninterrupted
    assert f"{N_JOBS} jobs in" not in done.stdout
    assert not list(folder.glob(".checkpoints/*"))


def test_workers_import_nothing_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "secrets.py").write_text("raise SystemExit('not the library')")
    monkeypatch.chdir(tmp_path)
    state = Runner(small_spec(), tmp_path / "runs", LocalPool(threads=1), only=["CCA"]).run()
    assert state.cells["a", "CCA"].reason == ""


def test_checkpoints_of_finished_jobs_do_not_stay(tmp_path):
    """Those of a runner that was killed between the record and the checkpoint's end."""
    spec = small_spec()
    done, failed = plan(spec, {}).pending[-2:]
    write_record(tmp_path, made_up(done))
    write_record(tmp_path, Record(failed, "failed", "another runner may be trying it again"))
    for job in (done, failed):
        (tmp_path / ".checkpoints" / job.id).mkdir(parents=True)
    Runner(spec, tmp_path, InstantPool(), only=["CCA"]).run()
    assert [path.name for path in tmp_path.glob(".checkpoints/*")] == [failed.id]


def test_workers_end_with_their_runner(tmp_path):
    code = (
        "from dscca.experiments.pool import LocalPool; from dscca.experiments.jobs import Job\n"
        "pool = LocalPool(threads=1)\n"
        "pool.submit(Job('synthetic-linear', 'dcca', {'n_components': 5, 'epochs': 10**6}))\n"
        "print(pool._running[0].process.pid, flush=True)\n"
        "list(pool.finished(600))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        worker = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail(f"worker {worker} outlived its runner")


def test_an_interrupted_training_goes_on_from_its_checkpoint(tmp_path):
    job = plan(small_spec(), {}).pending[3]
    longer = replace(job, parameters={**job.parameters, "epochs": 6})
    run_job(job, checkpoints=tmp_path)  # another run's checkpoint is no obstacle
    record = run_job(longer, checkpoints=tmp_path)
    assert record.history["epoch"] == [1, 2, 3, 4, 5, 6]
    assert run_job(longer).test == record.test


def test_ray_gives_the_same_records_also_when_its_worker_is_killed(
    uninterrupted, tmp_path, monkeypatch
):
    pytest.importorskip("ray")
    from dscca.experiments.ray_pool import RayPool

    pool, killed = RayPool(workers=1), []
    submit = pool.submit

    def submit_and_kill(job):
        submit(job)
        deadline = time.monotonic() + 120
        while not killed and time.monotonic() < deadline:
            # The first job of a worker takes seconds, in which it imports its libraries.
            killed.extend(_ray_tasks())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    monkeypatch.setattr(pool, "submit", submit_and_kill)
    Runner(small_spec(), tmp_path, pool).run()
    assert len(killed) == 1
    assert results(tmp_path) == uninterrupted


def _ray_tasks():
    """Return the ids of our processes that carry out a job for Ray."""
    import psutil

    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may end while we look
            if process.cmdline()[:1] == ["ray::_run"]:
                found.append(process.pid)
    return found


def test_what_keeps_ray_from_beginning_is_no_failure_of_a_job(monkeypatch):
    """Such as a device, or a package, that its nodes lack."""
    exceptions = pytest.importorskip("ray").exceptions
    from dscca.experiments.ray_pool import RayPool

    def get(task):
        cause = ValueError("device='cuda', but no CUDA GPU is available")
        raise exceptions.RayTaskError("_run", "", cause).as_instanceof_cause()

    ray = SimpleNamespace(exceptions=exceptions, get=get, wait=lambda tasks, **_: (tasks, []))
    monkeypatch.setattr("dscca.experiments.ray_pool.require", lambda *_: ray)
    pool = RayPool(device="cuda")
    pool._tasks["task"] = plan(small_spec(), {}).pending[0]
    with pytest.raises(ValueError, match=r"^device='cuda', but no CUDA GPU is available$"):
        list(pool.finished(0))


def test_records_have_the_path_of_their_job(tmp_path):
    job = plan(small_spec(), {}).pending[0]
    assert write_record(tmp_path, made_up(job)) == record_path(tmp_path, job)
    assert [p.name for p in tmp_path.iterdir()] == [f"{job.id}.json"]
