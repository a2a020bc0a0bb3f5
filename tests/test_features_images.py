import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dscca.features import UnusableItemError, image_features, read_features
from dscca.features.pictures import MAX_PIXELS, Preprocessing, decode, preprocessing_from
from dscca.features.sources import UnreadableImageError, image_source
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


# Decoding and preprocessing


@pytest.mark.parametrize(("width", "height"), [(40, 30), (30, 40), (33, 33), (400, 31), (31, 57)])
@pytest.mark.parametrize(
    "processor",
    [
        transformers.ConvNextImageProcessorPil(size={"shortest_edge": 32}, crop_pct=0.875),
        transformers.ConvNextImageProcessorPil(size={"shortest_edge": 384}, resample=2),
        transformers.ViTImageProcessorPil(size={"height": 24, "width": 36}),
        transformers.DeiTImageProcessorPil(
            size={"height": 40, "width": 36}, crop_size={"height": 30, "width": 28}
        ),
        transformers.CLIPImageProcessorPil(
            size={"shortest_edge": 33}, crop_size={"height": 28, "width": 30}
        ),
    ],
    ids=["convnext", "convnext384", "vit", "deit", "clip"],
)
def test_preprocessing_is_that_of_transformers(processor, width, height):
    image = picture(width, height)
    expected = processor(image, return_tensors="np")["pixel_values"][0]
    steps = preprocessing_from(json.loads(processor.to_json_string()))
    pixels = steps.pixels(image).astype(np.float64)
    result = (pixels * steps.factor - steps.mean) / steps.std
    np.testing.assert_allclose(result.transpose(2, 0, 1), expected, atol=1e-5)


def test_preprocessing_by_default_is_imagenet_s():
    # as microsoft/resnet-50 has it: short side 224 / 0.875, centre crop 224
    processor = transformers.ConvNextImageProcessorPil(
        size={"shortest_edge": 224},
        crop_pct=0.875,
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )
    assert preprocessing_from(json.loads(processor.to_json_string())) == Preprocessing()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_pad": True}, "do_pad"),
        ({"do_normalize": False}, "do_normalize=false"),
        ({"do_center_crop": False}, "different sizes"),
        ({"size": {"longest_edge": 224}}, "not supported"),
        ({"crop_size": {"height": 40, "width": 40}}, "does not fit"),
        ({"image_std": [0, 1, 1]}, "std above zero"),
    ],
)
def test_unsupported_preprocessing_is_refused(changes, message):
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=24)
    with pytest.raises(ValueError, match=message):
        preprocessing_from(json.loads(processor.to_json_string()) | changes)


def test_a_model_s_own_preprocessing_is_taken(tmp_path, model):
    assert VisionEncoder(str(model), device="cpu").preprocessing.size == (32, 32)
    bare = small_resnet(tmp_path)
    assert VisionEncoder(str(bare), device="cpu").preprocessing == Preprocessing()
    # an old file, whose one number means the short side for CLIP
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 30, "crop_size": 28}
    (bare / "preprocessor_config.json").write_text(json.dumps(old))
    steps = VisionEncoder(str(bare), device="cpu").preprocessing
    assert (steps.resize, steps.size) == (30, (28, 28))
    (bare / "preprocessor_config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot prepare images"):
        VisionEncoder(str(bare), device="cpu")


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "RGBA", "LA", "1", "RGB"])
def test_every_mode_becomes_rgb(mode):
    image = picture(mode=mode)
    format = "TIFF" if mode == "CMYK" else "PNG"
    result = decode(encoded(image, format))
    assert result.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(result), np.asarray(image.convert("RGB")))


def test_jpeg_in_cmyk():
    image = picture()
    result = decode(encoded(image.convert("CMYK"), "JPEG", quality=95))
    assert np.abs(np.asarray(result, float) - np.asarray(image, float)).mean() < 5


def test_transparent_parts_are_white():
    pixels = np.zeros((4, 4, 4), dtype=np.uint8)
    pixels[0, :, 3] = 255  # one opaque black row, the others transparent black
    pixels[1, :, 3] = 51  # a fifth of black over white
    result = np.asarray(decode(encoded(pil_image.fromarray(pixels))))
    assert (result[0] == 0).all()
    assert (result[1] == 204).all()
    assert (result[2:] == 255).all()


