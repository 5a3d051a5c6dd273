"""Shortlists of other toolkits: `lex.*.s2t.bin` and `lex.s2t` of Marian, and `vmap.txt` of CTranslate2.

A `lex.*.s2t.bin` has six numbers: a magic number, a checksum, the number of frequent tokens, the maximum
length of a list, and the lengths of two arrays. The arrays follow: the offset of the list of each source
token, and the target tokens of all lists. Frequent tokens are those with the first ids. A sentence may use
the lists of all its tokens and of its end token. All numbers are little-endian, tokens have 4 bytes and other
numbers 8.

A line of `lex.s2t`, which extract-lex writes, has a target token, a source token and a probability.

A line of `vmap.txt` has a source phrase, a tab, and target tokens. Those of an empty phrase are for every
sentence.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy
from numpy.typing import NDArray

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.text.shortlist import Shortlist, shortlist_of, with_copies
from nmt_cli.text.tokenizers import Tokenizers

MAGIC = 0xF11A48D5013417F5
NUMBERS = 6
"""The numbers at the beginning of a binary file of Marian."""

FIRST, BEST = 100, 100
"""Marian's usual choice from a file of text: the first tokens of the vocabulary for every sentence, and the
best ones for each source token."""


def is_marian_shortlist(path: Path) -> bool:
    """Return whether a file is a binary shortlist of Marian."""
    return path.is_file() and read_ordinary(path)[:8] == MAGIC.to_bytes(8, "little")


def read_marian(path: Path, tokenizers: Tokenizers) -> Shortlist:
    """Return the shortlist in a binary file of Marian. Raise `UserError` if the file is damaged, or does not
    fit the vocabularies."""
    content = read_ordinary(path)
    source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    damaged = UserError(f"{path} is damaged, or belongs to another model. Copy it again, or move it away.")
    numbers = numpy.frombuffer(content[: 8 * NUMBERS], "<u8")
    if len(numbers) < NUMBERS:
        raise damaged
    frequent, _, offset_count, token_count = map(int, numbers[2:])
    end = 8 * (NUMBERS + offset_count)
    if len(content) < end + 4 * token_count or not 1 < offset_count <= len(source) + 1:
        raise damaged
    offsets = numpy.frombuffer(content[8 * NUMBERS : end], "<u8").astype(numpy.int64)
    targets = numpy.frombuffer(content[end : end + 4 * token_count], "<u4")
    if offsets[0] or (numpy.diff(offsets) < 0).any() or offsets[-1] != token_count:
        raise damaged
    if frequent > len(target) or (targets >= len(target)).any():
        raise damaged
    lists = [targets[first:after].tolist() for first, after in pairwise(offsets)]
    lists += [[]] * (len(source) - len(lists))  # the embeddings may have unused rows
    lists[source.end] = [*lists[source.end], *range(frequent)]
    # Marian lets translations copy tokens if both sides share a vocabulary.
    return shortlist_of(with_copies(lists, source, target) if tokenizers.recipe.joint else lists)


def read_marian_text(
    path: Path, tokenizers: Tokenizers, first: float = FIRST, best: float = BEST, threshold: float = 0.0
) -> Shortlist:
    """Return the shortlist in a text file of Marian.

    - `first`: the number of tokens at the beginning of the vocabulary that every sentence may use.
    - `best`: the maximum number of target tokens of a source token. Of equal ones, the last ids are used.
    - `threshold`: target tokens must be more probable than this.

    Unknown tokens and "NULL", which stands for no token, are skipped. Raise `UserError` for a line of another
    form, or if no token is known.
    """
    source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    # As bytes, because a token may have spaces of Unicode, at which Marian does not split a line.
    ids, targets = (
        {text.encode(): i for i, text in enumerate(side.entries) if text != "NULL"}
        for side in (source, target)
    )
    found: list[dict[int, float]] = [{} for _ in source.entries]
    for number, line in enumerate(read_ordinary(path).split(b"\n"), start=1):
        if not (fields := line.split()):
            continue
        try:
            other, token, probability = fields
            score = float(probability)
        except ValueError as error:
            raise UserError(
                f"{path} line {number:,} is not TARGET SOURCE PROBABILITY, so it is damaged. Copy it again, "
                "or move it away."
            ) from error
        if token in ids and other in targets:
            found[ids[token]][targets[other]] = score
    if not any(found):
        raise UserError(f"{path} has no token of this model. Copy its own one, or move it away.")
    lists: list[list[int]] = []
    for own in found:
        likely = [one for one in own if own[one] > threshold]
        lists.append(sorted(likely, key=lambda one: (own[one], one), reverse=True)[: max(int(best), 0)])
    lists[source.end] = [*lists[source.end], *range(min(int(first), len(target)))]
    return shortlist_of(with_copies(lists, source, target) if tokenizers.recipe.joint else lists)


def marian_file(shortlist: Shortlist, rows: Sequence[int]) -> bytes:
    """Return the content of a binary file of Marian with the lists of the first `rows[0]` source tokens. They
    have only the first `rows[1]` target tokens."""
    lists = [shortlist.list_of(token) for token in range(rows[0])]
    lists = [own[own < rows[1]] for own in lists]
    targets = numpy.concatenate(lists).astype("<u4").tobytes()
    offsets = numpy.cumsum([0, *map(len, lists)], dtype="<u8")
    # No frequent tokens, because the list of the end token has those of every sentence.
    numbers = [0, max(map(len, lists)), len(offsets), int(offsets[-1])]
    content = numpy.array(numbers, "<u8").tobytes() + offsets.tobytes() + targets
    checksum = _checksum(numpy.frombuffer(content[: len(content) // 8 * 8], "<u8"))
    return numpy.array([MAGIC, checksum], "<u8").tobytes() + content


def _checksum(numbers: NDArray[numpy.uint64]) -> int:
    """Return Marian's hash of numbers of 64 bits."""
    seed, most = 0, (1 << 64) - 1
    for number in numbers.tolist():
        seed ^= (number + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & most
    return seed


def read_vmap(path: Path, tokenizers: Tokenizers) -> Shortlist:
    """Return the shortlist in a `vmap.txt` of CTranslate2.

    The targets of a phrase belong to its first token, because our lists have no phrases. So a sentence may
    use a few more tokens than in CTranslate2. Unknown tokens are skipped. Raise `UserError` for a line
    without a tab.
    """
    source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    ids, targets = ({text: i for i, text in enumerate(side.entries)} for side in (source, target))
    lists: list[list[int]] = [[] for _ in source.entries]
    # Not `splitlines`, because a token may have a line separator of Unicode.
    lines = read_ordinary(path).decode(errors="replace").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        phrase, tab, listed = line.removesuffix("\r").partition("\t")
        if not tab:
            raise UserError(f"{path} line {number:,} has no tab, so it is damaged. Copy it again.")
        token = ids.get(phrase.partition(" ")[0], source.unknown) if phrase else source.end
        lists[token] += [targets[one] for one in listed.split(" ") if one in targets]
    return shortlist_of(lists)
