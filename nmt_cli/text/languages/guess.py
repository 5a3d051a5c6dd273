"""Which language a text is in, by its commonest words; sure enough to tell a wrong file from a right one."""

import re
from collections import Counter

from nmt_cli.language import without_region

COMMONEST = {
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
"""Of each language a few words that make up a fifth of any text in it."""

LANGUAGES_OF = {
    word: [lang for lang, others in COMMONEST.items() if word in others.split()]
    for words in COMMONEST.values()
    for word in words.split()
}
WORD = re.compile(r"[^\W\d_]+")
ENOUGH, TIMES = 20, 3
"""Words of another language that must have been seen, and how many times as many as of the right one."""


class LanguageGuess:
    """Looks at lines until it is sure that they are in another language than they should be."""

    def __init__(self, lang: str) -> None:
        self._lang = without_region(lang)
        self._seen: Counter[str] = Counter()

    def other(self, line: str) -> str | None:
        """The language of the text up to this line, where it is not the right one."""
        if self._lang not in COMMONEST:
            return None
        for word in WORD.findall(line.casefold()):
            self._seen.update(LANGUAGES_OF.get(word, ()))
        best, count = max(self._seen.items(), key=lambda item: item[1], default=("", 0))
        sure = count >= ENOUGH and count > TIMES * self._seen[self._lang]
        return best if sure and best != self._lang else None
