"""Files of terms, and the terms in a text."""

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import UserError
from nmt_cli.text.glossary import Annotator, TermIndex, read_terms
from nmt_cli.text.placeholders import JOINED, TERM, TERM_END, masked, restored

ANNOTATION = re.compile(f"{TERM} (.*?) {TERM_END}")
WORDS = st.sampled_from(["a", "A b", "b", "c.", "(a", "a,", "x日a", "⟦<⟧", "aa", "b-a", "⟦2⟧", "⟦>⟧", "é"])
TEXTS = st.lists(WORDS, max_size=12).map(lambda words: masked(" ".join(words), {}).strip())


def annotator(**terms: list[str]) -> Annotator:
    return Annotator(terms, str, str)


def test_a_file_has_a_term_per_line(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("house\tHaus\t Hauses\n\nred\u2028wine\tRotwein\r\n", encoding="utf-8-sig", newline="")
    assert read_terms(path) == {"house": ["Haus", "Hauses"], "red\u2028wine": ["Rotwein"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"house\tHaus\nwine\n", "terms.tsv line 2 needs a source and a translation"),
        (b"\tHaus\n", "line 1 needs a source"),
        (b"house\t\n", "line 1 needs a source"),
        (b"a\tb\n\na\tc\n", "line 3 repeats the term 'a' of line 1. Put all its translations there."),
        (b"a\tb\nc\t\xff\n", "line 2 is not UTF-8"),
        (b"\n", "is empty: no .*terms.tsv line has"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_terms(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("terms", "text", "found"),
    [
        ("house", "The House is a lighthouse", "house"),
        ("house", "Houses, lighthouse", ""),
        ("house|boat house|boat", "A boat house and a boat.", "boat house|boat"),
        ("new york|york city", "New York City", "new york"),
        ("US|us", "The US told us", "US|us"),
        ("US", "They told us", ""),
        ("ДНК|днк", "ДНК", "ДНК"),
        ("ไทย", "ภาษาไทย", "ไทย"),
        ("iPhone", "an iphone, an iPhone", "iPhone"),
        ("Straße", "DIE STRAßE", "Straße"),
        ("élan", "Élan", "élan"),
        ("日本|日本語", "彼は日本語を話す", "日本語"),
        ("C++|.NET", "C++ and .NET", "C++|.NET"),
        ("a|b", "b a b", "b|a"),
    ],
)
def test_terms_match_whole_words_and_the_longest_first(terms: str, text: str, found: str) -> None:
    index = TermIndex((term, term) for term in terms.split("|"))
    assert index.found(text) == [term for term in found.split("|") if term]


def test_terms_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(UserError, match="'House' twice"):
        TermIndex([("house", 1), ("House", 2)])


@pytest.mark.parametrize(
    ("text", "annotated"),
    [
        ("The Suitcase, an old suitcase", "The <Koffer<Koffern> Suitcase, an old <Koffer<Koffern> suitcase"),
        ("(suitcase)", "( + <Koffer<Koffern> suitcase)"),
        ("suitcases", "suitcases"),
        ("suitcase", "<Koffer<Koffern> suitcase"),
        ("日本語", "<Japanisch> 日本 + <Sprache> 語"),
        ("⟦1⟧ 1", "⟦1⟧ <eins> 1"),
    ],
)
def test_the_translations_are_before_each_term(text: str, annotated: str) -> None:
    terms = annotator(suitcase=["Koffer", "Koffern"], 日本=["Japanisch"], 語=["Sprache"], **{"1": ["eins"]})
    spaced = annotated.replace("r<", "r <").replace("<", f"{TERM} ").replace(">", f" {TERM_END}")
    assert terms.annotated(text) == spaced.replace("+", JOINED)


@given(text=TEXTS)
def test_a_text_without_its_annotations_is_as_before(text: str) -> None:
    annotated = annotator(a=["x y", "z"], b=["⟦>⟧"], 日=["⟦<⟧ a"]).annotated(text)
    assert restored(annotated, {}) == restored(text, {})


def learnt(terms: Annotator, source: str, target: str, random: Random) -> tuple[str, str]:
    """Return a training pair with annotations of `terms`."""
    pair = (source, target)
    for change in terms.learnt(source, target, random):
        pair = change.of(pair)
    return pair


@given(source=TEXTS, target=TEXTS, seed=st.integers(0, 1000))
def test_training_annotates_words_of_the_target_only(source: str, target: str, seed: int) -> None:
    terms = annotator(a=["b", "c"], b=["x日a"], 日=["é"], x=["A b", "no"])
    annotated, exchanged = learnt(terms, source, target, Random(seed))
    assert restored(annotated, {}) == restored(source, {})
    for annotation in ANNOTATION.findall(annotated):
        forms = map(re.escape, annotation.split(f" {TERM} "))
        assert re.search(rf"(?<![^\W日])({'|'.join(forms)})(?![^\W日])", exchanged)
    if exchanged == target and TERM not in annotated:
        assert annotated == source
    assert learnt(terms, source, target, Random(seed)) == (annotated, exchanged)


def test_half_of_the_learnt_translations_are_exchanged() -> None:
    terms = annotator(dog=["Hund", "Hunde"], cat=["Katze"], cow=["Kuh"], eel=["Aal"], ant=["Ameise"])
    pairs = [learnt(terms, "The dogs, a dog and a cat.", "Hunde und Katze.", Random(n)) for n in range(200)]
    assert {source.count(TERM_END) for source, _ in pairs} == {1, 2}
    assert 80 < sum(target != "Hunde und Katze." for _, target in pairs) < 150
    assert (f"The dogs, a {TERM} Aal {TERM_END} dog and a cat.", "Aal und Katze.") in pairs
    same = f"The dogs, a {TERM} Hund {TERM} Hunde {TERM_END} dog and a cat.", "Hunde und Katze."
    assert same in pairs
    assert learnt(terms, "A dog.", "Ein Hundehaus.", Random(1)) == ("A dog.", "Ein Hundehaus.")
