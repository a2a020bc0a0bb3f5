"""Checkpoints: a run that is killed goes on, and ends as if nothing had happened."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import deep_problems
from deep_problems import same_parameters, small_dcca, small_dsdcca
from dscca.deep import checkpoint as checkpoint_module
from dscca.deep.checkpoint import FILE_NAME, CheckpointError, _checksum
from dscca.deep.network import TwoViewNet
from dscca.deep.training import State
from problems import paired

VIEWS = paired(n=300)
STEPS = 270 // 50


class Interrupt:
    """A hook that acts in the middle of a training step, so many steps into the run."""

    def __init__(self, step, act):
        self.step, self.act = step, act
        self.taken = 0

    def __enter__(self):
        self.handle = nn.modules.module.register_module_forward_pre_hook(self)

    def __exit__(self, *_):
        self.handle.remove()

    def __call__(self, module, inputs):
        if isinstance(module, TwoViewNet) and module.training:
            self.taken += 1
            if self.taken == self.step:
                self.act()


def stop():
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def every_epoch_is_written(monkeypatch):
    monkeypatch.setattr("dscca.deep.checkpoint._SHARE", 0)


@pytest.fixture
def run_dir(tmp_path):
    small_dcca(checkpoint_dir=tmp_path).fit(*VIEWS)
    return tmp_path


def without_time(history):
    return history.drop(columns="seconds")


def test_checkpoints_take_a_small_share_of_the_time(monkeypatch, tmp_path):
    monkeypatch.undo()  # the share that holds by default
    now, written = [0.0], []

    def write(path, content):
        written.append(now[0])
        now[0] += 2.0

    monkeypatch.setattr(checkpoint_module, "write_atomically", write)
    monkeypatch.setattr(checkpoint_module.time, "monotonic", lambda: now[0])
    model = nn.Linear(2, 2)
    trainer = SimpleNamespace(
        model=model, optimizer=SimpleNamespace(state={}), best={}, average=None, state=State()
    )
    checkpoint = checkpoint_module.Checkpoint(tmp_path, {})
    while now[0] < 1000:
        now[0] += 1.0  # an epoch
        checkpoint.save(trainer)
    assert 0.03 < 2 * len(written) / now[0] <= 0.05
    checkpoint.save(trainer, force=True)
    assert written[-1] >= 1000


KILLED = """
import json, os, signal, sys
import torch
import dscca.deep.checkpoint
from deep_problems import small_dsdcca
from problems import paired
from test_checkpoint import Interrupt

torch.set_num_threads(int(sys.argv[3]))
dscca.deep.checkpoint._SHARE = 0
with Interrupt(int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL)):
    small_dsdcca(**json.loads(sys.argv[1])).fit(*paired(n=300))
