import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from dscca.features import UnusableItemError, image_features, read_features
from dscca.features.sources import FolderSource
from dscca.features.vision import VisionEncoder
from feature_problems import encoded, folder_of_pictures, picture, small_resnet

transformers = pytest.importorskip("transformers")
pil_image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_resnet(tmp_path_factory.mktemp("model") / "resnet", size=32)


@pytest.fixture
def photos(tmp_path):
    return folder_of_pictures(tmp_path / "photos")


def test_unreadable_images_are_left_out_filled_or_fatal(photos, tmp_path, model):
    whole = tmp_path / "whole.npz"
    image_features(photos, whole, model=str(model), batch_size=4)
    (photos / "02.png").write_bytes(b"no image at all")
    (photos / "07.png").write_bytes((photos / "07.png").read_bytes()[:150])
    arguments = {"model": str(model), "batch_size": 4}
    reports = {
        how: image_features(photos, tmp_path / f"{how}.npz", on_error=how, **arguments)
        for how in ("skip", "zero")
    }
    skipped, zeroed = (read_features(tmp_path / f"{how}.npz") for how in ("skip", "zero"))
    broken = {"02.png", "07.png"}
    assert reports["skip"].left_out.keys() == reports["zero"].zero_filled.keys() == broken
    assert "no image of a known format" in reports["skip"].left_out["02.png"]
    assert "truncated" in reports["skip"].left_out["07.png"]
    on_disk = json.loads((tmp_path / "skip.json").read_text())
    assert on_disk["left_out"] == reports["skip"].left_out
    assert (on_disk["items"], on_disk["rows"], on_disk["width"]) == (12, 10, 12)
    full = read_features(whole)
    good = ~np.isin(full.ids, list(broken))
    np.testing.assert_array_equal(skipped.ids, full.ids[good])
    np.testing.assert_array_equal(skipped.features, full.features[good])
    np.testing.assert_array_equal(zeroed.ids, full.ids)
    np.testing.assert_array_equal(zeroed.features[good], full.features[good])
    assert not zeroed.features[~good].any()
    with pytest.raises(UnusableItemError, match=r"02\.png: is no image"):
        image_features(photos, tmp_path / "fail.npz", on_error="fail", **arguments)
    assert not (tmp_path / "fail.npz").exists()


def test_nothing_readable_is_an_error(tmp_path, model):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"")
    with pytest.raises(UnusableItemError, match=r"none of the 1 items.*a\.png"):
        image_features(tmp_path / "photos", tmp_path / "f.npz", model=str(model))
    (tmp_path / "photos" / "a.png").unlink()
    with pytest.raises(ValueError, match="holds no images"):
        image_features(tmp_path / "photos", tmp_path / "f.npz", model=str(model))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output": "f.npy"}, "does not end in .npz"),
        ({"dtype": "float64"}, "float32 or float16"),
        ({"on_error": "ignore"}, "none of skip, zero, fail"),
        ({"batch_size": 0}, "batch_size=0 is below 1"),
        ({"workers": 0}, "workers=0 is below 1"),
        ({"max_pixels": 10**9}, "max_pixels=1000000000 is outside"),
    ],
)
def test_impossible_arguments(photos, tmp_path, model, arguments, message):
    output = tmp_path / arguments.pop("output", "f.npz")
    with pytest.raises(ValueError, match=message):
        image_features(photos, output, model=str(model), **arguments)


def test_half_precision_is_stored_and_bounded(photos, tmp_path, model, monkeypatch):
    image_features(photos, tmp_path / "single.npz", model=str(model))
    image_features(photos, tmp_path / "half.npz", model=str(model), dtype="float16")
    half, single = (read_features(tmp_path / f"{n}.npz").features for n in ("half", "single"))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, single.astype(np.float16))
    plain = VisionEncoder.encode
    monkeypatch.setattr(VisionEncoder, "encode", lambda self, x: 1e6 + plain(self, x))
    with pytest.raises(ValueError, match=r"01\.png are not finite in float16: store float32"):
        image_features(photos, tmp_path / "f.npz", model=str(model), dtype="float16")


