"""Tokenisation in the style of Moses changes only whitespace, and detokenisation restores ordinary text."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nmt_cli.text.config import TextConfig
from nmt_cli.text.languages.moses import Moses
from nmt_cli.text.normalize import Normalizer

MOSES = {lang: Moses(lang) for lang in ("en", "de", "fr", "zh", "tlh")}

SNIPPETS = [
    *("DOT", "MULTI", "DOTMULTI", "DOTDOTMULTI", ".", "..", "...", "THISISPROTECTED000", "Mr.", "No. 5"),
    *("&amp;", "&apos;", "&quot;", "&#124;", "&", ";", "@-@", "@", "-", "don't", "l'eau", "'s", "'", '"'),
    *("1,000.5", ",", "U.S.", "</s>", "<unk>", "|", "[", "]", "$5", "¿", "\u2581", "\u0301", "_", "/", " "),
    *("word", "Ä", "了", "한국", "क्", "\u200b", "\u00ad", "$1", "\\1", "%", "EU:n"),
]
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(SNIPPETS)).map("".join)).map(
    Normalizer(TextConfig(), fold_space_mark=False)
)


def without_spaces(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("lang", ["de-AT", "deu", "deu_Latn"])
def test_a_region_or_a_third_letter_does_not_change_the_words(lang: str) -> None:
    assert Moses(lang).tokenize("Er kam ca. 5 Uhr.") == Moses("de").tokenize("Er kam ca. 5 Uhr.")
    assert Moses(lang).tokenize("Er kam ca. 5 Uhr.") != Moses("en").tokenize("Er kam ca. 5 Uhr.")


@pytest.mark.slow
@settings(max_examples=300)
@given(lang=st.sampled_from(list(MOSES)), text=TEXTS)
@example(lang="en", text="xDOTMULTIx DOTMULTI... a @-@ b &amp; &lt; &#124; ..DOTMULTI..")
def test_tokenising_and_detokenising_change_only_whitespace(lang: str, text: str) -> None:
    words = MOSES[lang].tokenize(text)
    assert without_spaces(words) == without_spaces(text)
    assert words == " ".join(words.split())
    assert without_spaces(MOSES[lang].detokenize(words)) == without_spaces(text)


@pytest.mark.parametrize(
    ("lang", "text", "words"),
    [
        ("en", "Hello, world!", "Hello , world !"),
        ("en", "It's Mr. Smith's dog.", "It 's Mr. Smith 's dog ."),
        ("en", "Wait... (really?)", "Wait ... ( really ? )"),
        ("en", "1,000.5 apples", "1,000.5 apples"),
        ("en", "Tom & Jerry &amp; co", "Tom & Jerry & amp ; co"),
        ("de", "Er sagte: „Ja“.", "Er sagte : „ Ja “ ."),
        ("fr", "l'eau d'ici", "l' eau d' ici"),
        ("en", "DOTMULTI and DOTDOTMULTI", "DOTMULTI and DOTDOTMULTI"),
        ("en", "", ""),
    ],
)
def test_punctuation_is_split_off_and_nothing_is_escaped(lang: str, text: str, words: str) -> None:
    assert MOSES[lang].tokenize(text) == words


def test_entities_in_translations_do_not_change() -> None:
    assert MOSES["en"].detokenize("salt &amp; pepper &quot;") == "salt &amp; pepper &quot;"


@pytest.mark.parametrize(
    ("lang", "text"),
    [
        ("en", "Hello, world! It's Mr. Smith's dog (a big one)."),
        ("de", "Ein Mann, der 5.000 Euro hat, geht nach Hause."),
        ("fr", "L'eau n'est pas là, d'accord."),
    ],
)
def test_ordinary_sentences_come_back_exactly(lang: str, text: str) -> None:
    assert MOSES[lang].detokenize(MOSES[lang].tokenize(text)) == text


@pytest.mark.skipif("NMT_DATA" not in os.environ, reason="NMT_DATA names no folder of corpora")
@pytest.mark.parametrize("lang", ["en", "de", "fr"])
def test_nearly_all_lines_of_multi30k_come_back_exactly(lang: str) -> None:
    path = Path(os.environ["NMT_DATA"]) / "multi30k" / f"test_2016_flickr.{lang}"
    clean = Normalizer(TextConfig(), fold_space_mark=False)
    lines = [clean(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    same = sum(MOSES[lang].detokenize(MOSES[lang].tokenize(line)) == line for line in lines)
    print(f"{path.name}: {same / len(lines):.1%} of {len(lines):,} lines come back exactly")
    assert same / len(lines) > 0.9
