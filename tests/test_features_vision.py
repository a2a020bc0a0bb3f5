import json

import numpy as np
import pytest
import torch

from dscca.features import image_features, read_features
from dscca.features.pictures import Preprocessing
from dscca.features.vision import VisionEncoder
from feature_problems import folder_of_pictures, small_resnet

transformers = pytest.importorskip("transformers")
pil_image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_resnet(tmp_path_factory.mktemp("model") / "resnet", size=32)


@pytest.fixture
def photos(tmp_path):
    return folder_of_pictures(tmp_path / "photos")


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
