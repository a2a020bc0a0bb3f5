"""A small search, which tests run here and in a process of its own."""

import os
import signal
import sys
from pathlib import Path

from dscca.experiments.spaces import row_space
from dscca.experiments.spec import load_spec
from dscca.experiments.tune import Tuner

SPEC = """
title: A small search
measures: [tc]
rules: [tc]
reference: DS-DCCA
data:
  small:
    dataset: synthetic-linear
    options: {sizes: [300, 100, 100]}
    parameters: {n_components: 3}
    networks: {hidden: [8], epochs: 6, batch_size: 100}
methods:
  CCA: {method: cca, grid: {reg: [1e-3, 1e-1, 10.0]}}
  DCCA: {method: dcca, grid: {reg: [1e-4, 1e-2], dropout: [0.0, 0.2, 0.4]}}
  DS-DCCA:
    method: ds-dcca
    parameters: {warmup: 2}
    takes: {reg: DCCA}
    grid: {scale_hidden: [[4], [4, 4]]}
"""


def tuner(folder, row="DCCA", space=None, storage="journal.log", **options):
    """A search of one row of the small spec."""
    path = Path(folder) / "small.yaml"
    path.write_text(SPEC)
    spec = load_spec(str(path))
    data, method = spec.data["small"], spec.methods[row]
    chosen = row_space(spec, data, method) if space is None else space
    options = {"measure": "tc", "fixed": {}, "device": "cpu", **options}
    return Tuner(spec, data, method, chosen, storage=Path(folder) / storage, **options)


if __name__ == "__main__":
    search = tuner(sys.argv[1])
    fit = search._fit

    def killed(trial, values):
        """Fit, but for the third trial: there the process ends."""
        if len(search.finished()) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return fit(trial, values)

    search._fit = killed
    search.run(5)
