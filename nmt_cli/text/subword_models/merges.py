"""Learning byte-pair merges from counted words, as subword-nmt does: the same codes, to the byte."""

import contextlib
import io
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from subword_nmt.learn_bpe import learn_bpe

from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.text.subword_models.bpe import HEADER, WORD_END

MANY_WORDS = 10_000
"""From so many words on, what Numba takes to compile or load the fast learner is less than it saves."""


def learn_codes(counts: Counter[str], merges: int) -> str:
    """The content of a codes file with at most `merges` merges, fewer where no pair occurs twice."""
    # A word that holds the learner's own end mark would teach it merges that can't be told from others.
    words = {word: count for word, count in counts.items() if WORD_END not in word}
    # Neither learner takes words without any pair of characters.
    if not any(len(word) > 1 for word in words):
        return HEADER + "\n"
    learner = compiled_kernels("text.subword_models") if len(words) >= MANY_WORDS else None
    return learn_compiled(learner, words, merges) if learner else learn_plain(words, merges)


def learn_plain(words: dict[str, int], merges: int) -> str:
    """The codes by subword-nmt itself."""
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):
        learn_bpe([f"{word} {count}" for word, count in words.items()], codes, merges, is_dict=True)
    return codes.getvalue()


def learn_compiled(learner: ModuleType, words: dict[str, int], merges: int) -> str:
    """The codes by `compiled.py`."""
    spelt = [[*word[:-1], word[-1] + WORD_END] for word in words]
    pieces = list(dict.fromkeys(chain.from_iterable(spelt)))
    numbers = {piece: number for number, piece in enumerate(pieces)}
    symbols = np.array([numbers[piece] for piece in chain.from_iterable(spelt)])
    letters = np.array([ord(letter) for letter in "".join(pieces)])
    counts = np.array(list(words.values()))
    found = learner.learn_merges(symbols, _starts(spelt), counts, letters, _starts(pieces), merges)
    lines = [HEADER]
    for left, right, joined in found.tolist():
        lines.append(f"{pieces[left]} {pieces[right]}")
        if joined == len(pieces):
            pieces.append(pieces[left] + pieces[right])
    return "\n".join(lines) + "\n"


def _starts(parts: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)])
