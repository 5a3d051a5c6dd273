"""py3langid rejects a text only if it is certainly in another language, and ranks the served languages."""

import builtins

import pytest

from nmt_cli.errors import UserError
from nmt_cli.text.languages.identify import LanguageCheck, LanguageDetector

pytest.importorskip("py3langid")

ENGLISH = "Two young men are standing in front of a house and look at the street."
GERMAN = "Zwei junge Männer stehen vor einem Haus und schauen auf die Straße."
FRENCH = "Les enfants jouent dans le jardin derrière la maison."
CZECH = "Děti si hrají na zahradě za domem."
CROATIAN = "Dva mladića stoje ispred kuće i gledaju prema ulici."


@pytest.mark.parametrize("lang", ["de-AT", "deu"])
def test_only_long_texts_in_another_language_are_wrong(lang: str) -> None:
    check = LanguageCheck(lang)
    for text in (ENGLISH, ENGLISH * 10_000):
        assert check.wrong(text)
    for text in (
        GERMAN,
        GERMAN.upper(),
        "",
        "The cat sleeps",
        "1234 5678 - 9012",
        "Microsoft Windows Server",
    ):
        assert not check.wrong(text)


@pytest.mark.parametrize("lang", ["sr", "bs", "hrv", "tlh"])
def test_a_text_in_a_similar_or_unsupported_language_is_accepted(lang: str) -> None:
    assert not LanguageCheck(lang).wrong(CROATIAN)


@pytest.mark.parametrize(
    ("text", "language"), [(ENGLISH, "eng"), (GERMAN, "de_AT"), (FRENCH, "fr-CA"), (CZECH, "ces")]
)
def test_the_likeliest_language_comes_first_under_its_served_name(text: str, language: str) -> None:
    served = ["eng", "de_AT", "fr-CA", "ces", "tlh"]
    ranked = LanguageDetector(served).ranked(text)
    assert ranked[0][0] == language
    assert ranked[0][1] > 0.9
    assert ranked[-1] == ("tlh", 0.0)
    assert sorted(name for name, _ in ranked) == sorted(served)
    assert sum(probability for _, probability in ranked) == pytest.approx(1)


def test_every_language_is_ranked_for_an_empty_text() -> None:
    assert {language for language, _ in LanguageDetector(["deu", "eng"]).ranked("")} == {"deu", "eng"}


def test_unsupported_languages_have_probability_zero() -> None:
    assert LanguageDetector(["tlh", "x-own"]).ranked("a dog") == [("tlh", 0.0), ("x-own", 0.0)]


def test_a_missing_library_is_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str, *arguments: object) -> object:
        if name.startswith("py3langid"):
            raise ImportError(name)
        return imported(name, *arguments)  # type: ignore[arg-type]

    imported = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r"pip install '\.\[filters\]'"):
        LanguageCheck("de")
