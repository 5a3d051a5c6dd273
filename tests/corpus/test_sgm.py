"""WMT test sets as sgm and as xml."""

import gzip
from pathlib import Path

import pytest

from nmt_cli.corpus.sgm import Segment, Side, holds_test_set, pairs, segments
from nmt_cli.errors import UserError

XML = b"""<?xml version='1.0' encoding='utf-8'?>
<dataset id="newstest2021">
<doc origlang="en" id="a"><src lang="en"><p><seg id="1">one</seg></p><p><seg id="2">two</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">eins</seg><seg id="2">zwei</seg></p></ref>
<ref lang="de" translator="B"><p><seg id="1">EINS</seg><seg id="2">ZWEI</seg></p></ref></doc>
<doc id="b" origlang="de"><src lang="en"><seg id="1">three</seg></src>
<ref lang="de" translator="A"><seg id="1">drei</seg></ref></doc>
</dataset>"""


def read(folder: Path, content: bytes | str, side: Side = "source", lang: str = "") -> list[Segment]:
    path = folder / "set.sgm"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return segments(path, side, lang)


def texts(folder: Path, content: bytes | str, side: Side = "source", lang: str = "") -> list[str]:
    return [segment.text.decode() for segment in read(folder, content, side, lang)]


def in_a_document(inner: str) -> str:
    return f'<srcset setid="s"><doc docid="d"><seg id="1">{inner}</seg></doc></srcset>'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<dataset id='a'><doc><src><seg/></src></doc></dataset>", True),
        (
            "\ufeff<?xml version='1.0'?>\n<!-- <book> -->\n<!DOCTYPE mteval>\n<mteval><srcset><seg id='1'>",
            True,
        ),
        ("<REFSET a='b'><DOC><SEG>a</SEG></DOC></REFSET>", True),
        ("<tstset><doc>\n<seg\nid='1'>", True),
        ("<doc docid='1'><seg id='1'>a</seg></doc>", True),
        ("<manual><title>a</title><segment>b</segment></manual>", False),
        ("<TEI><p><seg>a</seg></p></TEI>", False),
        ("<book><!-- <dataset> --><para><dataset><seg>a</seg></dataset></para></book>", False),
        ("<dataset><segment>a</segment></dataset>", False),
        ("<datasets><seg>a</seg></datasets>", False),
        ("", False),
        ("<!--" * 100_000, False),
        ("<dataset>" + "<seg" * 100_000, False),
    ],
)
def test_the_root_element_decides_about_a_test_set(content: str, expected: bool) -> None:
    assert holds_test_set(content.encode()) is expected


def test_segments_are_in_file_order_with_document_and_number(tmp_path: Path) -> None:
    content = b"""<!DOCTYPE mteval><srcset setid="t" srclang="any">
<doc sysid="ref" docid="News/1" genre="news" origlang="cs">
<hl>
<seg id="1">Headline</seg>
</hl>
<p>
<seg id="2"> Text. </seg>
</p>
</doc>
<doc docid="news/2"><seg id="1">More.</seg></doc></srcset>"""
    assert read(tmp_path, content) == [
        Segment(b"News/1", b"1", b"Headline"),
        Segment(b"News/1", b"2", b"Text."),
        Segment(b"news/2", b"1", b"More."),
    ]


@pytest.mark.parametrize(
    ("attributes", "document"),
    [
        (b'DOCID="d" SYSID="s"', b"d"),
        (b"sysid='s' docid='d'", b"d"),
        (b"docid = d", b"d"),
        (b'genre="x"\n docid="d"', b"d"),
        (b'id="d"', b"d"),
        (b'docid="BBC/News 12-A"', b"BBC/News 12-A"),
        (b'docid="l\'Humanit\xc3\xa9 3"', "l'Humanité 3".encode()),
        (b'docid="AT&amp;T\n 4"', b"AT&T 4"),
        (b'docid=""', b""),
        (b"docid=BBC/News genre='x'", b"BBC/News"),
    ],
)
def test_the_name_of_a_document_is_read_from_attributes_of_any_form(
    tmp_path: Path, attributes: bytes, document: bytes
) -> None:
    segment = b"<Seg type='x' ID = 1>text</Seg >"
    for doc in (b"doc", b"DOC"):
        content = b"<%b %b>%b</%b>" % (doc, attributes, segment, doc)
        assert read(tmp_path, content) == [Segment(document, b"1", b"text")]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Tom &amp; Jerry", "Tom & Jerry"),
        ("&lt;b&gt; &quot;q&quot; &apos;a&apos;", "<b> \"q\" 'a'"),
        ("&amp;lt;", "&lt;"),
        ("&amp;amp;", "&amp;"),
        ("&#8222;Ja&#x201C;", "„Ja“"),
        ("&#X1F600;", "\U0001f600"),
        ("AT&T &nbsp; &", "AT&T &nbsp; &"),
        ("&#0; &#xD800; &#9999999;", "&#0; &#xD800; &#9999999;"),
        ("  broken\n   over lines\t", "broken over lines"),
        ("schöne Grüße\u2028x", "schöne Grüße\u2028x"),
        ("", ""),
    ],
)
def test_a_segment_is_read_with_its_entities_and_on_one_line(
    tmp_path: Path, written: str, expected: str
) -> None:
    assert texts(tmp_path, in_a_document(written)) == [expected]


