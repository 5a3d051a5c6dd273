"""Alignments of words in the Pharaoh format, made of those of pieces."""

from collections.abc import Sequence

from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers


def pharaoh(
    tokenizers: Tokenizers,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    aligned: Sequence[int],
) -> str:
    """Pairs of words, "0-0 1-2", source first, each once and in order.

    `sources` and `targets` are the pieces of a line's parts. `aligned` has for each target piece a source
    piece, both counted from the beginning of the line. A word is what the tokeniser has between blanks.
    """
    source = [word for ids in _words(tokenizers.source, sources) for word in ids]
    target = [word for ids in _words(tokenizers.target, targets) for word in ids]
    pairs = ((source[piece], word) for word, piece in zip(target, aligned, strict=True))
    links = {(theirs, ours) for theirs, ours in pairs if theirs >= 0 and ours >= 0}
    return " ".join(f"{theirs}-{ours}" for theirs, ours in sorted(links))


def _words(tokenizer: Tokenizer, parts: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each piece the number of its word, counted from the beginning of the line; -1 for what is none."""
    found, before = [], 0
    for ids in parts:
        # Decoded up to each piece, as only the tokeniser knows where its words end.
        counts = [len(tokenizer.decode(ids[: end + 1]).split()) for end in range(len(ids))]
        # A piece that is a blank, before any word, belongs to the first one.
        words = [before + max(count - 1, 0) for count in counts]
        found.append([-1 if _is_code(tokenizer, i) else word for i, word in zip(ids, words, strict=True)])
        before += counts[-1] if counts else 0
    return found


def _is_code(tokenizer: Tokenizer, token: int) -> bool:
    """Whether it is a language's code, which is no part of a text."""
    return bool(tokenizer.begin) and token in tokenizer.numbering.symbols.values()
