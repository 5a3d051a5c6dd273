"""Which of the languages that are served a text is in."""

import threading
from collections.abc import Sequence
from typing import Any

from nmt_cli.language import without_region
from nmt_cli.text.languages.identify import identifier

ENOUGH = 2000
"""Characters that are looked at."""


class Detection:
    """Tells some languages apart; loaded by the first text, which takes a second and 80 MB."""

    def __init__(self, languages: Sequence[str]) -> None:
        self._called = {without_region(language): language for language in reversed(languages)}
        self._languages = languages
        self._loading = threading.Lock()
        self._identifier: Any = None

    @property
    def loaded(self) -> bool:
        """Whether guessing is a matter of a millisecond by now."""
        return self._identifier is not None

    def ranked(self, text: str) -> list[tuple[str, float]]:
        """The languages, the likeliest first, with probabilities; what can't be told is last."""
        found = [
            (self._called[code], float(probability))
            for code, probability in self._loaded().rank(text[:ENOUGH])
            if code in self._called
        ]
        told = {language for language, _ in found}
        return [*found, *((language, 0.0) for language in self._languages if language not in told)]

    def _loaded(self) -> Any:
        with self._loading:
            if self._identifier is None:
                self._identifier = identifier(list(self._called), install="serve")
            return self._identifier
