"""A guess at the language of a text from its most frequent words. It needs no optional package."""

import re
from collections import Counter

from nmt_cli.language import iso_code

FREQUENT_WORDS = {
    "cs": "se je na že to jsem ale jako by si ve pro které jsou",
    "da": "og at det er ikke en på til af den der med har jeg",
    "de": "der die und das ist nicht ein den mit zu von sich auf für auch",
    "en": "the of and to in is that it was for with you this are",
    "es": "el la los y que en una por con las del es para",
    "fi": "ja on ei että se hän oli mutta kun niin mitä joka ovat",
    "fr": "le la les et des est une que dans pour pas qui sur vous",
    "hu": "a az és hogy nem egy is van meg csak volt mint",
    "it": "il di che la è per un una non sono con del della gli",
    "nl": "de het een en van is dat niet op met voor zijn ook er",
    "pl": "nie się na w z że jest to do jak ale od są",
    "pt": "o que não uma para com os em do da é mais ao foi",
    "ro": "și în nu că este pe cu care la un mai sunt din",
    "ru": "и в не на я что он с как это но они по",
    "sv": "och att det är som en på för av inte med den har till",
    "tr": "bir ve bu da de için ne çok ile olarak var değil",
    "uk": "і в не на що я з це у як та до він є",
}
"""A few words of each language that make up a fifth of any text in it."""

LANGUAGES_OF = {
    word: [lang for lang, frequent in FREQUENT_WORDS.items() if word in frequent.split()]
    for words in FREQUENT_WORDS.values()
    for word in words.split()
}
WORD = re.compile(r"[^\W\d_]+")

MIN_WORDS, MIN_FACTOR = 20, 3
"""Minimum count of another language's words, and its minimum ratio to the count of the expected ones."""


class LanguageGuess:
    """A check, line by line, whether a text is in another language than the expected one."""

    def __init__(self, lang: str) -> None:
        self._lang = iso_code(lang)
        self._counts: Counter[str] = Counter()

    def other(self, line: str) -> str | None:
        """Count one more line. Return the language of all lines so far if it is not the expected language.

        The language needs `MIN_WORDS` frequent words, and over `MIN_FACTOR` times those of the expected
        language. Otherwise, or if the expected language has no word list, return None.
        """
        if self._lang not in FREQUENT_WORDS:
            return None
        for word in WORD.findall(line.casefold()):
            self._counts.update(LANGUAGES_OF.get(word, ()))
        best, count = max(self._counts.items(), key=lambda item: item[1], default=("", 0))
        certain = count >= MIN_WORDS and count > MIN_FACTOR * self._counts[self._lang]
        return best if certain and best != self._lang else None
