"""MNIST, XRMB and MOCHA: small files in the original formats, damaged ones, the real ones."""

import builtins
import gzip
import hashlib

import numpy as np
import pytest

from data_files import (
    XRMB_NAMES,
    mocha_arrays,
    write_idx,
    write_mnist,
    write_xrmb,
    xrmb_arrays,
)
from dscca.datasets import MissingDataError, load, load_splits
from dscca.datasets.mocha import stacked, window_centres

PARTS = ("train", "val", "test")
SMALL = (300, 100, 100)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """An empty DSCCA_DATA; nothing is downloaded, and nobody's cache is looked at."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("DSCCA_DATA", str(folder))
    monkeypatch.setenv("DSCCA_CACHE", str(tmp_path / "cache"))
    return folder


def ids(splits):
    return [set(splits[part].ids.tolist()) for part in PARTS]


def assert_disjoint(sets):
    assert len(set.union(*sets)) == sum(map(len, sets))


@pytest.fixture(scope="module")
def all_digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder / "mnist")
    return folder


class TestMnist:
    @pytest.fixture
    def mnist(self, all_digits, monkeypatch, tmp_path):
        monkeypatch.setenv("DSCCA_DATA", str(all_digits))
        monkeypatch.setenv("DSCCA_CACHE", str(tmp_path))

    @staticmethod
    def numbers(part):
        """The digits' numbers, out of their corner pixels: 251 and 241 are coprime."""
        first = np.rint(part.x[:, 0] * 255).astype(int)
        last = np.rint(part.y[:, -1] * 255).astype(int)
        known = {(i % 251, i % 241): i for i in range(251 * 241)}
        guess = np.array([known[a, b] for a, b in zip(first, last, strict=True)])
        # 70,000 is beyond 251 * 241: ids say which of the two.
        return np.where(part.ids >= 251 * 241, guess + 251 * 241, guess)

    def test_standard_split(self, mnist):
        splits = load_splits("mnist")
        for part, first, n in (
            ("train", 0, 50_000),
            ("val", 50_000, 10_000),
            ("test", 60_000, 10_000),
        ):
            rows = splits[part]
            expected = np.arange(first, first + n)
            assert np.array_equal(rows.ids, expected)
            assert np.array_equal(self.numbers(rows), expected)
            assert np.array_equal(rows.labels, expected % 10)
            assert rows.x.shape == rows.y.shape == (n, 392)
            assert rows.x.dtype == rows.y.dtype == np.float32
            assert not rows.x[:, 1:].any()
            assert not rows.y[:, :-1].any()
        assert np.array_equal(load("mnist", "val").ids, splits.val.ids)
        assert "LeCun" in splits.train.citation
        assert splits.train.licence

    def test_folds(self, mnist):
        tested = []
        for fold in range(7):
            splits = load_splits("mnist", fold=fold)
            assert [len(splits[part]) for part in PARTS] == [50_000, 10_000, 10_000]
            assert_disjoint(ids(splits))
            tested.append(set(splits.test.ids.tolist()))
            if fold == 3:
                assert np.array_equal(self.numbers(splits.val), splits.val.ids)
                assert np.array_equal(splits.val.labels, splits.val.ids % 10)
        assert_disjoint(tested)
        with pytest.raises(ValueError, match="fold=7: there are 7"):
            load("mnist", fold=7)

    @pytest.mark.parametrize("end", ["", ".idx"])
    def test_other_names(self, mnist, tmp_path, monkeypatch, end):
        write_mnist(tmp_path / "d" / "mnist", "")
        if end:
            for path in list((tmp_path / "d" / "mnist").iterdir()):
                path.rename(path.with_name(path.name.replace("-idx", ".idx")))
        monkeypatch.setenv("DSCCA_DATA", str(tmp_path / "d"))
        assert np.array_equal(load("mnist", "test", download=False).ids, np.arange(60_000, 70_000))

    def test_damaged(self, data):
        folder = write_mnist(data / "mnist")
        images, labels = (folder / f"t10k-{k}-ubyte.gz" for k in ("images-idx3", "labels-idx1"))
        good = images.read_bytes()

        def expect(message):
            with pytest.raises(ValueError, match=message):
                load("mnist", "test")

        images.write_bytes(good[:-100])
        expect(r"t10k-images.* is no whole idx file")
        images.write_bytes(good[:30] + b"\xff" * 30 + good[60:])
        expect("is no whole idx file")
        write_idx(images, np.zeros((9999, 28, 28)))
        expect(r"shape \(9999, 28, 28\) where MNIST's file has uint8 of shape \(10000, 28, 28\)")
        write_idx(images, np.zeros((10000, 32, 32)))
        expect("is it another data set's")
        write_idx(images, np.zeros((10000, 28, 28)))
        write_idx(labels, np.full(10000, 17))
        expect("label 17")
        labels.unlink()
        with pytest.raises(MissingDataError, match=r"mnist lacks t10k-labels.*/mnist or .*cache"):
            load("mnist", "test", download=False)

    def test_real_files(self, real_data):
        splits = load_splits("mnist", download=False)
        assert [len(splits[part]) for part in PARTS] == [50_000, 10_000, 10_000]
        # The number of each digit in the 60,000 and 10,000, as published.
        train = np.bincount(np.concatenate([splits.train.labels, splits.val.labels]))
        assert train.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        test = np.bincount(splits.test.labels)
        assert test.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
        images = np.concatenate(
            [splits.test.x.reshape(-1, 28, 14), splits.test.y.reshape(-1, 28, 14)], 2
        )
        content = np.rint(images * 255).astype(np.uint8).tobytes()
        with gzip.open(real_data / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
            assert hashlib.sha256(content).digest() == hashlib.sha256(file.read()[16:]).digest()


class TestXrmb:
    @pytest.mark.parametrize("version", ["5", "7.3"])
    def test_frames(self, data, version):
        files = xrmb_arrays()
        write_xrmb(data / "xrmb", files, version)
        splits = load_splits("xrmb", sizes=SMALL)
        assert_disjoint(ids(splits))
        for part, n in zip(PARTS, SMALL, strict=True):
            rows = splits[part]
            frames = rows.x[:, 0].astype(int)
            assert (rows.x.shape, rows.y.shape) == ((n, 273), (n, 112))
            assert np.array_equal(rows.x, files[0]["X1"][frames])
            assert np.array_equal(rows.y, files[1]["X2"][frames])
            assert np.array_equal(rows.labels, files[1]["trainLabel"][frames, 0])
            assert np.array_equal(rows.groups, files[1]["trainID"][frames, 0])
            assert rows.ids[0] == f"train:{frames[0]}"

    def test_folds(self, data):
        write_xrmb(data / "xrmb", xrmb_arrays(n_train=600))
        folds = [load_splits("xrmb", fold=fold, sizes=SMALL) for fold in range(5)]
        for splits in folds:
            assert [len(splits[part]) for part in PARTS] == list(SMALL)
            assert_disjoint(ids(splits))
        tested = [set(splits.test.ids) for splits in folds]
        assert_disjoint(tested)
        # All folds are of the frames of the standard split, which are some of all frames.
        assert set.union(*tested) == set.union(*ids(load_splits("xrmb", sizes=SMALL)))
        assert set(folds[0].test.ids) != set(load("xrmb", "test", 0, sizes=SMALL, seed=1).ids)

    @pytest.mark.parametrize("version", ["5", "7.3"])
    def test_speakers(self, data, version):
        files = xrmb_arrays()
        write_xrmb(data / "xrmb", files, version)
        splits = load_splits("xrmb", split_by="speakers", sizes=(200, 60, 70))
        assert_disjoint([set(splits[part].groups) for part in PARTS])
        for part, (x, y) in zip(
            PARTS, (("X1", "X2"), ("XV1", "XV2"), ("XTe1", "XTe2")), strict=True
        ):
            frames = splits[part].x[:, 0].astype(int)
            assert np.array_equal(splits[part].x, files[0][x][frames])
            assert np.array_equal(splits[part].y, files[1][y][frames])
        with pytest.raises(ValueError, match="folds need split_by='frames'"):
            load("xrmb", fold=0, split_by="speakers")

    def test_blocks_of_version_7_3(self, data, monkeypatch):
        monkeypatch.setattr("dscca.datasets.xrmb._BLOCK", 64)
        write_xrmb(data / "xrmb", xrmb_arrays(), "7.3")
        blocks = load_splits("xrmb", sizes=SMALL)
        write_xrmb(data / "xrmb", xrmb_arrays(), "5")
        whole = load_splits("xrmb", sizes=SMALL)
        for part in PARTS:
            assert np.array_equal(blocks[part].x, whole[part].x)
            assert np.array_equal(blocks[part].ids, whole[part].ids)

    @pytest.mark.parametrize("version", ["5", "7.3"])
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda a, b: a.pop("X1"), "single1.mat lacks the variable X1; it holds XTe1, XV1"),
            (lambda a, b: b.pop("trainLabel"), "single2.mat lacks the variable trainLabel"),
            (lambda a, b: a.update(X1=a["X1"][:-1]), r"shape \(499, 273\), not \(500, 273\)"),
            (lambda a, b: a.update(X1=b["X2"]), r"shape \(500, 112\), not \(500, 273\)"),
            (lambda a, b: a.update(X1=a["X1"].T), r"shape \(273, 500\)"),
            (lambda a, b: b["X2"].__setitem__((3, 4), np.nan), "X2 holds NaN or infinity in 1 row"),
            (lambda a, b: b.update(trainID=b["X2"]), "trainID has shape .* not one value a frame"),
        ],
    )
    def test_wrong_contents(self, data, version, change, message):
        files = xrmb_arrays()
        change(*files)
        write_xrmb(data / "xrmb", files, version)
        with pytest.raises(ValueError, match=message):
            load("xrmb", sizes=(480, 10, 10))

    def test_damaged_files(self, data):
        folder = write_xrmb(data / "xrmb", xrmb_arrays())
        path = folder / XRMB_NAMES[1]
        good = path.read_bytes()
        for damage in (good[:100], good[: len(good) // 2], b"", b"no .mat file at all" * 20):
            path.write_bytes(damage)
            with pytest.raises(ValueError, match=r"single2.mat (is no whole .mat|lacks)"):
                load("xrmb", sizes=SMALL)
        write_xrmb(folder, xrmb_arrays(), "7.3")
        path.write_bytes(path.read_bytes()[:2000])
        with pytest.raises(ValueError, match=r"is no whole .mat file"):
            load("xrmb", sizes=SMALL)
        path.unlink()
        with pytest.raises(MissingDataError, match=r"lacks XRMB.*2.mat: put it in .*XRMB_data"):
            load("xrmb", sizes=SMALL)

    def test_without_the_extra(self, data, monkeypatch):
        write_xrmb(data / "xrmb", xrmb_arrays(), "7.3")
        real = builtins.__import__

        def absent(name, *rest):
            if name == "h5py":
                raise ImportError(name)
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", absent)
        with pytest.raises(ValueError, match=r'pip install "dscca\[matlab\]"'):
            load("xrmb", sizes=SMALL)

    def test_too_few_frames(self, data):
        write_xrmb(data / "xrmb", xrmb_arrays())
        with pytest.raises(ValueError, match="500 samples are too few for 30000 to train"):
            load("xrmb")


class TestMocha:
    def write(self, data, **changes):
        arrays = {**mocha_arrays(), **changes}
        (data / "mocha").mkdir(exist_ok=True)
        np.savez(data / "mocha" / "fsew0.npz", **arrays)
        return arrays

    def test_windows_by_hand(self):
        """Two utterances of 4 and 3 frames, windows of 3: centres are 1, 2 and 5."""
        utterance = np.array([0, 0, 0, 0, 1, 1, 1])
        inside = window_centres(utterance, 3)
        assert np.flatnonzero(inside).tolist() == [1, 2, 5]
        frames = np.arange(14.0).reshape(7, 2)
        assert stacked(frames, np.array([2, 5]), 3).tolist() == [
            [2, 3, 4, 5, 6, 7],
            [8, 9, 10, 11, 12, 13],
        ]
        assert not window_centres(utterance[:2], 3).any()

    def test_by_utterance(self, data):
        arrays = self.write(data)
        utterance = arrays["utterance"].astype(int)
        splits = load_splits("mocha", sizes=None)
        for part, allowed in (("train", set("01345789")), ("val", {"6"}), ("test", {"2"})):
            rows = splits[part]
            assert {name[-1] for name in rows.groups} == allowed
            frame = np.array([int(i.split(":")[1]) for i in rows.ids])
            assert np.array_equal(rows.labels, arrays["phone_names"][arrays["phone"][frame]])
            assert set(rows.labels) == {"a", "t"}
            # Every frame of a window, of which the fourth is the sample's, is of its utterance.
            for offset in range(-3, 4):
                assert np.array_equal(utterance[frame + offset], utterance[frame])
        expected = window_centres(utterance, 7) & np.isin(arrays["phone"], (0, 3))
        assert sum(map(len, ids(splits))) == expected.sum()

    def test_window_contents(self, data):
        arrays = self.write(data)
        rows = load("mocha", "test", sizes=None)
        frame = np.array([int(i.split(":")[1]) for i in rows.ids])
        train = load("mocha", "train", sizes=None)
        for view, width in (("mfcc", 39), ("ema", 14)):
            got = (rows.x if view == "mfcc" else rows.y).reshape(len(rows), 7, width)
            fitted = np.array([int(i.split(":")[1]) for i in train.ids])
            for offset in range(7):
                raw = arrays[view].astype(np.float64)
                mean, sd = raw[fitted + offset - 3].mean(0), raw[fitted + offset - 3].std(0)
                wanted = np.clip(raw[frame + offset - 3], mean - 5 * sd, mean + 5 * sd)
                np.testing.assert_allclose(got[:, offset], wanted, rtol=1e-5, atol=1e-4)

    def test_clipping(self, data):
        arrays = mocha_arrays()
        test = arrays["utterance"] == 1  # utterance number 2 tests
        spoken = test & np.isin(arrays["phone"], (0, 3)) & window_centres(arrays["utterance"], 7)
        arrays["mfcc"][np.flatnonzero(spoken)[0], 5] = 1e6
        self.write(data, **arrays)
        train, rows = (load("mocha", part, sizes=None) for part in ("train", "test"))
        column = 3 * 39 + 5
        limit = train.x[:, column].mean() + 5 * train.x[:, column].std()
        assert rows.x[:, column].max() == pytest.approx(limit, rel=1e-4)

    def test_folds_leak_no_utterance(self, data):
        self.write(data)
        tested = []
        for fold in range(5):
            splits = load_splits("mocha", fold=fold, sizes=None)
            assert_disjoint([set(splits[part].groups) for part in PARTS])
            tested.append(set(splits.test.groups))
        assert_disjoint(tested)
        assert len(set.union(*tested)) == 40

    def test_frames(self, data):
        self.write(data)
        splits = load_splits("mocha", split_by="frames", sizes=(200, 60, 60))
        assert [len(splits[part]) for part in PARTS] == [200, 60, 60]
        assert_disjoint(ids(splits))
        assert set(splits.train.groups) & set(splits.test.groups)  # what the paper's way leaks
        everything = set.union(*ids(splits))
        tested = []
        for fold in range(5):
            part = load_splits("mocha", fold=fold, split_by="frames", sizes=(200, 60, 60))
            assert_disjoint(ids(part))
            assert set.union(*ids(part)) == everything
            tested.append(set(part.test.ids))
        assert_disjoint(tested)
        assert len(load("mocha", split_by="frames", sizes=None)) > 200

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"mfcc": np.zeros((10, 39))}, r"ema has shape .* not \(10, 14\)"),
            ({"ema": np.zeros((10, 14))}, r"ema has shape \(10, 14\)"),
            ({"phone_names": np.array(["a"])}, "phone goes beyond its 1 names"),
            ({"utterance_names": np.array(["x"] * 40)}, "does not end in its number"),
        ],
    )
    def test_wrong_contents(self, data, changes, message):
        self.write(data, **changes)
        with pytest.raises(ValueError, match=message):
            load("mocha")

    def test_damaged_files(self, data):
        arrays = self.write(data)
        path = data / "mocha" / "fsew0.npz"
        whole = path.read_bytes()
        path.write_bytes(whole[:-500])
        with pytest.raises(ValueError, match=r"fsew0.npz is no whole .npz file"):
            load("mocha")
        scattered = arrays["utterance"].copy()
        scattered[[0, -1]] = scattered[[-1, 0]]
        self.write(data, utterance=scattered)
        with pytest.raises(ValueError, match="do not lie together"):
            load("mocha")
        np.savez(path, mfcc=arrays["mfcc"])
        with pytest.raises(ValueError, match="lacks ema, utterance"):
            load("mocha")
        arrays["ema"][7, 3] = np.inf
        self.write(data, ema=arrays["ema"])
        with pytest.raises(ValueError, match="ema holds NaN or infinity in 1 rows, first in 7"):
            load("mocha")
        with pytest.raises(MissingDataError, match=r"lacks msak0\.npz"):
            load("mocha", speaker="msak0")
        with pytest.raises(ValueError, match="take 'utterance' or 'frames'"):
            load("mocha", split_by="phone")

    def test_real_files(self, real_data):
        for options in ({}, {"fold": 2}, {"split_by": "frames"}, {"split_by": "frames", "fold": 4}):
            splits = load_splits("mocha", **options)
            for part, n in zip(PARTS, (30_000, 10_000, 10_000), strict=True):
                assert (splits[part].x.shape, splits[part].y.shape) == ((n, 273), (n, 98))
            assert_disjoint(ids(splits))
            if "split_by" not in options:
                assert_disjoint([set(splits[part].groups) for part in PARTS])
        everything = load_splits("mocha", sizes=None)
        assert sum(map(len, ids(everything))) == 123_797  # speech frames, none at a border
        assert not set(everything.train.labels) & {"sil", "breath"}
        assert len(set.union(*(set(everything[part].groups) for part in PARTS))) == 460
