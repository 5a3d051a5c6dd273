"""Language identification by the optional package py3langid, which contains its model."""

import threading
from collections.abc import Collection, Sequence
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.language import iso_code

SIMILAR = ("nb nn no da", "bs hr sr sh", "id ms", "wuu yue zh", "cs sk", "gl pt", "mk bg", "af nl", "be uk")
"""Groups of languages that py3langid confuses. A text in one is accepted as any other of its group."""

MIN_PROBABILITY = 0.9
"""Minimum probability of another language to reject a text. No sentence of Multi30k reaches it."""

MIN_LETTERS = 20
"""Minimum letters of a text to reject it. The language of a shorter one depends on names and loanwords."""

MAX_CHECKED, MAX_RANKED = 1000, 2000
"""Maximum characters of a text that `LanguageCheck` and `LanguageDetector` read."""


class LanguageCheck:
    """A check for texts that are certainly not in the language `lang`."""

    def __init__(self, lang: str) -> None:
        """Load the model for all languages. Raise `UserError` if py3langid is not installed."""
        code = iso_code(lang)
        groups = [group.split() for group in SIMILAR if code in group.split()]
        self._accepted = {code, *(similar for group in groups for similar in group)}
        self._identifier = _identifier()
        self._supported = any(iso_code(label) in self._accepted for label in self._identifier.labels)

    def wrong(self, text: str) -> bool:
        """Return whether the first `MAX_CHECKED` characters of `text` are certainly in another language.
        Certainty needs `MIN_LETTERS` letters and a probability of `MIN_PROBABILITY`. Accept `lang` and
        similar languages. If py3langid supports neither `lang` nor a similar language, return False."""
        text = text[:MAX_CHECKED]
        if not self._supported or sum(map(str.isalpha, text)) < MIN_LETTERS:
            return False
        label, probability = self._identifier.classify(text)
        return iso_code(label) not in self._accepted and float(probability) >= MIN_PROBABILITY


class LanguageDetector:
    """A detector for a fixed set of languages. The first call of `ranked` loads it: 1 second and 80 MB."""

    def __init__(self, languages: Sequence[str]) -> None:
        self._languages = languages
        self._names = {iso_code(language): language for language in reversed(languages)}
        self._loading = threading.Lock()
        self._identifier: Any = None

    @property
    def loaded(self) -> bool:
        """True if the model is loaded, so that `ranked` takes about a millisecond."""
        return self._identifier is not None

    def ranked(self, text: str) -> list[tuple[str, float]]:
        """Return (language, probability) for all languages, likeliest first. Read the first `MAX_RANKED`
        characters. Unsupported languages come last, with probability 0. The first call loads the model."""
        with self._loading:
            self._identifier = self._identifier or _identifier(self._names)
        ranking = {
            self._names[code]: float(probability)
            for label, probability in self._identifier.rank(text[:MAX_RANKED])
            if (code := iso_code(label)) in self._names
        }
        unsupported = [language for language in self._languages if language not in ranking]
        return [*ranking.items(), *((language, 0.0) for language in unsupported)]


def _identifier(codes: Collection[str] | None = None) -> Any:
    """Return py3langid's identifier, limited to the ISO codes in `codes`. If `codes` is None or has no known
    code, cover all languages. Raise `UserError` if py3langid is not installed."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise UserError("language identification needs py3langid. Run: pip install '.[filters]'") from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    if codes is not None:
        identifier.set_languages([label for label in identifier.labels if iso_code(label) in codes] or None)
    return identifier
