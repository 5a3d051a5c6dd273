"""A wrong file is noticed after some lines, and a right one never."""

import pytest

from nmt_cli.text.languages.guess import LanguageGuess

GERMAN = "Der Hund und die Katze sind nicht auf dem Tisch, und das ist auch gut für sie."
ENGLISH = "The dog and the cat are not on the table, and that is good for you and for this house."


@pytest.mark.parametrize(
    ("lang", "lines", "other"),
    [
        ("en", [GERMAN], None),  # too short
        ("en", [GERMAN] * 5, "de"),
        ("eng", [GERMAN] * 5, "de"),
        ("de-AT", [ENGLISH] * 5, "en"),
        ("deu", [GERMAN] * 5, None),
        ("de", [GERMAN, GERMAN, ENGLISH] * 20, None),
        ("de", [GERMAN, ENGLISH, ENGLISH] * 20, None),  # a mixed text is not a wrong file
        ("sw", [ENGLISH] * 20, None),  # no list of words
        ("ja", ["", "日本語", "123 !"], None),
    ],
)
def test_only_a_long_text_in_another_language_is_reported(
    lang: str, lines: list[str], other: str | None
) -> None:
    guess = LanguageGuess(lang)
    assert next((guessed for line in lines if (guessed := guess.other(line))), None) == other
