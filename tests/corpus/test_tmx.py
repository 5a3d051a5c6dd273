"""Translation memories give the same pairs as other parsers, and hostile ones are refused."""

import gzip
import tracemalloc
from pathlib import Path
from xml.dom import minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus import tmx
from nmt_cli.corpus.parallel import find
from nmt_cli.errors import UserError
from tests.checks import refusal

WORDS = st.text(st.sampled_from("ab <&>\"'\n\tü漢😀]"), max_size=8)
LANGUAGES = st.sampled_from(["en", "EN-us", "de", "de-DE", "deu", "fr"])
UNITS = st.lists(st.lists(st.tuples(LANGUAGES, WORDS, WORDS, WORDS), max_size=4), max_size=6)


def memory(units: list[list[tuple[str, str, str, str]]]) -> minidom.Document:
    """Return a document of units. A unit is a list of language, text, text inside a code, and more text."""
    document = minidom.Document()
    body = document.appendChild(document.createElement("tmx")).appendChild(document.createElement("body"))
    for unit in units:
        tu = body.appendChild(document.createElement("tu"))
        for language, before, code, after in unit:
            tuv = tu.appendChild(document.createElement("tuv"))
            tuv.setAttribute("xml:lang", language)
            seg = tuv.appendChild(document.createElement("seg"))
            seg.appendChild(document.createTextNode(before))
            seg.appendChild(document.createElement("bpt")).appendChild(document.createTextNode(code))
            seg.appendChild(document.createElement("hi")).appendChild(document.createTextNode(after))
    return document


def folded(text: str) -> bytes:
    return b" ".join(text.encode().split())


def expected(units: list[list[tuple[str, str, str, str]]]) -> list[tuple[bytes, bytes]]:
    result = []
    for unit in units:
        sides = [
            [folded(before + after) for language, before, _, after in unit if language.lower()[:2] == lang]
            for lang in ("en", "de")
        ]
        if sides[0] and sides[1]:
            result.append((sides[0][0], sides[1][0]))
    return result


@given(UNITS, st.sampled_from(["utf-8", "utf-16"]), st.integers(1, 40))
def test_pairs_of_a_memory_are_read(
    tmp_path_factory: pytest.TempPathFactory,
    units: list[list[tuple[str, str, str, str]]],
    encoding: str,
    block: int,
) -> None:
    path = tmp_path_factory.mktemp("tmx") / "memory.tmx"
    path.write_bytes(memory(units).toxml(encoding=encoding))
    expected_pairs = expected(units)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tmx, "BLOCK_BYTES", block)
        if expected_pairs:
            assert list(tmx.pairs(path, "en", "de")) == expected_pairs
        else:
            with pytest.raises(UserError, match="no unit in both en and de"):
                list(tmx.pairs(path, "en", "de"))


def test_a_memory_is_found_by_its_ending_and_counted(tmp_path: Path) -> None:
    content = memory([[("en", "one", "<b>", ""), ("de", "eins", "", "")], [("en", "two", "", "")]])
    (tmp_path / "old.tmx.gz").write_bytes(gzip.compress(content.toxml(encoding="utf-8")))
    corpus = find(str(tmp_path / "old.tmx.gz"), "en", "de-DE")
    assert (corpus.name, corpus.count()) == ("old", 1)
    assert [(block.sources, block.targets) for block in corpus.blocks(10)] == [([b"one"], [b"eins"])]


def test_a_standard_doctype_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.1"><header/><body><tu><tuv lang="EN"><seg>a&#x41;'
        '<![CDATA[<]]></seg></tuv><tuv lang="DE"><seg/></tuv></tu></body></tmx>'
    )
    assert list(tmx.pairs(path, "en", "de")) == [(b"aA<", b"")]


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 9))
UNIT = "<tmx><body><tu><tuv lang='en'><seg>{}</seg></tuv></tu></body></tmx>"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{LAUGHS}]>\n' + UNIT.format("&l8;"), "defines entities"),
        ('<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + UNIT.format("&x;"), "defines entities"),
        ('<!DOCTYPE t [<!ENTITY % x SYSTEM "http://x.invalid/x">%x;]>' + UNIT.format(""), "defines entities"),
        ('<!DOCTYPE tmx SYSTEM "x.dtd">' + UNIT.format("&x;"), "&x; is not defined"),
        (UNIT.format("&nbsp;"), "undefined entity"),
        (UNIT.format("a" * 1_000_001), "more than 1,000,000 characters"),
        ("<tmx>" + "<a>" * 101, "nested more than 100 deep"),
        ("<tmx><!--" + "a" * (1 << 25), "a tag is longer than"),
        ("<html></html>", "begins with <html>"),
        (UNIT.format("one")[:40], "unclosed token"),
        ("<?xml version='1.0' encoding='klingon'?>" + UNIT.format(""), "encoding"),
        ("\n\n" + UNIT.format("<b>"), "line 3: mismatched tag"),
        ("", "no element found"),
    ],
)
def test_a_hostile_or_damaged_memory_is_an_error_of_one_line(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "memory.tmx"
    path.write_text(content)
    message = refusal(lambda: list(tmx.pairs(path, "en", "de")))
    assert message.startswith(f"{path} line ")
    assert why in message


def test_an_error_about_a_missing_language_lists_the_languages(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_bytes(memory([[("en", "a", "", ""), ("de-AT", "b", "", "")]]).toxml(encoding="utf-8"))
    with pytest.raises(UserError, match=r"languages in it: de-AT, en\)"):
        list(tmx.pairs(path, "en", "de-DE"))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    unit = memory([[("en", "word " * 100, "", ""), ("de", "Wort " * 100, "", "")]]).toxml(encoding="utf-8")
    inner = unit[unit.index(b"<tu>") : unit.index(b"</body>")]
    path.write_bytes(b"<tmx><body>" + inner * 2000 + b"</body></tmx>")
    tracemalloc.start()
    assert sum(1 for _ in tmx.pairs(path, "en", "de")) == 2000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000 < path.stat().st_size
