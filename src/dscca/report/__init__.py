"""Self-contained HTML pages on fitted models and on records: ``pip install "dscca[report]"``."""

from dscca.report.samples import Samples
from dscca.report.scales import embed_scales, neighbor_accuracy
from dscca.report.writing import report_models, report_records

__all__ = [
    "Samples",
    "embed_scales",
    "neighbor_accuracy",
    "report_models",
    "report_records",
]
