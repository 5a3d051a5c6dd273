"""A wrong file is noticed after some lines, and a right one never."""

from nmt_cli.text.languages.guess import LanguageGuess

GERMAN = "Der Hund und die Katze sind nicht auf dem Tisch, und das ist auch gut für sie."
ENGLISH = "The dog and the cat are not on the table, and that is good for you and for this house."


def guessed(lang: str, *lines: str) -> str | None:
    guess = LanguageGuess(lang)
    return next((found for line in lines if (found := guess.other(line))), None)


def test_another_language_is_told_once_there_is_enough_of_it() -> None:
    assert guessed("en", GERMAN) is None
    assert guessed("en", *[GERMAN] * 5) == "de"
    assert guessed("de-AT", *[ENGLISH] * 5) == "en"


def test_the_right_language_with_a_few_foreign_lines_is_no_other() -> None:
    assert guessed("de", *[GERMAN, GERMAN, ENGLISH] * 20) is None
    assert guessed("de", *[GERMAN, ENGLISH, ENGLISH] * 20) is None  # a mixed text is no wrong file


def test_of_a_language_without_a_list_nothing_is_said() -> None:
    assert guessed("sw", *[ENGLISH] * 20) is None
    assert guessed("ja", "", "日本語", "123 !") is None