def test_few_images_are_decoded_ahead(photos, tmp_path, model, monkeypatch):
    read, encoded_so_far, ahead = FolderSource.read, [0], [0]

    def counted(self, position):
        ahead[0] = max(ahead[0], position - encoded_so_far[0])
        return read(self, position)

    def slow(self, pixels):
        if len(pixels) > 1:  # one black image goes through when the model is loaded
            time.sleep(0.05)
            encoded_so_far[0] += len(pixels)
        return encode(self, pixels)

    encode = VisionEncoder.encode
    monkeypatch.setattr(FolderSource, "read", counted)
    monkeypatch.setattr(VisionEncoder, "encode", slow)
    image_features(photos, tmp_path / "f.npz", model=str(model), batch_size=2)
    assert encoded_so_far[0] == 12
    assert 2 <= ahead[0] <= 6  # of twelve: this batch and two more


def test_progress_is_shown_on_terminals(photos, tmp_path, model, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    image_features(photos, tmp_path / "f.npz", model=str(model), verbose=True)
    assert "12/12 items" in sys.stderr.getvalue()
    assert "/s" in sys.stderr.getvalue()


_SLOWLY = """
import sys, time, dscca.features.extraction as extraction
from dscca.features import image_features
from dscca.features.vision import VisionEncoder
encode = VisionEncoder.encode
VisionEncoder.encode = lambda self, pixels: (time.sleep(0.2), encode(self, pixels))[1]
import dscca.features.images as images
images.shard_batches = lambda size: 1
image_features(sys.argv[1], sys.argv[2], model=sys.argv[3], batch_size=2)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_run_ends_with_the_same_bytes(photos, tmp_path, model, monkeypatch):
    (photos / "08.png").write_bytes(b"broken")
    whole, output = tmp_path / "whole.npz", tmp_path / "killed.npz"
    monkeypatch.setattr("dscca.features.images.shard_batches", lambda size: 1)
    arguments = {"model": str(model), "batch_size": 2}
    image_features(photos, whole, **arguments)
    process = subprocess.Popen([sys.executable, "-c", _SLOWLY, photos, output, model])
    parts = tmp_path / "killed.npz.parts"
    deadline = time.monotonic() + 60
    while len(list(parts.glob("0*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not output.exists()
    done = sorted(parts.glob("0*"))
    assert 3 <= len(done) < 6
    done[0].write_bytes(done[0].read_bytes()[:-20])  # damaged: made again
    (parts / ".000004.safetensors.abc.tmp").write_bytes(b"half a shard")
    report = image_features(photos, output, **arguments)
    assert report.reused == 2 * (len(done) - 1)
    assert output.read_bytes() == whole.read_bytes()
    assert report.left_out.keys() == {"08.png"}
    assert not parts.exists()


def test_shards_of_another_run_are_made_again(photos, tmp_path, model, monkeypatch):
    monkeypatch.setattr("dscca.features.images.shard_batches", lambda size: 1)
    output, arguments = tmp_path / "f.npz", {"model": str(model), "batch_size": 4}
    (photos / "sub" / "09.png").write_bytes(b"broken")

    def interrupted(**more):
        with pytest.raises(UnusableItemError):
            image_features(photos, output, on_error="fail", **{**arguments, **more})
        assert list((tmp_path / "f.npz.parts").glob("0*"))

    interrupted()
    report = image_features(photos, output, **arguments)
    assert report.reused == 8
    interrupted()
    report = image_features(photos, output, **{**arguments, "dtype": "float16"})
    assert report.reused == 0
    interrupted()
    (photos / "01.png").write_bytes(encoded(picture(99, 50)))  # of the first shard
    report = image_features(photos, output, **arguments)
    assert report.reused == 4


def test_test_images_of_flickr8k_through_a_resnet50(real_data, tmp_path):
    archive = real_data / "flickr8k" / "test_images.zip"
    torch.manual_seed(0)
    transformers.ResNetModel(transformers.ResNetConfig()).save_pretrained(tmp_path / "resnet50")
    listed = (real_data / "flickr8k" / "Flickr_8k.testImages.txt").read_text().split()[:48]
    (tmp_path / "names.txt").write_text("\n".join(listed))
    report = image_features(
        archive,
        tmp_path / "f.npz",
        model=str(tmp_path / "resnet50"),
        names=tmp_path / "names.txt",
        batch_size=16,
    )
    features = read_features(tmp_path / "f.npz")
    assert features.features.shape == (48, 2048)
    assert list(features.ids) == listed
    assert not report.left_out
    assert np.linalg.matrix_rank(features.features - features.features.mean(axis=0)) == 47
