"""Files in formats with text to translate."""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import UserError
from nmt_cli.text.formats import Format, blocks_of
from nmt_cli.text.tag_placement import Shares
from nmt_cli.translation.document import cut

PO = """# a comment
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

#: main.c:1
msgctxt "menu"
msgid "Open \\"it\\"\\n"
msgstr ""

msgid ""
"two "
"lines"
msgstr ""

msgid "done"
msgstr "fertig"

msgid "done too"
msgstr ""
"fertig"

msgid "%d <b>file</b> &"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "old"
#~ msgstr ""
"""

SRT = """1\r
00:00:01,000 --> 00:00:02,000\r
one two\r
three <i>four</i> five\r
\r
2\r
00:00:03,000 --> 00:00:04,000\r
- six\r
- seven\r
"""

VTT = """WEBVTT

NOTE not this

intro
00:01.000 --> 00:02.000 align:start
<v Ann>one &amp; two</v>
"""

XLIFF = """<xliff version="1.2"><file source-language="en"><body>
<trans-unit id="1"><source>one <g id="1">two</g></source></trans-unit>
<trans-unit id="2"><source>one</source><target>eins</target></trans-unit>
<trans-unit id="3"><source>two</source>
  <target state="new"/></trans-unit>
<trans-unit id="4"><source>three</source><target></target></trans-unit>
<trans-unit id="5"><source>–</source></trans-unit>
</body></file></xliff>
"""


def upper(text: str, form: Format) -> str:
    """The translation into capital letters."""
    document = cut(blocks_of(text, form), lambda text: ([text], [""]))
    texts: list[tuple[str, Shares]] = [(sentence.upper(), []) for sentence in document.sentences]
    return document.translated(texts, lambda texts, spaces: "".join(texts))


def test_po_gets_the_missing_translations() -> None:
    result = upper(PO, "po")
    assert 'msgid "Open \\"it\\"\\n"\nmsgstr "OPEN \\"IT\\"\\n"\n' in result
    assert '"lines"\nmsgstr "TWO LINES"\n' in result
    assert 'msgstr "fertig"\n\nmsgid "done too"\nmsgstr ""\n"fertig"\n' in result
    assert 'msgstr[1] "%D FILES"\n\n#~ msgid "old"\n#~ msgstr ""\n' in result
    assert "FILE" in result and "<b>" in result.split("msgstr[0]")[1] and "&amp;" not in result
    assert result.startswith(PO[: PO.index("#: main.c")])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Save & exit <Ctrl+S>", "SAVE & EXIT <CTRL+S>"),
        ("Press <Enter> to continue with R&D", "PRESS <ENTER> TO CONTINUE WITH R&D"),
        ("<b>R&D</b> one", "<b>R&D</b> ONE"),
        ("<b>R&amp;D</b> one", "<b>R&amp;D</b> ONE"),
        ("<docs>R&D</docs> <icon/> one", "<docs>R&D</docs> <icon/> ONE"),
    ],
)
def test_a_message_of_po_is_html_only_with_its_tags(source: str, expected: str) -> None:
    parts = blocks_of(f'msgid "{source}"\nmsgstr ""\n', "po")
    texts = [one for one in parts if one.text]
    assert len(texts) == 1
    assert texts[0].escape(texts[0].text.upper()) == re.sub("<(?!CTRL|ENTER).*?>", "", expected).replace(
        "  ", " "
    )


def test_subtitles_keep_times_and_the_number_of_lines() -> None:
    source = SRT.replace("<i>", "").replace("</i>", "")
    expected = source.replace("one two\r\nthree four five", "ONE TWO THREE\r\nFOUR FIVE")
    assert upper(source, "srt") == expected.replace("six", "SIX").replace("seven", "SEVEN")


