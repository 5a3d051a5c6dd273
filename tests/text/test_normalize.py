"""Normalisation removes and replaces the right characters, and is idempotent."""

import itertools
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.text.config import TextConfig
from nmt_cli.text.normalize import Normalizer

FORMS: list[Literal["nfc", "nfkc", "none"]] = ["nfc", "nfkc", "none"]
ZERO_WIDTH: list[Literal["keep", "remove"]] = ["keep", "remove"]
SWITCHES = list(itertools.product((False, True), repeat=3))
CONFIGS = [
    TextConfig(unicode=form, zero_width=zero_width, quotes=quotes, punctuation=marks, lowercase=lower)
    for form in FORMS
    for zero_width in ZERO_WIDTH
    for quotes, marks, lower in SWITCHES
]
NORMALIZERS = {
    f"{c.unicode} zero_width={c.zero_width} quotes={c.quotes} punctuation={c.punctuation} "
    f"lowercase={c.lowercase} fold={fold}": Normalizer(c, fold_space_mark=fold)
    for c in CONFIGS
    for fold in (False, True)
}

CHARACTERS = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
CASELESS = [
    character
    for character in CHARACTERS
    if unicodedata.category(character) in ("Lo", "Cn", "Co") and unicodedata.is_normalized("NFKC", character)
]
"""Letters without case, such as Han, and unassigned characters: a million that no setting changes."""

CONCERNED = sorted(set(CHARACTERS).difference(CASELESS))

TRICKY = [*"«»“”‘’‚´`‐―…！＂＇｀ΣςİIſẞﬁÅ≠<>=▁\u00ad\u200b\ufeff\x00\x1c\x85\u2028\u3000", *"aAΑ '\"-.\n"]
COMBINING = [character for character in CONCERNED if unicodedata.combining(character)]
TEXTS = st.one_of(
    st.text(),
    st.text(st.sampled_from(TRICKY)),
    st.text(st.sampled_from(TRICKY) | st.sampled_from(COMBINING) | st.characters(categories=["L", "S"])),
)


def composing_pairs() -> list[str]:
    """Return pairs of a character and a combining mark that some setting may turn into one character."""
    marks = defaultdict(set)
    for decomposed in (unicodedata.decomposition(character).split() for character in CONCERNED):
        if len(decomposed) == 2 and not decomposed[0].startswith("<"):
            base, mark = (chr(int(code, 16)) for code in decomposed)
            marks[base].add(mark)
    everything = Normalizer(CONFIGS[15], fold_space_mark=True)
    pairs = []
    for character in CONCERNED:
        compatible = unicodedata.normalize("NFKC", character)
        forms = {character, character.lower(), compatible, compatible.lower(), everything(character)}
        combining = {mark for form in forms for mark in marks.get(form[-1:], ())}
        pairs += [character + mark for mark in sorted(combining)]
    return [*pairs, "\u1100\u1161", "\uac00\u11a8"]


PAIRS = composing_pairs()


def changed_by_a_second_time(normalizer: Normalizer, words: Iterable[str]) -> set[str]:
    once = normalizer("\n".join(words))
    return set(once.split(" ")) ^ set(normalizer(once).split(" "))


@pytest.mark.parametrize("name", [name for name in NORMALIZERS if "fold=True" in name])
def test_normalising_a_character_or_a_pair_twice_changes_nothing(name: str) -> None:
    normalizer = NORMALIZERS[name]
    assert changed_by_a_second_time(normalizer, CONCERNED) == set()
    assert changed_by_a_second_time(normalizer, PAIRS) == set()


def test_there_are_pairs_to_try() -> None:
    assert len(PAIRS) > 1000
    assert all(pair in PAIRS for pair in ["e\u0301", "E\u0301", "\uff1c\u0338", "\u212b\u0301"])


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[15]], ids=str)
def test_letters_without_case_and_unassigned_characters_do_not_change(config: TextConfig) -> None:
    once = Normalizer(config, fold_space_mark=True)("\n".join(CASELESS))
    assert len(CASELESS) > 1_000_000
    assert set(once.split(" ")) ^ set(CASELESS) == set()


@settings(max_examples=1000)
@given(name=st.sampled_from(list(NORMALIZERS)), text=TEXTS)
def test_any_normalised_text_stays_without_controls_and_with_single_spaces(name: str, text: str) -> None:
    once = NORMALIZERS[name](text)
    assert NORMALIZERS[name](once) == once == " ".join(once.split())
    assert not any(unicodedata.category(character) == "Cc" for character in once)


