"""The alignment of the words of a line, from the attention of its subword tokens."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.text.placeholders import Values, restored
from nmt_cli.text.tag_placement import Shares, units
from nmt_cli.text.tokenizers import Tokenizers

TINY = 1e-6

MIN_LINKED = 0.3
"""A target unit is linked to each source unit of at least this share."""


def unit_shares(
    tokenizers: Tokenizers,
    line: str,
    sentences: Sequence[Sentence],
    values: Sequence[Values],
    translation: str,
    hypotheses: Sequence[Hypothesis],
) -> Shares:
    """Return the alignment of the units of a raw `line` and its `translation`.

    `sentences` and `hypotheses` are their parts, and `values` has the placeholders of each. A target unit has
    the attention of its first token, which aligns better than its other tokens. A source unit has the sum
    over its tokens, in relation to its sum over the translation. Without attention, all shares are 0.
    """
    spans_S, spans_T = units(line), units(translation)
    shares_TS = np.zeros((len(spans_T), len(spans_S)), np.float32)
    attention = [one.attention_TS for one in hypotheses if one.attention_TS is not None]
    if not shares_TS.size or len(attention) < len(hypotheses):
        return shares_TS
    target = tokenizers.target
    sources, targets = ([one.tokens for one in parts] for parts in (sentences, hypotheses))
    ends_S = _ends(line, sources, values, tokenizers.source.decode)
    ends_T = _ends(translation, targets, values, lambda ids: target.restore(target.decode(ids)))
    if not len(ends_S) or not len(ends_T):
        return shares_TS
    units_S = np.searchsorted(_starts(line, spans_S), [0, *ends_S[:-1]], "right") - 1
    first_T = np.searchsorted(ends_T, _starts(translation, spans_T), "right")
    rows_TS = _joined(attention)[np.minimum(first_T, len(ends_T) - 1)]
    np.add.at(shares_TS.T, np.maximum(units_S, 0), rows_TS.T)
    # Divided by the sum over the target, a unit that attracts attention everywhere counts less.
    balanced_TS = shares_TS / np.maximum(shares_TS.sum(0), TINY)
    scales_T = shares_TS.sum(1) / np.maximum(balanced_TS.sum(1), TINY)
    scaled_TS: Shares = balanced_TS * scales_T[:, None]
    return scaled_TS


def links(shares_TS: Shares) -> list[list[int]]:
    """Return the sorted pairs of a source unit and a target unit that are linked. A target unit is linked to
    the source units of at least `MIN_LINKED`, or else to those of the highest share, unless it is 0."""
    least_T = np.clip(shares_TS.max(1, initial=0.0), TINY, MIN_LINKED)
    pairs: list[list[int]] = np.argwhere(np.greater_equal(shares_TS.T, least_T)).tolist()
    return pairs


def _ends(
    text: str,
    parts: Sequence[Sequence[int]],
    values: Sequence[Values],
    decode: Callable[[Sequence[int]], str],
) -> NDArray[np.float64]:
    """Return the character of `text` at which each token of `parts` ends, without counting spaces. `values`
    has the text of placeholder symbols by part. If the decoded text differs in length, scale it."""
    ends: list[int] = []
    before = 0
    for ids, symbols in zip(parts, values, strict=True):
        # Only the tokenizer knows the text of the first n tokens.
        lengths = [_length(restored(decode(ids[: n + 1]), symbols)) for n in range(len(ids))]
        ends += (before + np.maximum.accumulate(lengths)).tolist() if lengths else []
        before = ends[-1] if ends else 0
    scaled = np.array(ends, np.float64)
    return scaled * (_length(text) / before) if before else scaled


def _length(text: str) -> int:
    """Return the number of characters of `text` that are not spaces."""
    return len("".join(text.split()))


def _starts(text: str, spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the number of characters before each of `spans` in `text`, without spaces."""
    counts = np.cumsum([0, *(not character.isspace() for character in text)])
    return counts[[start for start, _ in spans]]


def _joined(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the attention of consecutive parts as one matrix, without the columns of the end marks."""
    inner = [part[:, :-1] for part in parts]
    joined = np.zeros((sum(len(part) for part in inner), sum(part.shape[1] for part in inner)), np.float32)
    row = column = 0
    for part in inner:
        joined[row : row + len(part), column : column + part.shape[1]] = part
        row, column = row + len(part), column + part.shape[1]
    return joined
