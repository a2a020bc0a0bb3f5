"""Inference: tests of canonical correlations, intervals for them, and paired comparisons.

Which function for which question:

- :func:`wilks_lambda`: are the training correlations of an unregularised linear CCA more than
  chance, if the data are Gaussian?
- :func:`permutation_test`: the same without the Gaussian assumption.
- :func:`bootstrap_intervals`: how precise are the correlations a fitted model, of any kind, reaches
  on held-out data?
- :func:`paired_t_test`: does one method beat another over the same folds or seeds?

All but the last take the rows of a view as independent draws. Neighbouring frames of a recording
are not: keep every n-th frame, or average over each recording, before asking these questions.
"""

from dscca.stats.bootstrap import BootstrapIntervals, bootstrap_intervals
from dscca.stats.paired import PairedTTest, paired_t_test
from dscca.stats.permutation import PermutationTest, permutation_test
from dscca.stats.wilks import WilksTest, wilks_lambda

__all__ = [
    "BootstrapIntervals",
    "PairedTTest",
    "PermutationTest",
    "WilksTest",
    "bootstrap_intervals",
    "paired_t_test",
    "permutation_test",
    "wilks_lambda",
]
