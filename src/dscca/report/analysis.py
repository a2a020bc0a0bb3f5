"""What fitted models make of samples: variates, correlations, retrieval."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dscca.metrics import canonical_correlations, evaluate_retrieval, retrieval_ranks
from dscca.report.samples import Samples
from dscca.report.scales import ScaleView, scale_view
from dscca.retrieval.checks import unit_vectors
from dscca.retrieval.exact_backend import nearest

RECALL_PLACES = (1, 2, 5, 10, 20, 50, 100)
DIRECTIONS = ("x to y", "y to x")
_SHOWN_ITEMS = 5
_SHOWN_QUERIES = 3
"""Of those answered right, and of those answered wrong."""
_SHOWN_PAIRS = 3


@dataclass(frozen=True)
class Answer:
    """A query, the rows found for it, the best first, and the place of its own match."""

    query: int
    found: tuple[int, ...]
    rank: int


@dataclass(frozen=True)
class ModelView:
    """What is shown of one model.

    Attributes
    ----------
    title : of the method
    correlations : of each pair of variates, on the samples
    variates : the leading pairs, (x, y), each n x at most 3
    recalls : direction -> {k: per cent}
    answers : direction -> queries answered right, then wrong ones
    scales : of view one and two, for dynamically-scaled models; `no_scales` says why there are none
    """

    name: str
    title: str
    model: Any
    correlations: NDArray[np.float64]
    variates: tuple[NDArray[Any], NDArray[Any]]
    recalls: dict[str, dict[int, float]]
    answers: dict[str, tuple[Answer, ...]]
    scales: tuple[ScaleView, ScaleView] | None
    no_scales: str = ""


def view_model(name: str, title: str, model: Any, samples: Samples, *, seed: int = 0) -> ModelView:
    """Return what a report shows of a fitted model on these samples."""
    x, y = (np.asarray(v) for v in model.transform(samples.x, samples.y))
    projections = model.embed(samples.x, samples.y)
    places = [k for k in RECALL_PLACES if k <= len(samples)]
    table = evaluate_retrieval(*projections, ks=places)
    recalls = {d: {k: 100 * float(table.loc[d, f"R@{k}"]) for k in places} for d in DIRECTIONS}  # type: ignore[arg-type]
    answers = {
        direction: _examples(queries, items, seed)
        for direction, queries, items in zip(
            DIRECTIONS, projections, reversed(projections), strict=True
        )
    }
    scales, reason = None, ""
    if hasattr(model, "scale_coordinates"):
        views = [
            scale_view(model, view, which, labels=samples.labels, seed=seed)
            for which, view in enumerate((samples.x, samples.y))
        ]
        scales = (views[0], views[1])
        if all(view.embedding is None for view in views):
            scales, reason = None, "its scales are the same for every sample"
    return ModelView(
        name,
        title,
        model,
        canonical_correlations(x, y),
        (x[:, :_SHOWN_PAIRS], y[:, :_SHOWN_PAIRS]),
        recalls,
        answers,
        scales,
        reason,
    )


def _examples(queries: NDArray[Any], items: NDArray[Any], seed: int) -> tuple[Answer, ...]:
    """Return queries drawn at random from those whose match comes first, and from the others."""
    ranks = retrieval_ranks(queries, items)
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero(chosen))[:_SHOWN_QUERIES]
            for chosen in (ranks == 1, ranks > 1)
        ]
    )
    width = queries.shape[1]
    _, found = nearest(
        torch.from_numpy(unit_vectors(queries[rows], width)),
        torch.from_numpy(unit_vectors(items, width)),
        min(_SHOWN_ITEMS, len(items)),
    )
    return tuple(
        Answer(int(row), tuple(int(i) for i in places), int(ranks[row]))
        for row, places in zip(rows, found, strict=True)
    )
