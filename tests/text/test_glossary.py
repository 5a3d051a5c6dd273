"""Files of terms, and the terms in a text."""

from pathlib import Path

import pytest

from nmt_cli.errors import UserError
from nmt_cli.text.glossary import TermIndex, read_terms


def test_a_file_has_a_term_per_line(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("house\tHaus\t Hauses\n\nred wine\tRotwein\r\n", encoding="utf-8-sig")
    assert read_terms(path) == {"house": ["Haus", "Hauses"], "red wine": ["Rotwein"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"house\tHaus\nwine\n", "terms.tsv line 2 needs a source and a translation"),
        (b"\tHaus\n", "line 1 needs a source"),
        (b"house\t\n", "line 1 needs a source"),
        (b"a\tb\n\na\tc\n", "line 3 repeats 'a'"),
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