"""


def test_killed_process_resumes_to_the_same_bits(tmp_path):
    options = {
        "epochs": 8,
        "warmup": 4,
        "optimizer": "adam",
        "schedule": "cosine",
        "averaging": 0.7,
        "dropout": 0.2,
    }
    resumed = {**options, "checkpoint_dir": str(tmp_path)}
    command = [sys.executable, "-c", KILLED, json.dumps(resumed)]
    command += [str(5 * STEPS + 3), str(torch.get_num_threads())]  # in the sixth epoch
    tests = Path(deep_problems.__file__).parent
    killed = subprocess.run(command, cwd=tests, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / FILE_NAME).is_file()
    epochs = []
    model = small_dsdcca(**resumed, callbacks=[lambda row: epochs.append(row["epoch"])]).fit(*VIEWS)
    assert epochs == [6, 7, 8]
    whole = small_dsdcca(**options).fit(*VIEWS)
    assert same_parameters(model, whole)
    assert without_time(model.history_).equals(without_time(whole.history_))
    for ours, theirs in zip(model.transform(*VIEWS), whole.transform(*VIEWS), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "adam", "averaging": 0.8},
        {"optimizer": "adamw", "schedule": "step", "clip": 0.5},
        {"dropout": 0.3, "patience": 4},
        {"scaling": "outputs", "context": "zx"},
    ],
    ids=["rmsprop", "adam", "adamw", "dropout", "outputs"],
)
def test_interrupted_runs_resume_to_the_same_bits(options, at, tmp_path):
    options = {"epochs": 6, "warmup": 3, **options}
    resumed = small_dsdcca(**options, checkpoint_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt), Interrupt(at * STEPS + 2, stop):
        resumed.fit(*VIEWS)
    with pytest.raises(KeyboardInterrupt), Interrupt(2, stop):  # and once more
        resumed.fit(*VIEWS)
    whole = small_dsdcca(**options).fit(*VIEWS)
    assert same_parameters(resumed.fit(*VIEWS), whole)
    assert without_time(resumed.history_).equals(without_time(whole.history_))


def test_finished_run_is_not_trained_again(run_dir):
    epochs = []
    with Interrupt(1, stop):
        again = small_dcca(checkpoint_dir=run_dir, callbacks=[epochs.append]).fit(*VIEWS)
    assert epochs == []
    whole = small_dcca().fit(*VIEWS)
    assert same_parameters(again, whole)
    assert (again.n_iter_, again.best_epoch_) == (whole.n_iter_, whole.best_epoch_)


@pytest.mark.parametrize(
    "options",
    [{"callbacks": [lambda row: row["epoch"] == 3]}, {"patience": 2, "learning_rate": 0.1}],
    ids=["callback", "patience"],
)
def test_stopped_run_stays_stopped(options, tmp_path):
    options = {"epochs": 60, "checkpoint_dir": tmp_path, **options}
    first = small_dcca(**options).fit(*VIEWS)
    assert first.n_iter_ < 60
    again = small_dcca(**options).fit(*VIEWS)
    assert same_parameters(first, again)
    assert again.history_.equals(first.history_)


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": 2e-3},
        {"epochs": 9},
        {"random_state": 1},
        {"reg": 1e-2},
        {"hidden": (13,)},
        {"n_components": 3},
        {"dropout": 0.1},
        {"batch_size": 60},
        {"scale": "features"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_checkpoint_of_other_parameters_is_refused(run_dir, options):
    before = (run_dir / FILE_NAME).read_bytes()
    with pytest.raises(CheckpointError, match=r"belongs to another run.*differ.*Remove it or give"):
        small_dcca(**options, checkpoint_dir=run_dir).fit(*VIEWS)
    assert (run_dir / FILE_NAME).read_bytes() == before


def test_refusal_names_what_differs(run_dir):
    with pytest.raises(CheckpointError, match="another run: dropout, learning_rate differ"):
        small_dcca(dropout=0.1, learning_rate=2e-3, checkpoint_dir=run_dir).fit(*VIEWS)


def test_checkpoint_of_another_method_is_refused(run_dir):
    with pytest.raises(CheckpointError, match=r"belongs to another run.*method"):
        small_dsdcca(checkpoint_dir=run_dir).fit(*VIEWS)


@pytest.mark.parametrize(
    "change",
    [
        lambda X, y: (X[:250], y[:250]),
        lambda X, y: (X + 1, y),
        lambda X, y: (X, y[::-1]),
        lambda X, y: (X, np.concatenate([y[:150], y[:149:-1]])),
        lambda X, y: (X, np.concatenate([y[:290], y[290:] + 1])),
    ],
    ids=["fewer", "shifted", "reversed", "paired otherwise late", "last rows"],
)
def test_checkpoint_of_other_data_is_refused(run_dir, change):
    with pytest.raises(CheckpointError, match=r"belongs to another run.*data"):
        small_dcca(checkpoint_dir=run_dir).fit(*change(*VIEWS))


def test_checkpoint_of_other_validation_data_is_refused(tmp_path):
    X, y = VIEWS
    small_dcca(checkpoint_dir=tmp_path).fit(X, y, X_val=X[:60], y_val=y[:60])
    with pytest.raises(CheckpointError, match=r"belongs to another run.*data"):
        small_dcca(checkpoint_dir=tmp_path).fit(X, y, X_val=X[60:120], y_val=y[60:120])


def test_checkpoint_of_other_encoders_is_refused(tmp_path):
    first, second = ((nn.Linear(6, 2), nn.Linear(5, 2)) for _ in range(2))
    small_dcca(encoders=first, checkpoint_dir=tmp_path).fit(*VIEWS)
    small_dcca(encoders=first, checkpoint_dir=tmp_path).fit(*VIEWS)
    with pytest.raises(CheckpointError, match=r"belongs to another run.*encoders"):
        small_dcca(encoders=second, checkpoint_dir=tmp_path).fit(*VIEWS)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)])
def test_checkpoints_need_a_seed_to_come_back_to(tmp_path, random_state):
    with pytest.raises(ValueError, match="random_state"):
        small_dcca(checkpoint_dir=tmp_path, random_state=random_state).fit(*VIEWS)


def test_parameters_may_be_numpy_numbers(tmp_path):
    options = {"epochs": np.int64(3), "learning_rate": np.float32(0.01), "patience": np.int64(9)}
    model = small_dcca(checkpoint_dir=tmp_path, **options).fit(*VIEWS)
    assert same_parameters(model, small_dcca(checkpoint_dir=tmp_path, **options).fit(*VIEWS))


@pytest.mark.parametrize("kept", [0, 5, 100, 3000, -1])
def test_truncated_checkpoint(run_dir, kept):
    file = run_dir / FILE_NAME
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"is damaged.*remove it"):
        small_dcca(checkpoint_dir=run_dir).fit(*VIEWS)


def rewrite(folder, tensors=None, *, sealed=True, **header):
    """Write a checkpoint again with some of its content exchanged; None leaves a tensor out."""
    file = folder / FILE_NAME
    with safe_open(file, framework="pt") as source:
        metadata = source.metadata()
    content = {**load_file(file), **(tensors or {})}
    kept = {name: value for name, value in content.items() if value is not None}
    metadata |= header
    if sealed:
        metadata["crc32"] = _checksum(metadata, kept)
    save_file(kept, file, metadata=metadata)


WEIGHT = "model/net.encoders.0.last.weight"


@pytest.mark.parametrize(
    "change",
    [
        {"state": "{"},
        {"state": "[]"},
        {"facts": "{"},
        {"facts": "[1]"},
        {"tensors": {WEIGHT: None}},
        {"tensors": {WEIGHT: torch.zeros(7, 7)}},
        {"tensors": {WEIGHT: torch.zeros(1)}},
        {"tensors": {"optimizer/99/step": torch.zeros(())}},
        {"tensors": {"optimizer/x/step": torch.zeros(())}},
    ],
    ids=lambda change: str(*change.values())[:40],
)
def test_damaged_checkpoint(run_dir, change):
    rewrite(run_dir, **change)
    with pytest.raises(CheckpointError):
        small_dcca(checkpoint_dir=run_dir).fit(*VIEWS)


def test_damage_in_the_numbers_is_noticed(run_dir):
    file = run_dir / FILE_NAME
    whole = file.read_bytes()
    for position in np.linspace(9, len(whole) - 1, 40).astype(int):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            small_dcca(checkpoint_dir=run_dir).fit(*VIEWS)
    file.write_bytes(whole)
    rewrite(
        run_dir, {"optimizer/0/exp_avg_sq": None}, sealed=False
    )  # an optimiser that starts anew
    with pytest.raises(CheckpointError, match="does not fit its checksum"):
        small_dcca(checkpoint_dir=run_dir).fit(*VIEWS)


def test_foreign_file_is_no_checkpoint(run_dir):
    save_file({"a": torch.zeros(2)}, run_dir / FILE_NAME)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        small_dcca(checkpoint_dir=run_dir).fit(*VIEWS)
