"""Inline elements in translations."""

import re
from html import escape, unescape

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from nmt_cli.text.markup import blocks
from nmt_cli.text.tag_placement import Shares, placed, units

TAG = re.compile("<[^>]*>")


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in units(text)]


def aligned_by_spelling(source: str, target: str) -> Shares:
    """Each target unit attends to the equal source units."""
    return [{n: 1.0 for n, other in enumerate(words(source)) if one == other} for one in words(target)]


def translated(document: str, target: str) -> str:
    (block,) = (one for one in blocks(document) if one.text)
    return placed(block.text, block.elements, target, aligned_by_spelling(block.text, target))


@pytest.mark.parametrize(
    ("document", "target", "expected"),
    [
        ("Hello <b>big <i>old</i></b> world", "world old big Hello", "world <b><i>old</i> big</b> Hello"),
        ("<b>one two</b>", "two and one", "<b>two and one</b>"),
        ("one <img> two three", "three two one", "three <img> two one"),
        ("one <img> two three", "two three one", "<img> two three one"),
        ("one two <img>", "two one", "two one <img>"),
        ("one two: <input>", "two one:", "two one: <input>"),
        ("one<img> two", "two one", "two one<img>"),
        ("one<img>, two", "two one", "two one<img>"),
        ("<u>one x</u><img> two", "two one x", "two <u>one x</u><img>"),
        ("one <img>two", "two one", "<img>two one"),
        ("one <img><img> two", "two one", "<img><img> two one"),
        ("one <img> <br-x></br-x> two", "three two", "three <img> <br-x></br-x> two"),
        ("one <img> two.", "one.", "one <img>."),
        ("one <img> (two)", "(two) one", "<img> (two) one"),
        ("one <img> two", "(two) one", "(<img> two) one"),
        ("one <img> .", "one .", "one <img> ."),
        ("one <i></i> <b>Ann</b>", "Ann one", "<i></i> <b>Ann</b> one"),
        ("one <!----><b>Ann</b>", "Ann one", "<!----><b>Ann</b> one"),
        ("one <b><img></b> two", "three two", "three <b><img></b> two"),
        ("un<wbr>done one", "one undone", "one un<wbr>done"),
        ("<i>one two <b>three</b></i> four", "one two x three four", "<i>one two x <b>three</b></i> four"),
        ("<i><b>one</b> two three</i> four", "one x y two three", "<i><b>one</b> x y two three</i>"),
        ("<i><b>one</b> two three</i> four", "one four two three", "<i><b>one</b> four two three</i>"),
        ("<i><b>one</b> two</i> <u>four</u>", "one four two", "<i><b>one</b></i> <u>four</u> two"),
        ("<b>one</b>, two", "two, one.", "two, <b>one</b>."),
        ("<b>one:</b> two", "one: two", "<b>one:</b> two"),
        ("one <b>(two)</b> three", "(two) one three", "<b>(two)</b> one three"),
        ("H<sub>2</sub>O<sub>3</sub> is", "is H2O3", "is H<sub>2</sub>O<sub>3</sub>"),
        ("un<b>do</b>ne one", "one undone", "one un<b>do</b>ne"),
        ("<b>one</b> <i>two</i> three", "two three one", "<i>two</i> three <b>one</b>"),
        ("<b>one two</b> three four", "one x three two four", "<b>one</b> x three two four"),
        ("<b>lost</b> one", "one", "<b></b>one"),
        ("one <b></b>two", "two one", "<b></b>two one"),
        ("<b>日本</b>語 one", "one 日本語", "one <b>日本</b>語"),
        ("<b>one</b> two", "", "<b></b>"),
        ("one <code>x</code> two", "two one", "<code>x</code> two one"),
        ("one <code>x y</code> two", "x y two one", "<code>x y</code> two one"),
        ("one <code>f(x)</code>, two", "two, f(x), one", "two, <code>f(x)</code>, one"),
        ("one <b><code>x</code></b> two", "two x one", "two <b><code>x</code></b> one"),
        ("<b>one <code>x</code></b> two", "two x one", "two <b><code>x</code> one</b>"),
        ("the <code>x</code>-axis one", "one the x-axis", "one the <code>x</code>-axis"),
        ("<code>a</code>/<code>b</code> one", "one a/b", "one <code>a</code>/<code>b</code>"),
        ("one (<code>x</code>) two", "two (one)", "two (one<code>x</code>)"),
        ("<code>x</code> one", "one", "<code>x</code> one"),
        ("one <code>x</code>", "one", "one <code>x</code>"),
        ("a&lt;b <b>one</b>", "one a<b", "<b>one</b> a<b"),
    ],
)
def test_tags_follow_their_words(document: str, target: str, expected: str) -> None:
    assert translated(document, target) == expected


def test_a_word_is_not_placed_on_a_punctuation_mark() -> None:
    (block,) = blocks("<b>one</b> two")
    shares = [{0: 0.9, 1: 0.1}, {0: 0.3, 1: 0.2}]
    assert placed(block.text, block.elements, ", zwei", shares) == ", <b>zwei</b>"


