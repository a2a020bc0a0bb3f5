"""Words for word vectors: lemmas without stop words, by spaCy."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from dscca.features.extras import require

LOOKUP = "lookup"
_UNUSED = ("parser", "ner", "senter", "textcat", "entity_linker", "entity_ruler")


class Lemmatizer:
    """Splits texts into words, each given by the forms to look up, lemma first.

    Stop words, words whose lemma is one, punctuation and white space are left out.

    Parameters
    ----------
    pipeline : "lookup", a table of lemmas (from ``spacy-lookups-data``) that needs no model and
        sees each word once; or the name or folder of a spaCy pipeline with a lemmatiser, which
        tells a verb from a noun by its context and takes some thirty times as long
    language : of the texts, for "lookup": a code such as ``en`` or ``de``
    """

    def __init__(self, pipeline: str = LOOKUP, language: str = "en") -> None:
        self.pipeline, self.language = pipeline, language
        self._spacy = require("spacy")
        self._forms: dict[str, tuple[str, ...]] = {}

    def __call__(self, texts: Iterable[str]) -> Iterator[list[tuple[str, ...]]]:
        """Yield the words of each text: for each its forms, in the order of looking them up."""
        if self.pipeline == LOOKUP:
            tokenizer = self._blank.tokenizer
            for text in texts:
                forms = (self._table_forms(token) for token in tokenizer(text))
                yield [f for f in forms if f]
        else:
            for document in self._loaded.pipe(texts, batch_size=256):
                words = (self._kept(token, token.lemma_) for token in document)
                yield [forms for forms in words if forms]

    def about(self) -> dict[str, Any]:
        """Say what makes the words what they are."""
        facts = {"lemmatizer": self.pipeline, "spacy": self._spacy.__version__}
        if self.pipeline == LOOKUP:
            return facts | {"language": self.language}
        meta = self._loaded.meta
        return facts | {"pipeline": f"{meta['lang']}_{meta['name']} {meta['version']}"}

    def _table_forms(self, token: Any) -> tuple[str, ...]:
        text = token.text
        forms = self._forms.get(text)
        if forms is None:
            lower = text.lower()
            forms = self._forms[text] = self._kept(token, self._table.get(lower, lower))
        return forms

    @staticmethod
    def _kept(token: Any, lemma: str) -> tuple[str, ...]:
        lemma = lemma.lower()
        if (
            token.is_stop
            or token.is_punct
            or token.is_space
            or token.vocab[lemma].is_stop
            or not lemma
        ):
            return ()
        return tuple(dict.fromkeys((lemma, token.lower_, token.text)))

    @cached_property
    def _blank(self) -> Any:
        try:
            return self._spacy.blank(self.language)
        except (ImportError, ValueError) as error:
            raise ValueError(f"spaCy knows no language {self.language!r}.") from error

    @cached_property
    def _table(self) -> Any:
        require("spacy_lookups_data", "spacy-lookups-data")
        lookups = require("spacy.lookups")
        try:
            tables = lookups.load_lookups(self.language, tables=["lemma_lookup"])
            return tables.get_table("lemma_lookup")
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"there is no lemma table for language {self.language!r}: give the name of a spaCy "
                f"pipeline as lemmatiser."
            ) from error

    @cached_property
    def _loaded(self) -> Any:
        try:
            pipeline = self._spacy.load(self.pipeline, exclude=_UNUSED)
        except (OSError, ImportError) as error:
            raise ValueError(
                f"no spaCy pipeline {self.pipeline!r} is installed: install one, give a folder, or "
                f'take "{LOOKUP}". {error}'
            ) from error
        if not any("lemmatizer" in name for name in pipeline.pipe_names):
            raise ValueError(f"the spaCy pipeline {self.pipeline!r} has no lemmatiser.")
        return pipeline
