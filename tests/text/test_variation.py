"""Variations of training pairs."""

import re
import unicodedata
from collections.abc import Collection
from dataclasses import fields
from random import Random

import pytest

from nmt_cli.text.config import AugmentConfig
from nmt_cli.text.languages.moses import Moses
from nmt_cli.text.linked_words import Link, Pair
from nmt_cli.text.placeholders import JOINED, apart, family, masked_pair
from nmt_cli.text.variation import VARIATIONS, Variation, changes, varied

SYMBOLS = ("<2de>", *family(4))
MASKS = apart(SYMBOLS)[0]
PAIR = ("The old man's house of {{name}}.", "Das Haus des alten Mannes {{name}}.")


def test_each_variation_has_a_share() -> None:
    names = tuple(field.name for field in fields(AugmentConfig))
    assert names == (*VARIATIONS, "terms", "terms_file")
    assert len(AugmentConfig().shares) == len(names) - 1


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [
        ("upper", "THE OLD MAN'S HOUSE OF {{name}}.", "DAS HAUS DES ALTEN MANNES {{name}}."),
        ("title", "The Old Man's House Of {{name}}.", "Das Haus Des Alten Mannes {{name}}."),
        ("unended", "The old man's house of {{name}}", "Das Haus des alten Mannes {{name}}"),
    ],
)
def test_a_pair_is_changed_and_its_placeholders_are_not(kind: Variation, source: str, target: str) -> None:
    assert varied(kind, PAIR, Random(1)) == (source, target)


@pytest.mark.parametrize("kind", VARIATIONS)
def test_symbols_stay(kind: Variation) -> None:
    pair = (f"<2de> the house ⟦1⟧ {JOINED} .", f"das Haus ⟦1⟧ {JOINED} .")
    for seed in range(20):
        source, target = varied(kind, pair, Random(seed), frozenset(SYMBOLS), MASKS)
        assert source.split()[0] == "<2de>"
        for text in (source, target):
            assert text.split().count("⟦1⟧") == 1
            assert text == " ".join(text.split())


def test_a_pair_with_final_punctuation_on_one_side_does_not_change() -> None:
    assert varied("unended", ("a b.", "c d"), Random(1)) == ("a b.", "c d")
    assert varied("unended", (".", "."), Random(1)) == (".", ".")
    assert varied("unended", (f"a ⟦1⟧ {JOINED} .", "b!"), Random(1)) == ("a ⟦1⟧", "b")


def test_typos_are_small_and_only_in_the_source() -> None:
    changed = 0
    for seed in range(100):
        source, target = varied("typos", PAIR, Random(seed))
        assert target == PAIR[1]
        assert "{{name}}" in source
        assert abs(len(source) - len(PAIR[0])) <= 2
        words = zip(source.split(), PAIR[0].split(), strict=True)
        assert sum(ours != theirs for ours, theirs in words) <= 2
        changed += source != PAIR[0]
    assert changed > 80  # a random letter may be the same letter


@pytest.mark.parametrize("kind", ["upper", "title", "typos"])
def test_escapes_stay_characters(kind: Variation) -> None:
    moses = Moses("en", escape=True)
    for seed in range(20):
        varied_words = varied(kind, (moses.tokenize('It\'s "A & B" [so] <it>'), ""), Random(seed))[0]
        assert moses.tokenize(moses.detokenize(varied_words)) == varied_words
    assert varied("upper", ("don &apos;t", ""), Random(1))[0] == moses.tokenize("DON'T")


def test_texts_without_words_are_accepted() -> None:
    for kind in VARIATIONS:
        for text in ("", "a", "12 .", "字"):
            for given in ((), MASKS):
                source, target = varied(kind, (text, text), Random(1), frozenset(given), given)
                assert "  " not in source + target


def test_a_placeholder_is_inserted_on_both_sides_as_in_masked_text() -> None:
    raw = masked = 0
    for seed in range(200):
        source, target = masked_pair(*varied("placeholders", ("a b c.", "d e f."), Random(seed)), MASKS)
        shared = {*source.split()} & {*target.split()} & {*MASKS}
        raw += 1 <= len(shared) <= 3
        again = varied("placeholders", ("a b c.", "d e f."), Random(seed), frozenset(SYMBOLS), MASKS)
        sides = [sorted({*text.split()} & {*MASKS}) for text in again]
        masked += sides[0] == sides[1] and 1 <= len(sides[0]) <= 3
    assert (raw, masked) == (200, 200)


def test_noise_is_put_before_linked_words_of_both_texts_or_at_their_ends() -> None:
    source, target = "<2de> I see the old house.", "Das alte Haus sehe ich."
    links = {(4, 3), (6, 1), (7, 2), (8, 5)}  # "<2de>" is three units
    translations = {"see": "sehe", "old": "alte", "house.": "Haus", "": ""}
    found = set()
    for seed in range(200):
        changed = varied_with(links, (source, target), seed)
        one, other = (text.split() for text in changed)
        (noise,) = {*one} - {*source.split()}
        assert noise in other and " ".join(word for word in other if word != noise) == target
        assert all(unicodedata.normalize("NFKC", noise) == noise and c.isprintable() for c in noise)
        following = ((words[words.index(noise) + 1 :] or [""])[0] for words in (one, other))
        found.add(tuple(following))
    assert found == {*translations.items()}


def test_noise_without_links_is_at_about_the_same_position_after_symbols() -> None:
    pair = ("<2de> " + "a " * 20, "b " * 10)
    for seed in range(100):
        texts = varied("noise", (pair[0].strip(), pair[1].strip()), Random(seed), frozenset(SYMBOLS))
        (noise,) = {*texts[0].split()} - {"<2de>", "a"}
        places = [text.split().index(noise) / len(text.split()) for text in texts]
        assert texts[0].startswith("<2de> ") and abs(places[0] - places[1]) < 0.2


def test_noise_is_put_between_words_without_spaces_and_never_after_a_join() -> None:
    # The join itself is the units 1 to 3.
    links = {(0, 0), (1, 1), (2, 4), (3, 5), (4, 6)}
    texts = [varied_with(links, ("我看房子。", f"⟦1⟧ {JOINED} x y."), seed)[0] for seed in range(100)]
    assert {re.split(r" ?[^我看房子。 ]+ ?", text)[0] for text in texts} == {"", "我看房", "我看房子。"}


def varied_with(links: Collection[Link], pair: Pair, seed: int) -> Pair:
    (change,) = changes("noise", pair, Random(seed), frozenset(SYMBOLS), MASKS, links)
    return change.of(pair)
