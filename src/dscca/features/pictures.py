"""From the bytes of an image file to the square of pixels that a network takes."""

import io
import struct
import zlib
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
_STEPS = ("do_resize", "do_rescale", "do_normalize")
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

    resize: int | tuple[int, int] = 256
    """Length of the short side after resizing; or height and width, whatever the shape before."""
    size: tuple[int, int] = (224, 224)
    """Height and width of the centre that is cut out then."""
    mean: tuple[float, ...] = _IMAGENET[0]
    std: tuple[float, ...] = _IMAGENET[1]
    resample: int = _BICUBIC
    """Pillow's number of the interpolation: 2 bilinear, 3 bicubic."""
    factor: float = 1 / 255

    def __post_init__(self) -> None:
        resized = _pair(self.resize)
        if not all(1 <= side <= room for side, room in zip(self.size, resized, strict=True)):
            raise ValueError(
                f"a crop of {self.size} does not fit into images resized to {self.resize}: its "
                f"sides must be at least 1 and at most as long."
            )
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise ValueError(f"mean={self.mean}, std={self.std}: three each, std above zero.")

    def facts(self) -> dict[str, Any]:
        """Return the parameters, for records."""
        return asdict(self)

    def pixels(self, image: "Image", max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
        """Return an RGB image's (height, width, 3) pixels, resized and cropped."""
        width, height = image.size
        if isinstance(self.resize, int):
            long = int(self.resize * max(image.size) / min(image.size))
            target = (self.resize, long) if width <= height else (long, self.resize)
        else:
            target = (self.resize[1], self.resize[0])
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
    """Return the steps of a transformers image processor, given all its parameters.

    Understood are resizing (by short side or to a size), centre crop, rescaling and normalisation
    in this order, and the ``crop_pct`` of ConvNext and ResNet; anything else is refused.
    """
    wanted = {key for key in config if key.startswith("do_") and config[key]}
    refused = sorted(wanted - {*_STEPS, "do_center_crop", "do_convert_rgb"})
    refused += [f"{key}=false" for key in _STEPS if key not in wanted]
    if refused:
        raise ValueError(f"preprocessing with {', '.join(refused)} is not supported.")
    resize = _size(config["size"])
    if "crop_pct" in config:
        # ConvNext: small sizes are cut out of a larger resizing, from 384 on images are warped.
        size = _pair(resize)
        resize = int(size[0] / config["crop_pct"]) if size[0] < 384 else size
    elif config.get("do_center_crop"):
        size = _pair(_size(config["crop_size"]))
    elif isinstance(resize, int):
        raise ValueError(
            "preprocessing without a centre crop gives images of different sizes, which do not "
            "make a batch."
        )
    else:
        size = resize
    return Preprocessing(
        resize,
        size,
        tuple(config["image_mean"]),
        tuple(config["image_std"]),
        int(config["resample"]),
        float(config["rescale_factor"]),
    )


def _size(size: dict[str, int | None]) -> int | tuple[int, int]:
    given = {key: value for key, value in size.items() if value is not None}
    match given:
        case {"shortest_edge": int(short), **others} if not others:
            return short
        case {"height": int(height), "width": int(width), **others} if not others:
            return height, width
    raise ValueError(f"size {given} is not supported: shortest_edge, or height and width.")


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
