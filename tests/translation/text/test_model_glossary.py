"""Translation with required terms."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.text.config import TextConfig, TokenizerConfig
from nmt_cli.text.placeholders import TERM, TERM_END, family
from nmt_cli.text.tag_placement import units
from nmt_cli.text.tokenizer import Side
from nmt_cli.text.tokenizers import Recipe, learn_tokenizers
from nmt_cli.translation.loading import Loaded, load
from nmt_cli.translation.text.model_glossary import Glossary
from tests.translation.conftest import ON_CPU

BEAM = SearchConfig(beam=4)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def translated(copier: Loaded, terms: dict[str, list[str]], lines: list[str]) -> list[str]:
    glossary = Glossary(copier.translator.tokenizers, terms)
    options = copier.options(BEAM, glossary=glossary)
    return [one.text for one in copier.translator.translate(copier.decoder, lines, options)]


def test_a_translation_has_a_form_of_each_term_of_its_source(copier: Loaded) -> None:
    texts = translated(copier, {"ab": ["xy", "yx"], "de": ["z"]}, ["ab c", "c AB de", "abc", ""])
    assert {"xy", "yx"} & {*words(texts[0])}
    assert {"xy", "yx"} & {*words(texts[1])} and "z" in words(texts[1])
    assert texts[2:] == ["abc", ""]


def test_a_translation_that_has_its_terms_does_not_change(copier: Loaded) -> None:
    assert translated(copier, {"ab": ["ab"]}, ["ab c", "c ab"]) == ["ab c", "c ab"]


@pytest.mark.parametrize(
    ("terms", "raised"),
    [({"ab": ["xy"]}, True), ({"ab": ["xy", "ab"]}, False), ({"ab": ["ab"]}, False), ({"b": ["xy"]}, False)],
)
def test_a_term_that_the_model_would_not_write_is_flagged(
    copier: Loaded, terms: dict[str, list[str]], raised: bool
) -> None:
    glossary = Glossary(copier.translator.tokenizers, terms)
    options = copier.options(BEAM, glossary=glossary)
    (one,) = copier.translator.translate(copier.decoder, ["ab c"], options)
    assert ("terms" in one.flags) == raised


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
        ({"a": 5}, "'a' needs a list of translations"),
        ({"a": "bc"}, "'a' needs a list of translations"),
        ({"a": [5]}, "'a' needs a list of translations"),
    ],
)
def test_a_term_that_cannot_be_used_is_refused(copier: Loaded, terms: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Glossary(copier.translator.tokenizers, terms)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("b\té", "the model cannot write 'é'"),
        ("\x0b\tc", "needs a source and a translation"),
        ("A\tb", "the glossary has 'A' twice"),
    ],
    ids=repr,
)
def test_the_line_of_a_term_that_cannot_be_used_is_named(
    copier: Loaded, tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(f"a\tb\n\n{line}\nc\td\n")
    with pytest.raises(UserError) as error:
        Glossary(copier.translator.tokenizers, path)
    assert str(error.value).startswith(f"{path} line 3") and message in str(error.value)


def test_settings_and_models_that_do_not_suit_a_glossary_are_refused(copier: Loaded) -> None:
    tokenizers = copier.translator.tokenizers
    glossary = Glossary(tokenizers, {"a": ["b"]})
    with pytest.raises(UserError, match=r"glossary=soft needs .* augment\.terms\. Set it to hard"):
        copier.options(SearchConfig(glossary="soft"), glossary=glossary)
    for search in (SearchConfig(beam=1), SearchConfig(sample=True)):
        with pytest.raises(UserError, match="a glossary needs beam search"):
            copier.options(search, glossary=glossary)
    with pytest.raises(UserError, match=r"search\.ban has 'b', a translation in the glossary"):
        copier.options(replace(BEAM, ban=("c", "b")), glossary=glossary)
    assert copier.options(BEAM, glossary=Glossary(replace(tokenizers), {"a": ["b"]}))
    with pytest.raises(UserError, match="belongs to another model"):
        copier.options(BEAM, glossary=Glossary(replace(tokenizers, files={}), {"a": ["b"]}))


@pytest.fixture(scope="module")
def annotating(made_models: Path) -> Loaded:
    """Return a model that copies its input, as if it had learnt annotations of terms."""
    return load([made_models / "terms"], TranslateConfig(search=BEAM), ON_CPU)


@pytest.mark.parametrize("setting", ["auto", "soft"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_model_that_learnt_terms_gets_annotations(annotating: Loaded, setting: Any, beam: int) -> None:
    tokenizers = annotating.translator.tokenizers
    glossary = Glossary(tokenizers, {"ab": ["xy", "z"], "⟦<⟧": ["⟦>⟧"]}, annotates=annotating.annotates)
    lines = ["c ab, .Ab", "⟦<⟧ ab ⟦>⟧", "ab ⟦1⟧", "", "c", f"{'a' * 60} ab", f"{'c' * 60}. ab {'c' * 50}"]
    search = SearchConfig(beam=beam, glossary=setting)
    options = annotating.options(search, aligned=True, glossary=glossary)
    translations = annotating.translator.translate(annotating.decoder, lines, options)
    # This model copies annotations, too. They are never in the text of a translation.
    assert [one.text for one in translations] == lines
    sources = [[tokenizers.source.decode(one.tokens) for one in t.line.sentences] for t in translations]
    assert sources[0] == ["c ⟦<⟧ xy ⟦<⟧ z ⟦>⟧ ab, . ⟦+⟧ ⟦<⟧ xy ⟦<⟧ z ⟦>⟧ Ab"]
    assert sources[4:6] == [["c"], [lines[5]]]  # the annotated line would be too long
    assert not any(one.terms for t in translations for one in t.line.sentences)
    shares = translations[0].shares
    assert [max(row, key=row.__getitem__) for row in shares] == [*range(len(units(lines[0])))]


def test_a_model_that_learnt_terms_can_search_for_them(annotating: Loaded) -> None:
    glossary = Glossary(annotating.translator.tokenizers, {"ab": ["xy"]}, annotates=True)
    hard = SearchConfig(beam=4, glossary="hard")
    options = annotating.options(hard, glossary=glossary)
    (one,) = annotating.translator.translate(annotating.decoder, ["ab c"], options)
    assert "xy" in words(one.text)
    with pytest.raises(UserError, match="a glossary needs beam search"):
        annotating.options(SearchConfig(beam=1, glossary="hard"), glossary=glossary)


def test_terms_are_found_after_the_symbol_of_the_target_language() -> None:
    recipe = Recipe("char", True, "en", "mul", TextConfig(), symbols=("<2de>", *family(0, terms=True)))
    sample: dict[Side, list[str]] = {"source": ["ab cxy"], "target": []}
    tokenizers = learn_tokenizers(recipe, TokenizerConfig(kind="char"), sample).directed(None, "de")
    source = tokenizers.source
    for terms in ({"ab": ["xy"]}, {"ab c": ["xy"]}):
        annotated = Glossary(tokenizers, terms, annotates=True).annotated(
            source.prepare("c ab c"), 60, SearchConfig()
        )
        assert tokenizers.target.decode(annotated).startswith("<2de> c ⟦<⟧ xy ⟦>⟧ ab c")


def test_text_that_looks_like_a_symbol_stays_text(annotating: Loaded) -> None:
    lines = ["a ⟦<⟧ b ⟦>⟧", "⟦>⟧", "⟦<⟧⟦<⟧ b"]
    translations = annotating.translator.translate(annotating.decoder, lines)
    assert [one.text for one in translations] == lines
    source = annotating.translator.tokenizers.source
    symbols = {source.numbering.symbols[symbol] for symbol in (TERM, TERM_END)}
    assert not any(symbols & {*one.tokens} for t in translations for one in t.line.sentences)
