"""The alignment of the words of a line, from the attention of its subword tokens.

A unit is a word or a punctuation mark. The alignment of two texts has a row for each target unit: the shares
of source units in it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.text.placeholders import Values, restored
from nmt_cli.text.tag_placement import MIN_SHARE, Shares, units
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

TINY = 1e-6

MIN_LINKED = 0.3
"""A target unit is linked to each source unit of at least this share."""


def unit_shares(
    tokenizers: Tokenizers,
    line: str,
    sentences: Sequence[Sentence],
    translation: str,
    hypotheses: Sequence[Hypothesis],
) -> Shares:
    """Return the alignment of the units of a raw `line` and its `translation`. Without attention, its rows
    are empty.

    `sentences` and `hypotheses` are the parts of both. A target unit has the attention of its first token,
    which aligns better than its other tokens. A source unit has the sum over its tokens. This is divided by
    its sum over the translation, so that a unit that attracts attention everywhere counts less.
    """
    spans_S, spans_T = units(line), units(translation)
    sources, targets = ([one.tokens for one in parts] for parts in (sentences, hypotheses))
    values = [sentence.values for sentence in sentences]
    bounds_S, bounds_T = (
        np.cumsum([0, *(end - start for start, end in spans)]) for spans in (spans_S, spans_T)
    )
    ends_S = token_ends(bounds_S[-1], tokenizers.source, sources, values)
    ends_T = token_ends(bounds_T[-1], tokenizers.target, targets, values)
    attention = [one.attention_TS for one in hypotheses if one.attention_TS is not None]
    if len(attention) < len(hypotheses) or not spans_S or not len(ends_S) or not len(ends_T):
        return [{} for _ in spans_T]
    units_S = np.searchsorted(bounds_S[:-1], [0, *ends_S[:-1]], "right") - 1
    first_T = np.searchsorted(ends_T[:-1], bounds_T[:-1], "right")
    starts_S, starts_T = (np.cumsum([0, *map(len, parts)])[:-1] for parts in (sources, targets))
    parts_S = np.split(units_S, starts_S[1:])
    parts_T = np.split(first_T, np.searchsorted(first_T, starts_T[1:]))
    rows: list[Mapping[int, float]] = []
    for part_TS, own_S, own_T, start in zip(attention, parts_S, parts_T, starts_T, strict=True):
        numbers, columns = np.unique(own_S, return_inverse=True)
        shares_TS = np.zeros((len(own_T), len(numbers)), np.float32)
        np.add.at(shares_TS.T, columns, part_TS[own_T - start, :-1].T)
        # Divided by the sum over the target, a unit that attracts attention everywhere counts less.
        balanced_TS = shares_TS / np.maximum(shares_TS.sum(0), TINY)
        balanced_TS *= (shares_TS.sum(1) / np.maximum(balanced_TS.sum(1), TINY))[:, None]
        names = numbers.tolist()
        rows += [
            {unit: share for unit, share in zip(names, row, strict=True) if share >= MIN_SHARE}
            for row in balanced_TS.tolist()
        ]
    return rows


def composed(first: Shares, second: Shares) -> Shares:
    """Return the alignment of a source and the translation of its translation."""
    rows = []
    for row in second:
        shares: dict[int, float] = defaultdict(float)
        for unit, share in row.items():
            for source, own in first[unit].items():
                shares[source] += share * own
        rows.append(shares)
    return rows


def links(shares: Shares) -> list[tuple[int, int]]:
    """Return the linked pairs of a source unit and a target unit, sorted. A target unit is linked to all
    source units with a share of at least `MIN_LINKED`. If there is none, it is linked to those with its
    highest share."""
    return sorted(
        (unit_S, unit_T)
        for unit_T, row in enumerate(shares)
        for unit_S, share in row.items()
        if share >= min(MIN_LINKED, max(row.values()))
    )


def token_ends(
    length: int, tokenizer: Tokenizer, parts: Sequence[Sequence[int]], values: Sequence[Values]
) -> NDArray[np.float64]:
    """Return the character at which each token of a text ends. Spaces do not count.

    length: the number of characters of the text. The ends are scaled so that the last one is this.
    parts: the tokens of each sentence.
    values: for each sentence, the texts of its placeholder symbols.
    """
    ends: list[int] = []
    for ids, symbols in zip(parts, values, strict=True):
        before = ends[-1] if ends else 0
        # Only the tokenizer knows the text of the first n tokens.
        texts = (tokenizer.restore(tokenizer.decode(ids[: n + 1])) for n in range(len(ids)))
        lengths = (len("".join(restored(text, symbols).split())) for text in texts)
        ends += [before + end for end in accumulate(lengths, max)]
    scaled = np.array(ends, np.float64)
    return scaled * (length / ends[-1]) if ends and ends[-1] else scaled
