"""Static figures of models and their scores, with matplotlib: ``pip install "dscca[plot]"``.

Every function takes data and draws on the given ``Axes``, or on the current one, and returns it, so
that figures are composed as in seaborn:

>>> from matplotlib.figure import Figure
>>> from dscca import plot
>>> ax = Figure().subplots()
>>> plot.correlation_spectra({"CCA": [0.9, 0.5, 0.2]}, ax=ax) is ax
True
"""

from dscca.plot.bars import ablation_bars, time_and_memory
from dscca.plot.curves import correlation_spectra, recall_curve, training_curves
from dscca.plot.scatter import scales, variates

__all__ = [
    "ablation_bars",
    "correlation_spectra",
    "recall_curve",
    "scales",
    "time_and_memory",
    "training_curves",
    "variates",
]
