"""Which language a text is in, by py3langid, whose wheel brings its data along."""

from collections.abc import Sequence
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.language import THREE_LETTERS, without_region

ALIKE = ("nb nn no da", "bs hr sr sh", "id ms", "wuu yue zh", "cs sk", "gl pt", "mk bg", "af nl", "be uk")
"""Languages that are told apart badly: a text in one may be taken for another of its row."""

SURE = 0.9
"""Least probability of another language that is believed; of Multi30k's sentences not one reached it."""

ENOUGH = 20
"""Letters that a text must have; below, names and loans decide."""

MOST = 1000
"""Characters that are looked at."""


def identifier(languages: Sequence[str] | None = None, install: str = "filters") -> Any:
    """py3langid's identifier, of all languages or some of them; takes a second and 80 MB.

    `UserError` names the extra `install` where it is missing.
    """
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise UserError(f"languages are told by py3langid; pip install '.[{install}]'.") from error
    made = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    if languages is not None:
        made.set_languages([code for code in made.labels if code in languages] or None)
    return made


class LanguageCheck:
    """Looks for texts that are surely in another language than `lang`."""

    def __init__(self, lang: str) -> None:
        code = without_region(lang)
        code = {three: two for two, three in THREE_LETTERS.items()}.get(code, code)
        rows = [row.split() for row in ALIKE if code in row.split()]
        self._right = {code, *(like for row in rows for like in row)}
        self._identifier = identifier()
        self.known = bool(self._right & {str(label) for label in self._identifier.labels})
        """Whether there is anything to go by; of other languages no text is ever found wrong."""

    def wrong(self, text: str) -> bool:
        """Whether the text is long enough to tell, and surely in another language."""
        text = text[:MOST]
        if not self.known or sum(map(str.isalpha, text)) < ENOUGH:
            return False
        found, probability = self._identifier.classify(text)
        return str(found) not in self._right and float(probability) >= SURE