@pytest.mark.parametrize(("form", "text"), [("srt", SRT), ("vtt", VTT), ("po", PO)])
def test_lines_may_end_with_carriage_returns(form: Format, text: str) -> None:
    text = text.replace("\r", "")
    assert upper(text.replace("\n", "\r"), form) == upper(text, form).replace("\n", "\r")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two\n \nthree\n\nfour\n", "ONE TWO\n \nTHREE\n\nfour\n"),
        ("- one\n\t\n- two\n", "- ONE\n\t\n- TWO\n"),
        ("one\r\n \r\ntwo\r\n\r\n", "ONE\r\n \r\nTWO\r\n\r\n"),
        ("one\r\r\n\r\r\ntwo\r\r\n", "ONE\r\r\n\r\r\ntwo\r\r\n"),
        ("one\n \n2\n00:03 --> 00:04\ntwo", "ONE\n \n2\n00:03 --> 00:04\nTWO"),
        (" \none\n ", " \nONE\n "),
    ],
)
@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_an_empty_line_ends_a_subtitle_but_not_one_with_a_blank(
    form: Format, text: str, expected: str
) -> None:
    assert upper(f"00:01 --> 00:02\n{text}", form) == f"00:01 --> 00:02\n{expected}"


@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_a_subtitle_ends_before_the_time_of_the_next_one(form: Format) -> None:
    first, second = "1\n00:00:01,000 --> 00:00:02,000\na --> b\n", "2\n00:00:03,000 --> 00:00:04,000\nc\n"
    only_time = second.removeprefix("2\n")
    for text in (first + second, first + only_time, (first + second).replace("\n", "\r\n")):
        expected = text.replace("a --> b", "A --> B").replace("c", "C")
        assert upper(text, form).replace("&gt;", ">") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- <i>one</i>\n- <i>two</i>", ["<i>one</i>", "<i>two</i>"]),
        ("- <i>one\ntwo</i>", ["<i>one\ntwo</i>"]),
        ("<i>– one</i>", ["one"]),
        ("-5 one", ["5 one"]),
        (r"{\an8}<i>one</i>", ["<i>one</i>"]),
        ("one <c.red.big>two</c> three", ["one <c.red.big>two</c> three"]),
        (r"{\an8}- one {\i1}two{\i0}", [r"one {\i1}two{\i0}"]),
        ("<00:01.500>one <00:00:01.500>two", ["<00:01.500>one <00:00:01.500>two"]),
    ],
)
def test_dashes_and_codes_are_no_text_of_a_subtitle(text: str, expected: list[str]) -> None:
    blocks = [block for block in blocks_of(f"0 --> 1\n{text}\n", "srt") if block.text]
    assert [block.raw for block in blocks] == expected
    assert not any(character in block.text for block in blocks for character in "<-{:")


def test_webvtt_keeps_everything_but_the_text() -> None:
    assert upper(VTT, "vtt") == VTT.replace("one &amp; two", "ONE &amp; TWO")


def test_xliff_gets_the_missing_targets() -> None:
    result = upper(XLIFF, "xliff")
    assert result.count("<target") == 4
    assert "<target>eins</target>" in result
    assert '<source>two</source>\n  <target state="new">TWO</target></trans-unit>' in result
    assert "<source>three</source><target>THREE</target>" in result
    assert "<source>–</source></trans-unit>" in result


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("<source>a</source><seg-source>a</seg-source><target>X</target>", None),
        ("<source>a</source><note>b</note><!-- <target/> --><target>X</target>", None),
        ("<source>a</source><alt-trans><source>a</source></alt-trans><target>X</target>", None),
        ("<!-- <trans-unit><source>a</source></trans-unit> -->", None),
        ("<source>a</source><note>b</note><target/>", "<source>a</source><note>b</note><target>A</target>"),
        (
            "<source>a</source>\n<seg-source>a</seg-source>\n<note>b</note>",
            "<source>a</source>\n<seg-source>a</seg-source>\n<target>A</target>\n<note>b</note>",
        ),
        (
            "<source><![CDATA[a <b>b</b>]]></source>",
            "<source><![CDATA[a <b>b</b>]]></source><target><![CDATA[A B<b></b>]]></target>",
        ),
        (
            "<source>a</source><alt-trans><target>X</target></alt-trans>",
            "<source>a</source><target>A</target><alt-trans><target>X</target></alt-trans>",
        ),
    ],
)
def test_the_target_of_an_xliff_unit_can_be_anywhere_in_it(unit: str, expected: str | None) -> None:
    document = XLIFF.replace("<source>–</source>", unit)
    assert (expected or unit) in upper(document, "xliff")


