"""Blocks of HTML and XML documents, and their inline elements."""

from collections.abc import Iterator, Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from nmt_cli.text.markup import MAX_DEPTH, MAX_STAYING, Block, Dialect, Element, blocks

LONG = 100_000

TAGS = "< > </ <![CDATA]]> <p> </p> <!-- --> <script> </script> <![CDATA[ ]]> <? <code> </code> <br/> </x>"
PARTS = st.sampled_from(
    [*TAGS.split(), "&b;", "?>", "<b a='", "'", '"', "=", "&amp;", "&#", "a", " ", "<x translate=no>"]
)


def texts(document: str, *ignored: str, dialect: Dialect = "html") -> list[str]:
    return [one.text for one in blocks(document, dialect, ignored) if one.text]


def spans(block: Block) -> list[tuple[str, str]]:
    """The opening tag of each element, and the text that the element covers."""

    def of(elements: Sequence[Element]) -> Iterator[tuple[str, str]]:
        for one in elements:
            yield one.opening, block.text[one.start : one.end]
            yield from of(one.children)

    return list(of(block.elements))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<a>Use &brandName; &amp; caf&eacute;.</a>", [("Use & café.", ["&brandName;"])]),
        ("<a>&copyright; one</a>", [("one", ["&copyright;"])]),
        ("<a>&brandName;</a>", []),
        ("<a>one <?if a > b?> two</a>", [("one two", ["<?if a > b?>"])]),
    ],
)
def test_entities_of_a_document_and_instructions_stay(
    document: str, expected: list[tuple[str, list[str]]]
) -> None:
    found = [one for one in blocks(document, "xml") if one.text]
    assert [(one.text, [element.opening for element in one.elements]) for one in found] == expected


@given(st.lists(PARTS).map("".join), st.sampled_from(get_args(Dialect)))
def test_the_blocks_joined_are_the_document(document: str, dialect: Dialect) -> None:
    assert "".join(one.raw for one in blocks(document, dialect)) == document


@given(st.lists(PARTS).map("".join), st.sampled_from(get_args(Dialect)))
def test_the_tags_of_a_block_are_those_of_its_elements_in_order(document: str, dialect: Dialect) -> None:
    def tags(elements: Sequence[Element]) -> Iterator[str]:
        for one in elements:
            yield from (one.opening, *tags(one.children), one.closing)

    for block in blocks(document, dialect):
        rest = block.raw if block.text else ""
        for tag in filter(None, tags(block.elements)):
            _, match, rest = rest.partition(tag)
            assert match == tag


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("One <b>two</b> three", ["One two three"]),
        ("<a title=\"x > y\" href='>'>link</a>", ["link"]),
        ("<p>a &amp; b &lt; c</p>", ["a & b < c"]),
        ("1 < 2 and 3 > 2", ["1 < 2 and 3 > 2"]),
        ("<p>  &nbsp; \n</p>", []),
        ("<!-- no --><p>yes<!-- <p>no</p> --></p>", ["yes"]),
        ("<script>if (a < b) no()</script>yes<style>p { no }</style>", ["yes"]),
        ("<script src=x/>no</SCRIPT >yes", ["yes"]),
        ("<div class='a notranslate'><div>no</div>no</div>yes", ["yes"]),
        ("<code>no <b>no</b></code>: <kbd>no</kbd>", []),
        ("<i translate=no>no</i><br translate=no>yes", ["yes"]),
        ("a <b", ["a"]),
        ("a <!-- b", ["a"]),
        ("<![CDATA[ <p>no</p> ]]>yes", ["yes"]),
        ("&#" + "1" * 5000 + ";a", []),
        ("<p>one\n   <i> two</i>  three </p>", ["one two three"]),
        ("<p>one<br>two<td>three</td></p>", ["one", "two", "three"]),
        ("<a><div>one</div></a> two", ["one", "two"]),
        ("<b>one <i>two</b> three</i>", ["one", "two", "three"]),
        ("<pre>no\n  no</pre><p>yes</p>", ["yes"]),
    ],
)
def test_only_text_is_translated(document: str, expected: list[str]) -> None:
    assert texts(document) == expected


