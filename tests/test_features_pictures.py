import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dscca.features.pictures import MAX_PIXELS, Preprocessing, decode, preprocessing_from
from dscca.features.sources import UnreadableImageError
from feature_problems import encoded, picture

transformers = pytest.importorskip("transformers")
pil_image = pytest.importorskip("PIL.Image")


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
