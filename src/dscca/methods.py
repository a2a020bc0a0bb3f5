"""Every method of the package: its name in the paper, its origin, the paper's choices for it."""

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

_LOG_GRID = tuple(10.0**k for k in range(-8, 3))
_DCCA_REG = (1e-6, 1e-4, 1e-2)
_ALPHAS = (0.85, 0.9, 0.95, 0.97)
_MARGINS = (0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class Method:
    """One method, as users name it.

    `grid` holds the values that the paper chose from on validation data, by parameter of the
    estimator, `default` what to take without a search, and `fixed` what the paper fixes.
    """

    name: str
    """On the command line: ``ds-dcca``."""
    title: str
    """In the paper: DS-DCCA."""
    estimator: str
    """Its class in the package."""
    reference: str
    """Its key in ``references.bib``."""
    summary: str
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    default: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def citation(self) -> str:
        """The BibTeX entry of the publication it comes from."""
        return citations()[self.reference]

    def make(self, **parameters: Any) -> Any:
        """Return a new estimator with the default choices and the given parameters."""
        return self.estimator_class()(**{**self.fixed, **self.default, **parameters})

    def estimator_class(self) -> type[Any]:
        """Return the estimator's class."""
        from dscca import all_estimators

        return all_estimators()[self.estimator]


METHODS = (
    Method(
        "cca",
        "CCA",
        "LinearCCA",
        "vinod1976canonical",
        "Linear projections of both views, with a ridge.",
        grid={"reg": _LOG_GRID},
        default={"reg": "auto"},
    ),
    Method(
        "ncca",
        "NCCA",
        "NCCA",
        "michaeli2016nonparametric",
        "Singular functions of the joint density, estimated from nearest neighbours.",
        fixed={"variance": 0.8},
    ),
    Method(
        "kcca",
        "KCCA",
        "KCCA",
        "hardoon2004canonical",
        "Exact kernel CCA, with a ridge.",
        grid={"reg": tuple(10.0**k for k in range(-6, 0))},
        default={"reg": 1e-4},
    ),
    Method(
        "fkcca",
        "FKCCA",
        "FourierCCA",
        "lopez2014randomized",
        "Kernel CCA by random Fourier features.",
        fixed={"rank": 6000, "gamma": "median", "reg": 1e-12},
    ),
    Method(
        "nkcca",
        "NKCCA",
        "NystromCCA",
        "lopez2014randomized",
        "Kernel CCA by the kernels with random landmarks (Nyström's method).",
        fixed={"rank": 6000, "gamma": "median", "features": "columns", "reg": 1e-12},
    ),
    Method(
        "dcca",
        "DCCA",
        "DCCA",
        "andrew2013deep",
        "Networks trained to maximise the total correlation of their outputs.",
        grid={"reg": _DCCA_REG},
        default={"reg": 1e-4},
    ),
    Method(
        "dccae",
        "DCCAE",
        "DCCAE",
        "wang2015deep",
        "DCCA whose features must also reconstruct their own view.",
        grid={"reg": _DCCA_REG, "reconstruction": (1e-3, 1e-2, 1e-1, 1.0)},
        default={"reg": 1e-4, "reconstruction": 1e-3},
    ),
    Method(
        "corrnet",
        "CorrNet",
        "CorrNet",
        "chandar2016correlational",
        "Autoencoder of both views from both or either, whose codes correlate.",
        default={"correlation": 10.0},
    ),
    Method(
        "soft-cca",
        "Soft-CCA",
        "SoftCCA",
        "chang2018scalable",
        "Networks with equal outputs, decorrelated softly by a running covariance.",
        grid={
            "decorrelation": (1.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0),
            "memory": (0.85, 0.9, 0.95, 0.97),
        },
        default={"decorrelation": 10.0, "memory": 0.97},
    ),
    Method(
        "soft-hgr",
        "Soft-HGR",
        "SoftHGR",
        "wang2019efficient",
        "Networks trained for a soft form of the maximal correlation, without whitening.",
    ),
    Method(
        "l0-cca",
        "ℓ0-CCA",
        "L0CCA",
        "lindenbaum2020l0",
        "DCCA on features that stochastic gates select.",
        grid={"reg": _DCCA_REG, "sparsity": (0.01, 0.1, 0.5), "noise": (0.1, 0.5, 0.75, 1.0)},
        default={"reg": 1e-4, "sparsity": 0.01, "noise": 0.1},
    ),
    Method(
        "ds-dcca",
        "DS-DCCA",
        "DSDCCA",
        "friedlander2022dynamically",
        "DCCA whose last layers are scaled for every sample by a second network.",
        grid={"reg": _DCCA_REG, "scale_hidden": ((128,), (256,), (256, 128))},
        default={"reg": 1e-4, "scale_hidden": (128,)},
        fixed={"warmup": 50},
    ),
    Method(
        "ranking-cca",
        "R. CCA",
        "RankingCCA",
        "dorfer2018end",
        "Networks trained to rank matching samples first, behind CCA as a layer.",
        grid={"alpha": _ALPHAS, "margin": _MARGINS},
        default={"alpha": 0.9, "margin": 0.8},
    ),
    Method(
        "ds-ranking-cca",
        "DS-R. CCA",
        "DSRankingCCA",
        "friedlander2022dynamically",
        "Ranking CCA whose last layers are scaled for every sample by a second network.",
        grid={
            "alpha": _ALPHAS,
            "margin": _MARGINS,
            "scale_hidden": ((128,), (256,), (256, 128)),
        },
        default={"alpha": 0.9, "margin": 0.8, "scale_hidden": (128,)},
        fixed={"warmup": 50, "context": "zx"},
    ),
)


def find_method(name: str) -> Method:
    """Return the method of that name; case, hyphens and class names do not matter."""
    wanted = _normal(name)
    for method in METHODS:
        if wanted in (_normal(method.name), _normal(method.title), _normal(method.estimator)):
            return method
    raise ValueError(f"no method {name}: there are {', '.join(m.name for m in METHODS)}")


@cache
def citations() -> dict[str, str]:
    """Return the BibTeX entries of ``references.bib`` by key."""
    text = (files("dscca") / "references.bib").read_text(encoding="utf-8")
    entries = ["@" + entry.strip() for entry in f"\n{text}".split("\n@")[1:]]
    return {entry.split("{", 1)[1].split(",", 1)[0]: entry for entry in entries}


def _normal(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
