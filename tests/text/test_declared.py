"""Encodings that documents declare."""

from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from nmt_cli.text.declared import declared_utf8
from nmt_cli.text.formats import XML_FORMS, Format, blocks_of
from nmt_cli.text.tag_placement import Shares
from nmt_cli.translation.document import cut

GERMAN = "München & „😀“ ]]> <b>"


def german(text: str, form: Format) -> str:
    """A document with the same German text for each of its texts."""
    document = cut(blocks_of(text, form), lambda text: ([text], [""]), is_xml=form in XML_FORMS)
    texts: list[tuple[str, Shares]] = [(GERMAN, []) for _ in document.sentences]
    return document.translated(texts, lambda texts, spaces: "".join(texts))


@pytest.mark.parametrize("name", ["US-ASCII", "ISO-8859-1", "windows-1252", "koi8-r"])
@pytest.mark.parametrize("content", ["Munich", "<![CDATA[Munich]]>"])
@pytest.mark.parametrize(
    ("form", "document"),
    [("xml", "<p>{}</p>"), ("xhtml", "<p>{}</p>"), ("xliff", "<segment><source>{}</source></segment>")],
)
def test_a_translation_of_xml_can_be_read_in_the_declared_encoding(
    name: str, content: str, form: Format, document: str
) -> None:
    result = german(f"<?xml version='1.0' encoding='{name}'?>{document.format(content)}", form).encode()
    assert result.isascii()
    assert etree.fromstring(result).xpath("string(//p|//target)") == GERMAN


@pytest.mark.parametrize(
    "declaration",
    [
        '<meta charset="iso-8859-1">',
        "<META CHARSET=iso-8859-1>",
        '<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">',
        "<?xml version='1.0' encoding='iso-8859-1'?>",
        "<!-- <meta charset=utf-8> --><meta name=a content=b><meta charset = 'latin1'>",
    ],
)
def test_a_translation_of_html_can_be_read_in_the_declared_encoding(declaration: str) -> None:
    result = german(f"{declaration}<p>Munich</p>", "html")
    assert result.startswith(f"{declaration}<p>") and result.isascii()
    assert unescape(result.removeprefix(f"{declaration}<p>").removesuffix("</p>")) == GERMAN


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("xml", "<p>Munich</p>"),
        ("xml", "<?xml version='1.0' encoding='utf-8'?><p>Munich</p>"),
        ("xml", "<p><meta charset='koi8-r'/><q>Munich</q></p>"),
        ("html", "<meta charset=UTF-8><p>Munich</p><meta charset=koi8-r>"),
        ("html", "<!-- <meta charset=koi8-r> --><p>Munich</p>"),
        ("html", "<p data-charset=koi8-r>Munich</p>"),
        ("srt", "0 --> 1\nMunich, charset=koi8-r"),
    ],
)
def test_other_documents_need_no_references(form: Format, text: str) -> None:
    assert "München" in german(text, form)
    assert declared_utf8(text, form) == (text, "")


@pytest.mark.parametrize(
    ("form", "text", "name"),
    [
        ("xml", "<?xml version='1.0' encoding='{}'?><p>Zürich</p>", "ISO-8859-1"),
        ("xml", "<?xml version='1.0' encoding=\"{}\"?><p>Munich</p>", "utf-16"),
        ("xliff", "\ufeff<?xml version='1.0' encoding=\"{}\"?><p>Munich</p>", "ascii"),
        ("html", "<meta charset={}>Zürich", "latin1"),
        ("xhtml", "<html><meta charset='{}'/><p>Zürich</p></html>", "latin1"),
        ("html", "<meta content='text/html;charset={}'>Zürich", "windows-1252"),
        ("po", 'msgid ""\nmsgstr ""\n"A: b\\n"\n"Content-Type: text/plain; charset={}\\n"\n', "ASCII"),
    ],
)
def test_a_wrong_declaration_becomes_utf8(form: Format, text: str, name: str) -> None:
    assert declared_utf8(text.format(name), form) == (text.format("UTF-8"), name)


def test_a_template_of_po_gets_its_charset() -> None:
    header = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={}\\n"\n\n'
    message = 'msgid "charset=koi8-r"\nmsgstr "{}"\n'
    expected = header.format("UTF-8") + message.format(GERMAN)
    assert german(header.format("CHARSET") + message.format(""), "po") == expected
    assert german(expected, "po") == expected
    assert declared_utf8(header.format("CHARSET"), "po") == (header.format("UTF-8"), "")


@pytest.mark.parametrize("form", ["html", "xml", "po"])
@pytest.mark.parametrize(
    "part",
    [
        "<meta ",
        "<meta charset",
        "<meta charset= ",
        "<!--",
        "<?xml ",
        ' encoding="',
        'msgid ""\nmsgstr "',
        '"\n',
    ],
)
@pytest.mark.parametrize("before", ["", "<?xml ", "<meta ", 'msgid ""\nmsgstr "a"\n'])
def test_hostile_declarations_take_linear_time(form: Format, part: str, before: str) -> None:
    text = before + part * (100_000 // len(part))
    assert declared_utf8(text, form) == (text, "")


@given(st.text(alphabet="<>!-?xml metacharset=\"' ;\n\\ü"), st.sampled_from(["html", "xml", "po"]))
def test_any_text_is_kept_or_declares_utf8(text: str, form: Format) -> None:
    result, _ = declared_utf8(text, form)
    assert result == text or "UTF-8" in result
    assert declared_utf8(result, form) == (result, "")
