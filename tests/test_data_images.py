"""Flickr8k, Flickr30k, IAPR TC-12: formats, alignment by file name, splits, folds."""

import gzip
import json

import numpy as np
import pytest

from data_files import karpathy, write_features, write_flickr8k, write_iapr
from dscca.datasets import MissingDataError, load, load_splits
from dscca.datasets.captions import read_iapr, read_karpathy, read_list, read_tokens

PARTS = ("train", "val", "test")


@pytest.fixture
def data(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("DSCCA_DATA", str(folder))
    monkeypatch.setenv("DSCCA_CACHE", str(tmp_path / "cache"))
    return folder


def assert_aligned(part, order):
    """Both views of a sample are features of its image: their first is its place in `order`."""
    places = [order.index(image) for image in part.ids]
    assert np.array_equal(part.x[:, 0], places)
    assert np.array_equal(part.y[:, 0], places)


class TestFlickr8k:
    def test_official_split(self, data):
        parts = write_flickr8k(data / "flickr8k")
        splits = load_splits("flickr8k", captions=True)
        with np.load(data / "flickr8k" / "resnet50.npz") as file:
            order = sorted(file["files"])
        for part in PARTS:
            assert list(splits[part].ids) == parts[part]
            assert_aligned(splits[part], order)
            assert (splits[part].x.shape[1], splits[part].y.shape[1]) == (12, 7)
            assert splits[part].x.dtype == np.float32
            for image, captions in zip(parts[part], splits[part].captions, strict=True):
                assert captions == tuple(f"caption {k} of {image} ." for k in range(5))
        assert load("flickr8k").captions is None

    def test_folds(self, data):
        parts = write_flickr8k(data / "flickr8k", n=(24, 4, 4))
        listed = {image for part in parts.values() for image in part}
        tested = []
        for fold in range(8):
            splits = load_splits("flickr8k", fold=fold)
            sets = [set(splits[part].ids) for part in PARTS]
            assert [len(names) for names in sets] == [24, 4, 4]
            assert set.union(*sets) == listed
            tested.append(sets[2])
        assert sum(map(len, tested)) == len(set.union(*tested)) == len(listed)

    def test_folds_do_not_depend_on_the_order_of_files(self, data):
        parts = write_flickr8k(data / "flickr8k")
        before = load_splits("flickr8k", fold=2)
        for name, part in (("train", "train"), ("dev", "val"), ("test", "test")):
            path = data / "flickr8k" / f"Flickr_8k.{name}Images.txt"
            path.write_text("\r\n".join(parts[part][::-1]))
        after = load_splits("flickr8k", fold=2)
        for part in PARTS:
            assert np.array_equal(before[part].ids, after[part].ids)
            assert np.array_equal(before[part].x, after[part].x)

    def test_karpathy(self, data):
        folder = data / "flickr8k"
        parts = write_flickr8k(folder)
        lists = load_splits("flickr8k", captions=True)
        for path in [*folder.glob("Flickr_8k.*"), folder / "Flickr8k.token.txt"]:
            path.unlink()
        (folder / "dataset_flickr8k.json").write_text(karpathy(parts))
        splits = load_splits("flickr8k", captions=True)
        for part in PARTS:
            assert np.array_equal(splits[part].ids, lists[part].ids)
            assert splits[part].captions == lists[part].captions

    def test_gzipped_captions(self, data):
        folder = data / "flickr8k"
        write_flickr8k(folder)
        plain = load("flickr8k", captions=True).captions
        tokens = folder / "Flickr8k.token.txt"
        zipped = gzip.compress(tokens.read_bytes())
        tokens.unlink()
        (folder / "Flickr8k.token.txt.gz").write_bytes(zipped)
        assert load("flickr8k", captions=True).captions == plain
        (folder / "Flickr8k.token.txt.gz").write_bytes(zipped[:-30])
        with pytest.raises(ValueError, match=r"token.txt.gz is a truncated or damaged gzip file"):
            load("flickr8k", captions=True)

    def test_features_elsewhere(self, data, tmp_path):
        folder = data / "flickr8k"
        write_flickr8k(folder)
        expected = load("flickr8k")
        (tmp_path / "cache" / "datasets" / "flickr8k").mkdir(parents=True)
        (folder / "resnet50.npz").rename(tmp_path / "mine.npz")
        (folder / "text300.npz").rename(tmp_path / "cache" / "datasets" / "flickr8k" / "clip.npz")
        got = load("flickr8k", features=(str(tmp_path / "mine.npz"), "clip.npz"))
        assert np.array_equal(got.x, expected.x)
        assert np.array_equal(got.y, expected.y)
        with pytest.raises(MissingDataError, match=r"lacks resnet50.npz: put it in .* or .*cache"):
            load("flickr8k")

    @pytest.mark.parametrize(
        ("edit", "message"),
        [
            (lambda t: t.replace("#2\t", "#1\t", 1), "a second caption called .*#1"),
            (lambda t: t.replace("#2\t", "#7\t", 1), r"has captions \[0, 1, 3, 4, 7\]"),
            (lambda t: t.split("\n", 1)[1], r"has captions \[1, 2, 3, 4\]"),
            (lambda t: t.replace("\t", " ", 1), "line 1: .* is not NAME#NUMBER<TAB>CAPTION"),
            (lambda t: t.replace("#0\t", "\t", 1), "line 1"),
            (lambda t: t.replace(".jpg#", ".png#"), "40 images have no captions"),
        ],
    )
    def test_mixed_up_captions(self, data, edit, message):
        write_flickr8k(data / "flickr8k")
        tokens = data / "flickr8k" / "Flickr8k.token.txt"
        tokens.write_text(edit(tokens.read_text()))
        with pytest.raises(ValueError, match=message):
            load("flickr8k", captions=True)

    def test_damaged_lists(self, data):
        folder = data / "flickr8k"
        parts = write_flickr8k(folder)
        test = folder / "Flickr_8k.testImages.txt"
        test.write_text("\n".join([*parts["test"], parts["train"][0]]))
        with pytest.raises(ValueError, match=f"{parts['train'][0]} is in two parts"):
            load("flickr8k")
        test.write_text("\n".join([*parts["test"], parts["test"][0]]))
        with pytest.raises(ValueError, match="comes twice"):
            load("flickr8k")
        test.write_text("nowhere.jpg\nneither.jpg")
        with pytest.raises(ValueError, match=r"no features of 2 of 34 images: \S*jpg, \S*jpg\."):
            load("flickr8k")
        test.unlink()
        with pytest.raises(MissingDataError, match=r"testImages.txt or dataset_flickr8k.json"):
            load("flickr8k")

    def test_damaged_features(self, data):
        folder = data / "flickr8k"
        parts = write_flickr8k(folder)
        images = [image for part in parts.values() for image in part]
        path = folder / "text300.npz"

        def expect(message, **arrays):
            np.savez(path, **arrays)
            with pytest.raises(ValueError, match=message):
                load("flickr8k")

        features = np.zeros((len(images), 4))
        expect("needs the arrays features and ids", features=features)
        expect("features of shape", features=features[1:], files=images)
        expect("features of shape", features=features[:, 0], files=images)
        expect("comes twice", features=features, files=[*images[:-1], images[0]])
        features[5, 1] = np.nan
        expect("NaN or infinity in 1 rows", features=features, files=images)
        expect(
            "no whole .npz file: Object", features=features, files=np.array(images, dtype=object)
        )
        path.write_bytes(b"not an archive")
        with pytest.raises(ValueError, match=r"is no whole .npz file"):
            load("flickr8k")

    def test_damaged_json(self, data, tmp_path):
        path = tmp_path / "k.json"
        good = json.loads(karpathy({"train": ["a.jpg"], "val": ["b.jpg"], "test": ["c.jpg"]}))
        twice = {"images": good["images"] * 2}
        for content in ({}, [], {"images": [{}]}, {"images": [1]}, {"images": 1}, twice):
            path.write_text(json.dumps(content))
            with pytest.raises(ValueError, match="not in the format of Karpathy's captions"):
                read_karpathy(path)
        path.write_text(json.dumps(good)[:-20])
        with pytest.raises(ValueError, match="not in the format"):
            read_karpathy(path)

    def test_real_files(self, real_data):
        folder = real_data / "flickr8k"
        captions = read_tokens(folder / "Flickr8k.token.txt.gz")
        assert sum(map(len, captions.values())) == 40_455
        splits = load_splits("flickr8k", captions=True)
        assert [len(splits[part]) for part in PARTS] == [6000, 1000, 1000]
        assert len(set.union(*(set(splits[part].ids) for part in PARTS))) == 8000
        official = read_list(folder / "Flickr_8k.testImages.txt")
        assert sorted(splits.test.ids) == sorted(official)
        assert (splits.test.x.shape[1], splits.test.y.shape[1]) == (2048, 300)
        first = splits.test.captions[list(splits.test.ids).index(official[0])]
        assert first == captions[official[0]]
        fold = load_splits("flickr8k", fold=7)
        assert [len(fold[part]) for part in PARTS] == [6000, 1000, 1000]


class TestFlickr30k:
    @pytest.fixture
    def images(self, data):
        folder = data / "flickr30k"
        folder.mkdir()
        images = [f"{i * 7919 % 1009}.jpg" for i in range(60)]
        lines = [f"{image}#{k}\tcaption {k} of {image}" for image in images for k in range(5)]
        (folder / "results_20130124.token").write_text("\n".join(lines))
        write_features(folder / "resnet50.npz", images, 12, first=images)
        write_features(folder / "text300.npz", images[::-1], 7, first=images)
        return images

    def test_random(self, images):
        splits = load_splits("flickr30k", sizes=(10, 12), captions=True)
        sets = [set(splits[part].ids) for part in PARTS]
        assert [len(names) for names in sets] == [38, 10, 12]
        assert set.union(*sets) == set(images)
        for part in PARTS:
            assert_aligned(splits[part], images)
        assert splits.val.captions[0][3] == f"caption 3 of {splits.val.ids[0]}"
        other = load("flickr30k", "test", seed=1, sizes=(10, 12))
        assert set(other.ids) != sets[2]

    def test_official(self, data, images):
        bounds = {"train": (0, 40), "val": (40, 50), "test": (50, 60)}
        for part, (start, stop) in bounds.items():
            numbers = [image.removesuffix(".jpg") for image in images[start:stop]]
            (data / "flickr30k" / f"{part}.txt").write_text("\n".join(numbers))
        splits = load_splits("flickr30k", split_by="official")
        for part, (start, stop) in bounds.items():
            assert list(splits[part].ids) == images[start:stop]
        parts = {part: images[start:stop] for part, (start, stop) in bounds.items()}
        (data / "flickr30k" / "dataset_flickr30k.json").write_text(karpathy(parts))
        (data / "flickr30k" / "val.txt").unlink()
        again = load_splits("flickr30k", split_by="official")
        assert list(again.val.ids) == images[40:50]

    def test_refusals(self, images):
        with pytest.raises(ValueError, match="has no folds in the paper"):
            load("flickr30k", fold=0)
        with pytest.raises(ValueError, match="60 samples are too few"):
            load("flickr30k")
        with pytest.raises(ValueError, match="'random' or 'official'"):
            load("flickr30k", split_by="mine")


class TestIapr:
    def test_annotations(self, data):
        images = write_iapr(data / "iapr")
        splits = load_splits("iapr", sizes=(8, 5), captions=True)
        sets = [set(splits[part].ids) for part in PARTS]
        assert [len(names) for names in sets] == [27, 8, 5]
        assert set.union(*sets) == set(images)
        for part in PARTS:
            assert_aligned(splits[part], images)
        number = splits.test.ids[0].split("/")[1].removesuffix(".jpg")
        assert splits.test.captions[0] == (f'a café & {number} "tables"; two chairs;',)
        assert np.array_equal(load("IAPR TC-12", "test", sizes=(8, 5)).ids, splits.test.ids)

    def test_token_file(self, data):
        images = write_iapr(data / "iapr")
        expected = load_splits("iapr", sizes=(8, 5), captions=True)
        folder = data / "iapr"
        captions = read_iapr(folder / "annotations_complete_eng")
        (folder / "annotations_complete_eng").rename(data / "elsewhere")
        lines = [f"{image}#0\t{captions[image][0]}" for image in images[::-1]]
        (folder / "captions.token").write_text("\n".join(lines), encoding="utf-8")
        splits = load_splits("iapr", sizes=(8, 5), captions=True)
        for part in PARTS:
            assert np.array_equal(splits[part].ids, expected[part].ids)
            assert splits[part].captions == expected[part].captions

    def test_lists(self, data):
        images = write_iapr(data / "iapr")
        stems = [image.removesuffix(".jpg") for image in images]
        (data / "iapr" / "iaprtc12_train_list.txt").write_text("\n".join(stems[:30]))
        (data / "iapr" / "iaprtc12_test_list.txt").write_text("\n".join(stems[30:]))
        splits = load_splits("iapr", split_by="lists", sizes=(6, 0))
        assert set(splits.test.ids) == set(images[30:])
        assert len(splits.val) == 6
        assert set(splits.val.ids) | set(splits.train.ids) == set(images[:30])
        assert_aligned(splits.test, images)
        (data / "iapr" / "iaprtc12_test_list.txt").write_text("\n".join(stems[29:]))
        with pytest.raises(ValueError, match="is in both lists"):
            load("iapr", split_by="lists")

    def test_damaged(self, data):
        write_iapr(data / "iapr")
        folder = data / "iapr" / "annotations_complete_eng"
        path = folder / "00" / "0.eng"
        good = path.read_bytes()
        path.write_bytes(good.replace(b"<DESCRIPTION>", b""))
        with pytest.raises(ValueError, match=r"0.eng has 0 fields DESCRIPTION"):
            load("iapr", sizes=(8, 5))
        path.write_bytes(good.replace(b"00/0.jpg", b"00/3.jpg"))
        with pytest.raises(ValueError, match=r"3.jpg has two annotations"):
            load("iapr", sizes=(8, 5))
        path.write_bytes(good)
        with pytest.raises(ValueError, match="40 samples are too few"):
            load("iapr")
        with pytest.raises(ValueError, match="has no folds"):
            load("iapr", fold=1)
        for file in folder.rglob("*.eng"):
            file.unlink()
        with pytest.raises(ValueError, match="holds no annotations"):
            load("iapr", sizes=(8, 5))
