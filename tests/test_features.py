"""Feature files, their alignment, and the way from raw files to a model on the command line."""

import json
import subprocess
import sys

import numpy as np
import pytest

import dscca
from dscca.features import align, read_features
from dscca.features.files import write_features
from feature_problems import folder_of_pictures, small_resnet, word2vec_binary


def feature_file(path, ids, rows=None):
    rows = np.arange(len(ids), dtype=np.float32)[:, None] if rows is None else rows
    write_features(path, [rows], rows.shape, np.float32, ids, {"encoder": "none"})
    return path


@pytest.fixture
def run(run_dscca):
    return run_dscca


# Feature files


def test_feature_files_come_back(tmp_path):
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    path = tmp_path / "f.npz"
    write_features(path, [rows[:2], rows[2:]], (5, 3), "float32", list("abcdé"), {"model": "m"})
    features = read_features(path)
    np.testing.assert_array_equal(features.features, rows)
    assert list(features.ids) == list("abcdé")
    assert features.about == {"model": "m"}
    with pytest.raises(AssertionError, match="5 rows were written, 6 were announced"):
        write_features(path, [rows], (6, 3), "float32", list("abcdef"), {})
    np.testing.assert_array_equal(read_features(path).features, rows)  # the old file stays
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.eye(2)}, "needs the arrays features and ids"),
        ({"features": np.eye(2), "ids": np.array(["a"])}, "one id per row"),
        ({"features": np.eye(2), "ids": np.array([{}, {}], dtype=object)}, "no whole .npz"),
        (None, "no whole .npz"),
    ],
)
def test_other_files_are_refused(tmp_path, arrays, message):
    path = tmp_path / "f.npz"
    if arrays is None:
        path.write_bytes(b"PK\x03\x04 and nothing more")
    else:
        np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message):
        read_features(path)


def test_rows_may_be_named_by_files(tmp_path):
    path = tmp_path / "f.npz"
    np.savez(path, features=np.eye(2), files=np.array(["a.jpg", "b.jpg"]))
    assert list(read_features(path).ids) == ["a.jpg", "b.jpg"]


# Alignment


def test_rows_are_paired_by_id(tmp_path):
    x = feature_file(tmp_path / "x.npz", ["a", "b", "c", "d"])
    y = feature_file(tmp_path / "y.npz", ["e", "d", "c", "a"])
    pairs = align(x, y)
    assert list(pairs.ids) == ["a", "c", "d"]
    np.testing.assert_array_equal(pairs.x[:, 0], [0, 2, 3])
    np.testing.assert_array_equal(pairs.y[:, 0], [3, 2, 1])
    assert (pairs.only_x, pairs.only_y, pairs.missing) == (["b"], ["e"], [])
    (tmp_path / "list.txt").write_text("d\nb\na\nz\n")
    pairs = align(x, y, names=tmp_path / "list.txt")
    assert list(pairs.ids) == ["d", "a"]
    assert pairs.missing == ["b", "z"]


def test_names_may_differ_in_folder_and_suffix(tmp_path):
    x = feature_file(tmp_path / "x.npz", ["train/1.jpg", "test/2.jpg"])
    y = feature_file(tmp_path / "y.npz", ["2.jpg", "1.jpg"])
    z = feature_file(tmp_path / "z.npz", ["2", "1"])
    with pytest.raises(ValueError, match=r"no item in common: the first has train/1\.jpg"):
        align(x, y)
    np.testing.assert_array_equal(align(x, y, match="name").y[:, 0], [1, 0])
    np.testing.assert_array_equal(align(x, z, match="stem").y[:, 0], [1, 0])
    twice = feature_file(tmp_path / "twice.npz", ["a/1.jpg", "b/1.jpg"])
    with pytest.raises(ValueError, match=r"a/1\.jpg and b/1\.jpg are the same by name"):
        align(twice, y, match="name")
    with pytest.raises(ValueError, match="none of id, name, stem"):
        align(x, y, match="suffix")


# The command line


