"""The languages of a model: recorded or from its symbols, and the symbols of each direction."""

import json
import re
from pathlib import Path

import pytest

from nmt_cli.text.config import TextConfig, TokenizerConfig
from nmt_cli.text.model_languages import ModelLanguages, languages_of_symbols
from nmt_cli.text.placeholders import family
from nmt_cli.text.tokenizers import DESCRIPTION, Recipe, Tokenizers, learn_tokenizers, load_tokenizers
from tests.checks import refusal

TAGS = ("<2de>", "<2fr>", "<2es>")
CODES = ("deu_Latn", "fra_Latn", "zho_Hans")


def tokenizers(
    symbols: tuple[str, ...],
    languages: ModelLanguages | None = None,
    pair: tuple[str, str] = ("en", "mul"),
    begins: tuple[str, ...] = (),
) -> Tokenizers:
    recipe = Recipe(
        kind="char",
        joint=True,
        source_lang=pair[0],
        target_lang=pair[1],
        text=TextConfig(),
        symbols=symbols,
        begins=begins,
        languages=languages,
    )
    return learn_tokenizers(recipe, TokenizerConfig(kind="char"), {"source": ["abc de"], "target": []})


def begins(made: Tokenizers, source: str | None, target: str | None, line: str = "ab") -> tuple[str, str]:
    directed = made.directed(source, target)
    return directed.source.prepare(line), directed.target.prepare(line)


@pytest.mark.parametrize(
    ("pair", "symbols", "usual", "expected"),
    [
        (("en", "de"), (), (), ModelLanguages({"en": ""}, {"de": ""})),
        (("en", "de"), ("<formal>", "<2formal>", "<BT>"), (), ModelLanguages({"en": ""}, {"de": ""})),
        (("en", "mul"), ("<2de>", "<BT>"), (), ModelLanguages({"en": ""}, {"de": "<2de>"})),
        (("en", "itc"), (">>pt_br<<",), (), ModelLanguages({"en": ""}, {"pt_br": ">>pt_br<<"})),
        (("itc", "itc"), (">>it<<",), (), ModelLanguages({"it": ""}, {"it": ">>it<<"})),
        (
            ("mul", "mul"),
            ("<2de>", "<2en>"),
            (),
            ModelLanguages({"de": "", "en": ""}, {"de": "<2de>", "en": "<2en>"}),
        ),
        (
            ("en", "fr"),  # MADLAD-400
            ("<2fr>", "<2zh_Latn>", "<2translate>"),
            ("<2fr>", ""),
            ModelLanguages({"fr": "", "zh_Latn": ""}, {"fr": "<2fr>", "zh_Latn": "<2zh_Latn>"}),
        ),
        (
            ("en", "fr"),  # M2M100
            ("__en__", "__fr__"),
            ("__en__", "__fr__"),
            ModelLanguages({"en": "__en__", "fr": "__fr__"}, {"en": "__en__", "fr": "__fr__"}, "target"),
        ),
    ],
)
def test_symbols_name_languages(
    pair: tuple[str, str], symbols: tuple[str, ...], usual: tuple[str, ...], expected: ModelLanguages
) -> None:
    assert languages_of_symbols(pair, symbols, usual) == expected


def test_a_tag_is_put_before_the_source() -> None:
    made = tokenizers(TAGS)
    assert begins(made, None, "fr") == begins(made, "en", "FRA") == ("<2fr> ab", "ab")
    assert begins(made, "en", "es") == begins(made, "en", "<2es>") == ("<2es> ab", "ab")
    assert begins(made, "en", "es", "<2de> ab") == ("<2de> ab", "<2de> ab")
    assert made.source.prepare("ab") == "ab"
    assert made.directed(None, "fr").source.encode("") == []


