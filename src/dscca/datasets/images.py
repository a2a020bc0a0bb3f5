"""What the image and caption data sets share: features by file name, and captions."""

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dscca.datasets.cache import DataFolder
from dscca.datasets.captions import Captions, check_distinct
from dscca.datasets.samples import Samples, finite
from dscca.datasets.splits import Indices, Split
from dscca.features.files import read_features

_SHOWN = 3


def features_of(path: Path, images: list[str]) -> NDArray[np.float32]:
    """Return the rows of a feature file that belong to some images, in their order.

    The file is one that ``dscca features`` makes, or any with `features` (n x p) and `files` or
    `ids` (n names). Names are compared without folders.
    """
    found = read_features(path)
    features, files = found.features, [_base(name) for name in found.ids]
    if features.dtype.kind not in "fiu":
        raise ValueError(f"{path}: features have dtype {features.dtype}, which is no number.")
    check_distinct(str(path), files)
    place = {name: row for row, name in enumerate(files)}
    missing = [name for name in images if _base(name) not in place]
    if missing:
        raise ValueError(
            f"{path} has no features of {len(missing)} of {len(images)} images: "
            f"{', '.join(missing[:_SHOWN])}{', ...' if len(missing) > _SHOWN else ''}. Make them "
            "for all images, in one file."
        )
    rows = features[[place[_base(name)] for name in images]]
    return np.asarray(finite(str(path), rows), dtype=np.float32)


def samples_of(
    folder: DataFolder,
    images: list[str],
    split: Split,
    names: tuple[str, str],
    captions: Captions | None,
) -> Samples:
    """Pair image features with text features, and with captions where they are asked for."""
    check_distinct(folder.name, map(_base, images))
    x, y = (features_of(folder.require(name), images) for name in names)
    ids = np.array(images)
    if captions is not None:
        without = [image for image in images if not any(captions.get(image, ()))]
        if without:
            raise ValueError(
                f"{folder.name}: {len(without)} images have no captions, first {without[0]}: the "
                "captions belong to other images, or lines are missing."
            )

    def take(rows: Indices) -> dict[str, Any]:
        part: dict[str, Any] = {"x": x[rows], "y": y[rows], "ids": ids[rows]}
        if captions is not None:
            part["captions"] = tuple(captions[images[row]] for row in rows)
        return part

    return Samples(split, take)


def positions(images: list[str], parts: dict[str, list[str]]) -> Split:
    """Return the places of each part's images among all."""
    place = {name: row for row, name in enumerate(images)}
    return Split(*(np.array([place[name] for name in parts[part]]) for part in Split._fields))


def _base(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).name
