"""Small images, captions, models and word vectors for tests of feature extraction."""

import io
import struct

import numpy as np
import pytest


def picture(width=40, height=30, mode="RGB", seed=0):
    """A smooth random image: each channel a ramp of its own."""
    pil_image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    channels = [across * a + down * (1 - a) for a in rng.random(3)]
    pixels = (np.stack(channels, axis=-1) * 255).astype(np.uint8)
    return pil_image.fromarray(pixels).convert(mode)


def encoded(image, format="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def folder_of_pictures(folder, count=12, suffix=".png"):
    for i in range(count):
        path = folder / f"{'sub/' if i % 3 == 0 else ''}{i:02d}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(40 + i, 30, seed=i)))
    return folder


def small_resnet(folder, size=None):
    """A ResNet of some thousand random weights, as a local model folder."""
    import json

    import torch

    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic"
    )
    transformers.ResNetModel(config).save_pretrained(folder)
    if size is not None:
        processor = {
            "image_processor_type": "ConvNextImageProcessor",
            "size": {"shortest_edge": size},
            "crop_pct": 0.875,
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def word2vec_binary(words, vectors, newlines=True):
    header = f"{len(words)} {vectors.shape[1]}\n".encode()
    rows = [
        word.encode() + b" " + struct.pack(f"<{vectors.shape[1]}f", *row) + b"\n" * newlines
        for word, row in zip(words, vectors, strict=True)
    ]
    return header + b"".join(rows)
