"""Paired data to learn from."""

from dscca.datasets.mnist import TwoViewSplits, embedded_digits

__all__ = ["TwoViewSplits", "embedded_digits"]
