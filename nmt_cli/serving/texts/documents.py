"""The texts of a request, cut into sentences and put together from their translations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from nmt_cli.api import Model
from nmt_cli.serving.directions import Direction
from nmt_cli.text.formats import Format, blocks_of
from nmt_cli.text.markup import Block
from nmt_cli.text.tag_placement import UNIT, Shares
from nmt_cli.translation.document import Document, Join
from nmt_cli.translation.document import cut as cut_document
from nmt_cli.translation.text.glossary import Glossary
from nmt_cli.translation.text.unit_shares import links
from nmt_cli.translation.translator import Translation

Value = TypeVar("Value")

LINE_BREAKS = re.compile(r"(\s*\n\s*)")


@dataclass(frozen=True, slots=True)
class Job:
    """The texts of a request, and how to translate them. `alternatives` is the number of further translations
    per text. `markup` is the format of the texts, or None for plain text."""

    direction: Direction
    texts: Sequence[str]
    alternatives: int = 0
    markup: Format | None = None
    ignored: frozenset[str] = frozenset()
    """Names of elements that are not translated."""

    alignment: bool = False
    """Whether to align the words of each sentence with those of its translation."""

    glossary: Glossary | None = None
    """Terms that the translations have. The direction must have one model."""


class Alignment(NamedTuple):
    """The words and punctuation marks of a sentence and of its translation."""

    source: Sequence[str]
    target: Sequence[str]
    links: Sequence[Sequence[int]]
    """Sorted pairs of a source word and a target word, counted from 0."""


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """The translation of a text."""

    text: str
    alternatives: Sequence[str] = ()
    """Other translations of the text, best first, without repetitions. Empty for markup."""

    confidence: float = 1.0
    """The mean confidence of its sentences, from 0 to 1. Long sentences count more."""

    alignments: Sequence[Alignment] = ()
    """The alignment of each sentence, if requested."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The texts of a request, cut into sentences."""

    job: Job
    join: Join
    """Joins the translations of sentences."""

    by_line: bool
    """Whether each line counts as one sentence. Otherwise lines are split into sentences."""

    texts: Sequence[Document]
    sentences: Sequence[str]
    """The sentences of all texts, in order."""

    spaces: Sequence[str]
    """The whitespace after each sentence."""

    @property
    def aligned(self) -> bool:
        """Whether the alignment of words is needed."""
        return self.job.alignment or any(text.has_tags for text in self.texts)

    def translated(self, translations: Sequence[Translation]) -> list[TranslatedText]:
        """Return the translation of each text. `translations` has one per sentence. Alternative n joins
        candidate n of each sentence, or the last if the sentence has fewer. Markup has none."""
        alternatives = 0 if self.job.markup else self.job.alternatives
        by_rank = [
            self._texts([_ranked(one, rank) for one in translations]) for rank in range(alternatives + 1)
        ]
        confidences = map(_mean_confidence, self._by_text(translations))
        aligned = [self.alignment(*one) for one in enumerate(translations)] if self.job.alignment else []
        of_texts = zip(zip(*by_rank, strict=True), confidences, self._by_text(aligned), strict=True)
        return [
            TranslatedText(
                best, [text for text in dict.fromkeys(others) if text not in ("", best)], confidence, own
            )
            for (best, *others), confidence, own in of_texts
        ]

    def alignment(self, number: int, translation: Translation) -> Alignment:
        """Return the alignment of sentence `number` with its `translation`, for a job with `alignment`."""
        source, target = UNIT.findall(self.sentences[number]), UNIT.findall(translation.text)
        return Alignment(source, target, links(translation.shares))

    def added(self, translations: Sequence[str]) -> str:
        """Return the text that the last of `translations` adds: separator and translation. The last sentence
        of the request also adds the whitespace at the end. The request must have one text without markup."""
        number = len(translations) - 1
        before = translations[max(0, number - 1) : number]
        spaces = [*self.spaces[number - len(before) : number], ""]
        joined = self._joined([*before, translations[-1]], spaces)
        end = self.spaces[number] if number == len(self.spaces) - 1 else ""
        return joined[sum(map(len, before)) :] + end

    def _joined(self, translations: Sequence[str], spaces: Sequence[str]) -> str:
        """Join translations of consecutive sentences. If `by_line`, keep `spaces`, the whitespace after each
        sentence. Otherwise replace a single space or none by the separator of the target language."""
        if self.by_line:
            return "".join(chain.from_iterable(zip(translations, spaces, strict=True)))
        return self.join(translations, spaces)

    def _texts(self, translations: Sequence[tuple[str, Shares]]) -> list[str]:
        """Return the translated texts, given one translation for each sentence of all texts."""
        by_text = zip(self.texts, self._by_text(translations), strict=True)
        return [text.translated(own, self._joined) for text, own in by_text]

    def _by_text(self, values: Sequence[Value]) -> list[list[Value]]:
        """Return the values of each text, given one value for each sentence of all texts."""
        left = iter(values)
        return [[*islice(left, len(text.sentences))] for text in self.texts]


def cut(job: Job, models: Sequence[Model]) -> Documents:
    """Cut each text into sentences, or into lines if the first of `models` has `input.sentences=keep`."""
    model = models[0]
    by_line = model.config.input.sentences == "keep"
    split = _lines if by_line else model.sentences
    if job.markup:
        texts = [cut_document(blocks_of(text, job.markup, job.ignored), split) for text in job.texts]
    else:
        texts = [cut_document([Block(text, text)], split) for text in job.texts]
    sentences = [sentence for text in texts for sentence in text.sentences]
    return Documents(
        job,
        models[-1].joined,
        by_line,
        texts,
        sentences,
        [spaces for text in texts for spaces in text.spaces],
    )


def _lines(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of `text`, and the whitespace after each, blank lines included. The last has ""."""
    parts = [*LINE_BREAKS.split(text), ""]
    return parts[::2], parts[1::2]


def _ranked(translation: Translation, rank: int) -> tuple[str, Shares]:
    """Return candidate `rank`, from 0, or the last candidate, or an empty text without candidates, and the
    alignment of the best candidate."""
    candidates = translation.candidates
    return candidates[min(rank, len(candidates) - 1)].text if candidates else "", translation.shares


def _mean_confidence(translations: Sequence[Translation]) -> float:
    """Return the mean confidence of `translations`, weighted by source tokens. Return 1 without tokens."""
    weights = [translation.line.pieces for translation in translations]
    total = sum(one.confidence * weight for one, weight in zip(translations, weights, strict=True))
    return total / sum(weights) if any(weights) else 1.0
