"""Image encoders: any Hugging Face vision model, or the image tower of CLIP and its kin."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dscca.features.extras import model_name, quiet_transformers, require, weights_sha256
from dscca.features.pictures import Preprocessing, preprocessing_from
from dscca.views import resolve_device

ALIASES = {"resnet50": "microsoft/resnet-50"}
Pooling = Literal["auto", "pooler", "cls", "mean"]
POOLINGS = ("auto", "pooler", "cls", "mean")
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


class VisionEncoder:
    """Turns batches of pixels into one feature vector per image.

    ``auto`` takes what the model offers for an image as a whole: the projected embedding of a
    two-tower model, the average over positions of a convolutional one (ResNet-50: 2,048 numbers),
    the pooled first token of a transformer, or the first token itself where the checkpoint has no
    pooling weights.

    Parameters
    ----------
    model : a local folder, an id of the Hugging Face hub, or ``resnet50``
    pooling : ``auto``, ``pooler``, ``cls`` (first token) or ``mean`` (over all positions)
    device : "auto", "cpu" or "cuda"
    precision : "fp32", or "bf16" for faster products of about three digits
    """

    def __init__(
        self,
        model: str = "resnet50",
        *,
        pooling: Pooling = "auto",
        device: str = "auto",
        precision: Literal["fp32", "bf16"] = "fp32",
    ) -> None:
        if pooling not in POOLINGS:
            raise ValueError(f"pooling={pooling!r} is none of {', '.join(POOLINGS)}.")
        if precision not in ("fp32", "bf16"):
            raise ValueError(f"precision={precision!r} is neither fp32 nor bf16.")
        self.device = resolve_device(device)
        self.name, self.precision, self.pooling = model, precision, pooling
        source = ALIASES.get(model, model)
        self._network, missing = _load(source)
        self._network = self._network.eval().to(self.device, memory_format=torch.channels_last)
        config = self._network.config
        self.towers = hasattr(self._network, "get_image_features")
        self._pooler_is_trained = not any(name.startswith("pooler.") for name in missing)
        unloaded = [name for name in missing if not name.startswith("pooler.")]
        if unloaded or (missing and pooling == "pooler"):
            raise ValueError(
                f"{source} lacks weights of {type(self._network).__name__}, such as "
                f"{(unloaded or missing)[0]}: random ones would take their place. Give another "
                f"model" + ("." if unloaded else ' or pooling="cls".')
            )
        self.preprocessing = _preprocessing(source, config)
        shape = (3, *self.preprocessing.size)
        self._mean = torch.tensor(self.preprocessing.mean, device=self.device)[:, None, None]
        self._std = torch.tensor(self.preprocessing.std, device=self.device)[:, None, None]
        self.width = self.encode(np.zeros((1, *shape[1:], 3), dtype=np.uint8)).shape[1]

    def about(self) -> dict[str, Any]:
        """Say what makes the features what they are."""
        return {
            "encoder": type(self._network).__name__,
            "model": model_name(self.name),
            "weights_sha256": weights_sha256(self._network),
            "pooling": self.pooling,
            "precision": self.precision,
            "preprocessing": self.preprocessing.facts(),
        }

    @torch.inference_mode()
    def encode(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the features (n, width) of pixels (n, height, width, 3)."""
        staged = torch.from_numpy(np.ascontiguousarray(pixels))
        if self.device.type == "cuda":
            staged = staged.pin_memory().to(self.device, non_blocking=True)
        # (n, h, w, 3) -> (n, 3, h, w), which in memory is channels last already
        images = staged.permute(0, 3, 1, 2).float() * self.preprocessing.factor
        images = (images - self._mean) / self._std
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            features = self._pooled(images)
        return features.flatten(start_dim=1).float().cpu().numpy()

    def _pooled(self, images: Tensor) -> Tensor:
        if self.towers and self.pooling == "auto":
            output = self._network.get_image_features(pixel_values=images)
            return output if isinstance(output, Tensor) else output.pooler_output
        network = self._network.vision_model if self.towers else self._network
        output = network(pixel_values=images)
        states = output.last_hidden_state  # (n, positions, width) or (n, width, h, w)
        pooled = getattr(output, "pooler_output", None)
        pooling = self.pooling
        if pooling == "auto":
            pooling = "mean" if states.ndim == 4 else "cls"
            pooling = "pooler" if pooled is not None and self._pooler_is_trained else pooling
        if pooling == "pooler":
            if pooled is None:
                raise ValueError(f'{self.name} pools nothing: use pooling="mean" or "cls".')
            return pooled
        if pooling == "mean":
            return states.mean(dim=(2, 3)) if states.ndim == 4 else states.mean(dim=1)
        if states.ndim == 4:
            raise ValueError(f'{self.name} has no first token: use pooling="mean".')
        return states[:, 0]


def _load(source: str) -> tuple[Any, list[str]]:
    """Return a model with weights from safetensors (no pickle, no code of the model's own)."""
    transformers = require("transformers")
    try:
        with quiet_transformers():
            network, info = transformers.AutoModel.from_pretrained(
                source, output_loading_info=True, use_safetensors=True, trust_remote_code=False
            )
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"cannot load the model {source}: give a folder with config.json and "
            f"model.safetensors, or the id of a model on the Hugging Face hub. {error}"
        ) from error
    if info["mismatched_keys"]:
        raise ValueError(f"{source}: weights of other shapes than its config.json says.")
    return network, sorted(info["missing_keys"])


def _preprocessing(source: str, config: Any) -> Preprocessing:
    """Return what the model's own file asks for; ImageNet's usual steps if there is none."""
    transformers = require("transformers")
    if not any(_has_file(source, name) for name in _PROCESSOR_FILES):
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224)  # ResNet and its like have none: 224 by custom
        height, width = (size, size) if isinstance(size, int) else size
        return Preprocessing(resize=round(max(height, width) * 256 / 224), size=(height, width))
    try:
        with quiet_transformers():
            processor = transformers.AutoImageProcessor.from_pretrained(
                source, trust_remote_code=False
            )
        return preprocessing_from(json.loads(processor.to_json_string()))
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"cannot prepare images for {source}: {error}") from error


def _has_file(source: str, name: str) -> bool:
    if Path(source).is_dir():
        return (Path(source) / name).is_file()
    cached_file = require("transformers.utils").cached_file
    return cached_file(source, name, _raise_exceptions_for_missing_entries=False) is not None
