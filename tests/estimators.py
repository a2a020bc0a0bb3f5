"""A small, quick setting for every public estimator; the contract tests fail without one."""

import dscca

SMALL = {
    "LinearCCA": lambda **parameters: dscca.LinearCCA(**{"n_components": 1, **parameters}),
}
