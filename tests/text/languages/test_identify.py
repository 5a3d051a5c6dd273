"""A text is called wrong only if it is surely in another language."""

import builtins

import pytest

from nmt_cli.errors import UserError
from nmt_cli.text.languages.identify import LanguageCheck

pytest.importorskip("py3langid")

ENGLISH = "Two young men are standing in front of a house and look at the street."
GERMAN = "Zwei junge Männer stehen vor einem Haus und schauen auf die Straße."
CROATIAN = "Dva mladića stoje ispred kuće i gledaju prema ulici."


@pytest.fixture(scope="module")
def german() -> LanguageCheck:
    return LanguageCheck("de-AT")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (ENGLISH, True),
        (GERMAN, False),
        (GERMAN.upper(), False),
        ("", False),
        ("The cat sleeps", False),
        ("1234 5678 - 9012 / 3456 : 7890", False),
        ("Microsoft Windows Server", False),
        (ENGLISH * 10_000, True),
    ],
)
def test_only_long_texts_in_another_language_are_wrong(german: LanguageCheck, text: str, wrong: bool) -> None:
    assert german.wrong(text) == wrong


@pytest.mark.parametrize("lang", ["sr", "bs", "hrv", "tlh"])
def test_languages_that_are_alike_or_unknown_are_let_be(lang: str) -> None:
    assert not LanguageCheck(lang).wrong(CROATIAN)


def test_who_lacks_the_library_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *rest: object) -> object:
        if name.startswith("py3langid"):
            raise ImportError(name)
        return imported(name, *rest)  # type: ignore[arg-type]

    imported = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r"pip install '\.\[filters\]'"):
        LanguageCheck("de")
