"""From a file of captions to a feature file."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dscca.features.captions import CaptionFormat, read_captions
from dscca.features.extraction import Batch, Items, OnError, Report, extract, shard_batches
from dscca.features.lemmas import LOOKUP, Lemmatizer
from dscca.features.sentences import SentenceEncoder
from dscca.features.word_vectors import read_word_vectors

WORD2VEC = "word2vec"
_NAMED_WORDS = 100


def text_features(
    source: str | PathLike[str] | Mapping[str, Sequence[str]],
    output: str | PathLike[str],
    *,
    encoder: str = WORD2VEC,
    vectors: str | PathLike[str] | None = None,
    lemmatizer: str = LOOKUP,
    language: str = "en",
    format: CaptionFormat | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
    on_error: OnError = "skip",
    batch_size: int = 64,
    device: str = "auto",
    dtype: Literal["float32", "float16"] = "float32",
    verbose: bool = False,
) -> Report:
    """Encode the captions of items, one row per item, and write a feature file.

    With ``word2vec`` these are the features of the paper's image-text experiments (Friedlander and
    Wolf, 2022): stop words removed, words lemmatised, and the mean of the vectors of all words of
    all captions of an item.

    Parameters
    ----------
    source : a file of captions (see :func:`~dscca.features.captions.read_captions`), or the
        captions by item
    output : the ``.npz`` to write; a killed run is continued by the same call
    encoder : ``word2vec``, or the folder or hub id of a sentence-transformers model, whose
        embeddings of an item's captions are averaged
    vectors : word vectors, for ``word2vec``; see
        :func:`~dscca.features.word_vectors.read_word_vectors`
    lemmatizer, language : see :class:`~dscca.features.lemmas.Lemmatizer`
    format, id_column, text_column : see :func:`~dscca.features.captions.read_captions`
    on_error : what to do with items whose captions are empty or hold no known word: leave them out
        ("skip"), give them a row of zeros ("zero") or stop ("fail"); they are named in the report
        in any case
    batch_size : items encoded at once
    device : of a sentence-transformers model: "auto", "cpu" or "cuda"
    dtype : of the stored features
    verbose : show progress on a terminal
    """
    if isinstance(source, Mapping):
        captions, origin = {name: list(texts) for name, texts in source.items()}, "given captions"
    else:
        captions = read_captions(
            source, format=format, id_column=id_column, text_column=text_column
        )
        origin = str(source)
    items = Items(list(captions), [repr(texts) for texts in captions.values()])
    empty = [name for name, texts in captions.items() if any(not t.strip() for t in texts)]
    notes: dict[str, Any] = {"source": origin, "items_with_an_empty_caption": empty}
    rows: _WordRows | _SentenceRows
    if encoder == WORD2VEC:
        if vectors is None:
            raise ValueError(
                "the encoder word2vec needs word vectors: give the file, such as "
                "GoogleNews-vectors-negative300.bin."
            )
        rows = _word_rows(captions, vectors, Lemmatizer(lemmatizer, language))
        notes["words"] = rows.counts
    else:
        if vectors is not None:
            raise ValueError(f"vectors go with the encoder {WORD2VEC}, not with {encoder}.")
        rows = _SentenceRows(captions, SentenceEncoder(encoder, device=device))
    return extract(
        Path(output),
        items,
        rows.encode,
        width=rows.width,
        about=rows.about,
        batch_size=batch_size,
        shard_batches=shard_batches(batch_size, rows.shard_items),
        dtype=dtype,
        on_error=on_error,
        notes=notes,
        verbose=verbose,
    )


@dataclass(frozen=True)
class _WordRows:
    """Means of word vectors, each item's words given by their rows."""

    words: list[NDArray[np.int32]]
    unknown: dict[int, str]
    vectors: NDArray[np.float32]
    about: dict[str, Any]
    counts: dict[str, Any]
    shard_items = 65_536

    @property
    def width(self) -> int:
        return self.vectors.shape[1]

    def encode(self, ranges: Sequence[range]) -> Iterator[Batch]:
        for positions in ranges:
            good = [i for i in positions if len(self.words[i])]
            means = [self.vectors[self.words[i]].mean(axis=0, dtype=np.float64) for i in good]
            features = np.array(means, dtype=np.float32).reshape(len(good), self.width)
            yield Batch(good, features, {i: self.unknown[i] for i in positions if i not in good})


def _word_rows(
    captions: Mapping[str, Sequence[str]], vectors: str | PathLike[str], lemmatizer: Lemmatizer
) -> _WordRows:
    """Find every item's words, then read the vectors of these words only."""
    vocabulary: dict[tuple[str, ...], int] = {}
    words: list[NDArray[np.int32]] = []
    texts = lemmatizer(text for item in captions.values() for text in item)
    for item in captions.values():
        found = (forms for _ in item for forms in next(texts))
        words.append(
            np.array([vocabulary.setdefault(f, len(vocabulary)) for f in found], dtype=np.int32)
        )
    read = read_word_vectors(vectors, {form for forms in vocabulary for form in forms})
    rows = np.array(
        [next((read.rows[f] for f in forms if f in read.rows), -1) for forms in vocabulary],
        dtype=np.int32,
    )
    uses = np.bincount(np.concatenate(words), minlength=len(rows))
    lost = Counter[str]()
    for forms, i in vocabulary.items():
        if rows[i] < 0:
            lost[forms[0]] += int(uses[i])
    lemmas = [forms[0] for forms in vocabulary]
    unknown: dict[int, str] = {}
    for position, (used, own) in enumerate(zip(words, captions.values(), strict=True)):
        known = rows[used]
        if not (known >= 0).any():
            unknown[position] = _why_none(own, [lemmas[i] for i in used])
        words[position] = known[known >= 0]
    counts = {
        "in_captions": int(uses.sum()),
        "without_vector": sum(lost.values()),
        "most_frequent_without_vector": dict(lost.most_common(_NAMED_WORDS)),
    }
    about = {
        "encoder": WORD2VEC,
        "vectors": Path(vectors).name,
        "width": read.vectors.shape[1],
        **lemmatizer.about(),
        "vectors_sha256": hashlib.sha256(read.vectors.data).hexdigest(),
    }
    return _WordRows(words, unknown, read.vectors, about, counts)


def _why_none(texts: Sequence[str], lemmas: Sequence[str]) -> str:
    if not any(text.strip() for text in texts):
        return "no caption has any text"
    if not lemmas:
        return "stop words only"
    return f"no word has a vector: {', '.join(dict.fromkeys(lemmas))[:200]}"


@dataclass(frozen=True)
class _SentenceRows:
    """Embeddings of captions; empty ones do not count."""

    captions: Mapping[str, Sequence[str]]
    encoder: SentenceEncoder
    shard_items = 1024

    @property
    def width(self) -> int:
        return self.encoder.width

    @property
    def about(self) -> dict[str, Any]:
        return self.encoder.about()

    def encode(self, ranges: Sequence[range]) -> Iterator[Batch]:
        texts = list(self.captions.values())
        for positions in ranges:
            kept = {i: [t for t in texts[i] if t.strip()] for i in positions}
            good = [i for i in positions if kept[i]]
            features = np.empty((0, self.width), dtype=np.float32)
            if good:
                features = self.encoder.encode([kept[i] for i in good])
            problems = {i: "no caption has any text" for i in positions if not kept[i]}
            yield Batch(good, features, problems)
