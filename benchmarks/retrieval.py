"""Search in indexes of 100,000 and 200,000 items, against the product it cannot do without."""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.timing import interleaved, pin_threads, show
from dscca import CrossModalIndex, LinearCCA

WIDTH, LATENT, NOISE = 128, 32, 0.5
QUERIES, K = 1000, 10


def main() -> None:
    import faiss

    pin_threads()
    faiss.omp_set_num_threads(torch.get_num_threads())
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(LATENT, WIDTH))

    def points(n: int) -> Any:
        near = rng.normal(size=(n, LATENT)) @ plane
        return (near + NOISE * rng.normal(size=(n, WIDTH))).astype(np.float32)

    few = points(1000)
    model = LinearCCA(WIDTH, reg=0.1, device="cpu").fit(few, few)
    queries = points(QUERIES)
    rows = [row for n in (100_000, 200_000) for row in measured(model, queries, points(n))]
    title = (
        f"{QUERIES:,} queries, {K} hits each, vectors of {LATENT} latent dimensions in {WIDTH} "
        f"plus noise"
    )
    columns = ("items", "back end", "build, s", "search, s", "times the product", f"recall@{K}")
    show("retrieval", title, rows, columns)


def measured(model: Any, queries: Any, items: Any) -> list[tuple[str, ...]]:
    n = len(items)
    kinds: dict[str, dict[str, Any]] = {
        "exact": {"device": "cpu"},
        "FAISS, flat": {"backend": "faiss", "kind": "flat"},
        "FAISS, IVF": {"backend": "faiss", "kind": "ivf"},
        "FAISS, HNSW": {"backend": "faiss", "kind": "hnsw"},
    }
    indexes, built = {}, {}
    for name, options in kinds.items():
        start = time.perf_counter()
        index = CrossModalIndex(model, **options).add_variates(items, range(n), view="y")
        indexes[name], built[name] = index, time.perf_counter() - start
    q, t = torch.from_numpy(queries), torch.from_numpy(items)
    calls = {
        name: lambda index=index: index.search_variates(queries, K, among="y")
        for name, index in indexes.items()
    }
    seconds = interleaved({"the product alone": lambda: q @ t.T, **calls})
    found = {name: [{hit.id for hit in one} for one in call()] for name, call in calls.items()}
    floor = seconds["the product alone"]
    rows = [(f"{n:,}", "the product alone", "", f"{floor:.3f}", "1.00", "")]
    for name in kinds:
        shares = [len(a & b) / K for a, b in zip(found[name], found["exact"], strict=True)]
        rows.append(
            (
                f"{n:,}",
                name,
                f"{built[name]:.1f}",
                f"{seconds[name]:.3f}",
                f"{seconds[name] / floor:.2f}",
                f"{np.mean(shares):.3f}",
            )
        )
    return rows


if __name__ == "__main__":
    main()
