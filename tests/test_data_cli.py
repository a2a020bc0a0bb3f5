"""The registry, the look-up order, downloads through it, and ``dscca data``."""

import dataclasses
import gzip
import hashlib
import json
import re
import sys
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from data_files import FileServer, karpathy, write_features, write_flickr8k, write_iapr, write_mnist
from dscca.datasets import (
    DATASETS,
    MissingDataError,
    TwoViewData,
    TwoViewSplits,
    cache_directory,
    embedded_digits,
    find_dataset,
    load,
    load_splits,
)
from dscca.datasets.records import Source


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An empty DSCCA_DATA and an empty cache."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("DSCCA_DATA", "DSCCA_CACHE"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path / "DSCCA_DATA", tmp_path / "DSCCA_CACHE" / "datasets"


@pytest.fixture
def run(run_dscca, places):
    """Run ``dscca data`` with arguments; return exit code, standard output and standard error."""
    return partial(run_dscca, "data")


def error(result):
    code, _, message = result
    assert code == 2
    assert message.startswith("dscca: ")
    assert message.count("\n") == 1
    return message


@pytest.fixture
def served(monkeypatch):
    """Let a data set's files come from given URLs, and from nowhere else."""

    def replace(name, sources):
        dataset = find_dataset(name)
        files = tuple(
            dataclasses.replace(
                file,
                source=next((s for s in sources if s.name in file.names), None),
                content_sha256=None,
            )
            for file in dataset.files
        )
        changed = dataclasses.replace(dataset, files=files)
        new = tuple(changed if d.name == name else d for d in DATASETS)
        monkeypatch.setattr("dscca.datasets.registry.DATASETS", new)
        return changed

    return replace


class TestRegistry:
    def test_entries(self):
        assert len({dataset.name for dataset in DATASETS}) == len(DATASETS)
        for dataset in DATASETS:
            assert find_dataset(dataset.name.upper().replace("-", " ")) is dataset
            assert bool(dataset.files) == bool(dataset.obtain)
            assert dataset.licence
            if not dataset.name.startswith("synthetic"):
                assert dataset.citation.startswith("@")
            for file in dataset.files:
                for url in file.source.urls if file.source else ():
                    assert url.startswith("https://")
        with pytest.raises(ValueError, match="no data set cifar: there are mnist, xrmb, "):
            load("cifar")

    @pytest.mark.parametrize(
        "name", [d.name for d in DATASETS if not d.files], ids=lambda name: name
    )
    def test_data_without_files(self, places, name):
        splits = load_splits(name)
        assert isinstance(splits, TwoViewSplits)
        dataset = find_dataset(name)
        widths = [int(view.split()[-1]) for view in dataset.views]
        for part, size in zip(("train", "val", "test"), dataset.sizes, strict=True):
            rows = splits[part]
            assert len(rows) == size
            assert [rows.x.shape[1], rows.y.shape[1]] == widths
            assert rows.x.dtype == rows.y.dtype == np.float32
            assert (rows.name, rows.split, rows.fold) == (name, part, None)
            assert np.array_equal(load(name, part).x, rows.x)
        assert splits.X_train is splits.train.x
        assert splits.y_val is splits.val.y
        assert splits.labels_test is splits.test.labels
        with pytest.raises(ValueError, match="another seed"):
            load(name, fold=0)

    def test_embedded_digits_are_a_data_set(self):
        digits = embedded_digits(3)
        assert np.array_equal(digits.X_val, load("embedded-digits", "val", seed=3).x)
        assert "LeCun" in digits.train.citation

    def test_unknown_split(self):
        for call in (lambda: load("mnist", "dev"), lambda: embedded_digits()["dev"]):
            with pytest.raises(ValueError, match="no split 'dev': there are train, val, test"):
                call()

    def test_views_are_paired(self):
        with pytest.raises(ValueError, match=r"a \(train\): 3 rows of y for 2 samples"):
            TwoViewData(np.zeros((2, 1)), np.zeros((3, 1)), np.arange(2), "a", "train")
        data = TwoViewData(np.zeros((2, 1)), np.zeros((2, 3)), np.arange(2), "a", "val", 4)
        assert repr(data) == "TwoViewData(a, val, fold 4: (2, 1) and (2, 3))"