@pytest.mark.parametrize("name", ["ph", "bpt", "ept", "it"])
def test_codes_inside_elements_of_xliff_stay(name: str) -> None:
    code = f'<{name} id="1">&lt;br class="a"/&gt;</{name}>'
    result = upper(f"<trans-unit><source>one {code} two</source></trans-unit>", "xliff")
    target = result.partition("<target>")[2]
    assert target.count(code) == 1 and target.replace(code, "").split("<")[0].split() == ["ONE", "TWO"]


@pytest.mark.parametrize("name", ["trans-unit", "group", "file"])
def test_units_of_xliff_that_must_not_be_translated_stay(name: str) -> None:
    unit = "<trans-unit><source>a</source></trans-unit>"
    protected = f'<{name} translate="no">{unit if name != "trans-unit" else "<source>a</source>"}</{name}>'
    assert upper(f"<xliff>{protected}{unit}</xliff>", "xliff").startswith(f"<xliff>{protected}")


def test_sentences_of_seg_source_are_translated_each() -> None:
    marked = "<mrk mtype='seg' mid='1'>One <g id='1'>two</g>.</mrk> <mrk mtype='seg' mid='2'>Three.</mrk>"
    source = f"<source>One <g id='1'>two</g>. Three.</source><seg-source>{marked}</seg-source>"
    result = upper(f"<trans-unit>{source}</trans-unit>", "xliff")
    target = result.removeprefix(f"<trans-unit>{source}").removesuffix("</trans-unit>")
    assert re.sub("</?g.*?>", "", target) == (
        "<target><mrk mtype='seg' mid='1'>ONE TWO.</mrk> <mrk mtype='seg' mid='2'>THREE.</mrk></target>"
    )


def test_xliff_2_has_a_target_in_each_segment() -> None:
    one, ignorable = "<segment><source>a</source></segment>", "<ignorable><source>b</source></ignorable>"
    result = upper(f"<unit><notes/>{one}{ignorable}{one}</unit>", "xliff")
    expected = "<segment><source>a</source><target>A</target></segment>"
    assert result == f"<unit><notes/>{expected}{ignorable}{expected}</unit>"


DAMAGED: list[tuple[Format, str, str]] = [
    ("xliff", "not xliff", "does not contain '<source'"),
    ("xliff", XLIFF[:300], "ends inside <trans-unit>"),
    ("xliff", XLIFF.removesuffix("</xliff>\n"), "ends inside <xliff>"),
    ("xliff", XLIFF.replace("<source>–</source>", "<source>–<b>a</source>"), "mismatched tag inside <b>"),
    ("xliff", XLIFF.replace("–", "R&D"), "line 7, column 31: not well-formed"),
    ("xml", "<a>\n<b>one</a>", "line 2, column 9: mismatched tag inside <b>. Correct the XML"),
    ("xml", "<a>one</a>two", "line 1, column 11: junk after document element"),
    ("xml", "<a>one", "ends inside <a>. Copy it again, or close the element"),
    ("xml", "<a>one</a", "ends inside <a>"),
    ("xml", "one", "line 1, column 1: syntax error. Correct the XML"),
    ("xml", "", "no element found. Correct the XML"),
    ("xml", "<a>&#0;</a>", "invalid character number"),
    ("xml", "\n<?xml version='1.0'?><a/>", "declaration not at start of entity"),
    (
        "xliff",
        "<trans-unit>\n<source>a<trans-unit/></source></trans-unit>",
        "line 2: <trans-unit> is inside <trans-unit>. Move it out.",
    ),
    ("xliff", "<segment><source>a</source><segment></segment></segment>", "<segment> is inside <segment>"),
    ("po", 'msgid "a"\nmsgid_plural "b"\n' + 'msgstr[1] ""\n' * 11, "line 13: .* more than 10 msgstr"),
    ("po", "not po", "does not contain 'msgid'"),
    ("po", PO + '\nmsgid "open\nmsgstr ""\n', "line 30: the message is incomplete"),
    ("po", PO + '\nmsgid "end"\n', "line 30: the message is incomplete"),
    ("srt", "garbage\n\na\n", "does not contain '-->'"),
    ("vtt", "WEBVTT\n", "does not contain '-->'"),
]