def test_sixteen_bits_are_not_clipped():
    values = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    result = np.asarray(decode(encoded(pil_image.fromarray(values))))
    np.testing.assert_array_equal(result[..., 0], values // 256)
    values = np.full((4, 4), 0.5, dtype=np.float32)
    with pytest.raises(UnreadableImageError, match="no known range"):
        decode(encoded(pil_image.fromarray(values), "TIFF"))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_honoured(orientation):
    # What a camera stores for each orientation (EXIF 2.3, tag 0x0112), undone by numpy.
    upright = np.asarray(picture(24, 16))
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = pil_image.Exif()
    exif[0x0112] = orientation
    content = encoded(pil_image.fromarray(np.ascontiguousarray(stored)), "PNG", exif=exif)
    np.testing.assert_array_equal(np.asarray(decode(content)), upright)


def test_bombs_are_refused_before_they_are_decoded():
    content = encoded(pil_image.new("1", (20_000, 20_000)))
    assert len(content) < 100_000
    with pytest.raises(UnreadableImageError, match="pixels"):
        decode(content)
    with pytest.raises(UnreadableImageError, match="1200 pixels are more than the 1,000 allowed"):
        decode(encoded(pil_image.new("RGB", (1, 1200))), max_pixels=1000)
    line = pil_image.new("RGB", (1, 50_000))
    with pytest.raises(UnreadableImageError, match="too narrow"):
        Preprocessing().pixels(line, MAX_PIXELS)


@given(
    st.sampled_from(["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"]),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=8),
    st.integers(0, 400),
)
def test_broken_files_have_a_reason(format, changes, cut):
    content = bytearray(encoded(picture(), format))
    for at, value in changes:
        content[at % len(content)] = value
    content = bytes(content[: len(content) - cut])
    reason = None
    try:
        image = decode(content, max_pixels=10**6)
    except UnreadableImageError as error:
        reason = str(error)
    assert reason is None or len(reason) > 8
    assert reason is not None or image.mode == "RGB"


# Where images come from


def test_folder_is_sorted_and_names_what_it_ignores(photos):
    (photos / "notes.txt").write_text("no image")
    (photos / ".hidden.png").write_bytes(b"")
    source = image_source(photos)
    assert list(source.items.ids) == sorted(source.items.ids)
    assert len(source.items.ids) == 12
    assert set(source.ignored) == {"notes.txt", ".hidden.png"}


def test_links_out_of_the_folder_are_refused(photos, tmp_path, model):
    outside = tmp_path / "outside.png"
    outside.write_bytes(encoded(picture()))
    (photos / "out.png").symlink_to(outside)
    (photos / "in.png").symlink_to(photos / "01.png")
    (photos / "away").symlink_to(tmp_path)
    report = image_features(photos, tmp_path / "f.npz", model=str(model))
    assert report.left_out == {"out.png": "leads out of the folder"}
    assert report.notes["ignored"] == {"away": "a link to a folder is not followed"}
    features = read_features(tmp_path / "f.npz")
    rows = dict(zip(features.ids, features.features, strict=True))
    np.testing.assert_allclose(rows["in.png"], rows["01.png"], rtol=1e-5)


def test_archive_gives_what_the_folder_gives(photos, tmp_path, model):
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(photos.rglob("*.png"), reverse=True):
            file.write(path, path.relative_to(photos).as_posix())
        file.writestr("__MACOSX/01.png", b"")
        file.writestr("readme.md", b"")
    before = set(tmp_path.iterdir())
    image_features(photos, tmp_path / "folder.npz", model=str(model))
    report = image_features(archive, tmp_path / "zip.npz", model=str(model))
    assert set(report.notes["ignored"]) == {"__MACOSX/01.png", "readme.md"}
    assert (tmp_path / "folder.npz").read_bytes() == (tmp_path / "zip.npz").read_bytes()
    new = {path.name for path in set(tmp_path.iterdir()) - before}
    assert new == {"folder.npz", "folder.json", "zip.npz", "zip.json"}


def test_damaged_archive_entries_are_reported(tmp_path, monkeypatch):
    archive = tmp_path / "photos.zip"
    content = encoded(picture())
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.png", content)
        file.writestr("b.png", content)
        link = zipfile.ZipInfo("c.png")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "a.png")
    damaged = bytearray(archive.read_bytes())
    damaged[damaged.index(b"a.png") + 60] ^= 1
    archive.write_bytes(damaged)
    source = image_source(archive)
    with pytest.raises(UnreadableImageError, match="CRC"):
        source.read(0)
    assert source.read(1) == content
    with pytest.raises(UnreadableImageError, match="is a link"):
        source.read(2)
    monkeypatch.setattr("dscca.features.sources.MAX_FILE_BYTES", 100)
    with pytest.raises(UnreadableImageError, match="larger than"):
        source.read(1)
    (tmp_path / "cut.zip").write_bytes(damaged[:-30])
    with pytest.raises(ValueError, match=r"cut\.zip"):
        image_source(tmp_path / "cut.zip")


