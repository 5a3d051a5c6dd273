"""Translate word by word with a dictionary learnt from aligned sentences. This is the baseline for training.

The dictionary is IBM Model 1 (Brown et al., 1993). It maps each English word to the German word
that explains it best. The case of the first word is removed before translation and restored after it.
Punctuation is copied. English words without a German counterpart, such as "and" in a number, are dropped,
which scores better than a guess.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

Table = dict[str, dict[str, float]]
"""Probability of each German word as the translation of an English word."""

WORD = re.compile(r"\w+(?:['-]\w+)*")
WORD_OR_PUNCTUATION = re.compile(WORD.pattern + r"|[^\w\s]")
ITERATIONS = 5
"""Iterations of expectation maximisation."""

MIN_PROBABILITY = 0.3
"""A word whose best translation has a lower probability is dropped."""


def learn(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return a German word for each lower-case English word of the English-German `pairs`. If no word is
    probable, the value is ""."""
    usual = _usual_case(de for _, de in pairs)
    tokens = [(WORD.findall(en.lower()), _without_sentence_case(WORD.findall(de), usual)) for en, de in pairs]
    table: Table = {}
    for _ in range(ITERATIONS):
        table = _iterate(tokens, table)
    return {en: _likeliest(row) for en, row in table.items()}


def _likeliest(row: dict[str, float]) -> str:
    """Return the most probable word, or "" if its probability is too low."""
    best = max(row, key=row.__getitem__)
    return best if row[best] >= MIN_PROBABILITY else ""


def translate(sentence: str, dictionary: dict[str, str]) -> str:
    """Translate an English sentence word by word. Words that are not in `dictionary` are copied."""
    words = [dictionary.get(word, word) for word in WORD_OR_PUNCTUATION.findall(sentence.lower())]
    text = re.sub(r" (?=[.,?!])", "", " ".join(filter(None, words)))
    return text[:1].upper() + text[1:]


def _usual_case(sentences: Iterable[str]) -> dict[str, str]:
    """Return the most frequent spelling of each lower-case word, except at the start of a sentence."""
    inside = Counter(word for sentence in sentences for word in WORD.findall(sentence)[1:])
    return {word.lower(): word for word, _ in reversed(inside.most_common())}


def _without_sentence_case(words: list[str], usual: dict[str, str]) -> list[str]:
    """Return the words of a sentence, with the first one in its usual case."""
    return [usual.get(word.lower(), word) if i == 0 else word for i, word in enumerate(words)]


def _iterate(tokens: list[tuple[list[str], list[str]]], table: Table) -> Table:
    """Return the table after one iteration of expectation maximisation on tokenised pairs. With an empty
    table, all words are equally probable."""
    counts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for english, german in tokens:
        for de in german:
            shares = [table[en][de] if table else 1.0 for en in english]
            total = sum(shares)
            for en, share in zip(english, shares, strict=True):
                counts[en][de] += share / total
    totals = {en: sum(row.values()) for en, row in counts.items()}
    return {en: {de: count / totals[en] for de, count in row.items()} for en, row in counts.items()}
