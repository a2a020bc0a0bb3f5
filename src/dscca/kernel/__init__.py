"""Kernel CCA, exact and by random features."""

from dscca.kernel.exact import KCCA
from dscca.kernel.fourier import FourierCCA
from dscca.kernel.nystrom import NystromCCA

__all__ = ["KCCA", "FourierCCA", "NystromCCA"]
