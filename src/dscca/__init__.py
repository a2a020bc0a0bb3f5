"""Correlated representations of paired data.

Every estimator follows scikit-learn's two-view convention: ``fit(X, y)``, ``transform(X, y)``,
``score(X, y)``, where ``y`` is the second view and the score the total correlation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dscca import datasets, experiments, features, metrics, plot, report, retrieval, stats
    from dscca.deep.autoencoders import DCCAE, CorrNet
    from dscca.deep.baselines import L0CCA, SoftCCA, SoftHGR
    from dscca.deep.models import DCCA, DSDCCA
    from dscca.deep.ranking import DSRankingCCA, RankingCCA
    from dscca.kernel import KCCA, FourierCCA, NystromCCA
    from dscca.linear import LinearCCA
    from dscca.nonparametric import NCCA
    from dscca.persistence import load
    from dscca.retrieval import CrossModalIndex

__version__ = "0.1.0.dev0"

__all__ = [
    "DCCA",
    "DCCAE",
    "DSDCCA",
    "KCCA",
    "L0CCA",
    "NCCA",
    "CorrNet",
    "CrossModalIndex",
    "DSRankingCCA",
    "FourierCCA",
    "LinearCCA",
    "NystromCCA",
    "RankingCCA",
    "SoftCCA",
    "SoftHGR",
    "all_estimators",
    "datasets",
    "experiments",
    "features",
    "load",
    "metrics",
    "plot",
    "report",
    "retrieval",
    "stats",
]

_ESTIMATORS = {
    "LinearCCA": "dscca.linear",
    "NCCA": "dscca.nonparametric",
    "KCCA": "dscca.kernel",
    "FourierCCA": "dscca.kernel",
    "NystromCCA": "dscca.kernel",
    "DCCA": "dscca.deep.models",
    "DSDCCA": "dscca.deep.models",
    "DCCAE": "dscca.deep.autoencoders",
    "CorrNet": "dscca.deep.autoencoders",
    "SoftCCA": "dscca.deep.baselines",
    "SoftHGR": "dscca.deep.baselines",
    "L0CCA": "dscca.deep.baselines",
    "RankingCCA": "dscca.deep.ranking",
    "DSRankingCCA": "dscca.deep.ranking",
}
_LAZY = {**_ESTIMATORS, "CrossModalIndex": "dscca.retrieval", "load": "dscca.persistence"}


def all_estimators() -> dict[str, type[Any]]:
    """Return the classes of all public estimators by name."""
    return {name: getattr(import_module(module), name) for name, module in _ESTIMATORS.items()}


def __getattr__(name: str) -> Any:
    """Import what is named only when it is used, so that ``import dscca`` is quick."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in __all__:
        return import_module(f"dscca.{name}")
    raise AttributeError(f"module 'dscca' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
