"""Translate word by word with a dictionary learnt from aligned sentences. This is the baseline for training.

The dictionary is IBM Model 1 (Brown et al., 1993). It maps each English word to the German word
that explains it best. The case of the first word is removed before translation and restored after it.
Punctuation is copied. English words without a German counterpart, such as "of" in a date, are dropped, which
scores better than a guess.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

Table = dict[str, dict[str, float]]
"""Probability of each German word as the translation of an English word."""

WORD = re.compile(r"\w+(?:['-]\w+)*")
WORD_OR_MARK = re.compile(WORD.pattern + r"|[^\w\s]")
ROUNDS = 5
LEAST_LIKELY = 0.3
"""A best translation below this probability is a guess and is dropped."""


def learn(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return one German word for each English word of the pairs, or "" if it has no German counterpart."""
    usual = _usual_case(de for _, de in pairs)
    tokens = [(WORD.findall(en.lower()), _without_sentence_case(WORD.findall(de), usual)) for en, de in pairs]
    table: Table = {}
    for _ in range(ROUNDS):
        table = _next_round(tokens, table)
    return {en: _likeliest(row) for en, row in table.items()}


def _likeliest(row: dict[str, float]) -> str:
    best = max(row, key=row.__getitem__)
    return best if row[best] >= LEAST_LIKELY else ""


def translate(sentence: str, dictionary: dict[str, str]) -> str:
    """Replace each word of a sentence. Words that are not in the dictionary are copied."""
    words = [dictionary.get(word, word) for word in WORD_OR_MARK.findall(sentence.lower())]
    text = re.sub(r" (?=[.,?!])", "", " ".join(filter(None, words)))
    return text[:1].upper() + text[1:]


def _usual_case(sentences: Iterable[str]) -> dict[str, str]:
    inside = Counter(word for sentence in sentences for word in WORD.findall(sentence)[1:])
    best: dict[str, str] = {}
    for word, _ in inside.most_common():
        best.setdefault(word.lower(), word)
    return best


def _without_sentence_case(words: list[str], usual: dict[str, str]) -> list[str]:
    return [usual.get(word.lower(), word) if i == 0 else word for i, word in enumerate(words)]


def _next_round(tokens: list[tuple[list[str], list[str]]], table: Table) -> Table:
    """Run one step of expectation maximisation. With an empty table, all words are equally likely."""
    counts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for english, german in tokens:
        for de in german:
            shares = [table[en][de] if table else 1.0 for en in english]
            total = sum(shares)
            for en, share in zip(english, shares, strict=True):
                counts[en][de] += share / total
    return {en: _normalised(row) for en, row in counts.items()}


def _normalised(row: dict[str, float]) -> dict[str, float]:
    total = sum(row.values())
    return {word: count / total for word, count in row.items()}