class TestCache:
    def test_by_convention(self, monkeypatch):
        monkeypatch.delenv("DSCCA_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
        monkeypatch.setattr(sys, "platform", "linux")
        assert cache_directory() == Path("/somewhere/dscca")
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert cache_directory() == Path.home() / ".cache" / "dscca"
        monkeypatch.setattr(sys, "platform", "darwin")
        assert cache_directory() == Path.home() / "Library" / "Caches" / "dscca"
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setenv("LOCALAPPDATA", "/local")
        assert cache_directory() == Path("/local/dscca/Cache")
        monkeypatch.setenv("DSCCA_CACHE", "~/mine")
        assert cache_directory() == Path.home() / "mine"

    def test_look_up_order(self, places, monkeypatch):
        data, cache = places
        write_flickr8k(data / "flickr8k")
        write_flickr8k(cache / "flickr8k", n=(16, 8, 8))
        assert len(load("flickr8k")) == 24
        monkeypatch.delenv("DSCCA_DATA")
        assert len(load("flickr8k")) == 16

    def test_files_may_lie_in_both(self, places):
        data, cache = places
        write_flickr8k(data / "flickr8k")
        cache.joinpath("flickr8k").mkdir(parents=True)
        for name in ("resnet50.npz", "text300.npz"):
            (data / "flickr8k" / name).rename(cache / "flickr8k" / name)
        assert len(load("flickr8k")) == 24

    def test_what_is_missing_is_said(self, places, monkeypatch):
        data, cache = places
        for name in ("xrmb", "mocha", "flickr8k", "flickr30k", "iapr"):
            with pytest.raises(MissingDataError) as caught:
                load(name)
            message = str(caught.value)
            assert f"put it in {data / name} or {cache / name}" in message
            assert find_dataset(name).obtain in message
        monkeypatch.delenv("DSCCA_DATA")
        with pytest.raises(MissingDataError, match="or set DSCCA_DATA"):
            load("mocha")


class TestDownloads:
    """Through the registry; the server's faults are tested on their own."""

    @pytest.fixture
    def mnist(self, tmp_path, served):
        folder = write_mnist(tmp_path / "server")
        contents = {path.name: path.read_bytes() for path in folder.iterdir()}
        with FileServer(contents) as server:
            sources = [
                Source(
                    name,
                    (server.url(f"gone/{name}"), server.url(name)),
                    hashlib.sha256(raw).hexdigest(),
                    len(raw),
                )
                for name, raw in contents.items()
            ]
            served("mnist", sources)
            yield server

    def test_load_downloads_what_it_can_check(self, places, mnist):
        with pytest.raises(MissingDataError, match="mnist lacks"):
            load("mnist", "test", download=False)
        assert mnist.asked == []
        assert np.array_equal(load("mnist", "test").ids, np.arange(60_000, 70_000))
        assert len(mnist.asked) == 8  # each of four files, at two mirrors
        load("mnist", "test")
        assert len(mnist.asked) == 8
        assert (places[1] / "mnist" / "t10k-labels-idx1-ubyte.gz").exists()

    def test_no_network(self, places, mnist):
        mnist.files.clear()
        with pytest.raises(MissingDataError) as caught:
            load("mnist")
        message = str(caught.value)
        assert "lacks train-images-idx3-ubyte.gz: put it in" in message
        assert str(places[0] / "mnist") in message
        assert message.count("404") == 2

    def test_fetch(self, run, places, mnist):
        code, out, _ = run("fetch", "mnist")
        assert code == 0
        for path in sorted((places[1] / "mnist").glob("*.gz")):
            assert hashlib.sha256(path.read_bytes()).hexdigest() in out
        asked = len(mnist.asked)
        assert "nothing was missing" in run("fetch", "mnist")[1]
        assert len(mnist.asked) == asked
        assert run("check", "mnist")[0] == 0
        mnist.files.clear()
        (places[1] / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
        assert "could not download t10k-labels" in error(run("fetch", "mnist"))

    def test_a_file_out_of_an_archive(self, run, places, tmp_path, served):
        parts = write_flickr8k(tmp_path / "made")
        with zipfile.ZipFile(tmp_path / "caption_datasets.zip", "w") as archive:
            archive.writestr("dataset_flickr8k.json", karpathy(parts))
            archive.writestr("dataset_coco.json", "{}")
        raw = (tmp_path / "caption_datasets.zip").read_bytes()
        with FileServer({"x/caption_datasets.zip": raw}) as server:
            url, digest = server.url("x/caption_datasets.zip"), hashlib.sha256(raw).hexdigest()
            served("flickr8k", [Source("dataset_flickr8k.json", (url,), digest)])
            message = error(run("fetch", "flickr8k"))
            assert len(server.asked) == 1  # four entries, one download
        assert "flickr8k lacks resnet50.npz, text300.npz: put it in" in message
        folder = places[1] / "flickr8k"
        assert [p.name for p in folder.iterdir() if p.suffix != ".lock"] == [
            "dataset_flickr8k.json"
        ]
        images = [image for part in parts.values() for image in part]
        for name in ("resnet50.npz", "text300.npz"):
            write_features(folder / name, images, 5)
        assert len(load("flickr8k", captions=True).captions) == 24


class TestInstall:
    def test_from_an_archive(self, run, places, tmp_path):
        write_flickr8k(tmp_path / "made")
        with zipfile.ZipFile(tmp_path / "text.zip", "w") as archive:
            archive.writestr("readme.txt", "")
            archive.writestr("__MACOSX/._Flickr8k.token.txt", "")
            for path in (tmp_path / "made").iterdir():
                archive.write(path, f"Flickr8k_text/{path.name}")
        code, out, _ = run("fetch", "flickr8k", "--from", tmp_path / "text.zip")
        assert code == 0
        assert "took 6 files" in out
        assert len(load("flickr8k", captions=True)) == 24

    @pytest.mark.parametrize("kind", ["archive", "folder", "inner folder"])
    def test_a_folder_is_taken_whole(self, run, places, tmp_path, kind):
        made = tmp_path / "made" / "iaprtc12"
        write_iapr(made)
        (made / "images").mkdir()
        (made / "images" / "0.jpg").write_bytes(b"picture")
        source = made.parent
        if kind == "archive":
            source = tmp_path / "iaprtc12.tgz"
            with tarfile.open(source, "w:gz") as archive:
                archive.add(made, "iaprtc12")
        elif kind == "inner folder":
            source = made / "annotations_complete_eng"
        code, _, _ = run("fetch", "iapr", "--from", source)
        assert code == 0
        folder = places[1] / "iapr"
        assert len(list((folder / "annotations_complete_eng").rglob("*.eng"))) == 40
        assert not (folder / "images").exists()
        assert (folder / "resnet50.npz").exists() == (kind != "inner folder")

    def test_from_a_file(self, run, places, tmp_path):
        (tmp_path / "Flickr8k.token.txt.gz").write_bytes(gzip.compress(b"a.jpg#0\tx"))
        assert run("fetch", "flickr8k", "--from", tmp_path / "Flickr8k.token.txt.gz")[0] == 0
        assert (places[1] / "flickr8k" / "Flickr8k.token.txt.gz").exists()

    def test_refusals(self, run, places, tmp_path):
        assert "no file or folder" in error(run("fetch", "iapr", "--from", tmp_path / "none"))
        (tmp_path / "empty").mkdir()
        assert "holds none of iapr's files" in error(
            run("fetch", "iapr", "--from", tmp_path / "empty")
        )
        with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
            archive.writestr("../annotations_complete_eng/00/1.eng", "")
        assert "points outside" in error(run("fetch", "iapr", "--from", tmp_path / "evil.zip"))


class TestCommands:
    def test_list(self, run, places):
        write_flickr8k(places[0] / "flickr8k")
        code, out, _ = run("list")
        assert code == 0
        for dataset in DATASETS:
            assert dataset.name in out
        row = next(line for line in out.splitlines() if " flickr8k " in line)
        assert "yes" in row
        assert "0 of 2 files" in out
        listed = json.loads(run("list", "--json")[1])
        assert [entry["name"] for entry in listed] == [d.name for d in DATASETS]
        assert listed[0]["sizes"] == [50_000, 10_000, 10_000]

    def test_info(self, run, places):
        write_flickr8k(places[0] / "flickr8k")
        code, out, _ = run("info", "flickr8k")
        assert code == 0
        for text in ("Hodosh", "non-commercial", "8 folds", str(places[0] / "flickr8k"), "2048"):
            assert text in out
        described = json.loads(run("info", "flickr8k", "--json")[1])
        assert described["files"][0]["path"] == str(
            places[0] / "flickr8k/Flickr_8k.trainImages.txt"
        )
        assert "missing" in run("info", "xrmb")[1]
        assert "no data set nonsense" in error(run("info", "nonsense"))

    def test_path(self, run, places):
        write_flickr8k(places[0] / "flickr8k")
        assert run("path", "flickr8k")[1].strip() == str(places[0] / "flickr8k")
        assert "mocha lacks all of its files: put" in error(run("path", "mocha"))
        assert "needs no files" in error(run("path", "embedded-digits"))

    def test_check(self, run, places):
        folder = places[0] / "flickr8k"
        write_flickr8k(folder)
        code, out, _ = run("check", "flickr8k")
        assert code == 0
        assert "flickr8k is whole; 0 of 6 files" in out
        shapes = json.loads(run("check", "flickr8k", "--json")[1])["shapes"]
        assert shapes == {
            "train": [[24, 12], [24, 7]],
            "val": [[8, 12], [8, 7]],
            "test": [[8, 12], [8, 7]],
        }
        tokens = folder / "text300.npz"
        tokens.write_bytes(tokens.read_bytes()[:-100])
        assert "is no whole .npz file" in error(run("check", "flickr8k"))
        tokens.unlink()
        assert "flickr8k lacks text300.npz" in error(run("check", "flickr8k"))
        assert run("check", "synthetic-classes")[0] == 0

    def test_check_knows_the_content_of_mnist(self, run, places):
        write_mnist(places[0] / "mnist")
        message = error(run("check", "mnist"))
        assert message.count("its content has SHA-256") == 4
        path = places[0] / "mnist" / "t10k-labels-idx1-ubyte.gz"
        path.write_bytes(path.read_bytes()[:-5])
        assert "its content has SHA-256 none" in error(run("check", "mnist"))

    def test_check_real_files(self, run, real_data, monkeypatch):
        monkeypatch.setenv("DSCCA_DATA", str(real_data))
        code, out, _ = run("check", "mnist")
        assert code == 0
        assert "4 of 4 files have known checksums" in out

    @pytest.mark.parametrize("command", [[], ["list"], ["info"], ["fetch"], ["path"], ["check"]])
    def test_help(self, run, command):
        code, out, _ = run(*command, "--help")
        assert code == 0
        assert "Usage" in out


def test_the_guide(capsys):
    text = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "docs/data.md", "exec"), {})
    assert "(1000, 20) (1000, 15)" in capsys.readouterr().out
    for dataset in DATASETS:
        assert f"`{dataset.name}`" in text or dataset.name.startswith("synthetic-")
        for file in dataset.files:
            assert any(name in text for name in file.names)
