"""The texts of a request, cut into sentences and joined again. Whitespace, line breaks and markup are kept.

A text consists of pieces: markup, or text to translate. The text of a piece is cut into sentences.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

from nmt_cli.serving.directions import Direction
from nmt_cli.serving.texts.markup import Piece, pieces
from nmt_cli.translation.translator import Translation

LINE_BREAKS = re.compile(r"(\s*\n\s*)")


@dataclass(frozen=True, slots=True)
class Job:
    """The texts of a request, and how to translate them. `alternatives` is the number of further translations
    per text. `markup` means that the texts are HTML or XML."""

    direction: Direction
    texts: Sequence[str]
    alternatives: int = 0
    markup: bool = False
    ignored: frozenset[str] = frozenset()
    """Names of elements that are not translated, in addition to `UNTRANSLATED` elements of HTML."""


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """The translation of a text."""

    text: str
    alternatives: Sequence[str] = ()
    """Other translations of the text, best first, without repetitions. Empty for markup."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The texts of a request, cut into sentences."""

    job: Job
    by_line: bool
    """Whether each line counts as one sentence. Otherwise lines are split into sentences."""

    pieces: Sequence[Sequence[Piece]]
    """The pieces of each text, in order."""

    counts: Sequence[int]
    """Number of sentences of each piece, for the pieces of all texts in order."""

    sentences: Sequence[str]
    spaces: Sequence[str]
    """The whitespace after each sentence."""

    def translated(self, translations: Sequence[Translation]) -> list[TranslatedText]:
        """Return the translation of each text. `translations` has one per sentence. Alternative n joins
        candidate n of each sentence, or the last if the sentence has fewer. Markup has none."""
        alternatives = 0 if self.job.markup else self.job.alternatives
        by_rank = [
            self._texts([_ranked(one, rank) for one in translations]) for rank in range(alternatives + 1)
        ]
        return [
            TranslatedText(best, [text for text in dict.fromkeys(others) if text not in ("", best)])
            for best, *others in zip(*by_rank, strict=True)
        ]

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
        return self.job.direction.models[-1].joined(translations, spaces)

    def _texts(self, translations: Sequence[str]) -> list[str]:
        """Return the translated texts, given one translation for each sentence of all texts."""
        sentences, spaces, counts = iter(translations), iter(self.spaces), iter(self.counts)
        texts = []
        for document in self.pieces:
            translated = []
            for piece in document:
                count = next(counts)
                text = self._joined([*islice(sentences, count)], [*islice(spaces, count)]) if count else ""
                translated.append(piece.translated(text))
            texts.append("".join(translated))
        return texts


def cut(job: Job) -> Documents:
    """Cut each text into sentences, or into lines if the first model has `input.sentences=keep`."""
    model = job.direction.models[0]
    by_line = model.config.input.sentences == "keep"
    documents = [
        pieces(text, job.ignored) if job.markup else [Piece(text, text, plain=True)] for text in job.texts
    ]
    counts: list[int] = []
    sentences: list[str] = []
    spaces: list[str] = []
    for piece in chain.from_iterable(documents):
        parts, whitespace = (_lines if by_line else model.sentences)(piece.text) if piece.text else ([], [])
        counts.append(len(parts))
        sentences += parts
        spaces += whitespace
    return Documents(job, by_line, documents, counts, sentences, spaces)


def _lines(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of `text`, and the whitespace after each, blank lines included. The last has ""."""
    parts = [*LINE_BREAKS.split(text), ""]
    return parts[::2], parts[1::2]


def _ranked(translation: Translation, rank: int) -> str:
    """Return the text of candidate `rank`, from 0, or of the last candidate, or "" without candidates."""
    candidates = translation.candidates
    return candidates[min(rank, len(candidates) - 1)].text if candidates else ""
