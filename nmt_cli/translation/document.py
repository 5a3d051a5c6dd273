"""A text or a file with markup, cut into sentences to translate, and put together from their translations."""

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from nmt_cli.text.markup import Block
from nmt_cli.text.tag_placement import Shares, placed, units
from nmt_cli.text.well_formed import check_tags

Split = Callable[[str], tuple[list[str], list[str]]]
"""Splits a text into sentences. Returns them, and the whitespace after each."""

Join = Callable[[Sequence[str], Sequence[str]], str]
"""Joins the translations of sentences. Takes them, and the whitespace after each sentence."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text, cut into blocks, whose texts are cut into sentences."""

    blocks: Sequence[Block]
    counts: Sequence[int]
    """Number of sentences of each block."""

    sentences: Sequence[str]
    spaces: Sequence[str]
    """The whitespace after each sentence."""

    is_xml: bool = False
    """Whether its translation must have the same tags, which is checked."""

    @property
    def has_tags(self) -> bool:
        """Whether the alignment of words is needed."""
        return any(block.elements for block in self.blocks)

    def translated(self, translations: Sequence[tuple[str, Shares]], join: Join) -> str:
        """Return the translated document.

        translations: for each sentence, its translation and its alignment. The alignment may be empty if no
            block has tags.
        join: joins the translations of the sentences of a block.

        Raise `RuntimeError` if a translation of XML would not have the same tags.
        """
        results = zip(self.sentences, self.spaces, translations, strict=True)
        parts = []
        for block, count in zip(self.blocks, self.counts, strict=True):
            if not count:
                parts.append(block.raw)
                continue
            sources, spaces, own = zip(*islice(results, count), strict=True)
            texts, shares = zip(*own, strict=True)
            text = join(texts, spaces)
            if block.elements:
                content = placed(block.text, block.elements, text, _joined(sources, shares), block.escape)
            else:
                content = block.escape(text)
            if block.lines > 1:
                # CR LF first, because it contains both of the others.
                newline = next(ending for ending in ("\r\n", "\n", "\r") if ending in block.raw)
                content = _wrapped(content, block.lines, newline)
            parts.append(content)
        result = "".join(parts)
        if self.is_xml:
            check_tags("".join(block.raw for block in self.blocks), result)
        return result


def cut(blocks: Sequence[Block], split: Split, is_xml: bool = False) -> Document:
    """Cut the text of each block into sentences."""
    counts: list[int] = []
    sentences: list[str] = []
    spaces: list[str] = []
    for block in blocks:
        parts, whitespace = split(block.text) if block.text else ([], [])
        counts.append(len(parts))
        sentences += parts
        spaces += whitespace
    return Document(blocks, counts, sentences, spaces, is_xml)


def _joined(sources: Sequence[str], shares: Sequence[Shares]) -> Shares:
    """Return the alignment of a text from those of its sentences `sources`."""
    rows: list[Mapping[int, float]] = []
    before = 0
    for source, own in zip(sources, shares, strict=True):
        rows += [{before + unit: share for unit, share in row.items()} for row in own]
        before += len(units(source))
    return rows


def _wrapped(content: str, lines: int, newline: str) -> str:
    """Return `content` in at most `lines` lines of similar length, which end at spaces outside tags."""
    spaces = [found.start() for found in re.finditer(r"<[^<>]*>| ", content) if found[0] == " "]
    ends: list[int] = []
    for number in range(1, lines):
        goal = number * len(content) // lines
        after = bisect_left(spaces, goal)
        last = ends[-1] if ends else -1
        nearest = [space for space in spaces[max(0, after - 1) : after + 1] if space > last]
        ends += [min(nearest, key=lambda space: abs(space - goal))] if nearest else []
    return newline.join(content[start + 1 : end] for start, end in pairwise([-1, *ends, len(content)]))
