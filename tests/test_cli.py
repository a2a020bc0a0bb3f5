import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import dscca
from dscca import demo
from dscca.datasets import embedded_digits
from dscca.datasets.mnist import read_idx
from dscca.experiments.records import read_records
from dscca.methods import METHODS
from dscca.values import parse_value
from problems import paired


@pytest.fixture
def run(run_dscca):
    return run_dscca


@pytest.fixture
def files(tmp_path):
    X, y = paired()
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "both.npz", x=X, y=y)
    np.savez(tmp_path / "y.npz", y=y)
    pd.DataFrame(X).to_csv(tmp_path / "headed.csv", index=False, header=list("abcdef"))
    pd.DataFrame(X).to_csv(tmp_path / "bare.csv", index=False, header=False)
    pd.DataFrame(X, columns=list("abcdef")).to_parquet(tmp_path / "x.parquet")
    return tmp_path


@pytest.mark.parametrize("x", ["x.npy", "both.npz:x", "headed.csv", "bare.csv", "x.parquet"])
def test_fit_transform_score(run, files, x):
    model = files / "model"
    code, out, _ = run("fit", files / x, files / "y.npz", "-n", 2, "-o", model, "-p", "reg=auto")
    assert code == 0
    assert "saved LinearCCA" in out
    code, out, _ = run("score", model, files / x, files / "y.npz", "--json")
    expected = dscca.load(model).score(*paired())
    assert json.loads(out)["total_correlation"] == pytest.approx(expected, abs=1e-6)
    code, out, _ = run(
        "transform", model, "--x", files / x, "--y", files / "y.npz", "-o", files / "v.npz"
    )
    assert code == 0
    with np.load(files / "v.npz") as variates:
        np.testing.assert_allclose(
            variates["x"], dscca.load(model).transform(paired()[0]), atol=1e-6
        )
    assert run("transform", model, "--x", files / x, "-o", files / "v.csv")[0] == 0
    assert np.loadtxt(files / "v.csv", delimiter=",").shape == (300, 2)


def test_score_as_a_table(run, files):
    run("fit", files / "x.npy", files / "y.npz", "-o", files / "model")
    code, out, _ = run("score", files / "model", files / "x.npy", files / "y.npz")
    assert code == 0
    assert "sum of 2" in out


def test_parameters_are_yaml(run, files):
    code, *_ = run(
        "fit", files / "x.npy", files / "y.npz", "-o", files / "m", "-p", "reg=[0.1, 0.01]"
    )
    assert code == 0
    assert dscca.load(files / "m").reg_ == (0.1, 0.01)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("-1.5E2", -150.0),
        (".5e+1", 5.0),
        ("(8, 8)", [8, 8]),
        (" ((8,), (4, 4))", [[8], [4, 4]]),
        ("[1e-4, 2, auto, null]", [1e-4, 2, "auto", None]),
        ("1e", "1e"),
        ("2e-3 mm", "2e-3 mm"),
    ],
)
def test_values_are_read_as_a_python_user_writes_them(text, value):
    assert parse_value(text) == value


DEEP = ["fit", "x.npy", "y.npz", "-o", "m", "--model", "dcca", "-p", "epochs=2"]