def test_named_elements_are_not_translated() -> None:
    assert texts("<k>no</k><p>yes</p><p><K>no</K></p>", "k") == ["yes"]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("A <code>big <b>red</b>\n&amp; old</code>dog", ["big red & old"]),
        ("A <i translate=no>b</i> <k>c</k>, <kbd>D</kbd>", ["b", "c", "D"]),
        (
            "A <code></code> <code> </code><!-- b --><svg><text>b</text></svg> <math><mi>b</mi></math>",
            [""] * 5,
        ),
        (f"A <code>{'b' * (MAX_STAYING + 1)}</code>", [""]),
        ("A <code>&#" + "1" * 5000 + ";</code>", [""]),
        ("A &b; <code>&lt;b&gt;</code>", ["<b>"]),
    ],
)
def test_elements_that_stay_cover_their_words(document: str, expected: list[str]) -> None:
    (block,) = blocks(document, ignored=["k"])
    assert [block.text[one.start : one.end] for one in block.elements] == expected
    assert [one.stays for one in block.elements] == [text != "" for text in expected]
    assert not any(one.children or one.closing for one in block.elements)


@pytest.mark.parametrize("attribute", ["translate='no'", 'mtype="protected"'])
def test_elements_of_xliff_that_stay_have_words_and_codes_have_none(attribute: str) -> None:
    codes = "<ph id='1'>a</ph><bpt id='2'>b</bpt>"
    (block,) = blocks(f"{codes} one <mrk {attribute}>two</mrk>", "xliff", ["ph", "bpt"])
    assert block.text == "one two"
    assert [text for _, text in spans(block)] == ["", "", "two"] and block.elements[-1].stays


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<d><p>One <b>two</b></p>\n<p>three</p></d>", ["One two", "three"]),
        ("One <p>two</p>", ["One two"]),
        ("<code>yes</code>", ["yes"]),
        ("<br>yes</br>", ["yes"]),
        ("<p>one <x/>two</p>", ["one two"]),
        ("<p><![CDATA[one & two]]></p>", ["one & two"]),
        ("<![CDATA]]><p>one</p>", ["one"]),
        ("<p>one <1.5></p>", ["one <1.5>"]),
        ("<p>one <![CDATA[<p>two &amp; <b>three</b></p><p>four</p>]]></p>", ["one", "two & three", "four"]),
        ("<!-- <![CDATA[no]]> --><x translate='no'><![CDATA[no]]></x><![CDATA[no", []),
    ],
)
def test_an_element_of_xml_is_inline_if_its_parent_has_text(document: str, expected: list[str]) -> None:
    assert texts(document, dialect="xml") == expected


@pytest.mark.parametrize(
    "name", ["_p", ":p", "Überschrift", "标题", "абзац", "\U00020000", "x:Öl", "a\u0301", "é·1", "ስም"]
)
def test_names_of_xml_may_begin_with_any_letter(name: str) -> None:
    document = f"<r><{name}>one</{name}><p>two</p><p>three <{name} a='>'>four</{name}></p></r>"
    assert texts(document, dialect="xml") == ["one", "two", "three four"]
    (entity,) = (one for one in blocks(f"<r>one &{name};</r>", "xml") if one.text)
    assert [one.opening for one in entity.elements] == [f"&{name};"]


@pytest.mark.parametrize("text", ["1 <3 2", "<_<", "<:-)", "a <- b", "<·a>", "<\u0301a>"])
def test_other_brackets_in_xml_are_text(text: str) -> None:
    assert texts(f"x {text} <b>c</b>", dialect="xml") == [f"x {text} c"]


