"""Alignments of words, made from alignments of subword tokens."""

from collections.abc import Sequence

from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers


def word_links(
    tokenizers: Tokenizers,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    aligned: Sequence[int],
) -> str:
    """Return the linked words of a line in the Pharaoh format, for example "0-0 1-2": numbers from 0, source
    word first, sorted and without repetitions. `sources` and `targets` have the token ids of the line's
    parts. `aligned` has the source token of each target token, counted from the line's start. Spaces separate
    words. Language codes have no links."""
    source, target = _words(tokenizers.source, sources), _words(tokenizers.target, targets)
    pairs = {(source[token], word) for word, token in zip(target, aligned, strict=True)}
    return " ".join(f"{one}-{other}" for one, other in sorted(pairs) if one >= 0 and other >= 0)


def _words(tokenizer: Tokenizer, parts: Sequence[Sequence[int]]) -> list[int]:
    """Return the word index of each token of all parts, counted from the line's start, -1 for a language
    code, which is not part of the text."""
    codes = {*tokenizer.numbering.symbols.values()} if tokenizer.begin else set()
    numbers: list[int] = []
    before = 0
    for ids in parts:
        # Decode each beginning of the part, since only the tokenizer knows the ends of words.
        counts = [len(tokenizer.decode(ids[: end + 1]).split()) for end in range(len(ids))]
        # A space before all words belongs to the first one.
        words = [before + max(count - 1, 0) for count in counts]
        numbers += [-1 if i in codes else word for i, word in zip(ids, words, strict=True)]
        before += counts[-1] if counts else 0
    return numbers
