"""Language identification by the optional package py3langid, which includes its model."""

import threading
from collections.abc import Collection, Sequence
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.language import iso_code

SIMILAR = ("nb nn no da", "bs hr sr sh", "id ms", "wuu yue zh", "cs sk", "gl pt", "mk bg", "af nl", "be uk")
"""Groups of languages that py3langid confuses. A text that it puts into one of them passes as any other of
the group."""

MIN_PROBABILITY = 0.9
"""The minimum probability of another language at which a text is rejected. No sentence of Multi30k reaches
it."""

MIN_LETTERS = 20
"""The minimum number of letters of a text that is rejected. In a shorter text, names and loanwords decide
about the language that is found."""

MAX_CHECKED, MAX_RANKED = 1000, 2000
"""The maximum number of characters that `LanguageCheck` and `LanguageDetector` read of a text."""


class LanguageCheck:
    """A check that finds texts which are certainly not in the language `lang`."""

    def __init__(self, lang: str) -> None:
        """Load the model of all languages. Raise `UserError` if py3langid is not installed."""
        code = iso_code(lang)
        # Names of three letters are mapped too. A server of deu and eng once ranked neither of them.
        groups = [group.split() for group in SIMILAR if code in group.split()]
        self._accepted = {code, *(similar for group in groups for similar in group)}
        self._identifier = _identifier()
        self._supported = any(iso_code(label) in self._accepted for label in self._identifier.labels)

    def wrong(self, text: str) -> bool:
        """Return whether `text` is certainly in another language.

        It is if it has at least `MIN_LETTERS` letters, and another language has a probability of at least
        `MIN_PROBABILITY`. Languages that are similar to `lang` do not count as other languages. Only the
        first `MAX_CHECKED` characters are read. The result is always False if py3langid knows neither `lang`
        nor a similar language.
        """
        text = text[:MAX_CHECKED]
        if not self._supported or sum(map(str.isalpha, text)) < MIN_LETTERS:
            return False
        label, probability = self._identifier.classify(text)
        return iso_code(label) not in self._accepted and float(probability) >= MIN_PROBABILITY


class LanguageDetector:
    """A detector that chooses among a fixed set of languages.

    The model is loaded by the first call of `ranked`, which takes 1 second and 80 MB.
    """

    def __init__(self, languages: Sequence[str]) -> None:
        self._languages = languages
        self._names = {iso_code(language): language for language in reversed(languages)}
        self._loading = threading.Lock()
        self._identifier: Any = None

    @property
    def loaded(self) -> bool:
        """True if the model is loaded. Then `ranked` takes about a millisecond."""
        return self._identifier is not None

    def ranked(self, text: str) -> list[tuple[str, float]]:
        """Return (language, probability) for all languages of the set, the most probable first.

        Only the first `MAX_RANKED` characters of `text` are read. Languages that py3langid does not know come
        last, with probability 0.
        """
        # Requests of a server come in several threads, and the model takes 80 MB.
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
    """Load the identifier of py3langid. Raise `UserError` if the package is not installed.

    `codes` limits it to languages with these ISO codes. With None, or if it knows none of them, it identifies
    all languages.
    """
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise UserError("language identification needs py3langid. Run: pip install '.[filters]'") from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    if codes is not None:
        identifier.set_languages([label for label in identifier.labels if iso_code(label) in codes] or None)
    return identifier
