"""Cross-modal search: items of either view in one space, found by queries of the other."""

from dscca.retrieval.backends import Backend, Hit, Id
from dscca.retrieval.index import CrossModalIndex
from dscca.retrieval.storage import IndexFileError

__all__ = ["Backend", "CrossModalIndex", "Hit", "Id", "IndexFileError"]
