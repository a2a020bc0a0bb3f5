"""A small, quick setting for every public estimator; the contract tests fail without one."""

import dscca

LINEAR = {"n_components": 1}
DEEP = {
    **LINEAR,
    "hidden": (16,),
    "epochs": 4,
    "batch_size": 64,
    "verbose": 0,
    "random_state": 0,
    "head_reg": 1e-3,
}
FEATURES = {**LINEAR, "rank": 8, "reg": 0.1, "random_state": 0}
SMALL = {
    "LinearCCA": lambda **parameters: dscca.LinearCCA(**{**LINEAR, **parameters}),
    "NCCA": lambda **parameters: dscca.NCCA(
        **{**LINEAR, "n_neighbors": 3, "random_state": 0, "head_reg": 1e-3, **parameters}
    ),
    "KCCA": lambda **parameters: dscca.KCCA(**{**LINEAR, "reg": 0.1, **parameters}),
    "FourierCCA": lambda **parameters: dscca.FourierCCA(**{**FEATURES, **parameters}),
    "NystromCCA": lambda **parameters: dscca.NystromCCA(**{**FEATURES, **parameters}),
    "DCCA": lambda **parameters: dscca.DCCA(**{**DEEP, **parameters}),
    "DSDCCA": lambda **parameters: dscca.DSDCCA(
        **{**DEEP, "scale_hidden": (4,), "warmup": 2, **parameters}
    ),
    "DCCAE": lambda **parameters: dscca.DCCAE(**{**DEEP, **parameters}),
    "CorrNet": lambda **parameters: dscca.CorrNet(**{**DEEP, **parameters}),
    "SoftCCA": lambda **parameters: dscca.SoftCCA(**{**DEEP, **parameters}),
    "SoftHGR": lambda **parameters: dscca.SoftHGR(**{**DEEP, **parameters}),
    "L0CCA": lambda **parameters: dscca.L0CCA(**{**DEEP, **parameters}),
    "RankingCCA": lambda **parameters: dscca.RankingCCA(**{**DEEP, **parameters}),
    "DSRankingCCA": lambda **parameters: dscca.DSRankingCCA(
        **{**DEEP, "scale_hidden": (4,), "warmup": 2, **parameters}
    ),
}