@pytest.mark.parametrize(
    "subset",
    [
        '<!ENTITY % ents SYSTEM "entities.ent">\n%ents;\n',
        "<!-- names: don't see <names> ] and others -->",
        "<?tool ]> ' ?>",
        '<!ENTITY product "<b>Super</b> ]> Thing">',
        "<!ENTITY product '\">'>",
        "<!ELEMENT p (#PCDATA)><!ATTLIST p a CDATA 'b'>",
        "",
    ],
)
@pytest.mark.parametrize("before", ["", ' PUBLIC "-//a>//[" "b.dtd"', " SYSTEM '>'"])
def test_the_declarations_of_an_xml_document_stay(subset: str, before: str) -> None:
    head = f"<!DOCTYPE r{before} [{subset}] >"
    first, *_ = parts = blocks(f"{head}<r>one &product;</r>", "xml")
    assert first.raw == f"{head}<r>" and [one.text for one in parts if one.text] == ["one"]


@pytest.mark.parametrize(
    "code", ["<?php echo 'a > b'; ?>", "<?= $a->b ?>", "<? if ($a > 1): ?>", "<?php\n$a->b() ?>"]
)
def test_php_in_html_ends_with_its_mark(code: str) -> None:
    (block,) = blocks(f"one {code} two")
    assert (block.text, [one.opening for one in block.elements]) == ("one two", [code])
    assert texts("<?xml:namespace prefix = o />one") == ["one"]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<p>one <a><b>two</b></a> three</p>", ["one two three"]),
        ("<p>one <a><b><i>two</i></b></a></p>", ["one two"]),
        ("<p>one <a><!-- c --><x/><b>two</b></a></p>", ["one two"]),
        ("<p>one <a><b>two</b> <i>three</i></a> four</p>", ["one two three four"]),
        ("<p>one <a><b>2</b>, <b>3</b></a></p>", ["one 2, 3"]),
        ("<a><b>one</b></a> two", ["one two"]),
        ("<d><a><b>one</b></a></d>", ["one"]),
        ("<d><a><b>one</b></a><a><b>two</b></a></d>", ["one", "two"]),
        ("<p>one <l><i>two</i><i>three</i></l> four</p>", ["one", "two", "three", "four"]),
        ("<p>one <l><i>two</i> <i>three</i></l></p>", ["one", "two", "three"]),
        ("<p>one\n<l>\n<i>\n<p>two</p>\n</i>\n</l>\n</p>", ["one", "two"]),
        ("<p>one <n><h>two</h>\n<p>three</p></n></p>", ["one", "two", "three"]),
        ("<p>one <a><l><i>two</i><i>three</i></l></a> four</p>", ["one", "two", "three", "four"]),
    ],
)
def test_an_element_of_xml_is_inline_in_an_inline_element_that_is_not_a_list(
    document: str, expected: list[str]
) -> None:
    assert texts(document, dialect="xml") == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<p><b>one</b> <i>two</i></p><p>three</p>", ["one two", "three"]),
        ("<p>one <a><b>two</b></a><br/>three<br></br>four</p>", ["one two", "three", "four"]),
        ("<ul>one <li>two</li></ul>", ["one", "two"]),
        ("<p>one <b/>two &nbsp;three</p><?if a > b?>", ["one two \xa0three"]),
        ("<P>one <CODE>x</CODE> two</P><CODE>no</CODE>", ["one x two"]),
        ("<p>yes</p><script>if (a &lt; b) no()</script><style>p { no }</style>", ["yes"]),
        ("<script src='x'/><p>yes</p><textarea>no</textarea>", ["yes"]),
        ("<p><![CDATA[one & two]]></p>", ["one & two"]),
    ],
)
def test_xhtml_is_xml_with_the_elements_of_html(document: str, expected: list[str]) -> None:
    assert texts(document, dialect="xhtml") == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<g id='1'>one</g> <g id='2'>two</g>", ["one two"]),
        ("<g><g>one</g></g>\n<g>two</g>", ["one two"]),
        (
            "<mrk mtype='seg' mid='1'>one <g>two</g></mrk> <mrk mid='2' mtype='seg'>three</mrk>",
            ["one two", "three"],
        ),
        ("<g><mrk mtype='seg'>one</mrk></g> <mrk mtype='term'>two</mrk>", ["one", "two"]),
    ],
)
def test_all_elements_of_xliff_are_inline_but_sentences(document: str, expected: list[str]) -> None:
    assert texts(document, dialect="xliff") == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('<bx id="1"/>one <ex id="1"/>two', [('<bx id="1"/>', "one ")]),
        ('<bx id="1" rid="2"/>one <ex id="3" rid="2"/>two', [('<bx id="1" rid="2"/>', "one ")]),
        ('<sc id="1"/>one<ec startRef="1"/> two', [('<sc id="1"/>', "one")]),
        ('<bx id="1"/>one <ex id="2"/>two', [('<bx id="1"/>', ""), ('<ex id="2"/>', "")]),
        ('<ex id="1"/>one <bx id="1"/>two', [('<ex id="1"/>', ""), ('<bx id="1"/>', "")]),
        ('<it id="1"/>one <it id="1"/>two', [('<it id="1"/>', ""), ('<it id="1"/>', "")]),
        ('<bx id="1"/>one<bx id="1"/>two<ex id="1"/>', [('<bx id="1"/>', ""), ('<bx id="1"/>', "two")]),
        (
            '<bx id="1"/>one <bx id="2"/>two <ex id="1"/>three<ex id="2"/>',
            [('<bx id="1"/>', "one two "), ('<bx id="2"/>', ""), ('<ex id="2"/>', "")],
        ),
        (
            '<g>one <sc id="1"/>two</g> three<ec startRef="1"/>',
            [("<g>", "one two"), ('<sc id="1"/>', ""), ('<ec startRef="1"/>', "")],
        ),
    ],
)
def test_a_pair_of_codes_of_xliff_is_an_element(document: str, expected: list[tuple[str, str]]) -> None:
    (block,) = blocks(document, "xliff")
    assert spans(block) == expected