def test_parameters_of_deep_models(run, files, monkeypatch):
    monkeypatch.chdir(files)
    code, *_ = run(*DEEP, "-p", "hidden=(8, 8)", "-p", "learning_rate=1e-3", "-p", "patience=null")
    assert code == 0
    parameters = dscca.load("m").get_params()
    assert (parameters["hidden"], parameters["learning_rate"]) == ([8, 8], 1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "nothing.npy", "y.npz", "-o", "m"], "no file"),
        (["fit", "both.npz", "y.npz", "-o", "m"], "both.npz:NAME"),
        (["fit", "both.npz:z", "y.npz", "-o", "m"], "it holds x, y"),
        (["fit", "x.npy", "y.npz", "-o", "m", "-n", "50"], "n_components=50 is above 5"),
        (["fit", "x.npy", "y.npz", "-o", "m", "--model", "magic"], "no method magic"),
        (
            ["fit", "x.npy", "y.npz", "-o", "m", "-p", "alpha=1"],
            "NAME from device, n_components, reg",
        ),
        (["fit", "x.npy", "y.npz", "-o", "m", "-p", "reg=["], "while parsing"),
        (["fit", "text.csv", "y.npz", "-o", "m"], "column b is not numeric"),
        (["fit", "broken.npy", "y.npz", "-o", "m"], "broken.npy"),
        (["fit", "object.npy", "y.npz", "-o", "m"], "object.npy"),
        (["fit", "x.txt", "y.npz", "-o", "m"], "ends in none of"),
        (["score", "nothing", "x.npy", "y.npz"], "no model at"),
        (["transform", "nothing", "-o", "v.npy"], "--x, --y or both"),
        (["fit", "", "y.npz", "-o", "m"], "no file"),
        (["fit", "zip.npz", "y.npz", "-o", "m"], "zip.npz: File is not a zip file"),
        (["fit", "torn.npz", "y.npz", "-o", "m"], "torn.npz: "),
        (["fit", "unnamed.csv", "unnamed.csv", "-o", "m"], "begins with a row 0, 1, 2"),
        (["fit", "x.npy", "y.npz", "-o", "x.npy"], "x.npy is a file, not a folder"),
        (["fit", "x.npy", "y.npz", "-o", "x.npy/deep/er"], "x.npy is a file, not a folder"),
        (["demo", "-o", "x.npy"], "x.npy is a file, not a folder"),
        (["fit", "x.npy", "y.npz", "-o", "m", "-p", "reg=[]"], "a number >= 0, or a pair"),
        (["fit", "x.npy", "y.npz"], "Missing option '--output' / '-o'. Try dscca fit --help."),
        (["fit", "x.npy", "y.npz", "-o", "m", "-n", "0"], "greater than or equal to 1"),
        (["nonsense"], "No such command 'nonsense'. Try dscca --help."),
        (
            [*DEEP, "-p", "learning_rate=1e30", "-p", "random_state=0"],
            "not finite with learning_rate=1e+30",
        ),
        ([*DEEP, "-p", "hidden=8"], "hidden must be a sequence of whole widths"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run, files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    (files / "text.csv").write_text("a,b\n1,x\n2,y\n")
    (files / "x.txt").write_text("1 2")
    (files / "broken.npy").write_bytes(b"\x93NUMPY")
    np.save(files / "object.npy", np.array([{}, {}], dtype=object))
    (files / "zip.npz").write_bytes(b"PK\x03\x04junk")
    np.savez_compressed(files / "torn.npz", x=np.random.default_rng(0).normal(size=(99, 3)))
    torn = bytearray((files / "torn.npz").read_bytes())
    torn[900:950] = bytes(50)
    (files / "torn.npz").write_bytes(torn)
    pd.DataFrame(np.eye(9, 3)).to_csv(files / "unnamed.csv", index=False)
    code, _, error = run(*arguments)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not (files / "m").exists()


@pytest.mark.parametrize(
    "command", [[], ["fit"], ["transform"], ["score"], ["models"], ["demo"], ["report"]]
)
def test_help(run, command):
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Usage" in out


def test_help_does_not_load_the_numerics():
    check = "import sys, dscca.cli; print(any(m in sys.modules for m in ('torch', 'sklearn')))"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_demo(run, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_DEEP", {"hidden": (100,), "epochs": 4, "random_state": 0})
    monkeypatch.setitem(demo._SMALLER, "ds-dcca", {"scale_hidden": (8,), "warmup": 2})
    monkeypatch.setitem(demo._SMALLER, "nkcca", {"rank": 200, "random_state": 0})
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    code, out, _ = run("demo", "--open", "-o", tmp_path / "models")
    assert code == 0
    page = tmp_path / "models" / "report.html"
    assert f"Report: {page}" in out
    assert shown == [page.as_uri()]
    assert "DS-DCCA, scales of view x" in page.read_text(encoding="utf-8")
    records = read_records(tmp_path / "models")
    data, methods = embedded_digits(), ("cca", "nkcca", "dcca", "ds-dcca")
    scores = []
    for name in methods:
        scores.append(dscca.load(tmp_path / "models" / name).score(data.X_test, data.y_test))
        assert f"│ {scores[-1]:.2f} " in out
    kept = {record.job.method: record.test["tc"] for record in records.values()}
    assert [kept[name] for name in methods] == pytest.approx(scores, abs=1e-4)
    assert scores[0] > 15.5
    assert min(scores[1:]) > scores[0]


def test_demo_takes_the_methods_it_is_asked_for(run, tmp_path):
    code, _, _ = run("demo", "--models", "CCA", "-o", tmp_path / "models")
    assert code == 0
    made = tmp_path / "models"
    assert [path.name for path in made.iterdir() if path.is_dir()] == ["cca"]
    assert len(list(made.glob("*.json"))) == 1
    assert (made / "report.html").is_file()
    code, _, error = run("demo", "--models", "cca,nonsense", "-o", tmp_path / "none")
    assert code == 2
    assert "no method nonsense: there are cca, " in error
    assert not (tmp_path / "none").exists()


def test_models(run):
    code, out, _ = run("models")
    assert code == 0
    for method in METHODS:
        assert method.estimator in out
    code, out, _ = run("models", "DS-DCCA")
    assert code == 0
    assert "(256, 128)" in out
    assert "Friedlander" in out


def test_embedded_digits():
    data = embedded_digits()
    assert data.X_train.shape == data.y_train.shape == (8000, 392)
    assert len(data.X_val) == len(data.X_test) == len(data.labels_test) == 1000
    everything = np.vstack([data.X_train, data.X_val, data.X_test])
    assert len(np.unique(everything, axis=0)) > 9900  # a few left halves are blank or alike
    assert 0 <= everything.min() < everything.max() <= 1
    assert not np.array_equal(embedded_digits(1).X_train, data.X_train)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-3], lambda raw: b"", lambda raw: b"\0\0\x09"])
def test_damaged_idx_files(tmp_path, damage):
    path = tmp_path / "images"
    path.write_bytes(damage(b"\0\0\x08\x01\0\0\0\x04abcd"))
    with pytest.raises(ValueError, match="no whole idx file"):
        read_idx(path)
    path.write_bytes(b"\0\0\x08\x01\0\0\0\x04abcd")
    np.testing.assert_array_equal(read_idx(path), np.frombuffer(b"abcd", np.uint8))
