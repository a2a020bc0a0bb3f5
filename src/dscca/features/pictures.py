"""From the bytes of an image file to the square of pixels that a network takes."""

import io
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dscca.features.extras import require
from dscca.features.sources import UnreadableImageError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is decoded; formats that run other programs, such as EPS, are not among them."""
MAX_PIXELS = 89_478_485
"""Pillow's own bound on what it decodes without complaint: a quarter of a gigabyte in RGB."""
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_BICUBIC = 3
_DECODING_ERRORS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    RuntimeWarning,
    SyntaxError,
    TypeError,
    UserWarning,
    ValueError,
    struct.error,
    zlib.error,
)
"""What Pillow's decoders raise on broken files."""


@dataclass(frozen=True)
class Preprocessing:
    """Resize, centre crop, scale to numbers, normalise.

    The default is ImageNet's: short side 256, centre 224 x 224, mean and deviation of the training
    set.
    """

    short_side: int | None = 256
    """Resize so that the short side has this length; None: resize to `size`, warping."""
    size: tuple[int, int] = (224, 224)
    """Height and width of the result."""
    mean: tuple[float, ...] = _IMAGENET[0]
    std: tuple[float, ...] = _IMAGENET[1]
    resample: int = _BICUBIC
    """Pillow's number of the interpolation: 2 bilinear, 3 bicubic."""
    factor: float = 1 / 255

    def __post_init__(self) -> None:
        if min(self.size) < 1 or (self.short_side is not None and self.short_side < 1):
            raise ValueError(f"sizes of {self.size} and {self.short_side} pixels are impossible.")
        if self.short_side is not None and self.short_side < max(self.size):
            raise ValueError(
                f"a crop of {self.size} pixels does not fit into a short side of "
                f"{self.short_side}: it must be at least as long."
            )
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise ValueError(f"mean={self.mean}, std={self.std}: three each, std above zero.")

    def facts(self) -> dict[str, Any]:
        """Return the parameters, for records."""
        return asdict(self)

    def pixels(self, image: "Image", max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
        """Return an RGB image's (height, width, 3) pixels, resized and cropped."""
        width, height = image.size
        if self.short_side is None:
            target = (self.size[1], self.size[0])
        else:
            long_side = int(self.short_side * max(image.size) / min(image.size))
            target = (
                (self.short_side, long_side) if width <= height else (long_side, self.short_side)
            )
        if target[0] * target[1] > max_pixels:
            raise UnreadableImageError(
                f"{width} x {height} pixels are too narrow: resized they would be {target[0]} x "
                f"{target[1]}"
            )
        left, top = (target[0] - self.size[1]) // 2, (target[1] - self.size[0]) // 2
        resized = image.resize(target, resample=self.resample)
        return np.asarray(
            resized.crop((left, top, left + self.size[1], top + self.size[0])), dtype=np.uint8
        )


def decode(content: bytes, max_pixels: int = MAX_PIXELS) -> "Image":
    """Return the upright RGB image of a file's bytes, or raise UnreadableImageError.

    The first frame of an animation; transparent parts on white; 16-bit grey by its upper byte.
    """
    pil_image = require("PIL.Image", "Pillow")
    pil_ops = require("PIL.ImageOps", "Pillow")
    try:
        with pil_image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise UnreadableImageError(
                    f"{width} x {height} pixels are more than the {max_pixels:,} allowed"
                )
            image.load()
            return _rgb(pil_ops.exif_transpose(image))
    except UnreadableImageError:
        raise
    except (pil_image.DecompressionBombError, pil_image.DecompressionBombWarning) as error:
        raise UnreadableImageError(f"too many pixels: {error}") from error
    except pil_image.UnidentifiedImageError as error:
        raise UnreadableImageError("is no image of a known format") from error
    except _DECODING_ERRORS as error:
        raise UnreadableImageError(f"broken or truncated: {error}") from error


def _rgb(image: "Image") -> "Image":
    pil_image = require("PIL.Image", "Pillow")
    if image.mode == "F":
        raise UnreadableImageError("floating-point pixels have no known range")
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise UnreadableImageError("pixels of more than 16 bits have no known range")
        return pil_image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        background = pil_image.new("RGBA", image.size, (255, 255, 255, 255))
        return pil_image.alpha_composite(background, image).convert("RGB")
    return image.convert("RGB")


def preprocessing_from(config: dict[str, Any]) -> Preprocessing:
    """Read a Hugging Face ``preprocessor_config.json``.

    Understood are resizing (by short side or to a size), centre crop, rescaling and normalisation
    in this order, and the ``crop_pct`` of ConvNext and ResNet; anything else is refused.
    """
    asked = [key for key in ("do_pad", "do_flip_channel_order", "do_reduce_labels", "do_thumbnail",
                             "do_align_long_axis", "do_split_image", "do_image_splitting")
             if config.get(key)]  # fmt: skip
    for key in ("do_resize", "do_rescale", "do_normalize"):
        if not config.get(key, True):
            asked.append(f"{key}=false")
    if asked:
        raise ValueError(f"preprocessing with {', '.join(asked)} is not supported.")
    size = config.get("size", 224)
    short_side: int | None = None
    if isinstance(size, dict) and "shortest_edge" in size:
        short_side = int(size["shortest_edge"])
        result = (short_side, short_side)
    else:
        result = _pair(size)
    kind = str(config.get("image_processor_type", config.get("feature_extractor_type", "")))
    convnext = "crop_pct" in config or kind.startswith("ConvNext")
    if convnext and short_side is None:
        short_side = result[0]
    if convnext and short_side is not None:
        # Small sizes are cropped from a larger resizing, from 384 on images are warped instead.
        result = (short_side, short_side)
        short_side = (
            int(short_side / config.get("crop_pct", 224 / 256)) if result[0] < 384 else None
        )
    if config.get("do_center_crop"):
        crop = _pair(config.get("crop_size", result))
        if short_side is None and crop != result:
            raise ValueError("preprocessing that warps and then crops is not supported.")
        result = crop
    elif short_side is not None and not convnext:
        raise ValueError(
            "preprocessing without a centre crop gives images of different sizes, which do not "
            "make a batch."
        )
    return Preprocessing(
        short_side,
        result,
        tuple(config.get("image_mean", _IMAGENET[0])),
        tuple(config.get("image_std", _IMAGENET[1])),
        int(config.get("resample", _BICUBIC)),
        float(config.get("rescale_factor", 1 / 255)),
    )


def _pair(size: int | dict[str, int] | Sequence[int]) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict):
        if not {"height", "width"} <= size.keys():
            raise ValueError(f"size {size} is not supported: shortest_edge, or height and width.")
        return int(size["height"]), int(size["width"])
    height, width = size
    return int(height), int(width)
