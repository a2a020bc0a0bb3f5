"""How correlated paired representations are, and how well one view retrieves the other."""

from dscca.metrics.correlation import canonical_correlations, total_correlation
from dscca.metrics.recall import (
    evaluate_retrieval,
    mean_reciprocal_rank,
    median_rank,
    recall_at,
    retrieval_ranks,
)

__all__ = [
    "canonical_correlations",
    "evaluate_retrieval",
    "mean_reciprocal_rank",
    "median_rank",
    "recall_at",
    "retrieval_ranks",
    "total_correlation",
]