@pytest.mark.parametrize(
    ("document", "target", "expected"),
    [
        ("<g>one <sc/>two</g> three<ec/> four", "four three two one", "four <sc/>three <g>two<ec/> one</g>"),
        ("<g>one <sc/>two</g> three<ec/>", "one two three", "<g>one <sc/>two</g> three<ec/>"),
        ("<g>one <sc/></g><ec/> two", "two one", "<sc/><ec/>two <g>one</g>"),
        ("<g>one <sc/>x</g> y<ec/>", "two one", "two <g>one</g><sc/><ec/>"),
        (
            "<g>one <sc/>x</g> <i translate='no'>y z</i><ec/>",
            "x y z one",
            "<g><sc/>x</g> <i translate='no'>y z</i><ec/> one",
        ),
    ],
)
def test_codes_that_cross_an_element_cover_their_words(document: str, target: str, expected: str) -> None:
    numbered = document.replace("<sc/>", '<sc id="1"/>').replace("<ec/>", '<ec startRef="1"/>')
    (block,) = blocks(numbered, "xliff")
    result = placed(block.text, block.elements, target, aligned_by_spelling(block.text, target))
    assert result.replace(' id="1"', "").replace(' startRef="1"', "") == expected


@pytest.mark.parametrize(
    ("document", "target", "expected"),
    [
        ("one <code>two &lt; 2</code> four", "eins zwei , drei vier", "eins <code>two &lt; 2</code> vier"),
        ("one <code>f(x)</code> four", "eins g ( y ), vier", "eins <code>f(x)</code>, vier"),
        ("one <code>x</code>-axis", "eins x-Achse", "eins <code>x</code>-Achse"),
        ("one <code>q</code>-axis", "eins Achse", "eins <code>q</code>Achse"),
        ("one <code>{}</code> four", "eins , vier", "eins <code>{}</code>, vier"),
    ],
)
def test_code_replaces_its_translation_but_nothing_else(document: str, target: str, expected: str) -> None:
    (block,) = blocks(document)
    count = len(units(block.text))
    shares = [{0: 1.0}, *({n: 1 / (count - 2) for n in range(1, count - 1)} for _ in units(target)[2:])]
    last = {count - 1: 1.0}
    assert placed(block.text, block.elements, target, [*shares, last], escape) == expected


def test_a_text_without_tags_is_escaped() -> None:
    assert placed("a < b", [], "b < a & c", [], escape) == "b &lt; a &amp; c"


def test_elements_of_several_sentences() -> None:
    (block,) = blocks("One <b>two. Three</b> four.")
    shares = [{n: 1.0} for n in range(6)]
    expected = "Eins <b>zwei. Drei</b> vier."
    assert placed(block.text, block.elements, "Eins zwei. Drei vier.", shares) == expected


fragments = st.recursive(
    st.sampled_from(["word ", "H2O", "x", "  \n", "a, b. ", "&amp; ", "Sätze ", "<img/>", "日本語"]),
    lambda inner: st.builds(
        "<{0}>{1}</{0}>".format, st.sampled_from("biuq"), st.lists(inner, max_size=4).map("".join)
    ),
    max_leaves=12,
)
targets = st.lists(st.sampled_from(["eins", "H2O", "zwei.", "drei,", "x", "&", "<", "日本"]), max_size=8)


@given(st.lists(fragments, max_size=5).map("".join), targets.map(" ".join), st.integers(0, 2**32))
def test_the_result_has_the_same_tags_and_the_same_text(document: str, target: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    for block in blocks(document):
        if block.text:
            rows, columns = len(units(target)), len(units(block.text))
            shares = [
                dict(enumerate(row[:-1]))
                for row in random.dirichlet(np.full(columns + 1, 0.2), rows).tolist()
            ]
            result = placed(
                block.text, block.elements, target, shares, lambda text: escape(text, quote=False)
            )
            # Elements without text keep the spaces around them.
            assert unescape(TAG.sub("", result)).replace(" ", "") == target.replace(" ", "")
            assert sorted(TAG.findall(result)) == sorted(TAG.findall(block.raw))
            etree.fromstring(f"<root>{result}</root>")


def test_many_tags_take_linear_time() -> None:
    document = " ".join(["<b>a</b>"] * 20_000)
    target = "b " * 20_000
    (block,) = blocks(document)
    shares = [{n: 1.0} for n in range(20_000)]
    assert placed(block.text, block.elements, target, shares).count("<b>") == 20_000


def test_many_tags_in_a_word_take_linear_time() -> None:
    (block,) = blocks("a<b>b</b>" * 20_000)
    target = f"{block.text} " + "x " * 20_000
    shares = [{0: 1.0}] * 20_001
    result = placed(block.text, block.elements, target, shares)
    assert result.startswith(block.raw) and TAG.sub("", result) == target
