"""Learning of byte-pair merges from word counts, with the same codes as subword-nmt, byte for byte."""

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
"""Number of words from which the fast learner saves more time than Numba needs to compile or load it."""


def learn_codes(counts: Counter[str], merges: int) -> str:
    """Return a codes file with `merges` merges of counted words, or fewer if no other pair occurs twice.
    Ignore words that contain `WORD_END`. If no word has several characters, return only the header. From
    `MANY_WORDS` words on, use the compiled learner if available."""
    # Merges of a word that contains the learner's end mark could not be distinguished from others.
    words = {word: count for word, count in counts.items() if WORD_END not in word}
    # Both learners fail if no word has a pair of characters.
    if not any(len(word) > 1 for word in words):
        return HEADER + "\n"
    learner = compiled_kernels("text.subword_models") if len(words) >= MANY_WORDS else None
    return learn_compiled(learner, words, merges) if learner else learn_plain(words, merges)


def learn_plain(words: dict[str, int], merges: int) -> str:
    """Return the content of the codes file that subword-nmt learns. `words` has the count of each word."""
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):
        learn_bpe([f"{word} {count}" for word, count in words.items()], codes, merges, is_dict=True)
    return codes.getvalue()


def learn_compiled(learner: ModuleType, words: dict[str, int], merges: int) -> str:
    """Return the codes file that `compiled.py`, loaded as `learner`, learns. It equals `learn_plain`'s."""
    spellings = [[*word[:-1], word[-1] + WORD_END] for word in words]
    pieces = list(dict.fromkeys(chain.from_iterable(spellings)))
    numbers = {piece: number for number, piece in enumerate(pieces)}
    symbols = np.array([numbers[piece] for piece in chain.from_iterable(spellings)])
    letters = np.array([ord(letter) for letter in "".join(pieces)])
    counts = np.array(list(words.values()))
    learnt = learner.learn_merges(symbols, _starts(spellings), counts, letters, _starts(pieces), merges)
    lines = [HEADER]
    for left, right, joined in learnt.tolist():
        lines.append(f"{pieces[left]} {pieces[right]}")
        if joined == len(pieces):
            pieces.append(pieces[left] + pieces[right])
    return "\n".join(lines) + "\n"


def _starts(parts: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Return [parts + 1]: the offset of each part in all parts joined, and last the total length."""
    return np.cumsum([0, *map(len, parts)])
