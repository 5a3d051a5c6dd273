"""The alignment of the words of a line, from the attention of its subword tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nmt_cli.text.placeholders import Values, restored
from nmt_cli.text.tag_placement import Shares, units
from nmt_cli.text.tokenizers import Tokenizers

if TYPE_CHECKING:  # translator.py imports this module
    from nmt_cli.translation.translator import Candidate, Line


def unit_shares(tokenizers: Tokenizers, line: Line, best: Candidate) -> Shares:
    """Return the alignment of the units of `line` and `best`. A target unit has the attention of its first
    token, which aligns better than its other tokens. A source unit has the sum over its tokens. Without
    attention, all shares are 0."""
    spans_S, spans_T = units(line.raw), units(best.text)
    shares_TS = np.zeros((len(spans_T), len(spans_S)), np.float32)
    attention = [part.attention_TS for part in best.parts if part.attention_TS is not None]
    if not shares_TS.size or len(attention) < len(best.parts):
        return shares_TS
    target = tokenizers.target
    sources, targets = ([one.tokens for one in parts] for parts in (line.sentences, best.parts))
    values = [one.values for one in line.prepared]
    ends_S = _ends(line.raw, sources, values, tokenizers.source.decode)
    ends_T = _ends(best.text, targets, values, lambda ids: target.restore(target.decode(ids)))
    if not len(ends_S) or not len(ends_T):
        return shares_TS
    units_S = np.searchsorted(_starts(line.raw, spans_S), [0, *ends_S[:-1]], "right") - 1
    first_T = np.searchsorted(ends_T, _starts(best.text, spans_T), "right")
    rows_TS = _joined(attention)[np.minimum(first_T, len(ends_T) - 1)]
    np.add.at(shares_TS.T, np.maximum(units_S, 0), rows_TS.T)
    return shares_TS


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
