"""Tags of XML before and after a translation."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from nmt_cli.errors import UserError
from nmt_cli.text.formats import SUFFIXES, XML_FORMS, Format, blocks_of
from nmt_cli.text.tag_placement import Shares
from nmt_cli.text.well_formed import check_tags, tags_of
from nmt_cli.translation.document import cut

NAMES = st.sampled_from(["a", "_b", "Überschrift", "标题", "ስም", "x.c"])
LEAVES = st.sampled_from(
    [
        "One dog.",
        " ",
        "a &lt; b &amp;",
        "&#xe9;",
        "&own;",
        "<!-- <no> -->",
        "<?if a > b?>",
        "<x/>",
        "<y z='>'/>",
        "<![CDATA[c <b>d</b> &]]>",
        "\r\n",
        "]",
    ]
)
ELEMENTS = st.recursive(
    LEAVES,
    lambda parts: st.builds(
        lambda name, inside: f'<{name} a="1">{"".join(inside)}</{name}>', NAMES, st.lists(parts)
    ),
)
TRANSLATIONS = st.sampled_from(["", "eins", "]]>", "<b>", "</a>", "&amp; &", "-->", "\\1", "\x0b\x00", "ü"])


def test_tags_are_counted_with_their_attributes() -> None:
    document = "<?xml version='1.0' encoding='klingon'?><a b='1' c='2'><!-- d --><x/><x/><?e f?></a>"
    tags = {("<", "a", "b", "1", "c", "2"): 1, ("<!--", " d "): 1, ("<", "x"): 2, ("<?", "e", "f"): 1}
    assert tags_of(document) == Counter(tags)


@pytest.mark.parametrize("name", ["_p", "Überschrift", "标题", "ስም", "\U00020000", "x:c"])
def test_names_may_have_all_letters_of_xml(name: str) -> None:
    assert sum(tags_of(f"<{name}><{name}/></{name}>").values()) == 2
    assert len(tags_of(f"<r {name}='1' b='2'><{name}/><{name}{name[-1]}/></r>")) == 3
    with pytest.raises(UserError, match=f"line 2, column 5: mismatched tag inside <{name}>"):
        tags_of(f"<a><{name}>\n12</a>")


def test_attributes_of_xml_may_have_all_letters() -> None:
    assert tags_of("<r ስም='1' ቁጥ='2' 标='3'/>").total() == 1


def test_entities_are_neither_expanded_nor_loaded(tmp_path: Path) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 20))
    (tmp_path / "other.xml").write_text("<not well-formed")
    other = f'<!ENTITY other SYSTEM "{(tmp_path / "other.xml").as_uri()}"> %other; <!ENTITY l0 "<x/>">'
    for head in ("", "<?xml version='1.0' standalone='yes'?>", "<!-- ]> -->"):
        document = f"{head}<!DOCTYPE a SYSTEM 'no.dtd' [{other}{laughs}]><a b='&l19;'>&l19;&other;&none;</a>"
        assert tags_of(document)[("<", "a", "b", "")] == 1
    with pytest.raises(UserError, match="syntax error"):
        tags_of(f"<!DOCTYPE a []><!DOCTYPE a [{laughs}]><a/>")


@pytest.mark.parametrize(
    ("source", "result", "message"),
    [
        ("<r><_p>a</_p></r>", "<r>&lt;_p>a&lt;/_p></r>", "<_p is 1 times in the document, 0 times after"),
        ("<r>a</r>", "<r>a<b/></r>", "<b is 0 times"),
        ("<r><b c='1'/></r>", "<r><b c='2'/></r>", "<b is 1 times"),
        ("<r>a</r>", "<r>a & b</r>", "the translation is damaged: line 1, column 7: not well-formed"),
        ("a <x/> <x/>", "a <x/>", "<x is 2 times in the document, 1 times after"),
    ],
)
def test_a_translation_with_other_tags_is_our_fault(source: str, result: str, message: str) -> None:
    check_tags(source, source)
    with pytest.raises(RuntimeError, match=message):
        check_tags(source, result)


def test_a_document_that_lost_a_tag_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.translation.document.placed", lambda *_: "eins zwei")
    document = cut(blocks_of("<p>One <b>two</b></p>", "xml"), lambda text: ([text], [""]), is_xml=True)
    with pytest.raises(RuntimeError, match="<b is 1 times in the document, 0 times after"):
        document.translated([("eins zwei", [])], lambda texts, spaces: "".join(texts))


@pytest.mark.parametrize("ending", [".xml", ".xhtml", ".xliff", ".xlf"])
def test_files_of_xml_must_be_well_formed(ending: str) -> None:
    assert SUFFIXES[ending] in XML_FORMS
    with pytest.raises(UserError, match="the file ends inside <source>"):
        blocks_of("<source>One", SUFFIXES[ending])


def test_a_damaged_fragment_is_not_compared() -> None:
    check_tags("R&D <x>", "R&amp;D")


@given(st.lists(ELEMENTS).map(lambda parts: f"<r>{''.join(parts)}</r>"), TRANSLATIONS)
def test_a_translation_of_xml_is_xml_with_the_same_tags(document: str, translation: str) -> None:
    xliff = document.replace("<r>", "<trans-unit><source>").replace("</r>", "</source></trans-unit>")
    cases: list[tuple[str, Format]] = [(document, "xml"), (xliff, "xliff")]
    for text, form in cases:
        parts = cut(blocks_of(text, form), lambda text: ([text], [""]), is_xml=True)
        texts: list[tuple[str, Shares]] = [(translation, []) for _ in parts.sentences]
        result = parts.translated(texts, lambda texts, spaces: "".join(texts))
        etree.fromstring(result.replace("&own;", ""))
