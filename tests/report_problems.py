"""Records and models to report on."""

import numpy as np

from dscca import DSDCCA, LinearCCA
from dscca.datasets import embedded_digits
from dscca.experiments.jobs import Job
from dscca.experiments.records import Record
from dscca.report import Samples

HOSTILE = (
    "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script>"
    "\u2028%{x} {{7*7}} \"'&amp;<b>"
)
HISTORY = {
    "epoch": [1, 2, 3, 4],
    "loss": [-1.0, -2.0, -2.5, -2.7],
    "val_loss": [-1.1, -1.9, -2.3, -2.2],
    "val_tc": [1.1, 1.9, 2.3, 2.2],
}


def record(method, tc, *, fold=None, seed=0, dataset="mnist", validation=None, **changes):
    """A record of a run that reached this test TC."""
    parameters = {"n_components": 3, "random_state": seed, **changes.pop("parameters", {})}
    deep = method not in ("cca", "nkcca")
    facts = {
        "test": {"tc": tc, "x to y R@1": 10 * tc, "recall_sum": 60 * tc},
        "validation": {"tc": tc if validation is None else validation},
        "correlations": [tc / 3 + 0.1, tc / 3, tc / 3 - 0.1],
        "recall_curve": {d: {"1": 10 * tc, "10": 20 * tc} for d in ("x to y", "y to x")},
        "history": HISTORY if deep else None,
        "best_epoch": 3 if deep else None,
        "warmup": 2 if method == "ds-dcca" else None,
        "fit_seconds": 4.0 + fold if fold else 4.0,
        "peak_memory_mb": 300.0,
        "hardware": "a small computer",
        "versions": {"python": "3.12"},
        "started": "2026-01-01T00:00:00Z",
        **changes,
    }
    return Record(Job(dataset, method, parameters, fold), "done", **facts)


def folds_of(method, scores, **changes):
    """Records of a method over folds, and one on the standard split."""
    over = [record(method, tc, fold=i, **changes) for i, tc in enumerate(scores)]
    return [*over, record(method, scores[0], **changes)]


def experiment():
    """Three methods over four folds, an ablation, and a failure."""
    ours, theirs = [2.4, 2.5, 2.45, 2.6], [2.0, 2.2, 2.1, 2.15]
    failed = Record(Job("mnist", "dcca", {"reg": 0}), "failed", error=f"ValueError: {HOSTILE}")
    return [
        *folds_of("cca", [1.0, 1.2, 1.1, 1.15]),
        *folds_of("dcca", theirs),
        *folds_of("ds-dcca", ours, parameters={"scaling": "parameters"}),
        record("ds-dcca", 2.2, validation=2.1, parameters={"scaling": "outputs"}),
        failed,
    ]


def digits(n=120):
    """Test digits as a report shows them."""
    data = embedded_digits().test
    return Samples(
        data.x[:n],
        data.y[:n],
        title="digits",
        ids=data.ids[:n],
        labels=data.labels[:n],
        images=((28, 14), (28, 14)),
    )


def fitted(**options):
    """A linear and a dynamically-scaled model of the digits, quick and poor."""
    data = embedded_digits()
    training = data.X_train[:1500], data.y_train[:1500]
    deep = DSDCCA(
        4,
        hidden=(32,),
        scale_hidden=(8,),
        epochs=4,
        warmup=2,
        batch_size=250,
        random_state=0,
        device="cpu",
        **options,
    )
    validation = {"X_val": data.X_val[:200], "y_val": data.y_val[:200]}
    return {
        "cca": LinearCCA(4, reg=0.1).fit(*training),
        "ds-dcca": deep.fit(*training, **validation),
    }


def cloud(n, p=5, q=4, seed=0):
    """Two correlated views without pictures."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    x = z @ rng.normal(size=(3, p)) + 0.3 * rng.normal(size=(n, p))
    return x, z @ rng.normal(size=(3, q)) + 0.3 * rng.normal(size=(n, q))