@pytest.mark.parametrize(("form", "text", "message"), DAMAGED)
def test_a_damaged_file_is_refused(form: Format, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        blocks_of(text, form)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UserError, match=r"form must be one of html, xhtml, xml, .* vtt \(got 'pdf'\)"):
        blocks_of("a", cast(Format, "pdf"))


@pytest.mark.parametrize("form", ["html", "xhtml", "xml", "srt", "vtt"])
@given(text=st.text(alphabet='a <>/b"=-\n\r&;0123:,.\\'))
def test_the_blocks_joined_are_the_file(form: Format, text: str) -> None:
    text = f"1\n0 --> 1\na\n\n{text}"
    assert "".join(block.raw for block in blocks_of(text, form, is_fragment=True)) == text


MESSAGES = [f"{message}\n\n" for message in PO.strip().split("\n\n")]


@given(st.lists(st.sampled_from([*MESSAGES, 'msgstr ""\n', '"x\n', "\\", "\n", "msgid"])).map("".join))
def test_any_po_file_keeps_its_lines_or_is_refused(text: str) -> None:
    with suppress(UserError):
        assert upper(text, "po").count("\n") == text.count("\n")


TAGS = [f"<{name}>" for name in "/source source /target target target/ /segment segment b /b".split()]


@given(st.lists(st.sampled_from([*TAGS, "<source>a</source>", "-", "a", "\n", "<"])).map("".join))
def test_any_xliff_file_is_translated_or_refused(text: str) -> None:
    with suppress(UserError):
        upper(text, "xliff")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("xliff", "<source>" * 60_000),
        ("xliff", "<source " * 60_000),
        ("xliff", "<source>a</source><target>" * 20_000),
        ("xliff", "<segment>" + "<source>a</source>" * 10_000 + "</segment>"),
        ("po", 'msgid "' + "<a" * 60_000 + '"\nmsgstr ""\n'),
        ("po", 'msgid ""\n' + '"abc "\n' * 60_000 + 'msgstr ""\n'),
        ("srt", "1\n0 --> 1\n" + "a b\n" * 60_000),
        ("srt", "-->" * 60_000),
        ("srt", "0 --> 1\n" + "1\n" * 60_000),
        ("srt", "0 --> 1\n" + "<> " * 60_000),
        ("srt", "0 --> 1\n" + r"{\a} " * 20_000),
        ("srt", "0 --> 1\n" + "1" * 60_000),
        ("vtt", "0 --> 1\n" + "<" * 100_000 + " a\nb"),
    ],
    ids=[
        "no end",
        "no bracket",
        "no end of a target",
        "many sources",
        "tags without an end",
        "many lines",
        "a long subtitle",
        "arrows",
        "numbers",
        "empty tags",
        "codes",
        "a number",
        "brackets",
    ],
)
def test_hostile_files_take_linear_time(form: Format, text: str) -> None:
    with suppress(UserError):
        assert upper(text, form)


