"""A text or a file with markup, cut into sentences to translate, and put together from their translations."""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from nmt_cli.text.markup import Block
from nmt_cli.text.tag_placement import AlignedPart, Shares, placed, units

Split = Callable[[str], tuple[list[str], list[str]]]
"""Splits a text into sentences. Returns them, and the whitespace after each."""

Join = Callable[[Sequence[str], Sequence[str]], str]
"""Joins the translations of sentences. Takes them, and the whitespace after each sentence."""


@dataclass(frozen=True, slots=True)
class TranslatedSentence:
    """The translation of a sentence."""

    text: str
    shares_TS: Shares | None = None
    """The alignment with the source sentence. None if there are no tags to place."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text, cut into blocks, whose texts are cut into sentences."""

    blocks: Sequence[Block]
    counts: Sequence[int]
    """Number of sentences of each block."""

    sentences: Sequence[str]
    spaces: Sequence[str]
    """The whitespace after each sentence."""

    @property
    def has_tags(self) -> bool:
        """Whether the alignment of words is needed."""
        return any(block.elements for block in self.blocks)

    def translated(self, translations: Sequence[TranslatedSentence], join: Join) -> str:
        """Return the translated document. `translations` has one per sentence."""
        texts, spaces = iter(translations), iter(self.spaces)
        parts = []
        for block, count in zip(self.blocks, self.counts, strict=True):
            if not count:
                parts.append(block.raw)
                continue
            own = [*islice(texts, count)]
            text = join([one.text for one in own], [*islice(spaces, count)])
            if block.elements:
                content = placed(block.text, block.elements, text, _aligned_parts(own), block.escape)
            else:
                content = block.escape(text)
            content = _wrapped(content, block.lines, "\r\n" if "\r\n" in block.raw else "\n")
            before, after = block.spaces
            parts += [before, content, after]
        return "".join(parts)


def cut(blocks: Sequence[Block], split: Split) -> Document:
    """Cut the text of each block into sentences."""
    counts: list[int] = []
    sentences: list[str] = []
    spaces: list[str] = []
    for block in blocks:
        parts, whitespace = split(block.text) if block.text else ([], [])
        counts.append(len(parts))
        sentences += parts
        spaces += whitespace
    return Document(blocks, counts, sentences, spaces)


def _aligned_parts(translations: Sequence[TranslatedSentence]) -> list[AlignedPart]:
    """Return the alignment of each sentence of a block, numbered by the units of the whole block."""
    parts = []
    source = target = 0
    for one in translations:
        if one.shares_TS is not None:
            parts.append(AlignedPart(source, target, one.shares_TS))
            source += one.shares_TS.shape[1]
        target += len(units(one.text))
    return parts


def _wrapped(content: str, lines: int, newline: str) -> str:
    """Return `content` in at most `lines` lines of similar length, which end at spaces outside tags."""
    found = re.finditer(r"<[^<>]*>| ", content) if lines > 1 else ()
    spaces = [each.start() for each in found if each[0] == " "]
    ends: list[int] = []
    first = 0  # the first space after the last end
    for number in range(1, lines):
        if first == len(spaces):
            break
        goal = number * len(content) // lines
        after = min(bisect_left(spaces, goal, first), len(spaces) - 1)
        nearest = min((max(first, after - 1), after), key=lambda index: abs(spaces[index] - goal))
        ends.append(spaces[nearest])
        first = nearest + 1
    return newline.join(content[start + 1 : end] for start, end in pairwise([-1, *ends, len(content)]))
