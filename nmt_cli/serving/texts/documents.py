"""The texts of a request as sentences, and back: blanks, line breaks and markup stay where they are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from nmt_cli.serving.directions import Direction
from nmt_cli.serving.texts.markup import Piece, pieces
from nmt_cli.translation.translator import Translation

BREAKS = re.compile(r"(\s*\n\s*)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for."""

    direction: Direction
    texts: Sequence[str]
    alternatives: int = 0
    markup: bool = False
    ignored: frozenset[str] = frozenset()
    """Elements of which nothing is translated, besides those of HTML."""


@dataclass(frozen=True, slots=True)
class Made:
    """The translation of a text."""

    text: str
    alternatives: Sequence[str] = ()
    """Others, none of them twice; there are none for markup."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The texts of a request, cut into sentences."""

    wanted: Wanted
    keep: bool
    """A line is not split into its sentences."""

    pieces: Sequence[Sequence[Piece]]
    """Of each text."""

    counts: Sequence[int]
    """How many of the sentences belong to each piece of each text, in order."""

    sentences: Sequence[str]
    blanks: Sequence[str]
    """What stands behind each sentence."""

    def made(self, translations: Sequence[Translation]) -> list[Made]:
        """The translation of each text."""
        most = 0 if self.wanted.markup else self.wanted.alternatives
        ranks = [self._texts([_ranked(one, rank) for one in translations]) for rank in range(most + 1)]
        return [Made(best, _others(best, others)) for best, *others in zip(*ranks, strict=True)]

    def added(self, texts: Sequence[str]) -> str:
        """What the last of the `texts` so far adds to the translation of a single text without markup."""
        number = len(texts) - 1
        before = texts[max(0, number - 1) : number]
        both = self._joined([*before, texts[-1]], [*self.blanks[number - len(before) : number], ""])
        end = self.blanks[number] if number == len(self.blanks) - 1 else ""
        return both[sum(map(len, before)) :] + end

    def _joined(self, texts: Sequence[str], blanks: Sequence[str]) -> str:
        if self.keep:
            return "".join(map("".join, zip(texts, blanks, strict=True)))
        return self.wanted.direction.models[-1].joined(texts, blanks)

    def _texts(self, translations: Sequence[str]) -> list[str]:
        texts, blanks, counts = iter(translations), iter(self.blanks), iter(self.counts)
        found = []
        for parts in self.pieces:
            written = []
            for part in parts:
                count = next(counts)
                together = self._joined([*islice(texts, count)], [*islice(blanks, count)]) if count else ""
                written.append(part.translated(together))
            found.append("".join(written))
        return found


@dataclass(slots=True)
class _Cutting:
    """Lists that grow together."""

    counts: list[int] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    blanks: list[str] = field(default_factory=list)


def cut(wanted: Wanted) -> Documents:
    """The sentences of all texts, or their lines where the model's settings keep these whole."""
    model = wanted.direction.models[0]
    keep = model.config.input.sentences == "keep"
    every = [
        pieces(text, wanted.ignored) if wanted.markup else [Piece(text, text, plain=True)]
        for text in wanted.texts
    ]
    all_of_them = _Cutting()
    for part in (part for parts in every for part in parts):
        sentences, blanks = _lines(part.text) if keep else model.sentences(part.text)
        if not part.text:
            sentences, blanks = [], []
        all_of_them.counts.append(len(sentences))
        all_of_them.sentences += sentences
        all_of_them.blanks += blanks
    return Documents(wanted, keep, every, all_of_them.counts, all_of_them.sentences, all_of_them.blanks)


def _lines(text: str) -> tuple[list[str], list[str]]:
    found = [*BREAKS.split(text), ""]
    return found[::2], found[1::2]


def _ranked(translation: Translation, rank: int) -> str:
    """The candidate of this rank; the last there is where there are fewer."""
    candidates = translation.candidates
    return candidates[min(rank, len(candidates) - 1)].text if candidates else ""


def _others(best: str, others: Sequence[str]) -> list[str]:
    return [text for text in dict.fromkeys(others) if text and text != best]
