"""Translation with required terms."""

import re
from dataclasses import replace

import pytest

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.errors import UserError
from nmt_cli.translation.loading import Loaded
from nmt_cli.translation.text.glossary import Glossary

BEAM = SearchConfig(beam=4)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def translated(copier: Loaded, terms: dict[str, list[str]], lines: list[str]) -> list[str]:
    glossary = Glossary(copier.translator.tokenizers, terms)
    translator = copier.searching(BEAM, glossary=glossary)
    return [one.text for one in translator.translate(copier.models, lines)]


def test_a_translation_has_a_form_of_each_term_of_its_source(copier: Loaded) -> None:
    texts = translated(copier, {"ab": ["xy", "yx"], "de": ["z"]}, ["ab c", "c AB de", "abc", ""])
    assert {"xy", "yx"} & {*words(texts[0])}
    assert {"xy", "yx"} & {*words(texts[1])} and "z" in words(texts[1])
    assert texts[2:] == ["abc", ""]


def test_a_translation_that_has_its_terms_does_not_change(copier: Loaded) -> None:
    assert translated(copier, {"ab": ["ab"]}, ["ab c", "c ab"]) == ["ab c", "c ab"]


def test_each_part_of_a_long_line_has_its_terms(copier: Loaded) -> None:
    (text,) = translated(copier, {"b": ["z"]}, [f"{'a' * 40}. {'a' * 38} b."])
    assert "z" in words(text)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"a": ["é"]}, "cannot write 'é'"),
        ({"a": []}, "'a' needs a source and a translation"),
        ({" ": ["a"]}, "' ' needs a source"),
        ({"a  b": ["c"], "a b": ["d"]}, "'a b' twice"),
    ],
)
def test_a_term_that_cannot_be_used_is_refused(
    copier: Loaded, terms: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Glossary(copier.translator.tokenizers, terms)


def test_settings_and_models_that_do_not_suit_a_glossary_are_refused(copier: Loaded) -> None:
    tokenizers = copier.translator.tokenizers
    glossary = Glossary(tokenizers, {"a": ["b"]})
    for search in (SearchConfig(beam=1), SearchConfig(sample=True)):
        with pytest.raises(UserError, match="a glossary needs beam search"):
            copier.searching(search, glossary=glossary)
    with pytest.raises(UserError, match=r"search\.ban has 'b', a translation in the glossary"):
        copier.searching(replace(BEAM, ban=("c", "b")), glossary=glossary)
    assert copier.searching(BEAM, glossary=Glossary(replace(tokenizers), {"a": ["b"]}))
    with pytest.raises(UserError, match="belongs to another model"):
        copier.searching(BEAM, glossary=Glossary(replace(tokenizers, files={}), {"a": ["b"]}))
