import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save, save_file

import dscca
from dscca import LinearCCA
from dscca.integrity import checksum
from dscca.persistence import ModelFileError, decode, encode, model_path
from problems import paired


@pytest.fixture
def saved(tmp_path):
    LinearCCA(2).fit(*paired()).save(tmp_path)
    return tmp_path / "model.safetensors"


def metadata(path):
    with safe_open(path, framework="numpy") as source:
        return source.metadata()


def rewrite(path, *, description=None, arrays=None, **exchanged):
    """Write the model file again with some of its content exchanged."""
    header = metadata(path)
    document = json.loads(header["model"])
    document.update(description or {})
    tensors = {**load_file(path), **(arrays or {})}
    kept = {name: value for name, value in tensors.items() if value is not None}
    text = json.dumps(document)
    header = {**header, "model": text, "crc32": checksum([text], kept), **exchanged}
    save_file(kept, path, metadata=header)


def test_path_may_be_file_or_folder(tmp_path):
    model = LinearCCA(2).fit(*paired())
    model.save(tmp_path / "a" / "one.safetensors")
    model.save(tmp_path / "folder")
    assert (tmp_path / "folder" / "model.safetensors").is_file()
    for path in ("a/one.safetensors", "folder", "folder/model.safetensors"):
        assert dscca.load(tmp_path / path).n_components == 2
    assert not list(tmp_path.rglob("*.tmp"))
    assert model_path("x").name == "model.safetensors"


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model at"):
        dscca.load(tmp_path / "nothing")


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_truncated_files_are_refused(saved, kept):
    saved.write_bytes(saved.read_bytes()[:kept])
    with pytest.raises(ModelFileError, match="not a whole model file"):
        dscca.load(saved)


@pytest.mark.parametrize("content", [b"\x80\x04N.", b"PK\x03\x04" + bytes(50), b"\xff" * 64])
def test_foreign_files_are_refused(saved, content):
    saved.write_bytes(content)
    with pytest.raises(ModelFileError):
        dscca.load(saved)
    saved.write_bytes(save({"weights": np.ones(3)}))
    with pytest.raises(ModelFileError, match="no dscca model"):
        dscca.load(saved)


def test_newer_format_is_named(saved):
    rewrite(saved, version="99")
    with pytest.raises(ModelFileError, match="version '99', this dscca reads 2"):
        dscca.load(saved)


@pytest.mark.parametrize(
    "name", ["os.system", "Popen", "__import__", "all_estimators", ["LinearCCA"]]
)
def test_only_this_packages_estimators_are_made(saved, name):
    rewrite(saved, description={"class": name})
    with pytest.raises(ModelFileError, match="describes no model of this package"):
        dscca.load(saved)


def nested(depth):
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "description",
    [
        {"parameters": {"__init__": 1}},
        {"parameters": None},
        {"parameters": {"reg": {"__array__": [1], "dtype": "O8"}}},
        {"parameters": {"reg": {"anything": 1}}},
        {"fitted": {}},
        {"fitted": {"linear": {"__dict__": {}}}},
        {"parameters": {"n_components": None}},
        {"parameters": {"n_components": 2.5}},
        {"parameters": {"n_components": 2, "device": ["cpu"]}},
        {"parameters": {"reg": "anything"}},
        {"parameters": {"reg": nested(500)}},
    ],
    ids=lambda description: str(description)[:60],
)
def test_hostile_descriptions_are_refused(saved, description):
    rewrite(saved, description=description)
    with pytest.raises(ModelFileError):
        dscca.load(saved)


