"""Text and markup of HTML documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.serving.texts.markup import pieces

LONG = 300_000

TAGS = "< > </ <p> </p> <!-- --> <script> </script> <![CDATA[ ]]> <? <code> </code> <br/> </x>"
PARTS = st.sampled_from([*TAGS.split(), "<b a='", "'", '"', "=", "&amp;", "&#", "a", " ", "<x translate=no>"])


def texts(document: str, *ignored: str) -> list[str]:
    return [one.text for one in pieces(document, frozenset(ignored)) if one.text]


@given(st.lists(PARTS).map("".join))
def test_the_pieces_joined_are_the_document(document: str) -> None:
    assert "".join(one.raw for one in pieces(document)) == document


@given(st.lists(PARTS).map("".join))
def test_translated_text_does_not_become_markup(document: str) -> None:
    before = pieces(document)
    changed = "".join(one.translated("<b> & c") for one in before)
    assert len(changed) - len(document) == sum(
        len("&lt;b&gt; &amp; c") - len(one.raw) for one in before if one.text
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("One <b>two</b> three", ["One ", "two", " three"]),
        ("<a title=\"x > y\" href='>'>link</a>", ["link"]),
        ("<p>a &amp; b &lt; c</p>", ["a & b < c"]),
        ("1 < 2 and 3 > 2", ["1 < 2 and 3 > 2"]),
        ("<p>  &nbsp; \n</p>", []),
        ("<!-- no --><p>yes<!-- <p>no</p> --></p>", ["yes"]),
        ("<script>if (a < b) no()</script>yes<style>p { no }</style>", ["yes"]),
        ("<script src=x/>no</SCRIPT >yes", ["yes"]),
        ("<code>no <b>no</b></code> yes <code/> yes", [" yes ", " yes"]),
        ("<div class='a notranslate'><div>no</div>no</div>yes", ["yes"]),
        ("<i translate=no>no</i><br translate=no>yes", ["yes"]),
        ("a <b", ["a "]),
        ("a <!-- b", ["a "]),
        ("<![CDATA[ <p>no</p> ]]>yes", ["yes"]),
        ("&#" + "1" * 5000 + ";a", []),
    ],
)
def test_only_text_is_translated(document: str, expected: list[str]) -> None:
    assert texts(document) == expected


def test_named_elements_are_not_translated() -> None:
    assert texts("<k>no</k>yes<K>no</K>", "k") == ["yes"]


@pytest.mark.parametrize(
    "part",
    [
        *("<", "<a", "<a b='", "<!--", "<!", "<?", "<script>", "</script", "<b a=", "&", "<![CDATA[", "= "),
        *('<p class="', "<a translate", "<code>", "<a class='x "),
    ],
    ids=repr,
)
@pytest.mark.parametrize("around", ["{}", "<{}", "<a {}", "<a {}>"])
def test_hostile_documents_take_linear_time(part: str, around: str) -> None:
    document = around.format(part * (LONG // len(part)))
    assert sum(len(one.raw) for one in pieces(document)) == len(document)
