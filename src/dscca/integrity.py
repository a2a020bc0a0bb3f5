"""A checksum for files of tensors, which have none of their own."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEY = "crc32"
"""Its name in a file's metadata."""


def checksum(texts: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the CRC-32 of texts and of named arrays: what damage would change.

    It finds accidents, not forgery: whoever writes a file on purpose can compute it as well.
    """
    value = 0
    for text in texts:
        value = zlib.crc32(f"{len(text)} {text}".encode(), value)
    for name, array in sorted(arrays.items()):
        value = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), value)
        value = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, value)
    return f"{value:08x}"
