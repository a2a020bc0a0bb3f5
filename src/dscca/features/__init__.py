"""From raw images and captions to the two arrays that ``fit`` takes.

``image_features`` and ``text_features`` write feature files (``.npz`` with ``features``, ``ids``
and how they were made), ``align`` pairs two of them by id. Needs ``pip install "dscca[features]"``.
"""

from dscca.features.alignment import Aligned, align, align_files
from dscca.features.captions import read_captions
from dscca.features.extraction import Report, UnusableItemError
from dscca.features.files import Features, read_features
from dscca.features.images import image_features
from dscca.features.text import text_features
from dscca.features.word_vectors import WordVectors, read_word_vectors

__all__ = [
    "Aligned",
    "Features",
    "Report",
    "UnusableItemError",
    "WordVectors",
    "align",
    "align_files",
    "image_features",
    "read_captions",
    "read_features",
    "read_word_vectors",
    "text_features",
]
