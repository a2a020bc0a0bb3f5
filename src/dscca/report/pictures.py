"""Samples that are pictures, as one small sheet of them."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.extras import require
from dscca.report.samples import ImageShape

_LEVELS = 16
"""Grey levels that are kept: four bits a pixel."""


def sprite_sheet(view: NDArray[Any], shape: ImageShape) -> dict[str, Any]:
    """Return the pictures that the rows of a view are, side by side in one PNG.

    Row i lies in column ``i % columns`` and line ``i // columns``. Values are taken from 0, black,
    to 1, or to the largest value if that is above, white.

    Parameters
    ----------
    view : n x (height * width), or n x height x width
    shape : height and width
    """
    Image = require("PIL.Image", "report", "Pillow")
    height, width = shape
    pictures = np.asarray(view, dtype=np.float32).reshape(len(view), height, width)
    top = max(1.0, float(pictures.max()))
    grey = np.rint(pictures.clip(0) / top * (_LEVELS - 1)).astype(np.uint8)
    columns = int(np.ceil(np.sqrt(len(view) * height / width)))
    lines = -(-len(view) // columns)
    padded = np.zeros((lines * columns, height, width), np.uint8)
    padded[: len(view)] = grey
    sheet = padded.reshape(lines, columns, height, width).swapaxes(1, 2)
    image = Image.fromarray(sheet.reshape(lines * height, columns * width), mode="P")
    image.putpalette([level * 255 // (_LEVELS - 1) for level in range(_LEVELS) for _ in "rgb"])
    buffer = io.BytesIO()
    image.save(buffer, "PNG", bits=4, optimize=True)
    content = base64.b64encode(buffer.getvalue()).decode("ascii")
    return {
        "source": f"data:image/png;base64,{content}",
        "columns": columns,
        "width": width,
        "height": height,
    }