def test_a_translation_does_not_end_its_cdata_section() -> None:
    (block,) = (one for one in blocks("<p><![CDATA[a]]></p>", "xml") if one.text)
    content = block.escape("x ]]> & y")
    assert etree.fromstring(f"<p><![CDATA[{content}]]></p>").text == "x ]]> & y"


def test_elements_cover_their_text() -> None:
    space, block = blocks("  A <b>big <i>old</i></b>\n <img src=x>dog &amp; <code>cat</code>!")
    assert block.text == "A big old dog & cat!"
    assert spans(block) == [
        ("<b>", "big old"),
        ("<i>", "old"),
        ("<img src=x>", ""),
        ("<code>cat</code>", "cat"),
    ]
    assert space == Block("  ")


def test_deep_elements_end_the_block() -> None:
    assert len(texts("<b>" * MAX_DEPTH + "x" + "</b>" * MAX_DEPTH)) == 1
    assert blocks("<b>" * 1000 + "x")[-1].elements == []


@pytest.mark.parametrize(
    "part",
    [
        *(
            "<",
            "<a",
            "<a b='",
            "<!--",
            "<!",
            "<?",
            "<script>",
            "</script",
            "<b a=",
            "&",
            "&a",
            "&a;",
            "<?a>",
            "<![CDATA[",
            "= ",
            "<![CDATA[<a]]>",
            "<_a",
            "<ü='",
            "&ü",
            "<!DOCTYPE",
            "<!DOCTYPE[",
            "<!DOCTYPE[<!--",
            "<!DOCTYPE[<?]",
            '<!DOCTYPE[]"',
            "<?php",
            "{\\",
            "<0:",
        ),
        *('<p class="', "<a translate", "<code>", "<a class='x "),
    ],
    ids=repr,
)
@pytest.mark.parametrize("around", ["{}", "<{}", "<a {}", "<a {}>", "<![CDATA[{}]]>"])
@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_hostile_documents_take_linear_time(part: str, around: str, dialect: Dialect) -> None:
    document = around.format(part * (LONG // len(part)))
    assert sum(len(one.raw) for one in blocks(document, dialect)) == len(document)