def test_attributes_cannot_be_smuggled_in(saved):
    model = dscca.load(saved)
    fitted = {
        "n_features_in_": 6,
        "n_features_y_": 5,
        "linear": encode({**model.fitted_state()["linear"]}),
    }
    rewrite(saved, description={"fitted": fitted})
    dscca.load(saved)
    rewrite(saved, description={"fitted": {**fitted, "transform": 1}})
    with pytest.raises(ModelFileError, match="unexpected entry transform"):
        dscca.load(saved)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("linear", "n_samples", "many"),
        ("linear", "n_samples", None),
        ("linear", "n_samples", -3),
        ("linear", "eps", None),
        ("linear", "eps", [1.0]),
        ("linear", "eps", float("nan")),
        ("linear", "reg", "none"),
        ("linear", "reg", {"__tuple__": []}),
        ("linear", "ranks", 3),
        ("linear", "ranks", {"__tuple__": ["a", "b"]}),
        ("fitted", "n_features_in_", -1),
        ("fitted", "n_features_in_", 7),
        ("fitted", "n_features_y_", 6),
        ("fitted", "feature_names_in_", {"__array__": ["a"], "dtype": "object"}),
        ("fitted", "feature_names_y_", 5),
    ],
)
def test_small_values_that_do_not_fit_are_refused(saved, part, name, value):
    fitted = json.loads(metadata(saved)["model"])["fitted"]
    target = fitted["linear"]["__dict__"] if part == "linear" else fitted
    target[name] = value
    rewrite(saved, description={"fitted": fitted})
    with pytest.raises(ModelFileError, match="incomplete or damaged"):
        dscca.load(saved)


def test_checksum_shows_damage_in_text_and_numbers(saved):
    rewrite(saved)
    dscca.load(saved)
    for change in (
        {"arrays": {"coef_": np.zeros((5, 6))}},
        {"description": {"parameters": {"n_components": 1}}},
    ):
        before = saved.read_bytes()
        rewrite(saved, **change, crc32=metadata(saved)["crc32"])
        with pytest.raises(ModelFileError, match="does not fit its checksum"):
            dscca.load(saved)
        saved.write_bytes(before)
    rewrite(saved, crc32="")
    with pytest.raises(ModelFileError, match="checksum"):
        dscca.load(saved)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_mean_": None}, "lacks the array x_mean_"),
        ({"x_mean_": np.ones(3)}, "x_mean_ has shape"),
        ({"x_rotations_": np.ones(6)}, "x_rotations_ has shape"),
        ({"x_rotations_": np.full((6, 2), np.nan)}, "not finite"),
        ({"x_rotations_": np.ones((6, 2), dtype=np.int32)}, "dtype int32"),
        ({"scatter": np.eye(3)}, r"scatter is torch.float64 of shape \(3, 3\)"),
        ({"scatter": np.eye(11, dtype=np.float32)}, "scatter is torch.float32"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(saved, arrays, message):
    rewrite(saved, arrays=arrays)
    with pytest.raises(ModelFileError, match=message):
        dscca.load(saved)


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        LinearCCA(1).fit(*paired()).save(saved.parent)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["model.safetensors"]


@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_saved_files_may_be_read_as_any_other_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        LinearCCA(1).fit(*paired()).save(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~mask


SAVER = """
import sys
from problems import paired
from dscca import LinearCCA
models = [LinearCCA(k).fit(*paired(p=300, q=200, n=2000)) for k in (1, 2)]
print("ready", flush=True)
while True:
    for model in models:
        model.save(sys.argv[1])
"""


def test_a_killed_save_leaves_a_whole_file(tmp_path):
    """A process that saves over and over is killed at odd moments; the file always loads."""
    paths = [os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])]
    for delay in (0.0, 0.013, 0.029, 0.051):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        try:
            assert process.stdout.readline() == b"ready\n"
            deadline = time.monotonic() + 20
            while not (tmp_path / "model.safetensors").exists() and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(delay)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            process.stdout.close()
        assert dscca.load(tmp_path).n_components in (1, 2)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, "text", (1, (2.0, "a")), [1, [2]], {"a": (1,)}, {"__tuple__": 3}],
)
def test_parameters_survive_json(value):
    again = decode(json.loads(json.dumps(encode(value))))
    assert again == value
    assert type(again) is type(value)


def test_unstorable_parameters_are_asked_for(tmp_path):
    model = LinearCCA(2).fit(*paired())
    model.device = object()
    model.save(tmp_path)
    with pytest.raises(ModelFileError, match=r"fitted with device.*load\(path, device="):
        dscca.load(tmp_path)
    assert dscca.load(tmp_path, device="cpu").device == "cpu"
    with pytest.raises(ModelFileError, match="no parameters"):
        dscca.load(tmp_path, nonsense=1)
