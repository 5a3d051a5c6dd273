"""The texts of a request as sentences, and back. Whitespace, line breaks and markup stay as they are."""

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
    """The texts of a request, and how to translate them."""

    direction: Direction
    texts: Sequence[str]
    alternatives: int = 0
    markup: bool = False
    ignored: frozenset[str] = frozenset()
    """Names of elements that are not translated, in addition to those of HTML."""


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """The translation of a text."""

    text: str
    alternatives: Sequence[str] = ()
    """Other translations, without repetitions. Empty for markup."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The texts of a request, cut into sentences."""

    job: Job
    by_line: bool
    """Whether lines are kept together rather than split into sentences."""

    pieces: Sequence[Sequence[Piece]]
    """The pieces of each text."""

    counts: Sequence[int]
    """Number of sentences of each piece, for the pieces of all texts in order."""

    sentences: Sequence[str]
    spaces: Sequence[str]
    """The whitespace after each sentence."""

    def translated(self, translations: Sequence[Translation]) -> list[TranslatedText]:
        """Join the translations of all sentences to those of the texts."""
        alternatives = 0 if self.job.markup else self.job.alternatives
        by_rank = [
            self._texts([_ranked(one, rank) for one in translations]) for rank in range(alternatives + 1)
        ]
        return [
            TranslatedText(best, [text for text in dict.fromkeys(others) if text not in ("", best)])
            for best, *others in zip(*by_rank, strict=True)
        ]

    def added(self, translations: Sequence[str]) -> str:
        """Return the text that the last of the `translations` so far adds to a single text without markup."""
        number = len(translations) - 1
        before = translations[max(0, number - 1) : number]
        spaces = [*self.spaces[number - len(before) : number], ""]
        joined = self._joined([*before, translations[-1]], spaces)
        end = self.spaces[number] if number == len(self.spaces) - 1 else ""
        return joined[sum(map(len, before)) :] + end

    def _joined(self, translations: Sequence[str], spaces: Sequence[str]) -> str:
        if self.by_line:
            return "".join(chain.from_iterable(zip(translations, spaces, strict=True)))
        return self.job.direction.models[-1].joined(translations, spaces)

    def _texts(self, translations: Sequence[str]) -> list[str]:
        """Put one translation of each sentence into its text."""
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
    """Cut all texts into sentences, or into lines if the model has `input.sentences=keep`."""
    model = job.direction.models[0]
    by_line = model.config.input.sentences == "keep"
    documents = [
        pieces(text, job.ignored) if job.markup else [Piece(text, text, plain=True)] for text in job.texts
    ]
    counts: list[int] = []
    sentences: list[str] = []
    spaces: list[str] = []
    for piece in chain.from_iterable(documents):
        found = (_lines if by_line else model.sentences)(piece.text) if piece.text else ([], [])
        counts.append(len(found[0]))
        sentences += found[0]
        spaces += found[1]
    return Documents(job, by_line, documents, counts, sentences, spaces)


def _lines(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of `text`, and the whitespace after each."""
    parts = [*LINE_BREAKS.split(text), ""]
    return parts[::2], parts[1::2]


def _ranked(translation: Translation, rank: int) -> str:
    """Return candidate number `rank`, or the last one if there are fewer."""
    candidates = translation.candidates
    return candidates[min(rank, len(candidates) - 1)].text if candidates else ""