@pytest.mark.parametrize(("side", "expected"), [("source", "one two three"), ("target", "eins zwei drei")])
def test_an_xml_contains_both_sides_and_the_first_reference_counts(
    tmp_path: Path, side: Side, expected: str
) -> None:
    result = read(tmp_path, XML, side)
    assert [s.text.decode() for s in result] == expected.split()
    assert [(s.document, s.number) for s in result] == [(b"a", b"1"), (b"a", b"2"), (b"b", b"1")]


def test_a_compressed_test_set_is_read(tmp_path: Path) -> None:
    assert texts(tmp_path, gzip.compress(in_a_document("text").encode())) == ["text"]


@pytest.mark.parametrize("content", [b"", b"plain text\n", b'<doc docid="d"></doc>', b'<seg id="1">a</seg>'])
def test_a_file_without_segments_is_an_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"set\.sgm holds no <doc> with <seg>"):
        read(tmp_path, content)


def test_an_entity_bomb_is_not_expanded(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
    assert texts(tmp_path, bomb + in_a_document("&b; &c;")) == ["&b; &c;"]


def test_only_references_in_the_requested_language_are_read(tmp_path: Path) -> None:
    content = XML.replace(b'<ref lang="de" translator="A">', b'<ref lang="fr" translator="A">', 1)
    assert texts(tmp_path, content, "target", "de") == ["EINS", "ZWEI", "drei"]
    with pytest.raises(UserError, match=r"no <doc> with <seg> of the target side in it \(cs\)"):
        read(tmp_path, content, "target", "cs")


@pytest.mark.parametrize(
    ("lang", "found"), [("zh-CN", "bd"), ("zh", "bcd"), ("ZH_cn", "bd"), ("zh-TW", "cd"), ("de", "a")]
)
def test_regions_matter_only_if_both_languages_have_one(tmp_path: Path, lang: str, found: str) -> None:
    labels = {"a": "de", "b": "zh-CN", "c": "zh-TW", "d": "zh"}
    ref = '<doc><ref lang="{}"><seg id="1">{}</seg></ref></doc>'
    content = "".join(ref.format(label, text) for text, label in labels.items())
    assert texts(tmp_path, content, "target", lang) == [*found]


@pytest.mark.parametrize("cut", [0.3, 0.5, 0.7, 0.9])
def test_a_truncated_test_set_is_an_error(tmp_path: Path, cut: float) -> None:
    with pytest.raises(UserError, match="is cut off"):
        read(tmp_path, XML[: int(cut * len(XML))])


def test_a_segment_without_text_is_an_empty_line(tmp_path: Path) -> None:
    content = '<doc docid="d"><seg id="1"/><seg id="2">two</seg><seg id="3"></seg></doc>'
    assert texts(tmp_path, content) == ["", "two", ""]


@pytest.mark.parametrize("other", ["", "<hyp system='S'><seg id='1'>Hallo</seg></hyp>"])
def test_the_source_of_an_xml_is_never_read_as_its_reference(tmp_path: Path, other: str) -> None:
    content = f'<doc id="d"><src lang="en"><seg id="1">Hello</seg></src>{other}</doc>'
    assert texts(tmp_path, content, lang="en") == ["Hello"]
    with pytest.raises(UserError, match="of the target side"):
        read(tmp_path, content, "target", "de")


@pytest.mark.parametrize(
    "hostile",
    [
        b"<doc" * 300_000,
        b"<seg" * 300_000,
        b"<doc>" * 200_000,
        b"<doc><seg>" + b"<seg " * 300_000,
        b"<doc><src>" * 100_000,
        b"</doc" + b" " * 1_000_000,
        b"<doc id" + b" id " * 300_000 + b">",
    ],
    ids=["doc", "seg", "documents", "seg in seg", "sides", "blanks", "attributes"],
)
def test_a_hostile_file_of_a_megabyte_is_refused_quickly(tmp_path: Path, hostile: bytes) -> None:
    with pytest.raises(UserError):
        read(tmp_path, hostile)


def test_a_document_without_the_requested_side_gives_nothing_if_others_have_labels(tmp_path: Path) -> None:
    content = XML.replace(b'<src lang="en"><seg id="1">three</seg></src>', b'<seg id="9">stray</seg>')
    assert texts(tmp_path, content) == ["one", "two"]


def test_segments_that_do_not_match_are_named_even_if_their_document_is_not_utf8(tmp_path: Path) -> None:
    for name, document in (("a", b"\xff"), ("b", b"d")):
        (tmp_path / f"{name}.sgm").write_bytes(b'<doc docid="%b"><seg id="1">x</seg></doc>' % document)
    with pytest.raises(UserError, match=r"segment 1 is doc \ufffd seg 1, but .* has doc d seg 1 there"):
        pairs(tmp_path / "a.sgm", tmp_path / "b.sgm", ("en", "de"), "a.sgm")