def test_from_raw_files_to_a_model(run, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("spacy")
    monkeypatch.chdir(tmp_path)
    folder_of_pictures(tmp_path / "photos", 30)
    small_resnet(tmp_path / "resnet", size=32)
    words = ["dog", "cat", "hat", "tree"]
    vectors = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    (tmp_path / "v.bin").write_bytes(word2vec_binary(words, vectors))
    rng = np.random.default_rng(1)
    captions = [
        f"{i:02d}.png#0\tA {' '.join(rng.choice(words, 3))} and hats\n" for i in range(1, 30)
    ]
    (tmp_path / "captions.txt").write_text("".join(captions))
    (tmp_path / "photos" / "05.png").write_bytes(b"broken")
    images = ("features", "images", "photos", "-o", "images.npz", "--model", "resnet")

    code, out, error = run(*images)
    assert code == 0
    assert "wrote 29 x 12 features to images.npz" in out
    assert "1 of 30 items left out: 05.png (is no image of a known format)" in error
    code, out, error = run("features", "text", "captions.txt", "-o", "text.npz",
                           "--vectors", "v.bin")  # fmt: skip
    assert code == 0
    assert "wrote 29 x 3 features to text.npz" in out
    assert json.loads((tmp_path / "text.json").read_text())["rows"] == 29

    code, _, error = run("fit", "images.npz", "text.npz", "-o", "model", "-n", 1, "-p", "reg=0.1")
    assert code == 2
    assert "are not paired: 10 of 29 items are only in images.npz" in error
    assert "dscca features align images.npz text.npz -o pairs.npz" in error
    align_files = ("features", "align", "images.npz", "text.npz", "-o", "pairs.npz")
    code, out, error = run(*align_files, "--match", "name")
    assert code == 0
    assert "wrote 28 pairs to pairs.npz" in out
    assert "1 only in images.npz: sub/00.png" in error
    assert "1 only in text.npz: 05.png" in error
    pairs = ("pairs.npz:x", "pairs.npz:y")
    assert run("fit", *pairs, "-o", "model", "-n", 1, "-p", "reg=0.1")[0] == 0
    code, out, _ = run("score", "model", *pairs, "--json")
    with np.load("pairs.npz") as archive:
        expected = dscca.load("model").score(archive["x"], archive["y"])
    assert json.loads(out)["total_correlation"] == pytest.approx(expected)

    code, _, error = run(*images, "--on-error", "fail")
    assert code == 2
    assert "05.png: is no image of a known format" in error


def test_feature_files_need_no_key_and_must_be_paired(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ids = [f"{i:02d}" for i in range(20)]
    for name, order in (("x", ids), ("y", ids), ("z", ids[::-1])):
        rows = rng.normal(size=(20, 2)).astype(np.float32)
        feature_file(tmp_path / f"{name}.npz", order, rows)
    assert run("fit", "x.npz", "y.npz:features", "-o", "model", "-n", 1)[0] == 0
    for command in (["fit", "x.npz", "z.npz", "-o", "m"], ["score", "model", "x.npz", "z.npz"]):
        code, _, error = run(*command)
        assert code == 2
        assert "the same items in another order" in error
    code, _, error = run("fit", "x.npz", "y.npz", "-o", "m", "--x-val", "x.npz", "--y-val", "z.npz")
    assert code == 2
    assert "not paired" in error


@pytest.mark.parametrize("command", [[], ["images"], ["text"], ["align"]])
def test_help(run, command):
    code, out, _ = run("features", *command, "--help")
    assert code == 0
    assert "Usage" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["images", "nowhere", "-o", "f.npz"], "no folder or file nowhere"),
        (["images", "notes.md", "-o", "f.npz"], "no folder, no zip archive and no list"),
        (["text", "nowhere.csv", "-o", "f.npz"], "nowhere.csv"),
        (["align", "a.npz", "b.npz", "-o", "p.npy"], "does not end in .npz"),
        (["align", "a.npz", "b.npz", "-o", "p.npz"], "a.npz"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(run, tmp_path, monkeypatch, arguments, message):
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").write_text("notes")
    code, _, error = run("features", *arguments)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


_WITHOUT = """
import sys
for name in ("transformers", "spacy", "PIL", "sentence_transformers"):
    sys.modules[name] = None
from dscca.features import image_features, text_features
for call in (
    lambda: image_features(sys.argv[1], "f.npz"),
    lambda: text_features({"a": ["dog"]}, "f.npz", vectors="v.bin"),
    lambda: text_features({"a": ["dog"]}, "f.npz", encoder="some/model"),
):
    try:
        call()
    except ModuleNotFoundError as error:
        print(error)
"""


def test_without_the_extra_the_error_names_it(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    command = [sys.executable, "-c", _WITHOUT, str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.count('pip install "dscca[features]"') == 3
