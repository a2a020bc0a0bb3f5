"""The scales of dynamically-scaled models in the plane, and how well they tell classes apart."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

NEIGHBORS = 10


@dataclass(frozen=True)
class ScaleView:
    """What is shown of one view's scales.

    Attributes
    ----------
    embedding : n x 2, t-SNE, or None where the scales are the same for every sample
    accuracy, input_accuracy : share of samples whose class their nearest neighbours agree on, by
        scales and by the view itself; None without classes
    """

    embedding: NDArray[np.float32] | None
    accuracy: float | None
    input_accuracy: float | None


def scale_view(
    model: Any, view: ArrayLike, which: int, *, labels: ArrayLike | None = None, seed: int = 0
) -> ScaleView:
    """Embed the scales of view `which` (0 or 1) of samples that took no part in fitting."""
    coordinates = (model.scale_coordinates, model.scale_coordinates_y)[which](view)
    if not np.ptp(coordinates, axis=0).any():
        return ScaleView(None, None, None)
    _say(f"t-SNE of the scales of view {'xy'[which]}, {len(coordinates):,} samples")
    embedding = embed_scales(coordinates, seed=seed)
    if labels is None:
        return ScaleView(embedding, None, None)
    flat = np.asarray(view, dtype=np.float32).reshape(len(coordinates), -1)
    return ScaleView(
        embedding, neighbor_accuracy(coordinates, labels), neighbor_accuracy(flat, labels)
    )


def embed_scales(coordinates: ArrayLike, *, seed: int = 0) -> NDArray[np.float32]:
    """Return t-SNE coordinates n x 2 of scales.

    Parameters
    ----------
    coordinates : n x width, from ``model.scale_coordinates``: their distances are those of the
        scales exactly, so nothing is lost by not taking the scales themselves, which for MNIST's
        10,000 test digits would be 40,050 numbers each
    seed : of the optimisation; the start is the principal components
    """
    from sklearn.manifold import TSNE

    points = np.asarray(coordinates, dtype=np.float32)
    if len(points) < 4:
        raise ValueError(f"an embedding needs at least 4 samples, got {len(points)}.")
    perplexity = min(30.0, (len(points) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed)
    embedding: NDArray[np.float32] = tsne.fit_transform(points)
    return embedding


def neighbor_accuracy(points: ArrayLike, labels: ArrayLike, k: int = NEIGHBORS) -> float:
    """Return the share of samples whose class is that of most of their `k` nearest neighbours.

    Every sample is judged by the others (leave-one-out), in Euclidean distance; of classes that
    are equally frequent the first in order is taken.
    """
    from sklearn.neighbors import KNeighborsClassifier

    classes = np.asarray(labels)
    k = min(k, len(classes) - 1)
    model = KNeighborsClassifier(k, algorithm="brute").fit(np.asarray(points), classes)
    # Without queries, scikit-learn leaves every sample out of its own neighbours.
    found = model.predict(None)
    return float((found == classes).mean())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