def effort(form: Format, text: str) -> int:
    """The number of function calls and of characters made while a file is read and written."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    characters = 0
    for is_fragment in (True, False):
        sys.setprofile(count)
        try:
            blocks = blocks_of(text, form, is_fragment=is_fragment)
            document = cut(blocks, lambda text: (text.split(), [" "] * len(text.split())))
            result = document.translated([(one, []) for one in document.sentences], joined)
        except UserError:
            continue
        finally:
            sys.setprofile(None)
        characters += len(result) + sum(len(one.raw) + len(one.text) for one in blocks)
    return calls + characters


def joined(texts: Sequence[str], spaces: Sequence[str]) -> str:
    return "".join(map("".join, zip(texts, spaces, strict=True)))


SHAPES: dict[Format, list[tuple[str, str, str, str, str]]] = {
    "html": [
        ("", "<b>a ", "", "</b>", ""),
        ("", "<p>a ", "", "</p>", ""),
        ("", "<b>a</i>", "", "", ""),
        ("<a>b ", "<br>", "", "c ", ""),
        ("", "<b><p>", "a", "</b>", ""),
        ("<b><i>", "<code>a</code>", "a", "<b>", "</b>"),
        ("", "<i translate=no>", "a", "</i>", "b"),
        ("", "<?php", "a", "?>", ""),
        ("a", "<!-- <b>a", "", "-->a", ""),
    ],
    "xml": [
        ("", "<_b>a ", "", "</_b>", ""),
        ("<r>", "<b>a</b>", "a ", "<b/>", "</r>"),
        ("<r>a ", "<b>", "a ", "</b>", "</r>"),
        ("<r>", "<![CDATA[a <b>b</b>]]>", "a", "<![CDATA[a]]>", "</r>"),
        ("<!DOCTYPE r [", "<!-- a -->", "<!ENTITY a 'b'>", "<!ENTITY c '&a;&a;'>", "]><r>&c;</r>"),
        ("<!DOCTYPE r [", "'", "", '"', "]><r>&c;</r>"),
        ("<r>a ", "&a;", "", "&amp;", "</r>"),
        ("<r ", "a='", "", "'b>", "</r>"),
    ],
    "xliff": [
        ("<x>", "<trans-unit><source>a b</source></trans-unit>", "", "", "</x>"),
        ("", "<trans-unit><source>a b", "", "</source></trans-unit>", ""),
        ("", "<segment><source>a</source>", "", "</segment>", ""),
        ("<x><trans-unit>", "<source>a</source>", "", "<target/>", "</trans-unit></x>"),
        ("<x><trans-unit>", "<source>a", "", "</source>", "</trans-unit></x>"),
        ("<trans-unit><source>a", "<g>b ", "", "</g>", "</source></trans-unit>"),
        ("<trans-unit><source>a", "<ph>b ", "", "</ph>", "</source></trans-unit>"),
        ("<trans-unit><source>a</source>", "<g>", "", "<target/></g>", "</trans-unit>"),
        ("<x>", "<g>", "", "<segment/></g>", "</x>"),
        ("<x>", "<alt-trans>", "<segment><source>a</source></segment>", "</alt-trans>", "</x>"),
    ],
    "po": [
        ('msgid "', "a ", '"\nmsgid_plural "b"\n', 'msgstr[0] ""\n', ""),
        ('msgid "a"\nmsgid_plural "', "a ", '"\n', 'msgstr[1] ""\n', ""),
        ("", 'msgid "a"\nmsgstr ""\n', "", 'msgid ""\n', ""),
        ('msgid ""\n', '"<b>a"\n', "", '"</b>\\n"\n', 'msgstr ""\n'),
        ('msgid ""\n', '"a"\n', 'msgstr ""\n', '"a"\n', ""),
    ],
    "srt": [
        ("0 --> 1\n", "a\n", "", "<b>\n", ""),
        ("0 --> 1\n", "- a\n", "", "- <b>a</b>\n", ""),
        ("", "0 --> 1\na\n\n", "", "0 --> 1\n", ""),
        ("0 --> 1\na", " \n", "", "\n", "a"),
        ("0 --> 1\n", "1\n", "", "12:\n", "a"),
    ],
    "vtt": [("0 --> 1\n", "<c.red>a ", "", "</c>", ""), ("0 --> 1\n", " \n", "a", "<b>a</b>\n", "")],
}
"""What is repeated twice in hostile files, and what is before, between and after it."""


@pytest.mark.parametrize(
    ("form", "shape"), [(form, shape) for form, shapes in SHAPES.items() for shape in shapes]
)
def test_the_effort_for_a_file_is_proportional_to_its_size(
    form: Format, shape: tuple[str, str, str, str, str]
) -> None:
    before, first, between, second, after = shape
    small, large = (
        effort(form, before + first * count + between + second * count + after) for count in (40, 400)
    )
    assert large < 14 * small + 2000