def test_codes_begin_both_sides() -> None:
    codes = {code: code for code in CODES}
    made = tokenizers(CODES, ModelLanguages(codes, codes, "target"), ("mul", "mul"))
    assert made.recipe.needs_direction and not made.directed("de", "fr").recipe.needs_direction
    assert begins(made, "de", "fr") == ("deu_Latn ab", "fra_Latn ab")
    assert begins(made, "fr", "zh-CN") == ("fra_Latn ab", "zho_Hans ab")
    assert ("deu_Latn", "deu_Latn") not in made.recipe.own_languages.directions
    assert len(made.recipe.own_languages.directions) == 6
    ids = made.directed("de", "fr").target.encode("fra_Latn ab")
    assert made.directed("de", "fr").target.decode(ids) == "a b".replace(" ", "")


def test_a_placeholder_at_the_start_does_not_replace_the_tag() -> None:
    made = tokenizers((*TAGS, *family(2)))
    assert begins(made, None, "de", "⟦1⟧ ab")[0] == "<2de> ⟦1⟧ ab"
    source = made.directed(None, "de").source
    assert source.decode(source.encode("<2de> ⟦1⟧ ab")) == "⟦1⟧ ab"


def test_a_model_of_many_sources_reads_any_language() -> None:
    made = tokenizers((), pair=("mul", "en"))
    assert made.directed("de", "en").recipe.source_lang == "de"


def test_a_model_of_one_pair_does_not_change() -> None:
    made = tokenizers((), pair=("en", "de"))
    for pair in ((None, None), ("en", "de"), ("EN-US", "deu")):
        directed = made.directed(*pair)
        assert directed.recipe.source_lang == "en" and directed.source == made.source
        assert directed.fingerprint == made.fingerprint


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("en", "deutsch", r"the model does not translate into deutsch: did you mean de\?"),
        ("en", "french", r"into french: did you mean fr\?"),
        ("en", "ja", r"into ja: it has de, fr, es\."),
        ("en", None, r"the model translates into de, fr, es\. Choose one of them\."),
        ("de", "fr", r"does not translate from de: it has en\."),
    ],
)
def test_an_unknown_language_is_refused_with_the_nearest(
    source: str | None, target: str | None, message: str
) -> None:
    recorded = ModelLanguages({"en": "<2de>"}, {"fr": "", "es": ""})
    made = tokenizers(TAGS, recorded if source == "de" else None)
    assert re.search(message, refusal(made.directed, source, target))


def test_the_record_is_stored_and_checked(tmp_path: Path) -> None:
    recorded = ModelLanguages({"en": "", "it": ""}, {"de": "<2de>", "fr": "<2fr>"})
    made = tokenizers(TAGS, recorded)
    made.save(tmp_path / "made")
    assert load_tokenizers(tmp_path / "made").recipe.own_languages == recorded
    file = tmp_path / "made" / DESCRIPTION
    described = json.loads(file.read_text())
    for languages, message in (
        ({"sources": {"en": ""}, "targets": {"de": "<2ja>"}}, "which is no symbol"),
        ({"sources": {}, "targets": {"de": "<2de>"}}, "no source"),
        ({"sources": {"en": "<2fr>"}, "targets": {"de": "<2de>"}}, "takes one"),
        ({"sources": {"en": ""}, "targets": {"de": 1}}, "damaged|must be"),
    ):
        file.write_text(json.dumps(described | {"languages": languages}))

        assert re.search(message, refusal(load_tokenizers, tmp_path / "made"))


def test_nothing_is_recorded_that_the_symbols_say() -> None:
    assert b"languages" not in tokenizers(TAGS).files[DESCRIPTION]


def test_recipes_with_languages_are_cached() -> None:
    """Worker processes keep their tools for a recipe, so it needs a hash."""
    languages = [ModelLanguages({"en": ""}, {"de": "<2de>", "fr": "<2fr>"}) for _ in range(2)]
    assert hash(languages[0]) == hash(languages[1])
    assert len({*languages, ModelLanguages({"en": ""}, {"de": ""})}) == 2