@pytest.mark.parametrize("config", CONFIGS[::8], ids=str)
def test_every_control_character_and_every_space_is_normalised(config: TextConfig) -> None:
    spaces = {character for character in CONCERNED if character.isspace()}
    controls = {character for character in CONCERNED if unicodedata.category(character) == "Cc"} - spaces
    normalizer = Normalizer(config, fold_space_mark=False)
    assert len(controls) > 50
    assert {normalizer(f"a{control}b") for control in controls} == {"ab"}
    assert {normalizer(f"{space}a{space} {space}b{space}") for space in spaces} == {"a b"}


@given(text=st.text())
def test_by_default_text_is_nfc_and_nothing_else_changes(text: str) -> None:
    visible_or_spaces = [c for c in text if c.isspace() or unicodedata.category(c) != "Cc"]
    expected = unicodedata.normalize("NFC", " ".join("".join(visible_or_spaces).split()))
    assert Normalizer(TextConfig(), fold_space_mark=False)(text) == expected


@pytest.mark.parametrize(
    ("config", "raw", "normalised"),
    [
        (TextConfig(), "e\u0301 ﬁ Ⅳ", "é ﬁ Ⅳ"),
        (TextConfig(), "a\x00b\x07c\x7fd\x9fe", "abcde"),
        (TextConfig(), "a\tb\r\x0b\x0c\x85\u2028c\u3000\u00a0d ", "a b c d"),
        (TextConfig(), "a\u200bb\ufeff „x“ – … İ", "a\u200bb\ufeff „x“ – … İ"),
        (TextConfig(), "\ufffd", "\ufffd"),
        (TextConfig(), " \t\x00", ""),
        (TextConfig(unicode="none"), "e\u0301 ﬁ", "e\u0301 ﬁ"),
        (TextConfig(unicode="nfkc"), "ﬁ Ⅳ ½ ＡＢ x² ™", "fi IV 1⁄2 AB x2 TM"),
        (TextConfig(unicode="nfkc"), "a´b", "a \u0301b"),
        (TextConfig(zero_width="remove"), "a\u200bb\u200d\u00ad\ufeff\u202ec\u2060", "abc"),
        (TextConfig(zero_width="remove"), "e\u200b\u0301", "é"),
        (
            TextConfig(quotes=True),
            '„Ja“ «oui» ‚so‘ l’eau ‹x› "q" `a´',
            "\"Ja\" \"oui\" 'so' l'eau 'x' \"q\" 'a'",
        ),
        (TextConfig(punctuation=True), "a – b — c… ‑ ！？（Ａ１）", "a - b - c... - !?(Ａ１)"),
        (TextConfig(punctuation=True), "\uff1c\u0338", "≮"),
        (TextConfig(punctuation=True, quotes=True), "\uff40x\uff02\uff07", "'x\"'"),
        (TextConfig(lowercase=True), "ÄÖÜ ẞ ΑΣ İ", "äöü ß ας i\u0307"),
        (TextConfig(lowercase=True, unicode="none"), "E\u0301", "e\u0301"),
    ],
)
def test_each_setting_has_its_effect(config: TextConfig, raw: str, normalised: str) -> None:
    assert Normalizer(config, fold_space_mark=False)(raw) == normalised


@pytest.mark.parametrize(("fold", "normalised"), [(True, "a b c"), (False, "▁a▁▁b ▁c")])
def test_u2581_is_a_space_only_for_sentencepiece(fold: bool, normalised: str) -> None:
    assert Normalizer(TextConfig(), fold_space_mark=fold)("▁a▁▁b ▁c") == normalised


@pytest.mark.slow
@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_a_long_line_of_combining_marks_is_fast_and_loses_none(form: Literal["nfc", "nfkc"]) -> None:
    marks = "\u0300\u0323" * 200_000
    normalizer = Normalizer(TextConfig(unicode=form), fold_space_mark=False)
    normalized = normalizer(f"q{marks}")
    assert sorted(normalized.replace("\u034f", "")) == sorted(f"q{marks}")
    assert normalizer(normalized) == normalized


def test_combining_marks_in_ordinary_lines_do_not_change() -> None:
    line = "Ta\u0323\u0300m " * 500
    normalizer = Normalizer(TextConfig(), fold_space_mark=False)
    assert normalizer(line) == unicodedata.normalize("NFC", line).strip()
