"""From a folder or archive of images to a feature file."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dscca.features.extraction import Batch, OnError, Report, extract, shard_batches
from dscca.features.pictures import MAX_PIXELS, Preprocessing, decode
from dscca.features.sources import ImageSource, UnreadableImageError, image_source
from dscca.features.vision import Pooling, VisionEncoder

_AHEAD = 2
"""Batches decoded ahead of the one being encoded."""


def image_features(
    source: str | PathLike[str],
    output: str | PathLike[str],
    *,
    model: str = "resnet50",
    names: str | PathLike[str] | None = None,
    on_error: OnError = "skip",
    pooling: Pooling = "auto",
    batch_size: int = 32,
    workers: int | None = None,
    device: str = "auto",
    precision: Literal["fp32", "bf16"] = "fp32",
    dtype: Literal["float32", "float16"] = "float32",
    max_pixels: int = MAX_PIXELS,
    verbose: bool = False,
) -> Report:
    """Encode images and write a feature file.

    With the default model these are the features of the paper's image-text experiments (Friedlander
    and Wolf, 2022): the 2,048-dimensional global average pool of an ImageNet ResNet-50.

    Parameters
    ----------
    source : folder, ``.zip`` or list of images; see :func:`~dscca.features.sources.image_source`
    output : the ``.npz`` to write; a killed run is continued by the same call
    model : a local folder, an id of the Hugging Face hub, or ``resnet50``
    names : a text file that chooses images of `source` and puts them in its order
    on_error : what to do with images that cannot be read: leave them out ("skip"), give them a row
        of zeros ("zero") or stop ("fail"); they are named in the report in any case
    pooling, device, precision : see :class:`~dscca.features.vision.VisionEncoder`
    batch_size : images in one pass through the network
    workers : threads that decode images; by default one per CPU
    dtype : of the stored features
    max_pixels : images of more pixels are refused before they are decoded
    verbose : show progress on a terminal
    """
    if max_pixels < 1 or max_pixels > 2 * MAX_PIXELS:
        raise ValueError(f"max_pixels={max_pixels} is outside 1 to {2 * MAX_PIXELS:,}.")
    threads = (os.cpu_count() or 1) if workers is None else workers
    if threads < 1:
        raise ValueError(f"workers={workers} is below 1.")
    images = image_source(source, names)
    encoder = VisionEncoder(model, pooling=pooling, device=device, precision=precision)
    decoding = _Decoding(images, encoder.preprocessing, max_pixels)

    def encode(ranges: Sequence[range]) -> Iterator[Batch]:
        with ThreadPoolExecutor(threads, thread_name_prefix="dscca-decode") as pool:
            try:
                for positions, results in decoding.batches(pool, ranges):
                    yield _encoded(encoder, positions, results)
            finally:
                pool.shutdown(cancel_futures=True)

    return extract(
        Path(output),
        images.items,
        encode,
        width=encoder.width,
        about={**encoder.about(), "max_pixels": max_pixels},
        batch_size=batch_size,
        shard_batches=shard_batches(batch_size),
        dtype=dtype,
        on_error=on_error,
        notes={"source": str(source), "ignored": images.ignored},
        verbose=verbose,
    )


class _Decoding:
    """Reads, decodes and crops images in threads, a bounded number of them ahead."""

    def __init__(self, source: ImageSource, preprocessing: Preprocessing, max_pixels: int) -> None:
        self._source, self._preprocessing, self._max_pixels = source, preprocessing, max_pixels

    def batches(
        self, pool: ThreadPoolExecutor, ranges: Sequence[range]
    ) -> Iterator[tuple[range, list[NDArray[np.uint8] | str]]]:
        pending: deque[Future[NDArray[np.uint8] | str]] = deque()
        upcoming = chain.from_iterable(ranges)
        for positions in ranges:
            for position in upcoming:
                pending.append(pool.submit(self._pixels, position))
                if len(pending) >= (1 + _AHEAD) * len(positions):
                    break
            yield positions, [pending.popleft().result() for _ in positions]

    def _pixels(self, position: int) -> NDArray[np.uint8] | str:
        """Return an image's pixels, or why there are none."""
        try:
            image = decode(self._source.read(position), self._max_pixels)
            return self._preprocessing.pixels(image, self._max_pixels)
        except UnreadableImageError as error:
            return str(error)


def _encoded(
    encoder: VisionEncoder, positions: range, results: list[NDArray[np.uint8] | str]
) -> Batch:
    """Encode a batch; images that cannot be read leave black in it, so that it keeps its size.

    The others' features then do not depend on how many are broken.
    """
    problems = {i: r for i, r in zip(positions, results, strict=True) if isinstance(r, str)}
    black = np.zeros((*encoder.preprocessing.size, 3), dtype=np.uint8)
    features = encoder.encode(np.stack([black if isinstance(r, str) else r for r in results]))
    good = [not isinstance(r, str) for r in results]
    return Batch([i for i in positions if i not in problems], features[good], problems)