def test_lists_choose_and_order(photos, tmp_path):
    (photos / "list.txt").write_text("02.png\nsub/00.png\n\n")
    assert list(image_source(photos / "list.txt").items.ids) == ["02.png", "sub/00.png"]
    names = tmp_path / "names.txt"
    names.write_text("04.png\nabsent.png\n../photos.zip\n01.png\n")
    source = image_source(photos, names)
    assert list(source.items.ids) == ["04.png", "absent.png", "../photos.zip", "01.png"]
    assert source.read(0) == (photos / "04.png").read_bytes()
    with pytest.raises(UnreadableImageError, match="no such file"):
        source.read(1)
    with pytest.raises(UnreadableImageError, match="leads out"):
        source.read(2)
    names.write_text("04.png\n04.png\n")
    with pytest.raises(ValueError, match=r"two items are called 04\.png"):
        image_source(photos, names)


# The encoder


def test_resnet_features_are_the_average_over_positions(photos, tmp_path, model):
    image_features(photos, tmp_path / "f.npz", model=str(model), batch_size=5)
    stored = read_features(tmp_path / "f.npz")
    network = transformers.ResNetModel.from_pretrained(model).eval()
    processor = transformers.ConvNextImageProcessorPil.from_pretrained(model)
    for name, row in zip(stored.ids, stored.features, strict=True):
        with pil_image.open(photos / name) as image:
            inputs = processor(image.convert("RGB"), return_tensors="pt")
        with torch.inference_mode():
            states = network(**inputs).last_hidden_state
        np.testing.assert_allclose(row, states.mean(dim=(2, 3))[0].numpy(), atol=1e-5)
    assert stored.about["encoder"] == "ResNetModel"


def test_clip_gives_the_projected_embedding(tmp_path):
    torch.manual_seed(0)
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    tower |= {"num_hidden_layers": 1, "projection_dim": 10}
    config = transformers.CLIPConfig(
        text_config={**tower, "vocab_size": 20, "max_position_embeddings": 4},
        vision_config={**tower, "image_size": 32, "patch_size": 16},
        projection_dim=10,
    )
    transformers.CLIPModel(config).save_pretrained(tmp_path)
    encoder = VisionEncoder(str(tmp_path), device="cpu")
    assert encoder.width == 10
    assert encoder.preprocessing.size == (32, 32)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    tower = transformers.CLIPVisionModelWithProjection.from_pretrained(tmp_path).eval()
    scaled = (pixels / 255 - encoder.preprocessing.mean) / encoder.preprocessing.std
    images = torch.tensor(scaled.transpose(0, 3, 1, 2), dtype=torch.float32)
    with torch.inference_mode():
        expected = tower(images).image_embeds
    np.testing.assert_allclose(encoder.encode(pixels), expected.numpy(), atol=1e-5)


def test_untrained_poolers_are_not_used(tmp_path):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=32, patch_size=16,
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)  # has no pooler
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    results = {}
    for pooling in ("auto", "cls", "mean"):
        encoder = VisionEncoder(str(tmp_path), pooling=pooling, device="cpu")
        results[pooling] = encoder.encode(pixels)
        assert results[pooling].shape == (2, 16)
    np.testing.assert_array_equal(results["auto"], results["cls"])
    assert not np.allclose(results["mean"], results["cls"])
    with pytest.raises(ValueError, match=r"lacks weights of ViTModel, such as pooler"):
        VisionEncoder(str(tmp_path), pooling="pooler", device="cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pooling": "max"}, "none of auto, pooler"),
        ({"precision": "fp8"}, "neither fp32 nor bf16"),
        ({"model": "nowhere/at-all"}, "cannot load the model"),
    ],
)
def test_impossible_encoders(model, arguments, message, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=message):
        VisionEncoder(**{"model": str(model), **arguments})


def test_pickled_weights_are_not_read(tmp_path, model):
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    network = transformers.ResNetModel.from_pretrained(model)
    torch.save(network.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="safetensors"):
        VisionEncoder(str(tmp_path))


# The whole way


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
