"""Alignments of words, made from alignments of subword tokens."""

from collections.abc import Sequence

from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers


def pharaoh(
    tokenizers: Tokenizers,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    aligned: Sequence[int],
) -> str:
    """Return the linked words of a line in the Pharaoh format, for example "0-0 1-2", source word first. The
    arguments are as in `word_links`."""
    links = word_links(tokenizers, sources, targets, aligned)
    return " ".join(f"{source}-{target}" for source, target in links)


def word_links(
    tokenizers: Tokenizers,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    aligned: Sequence[int],
) -> list[tuple[int, int]]:
    """Return the pairs of linked words (source, target) of a line, from 0, sorted and without repetitions.
    `sources` and `targets` have the token ids of the line's parts. `aligned` has the source token of each
    target token, counted from the line's start. Spaces separate words. Language codes have no links."""
    source = [word for ids in _words(tokenizers.source, sources) for word in ids]
    target = [word for ids in _words(tokenizers.target, targets) for word in ids]
    pairs = ((source[token], word) for word, token in zip(target, aligned, strict=True))
    return sorted({(one, other) for one, other in pairs if one >= 0 and other >= 0})


def _words(tokenizer: Tokenizer, parts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each part the word index of each token, counted from the line's start, -1 for a code."""
    numbers, before = [], 0
    for ids in parts:
        # Decode each beginning of the part, since only the tokenizer knows the ends of words.
        counts = [len(tokenizer.decode(ids[: end + 1]).split()) for end in range(len(ids))]
        # A space before all words belongs to the first one.
        words = [before + max(count - 1, 0) for count in counts]
        numbers.append([-1 if _is_code(tokenizer, i) else word for i, word in zip(ids, words, strict=True)])
        before += counts[-1] if counts else 0
    return numbers


def _is_code(tokenizer: Tokenizer, token: int) -> bool:
    """Return whether `token` is a language code, which is not part of the text."""
    return bool(tokenizer.begin) and token in tokenizer.numbering.symbols.values()
