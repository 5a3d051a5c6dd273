"""Inline elements of documents in a translation whose words and alignment are known."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.text.formats import Format, blocks_of
from nmt_cli.text.tag_placement import units
from nmt_cli.translation.document import cut

AROUND: dict[Format, tuple[str, str]] = {
    "html": ("<p>one ", "</p>"),
    "xhtml": ("<p>", "</p>"),
    "xml": ("<p>one ", "</p>"),
    "xliff": ("<segment><source>", "</source></segment>"),
}
ELEMENTS = [("<g{}>", "</g{}>")]
PAIRS = [
    ('<bpt id="{}">&lt;b&gt;</bpt>', '<ept id="{}">&lt;/b&gt;</ept>'),
    ('<bpt id="{0}" rid="r{0}"/>', '<ept id="x{0}" rid="r{0}"/>'),
    ("<bx id='{}'/>", "<ex id='{}'/>"),
    ('<it id="{0}" pos="open">b</it>', '<it id="{0}" pos="close">/b</it>'),
    ('<sc id="{}"/>', '<ec startRef="{}"/>'),
    ('<sm id="{}" type="term"/>', '<em startRef="{}"/>'),
]
VOIDS = ["<x{}/>", "<!--{}-->", "<i{0}></i{0}>"]
LONE = ['<bx id="{}"/>', '<ept id="{}">b</ept>', '<sc id="{}" isolated="yes"/>', '<it id="{}">b</it>']
TAG = re.compile(r"<(?:bpt|ept|it)\b[^>]*(?<!/)>.*?</(?:bpt|ept|it)>|<[^>]*>")


def translated(document: str, form: Format, order: Callable[[list[int]], list[int]]) -> str:
    """The document with its words in another order, and with their exact alignment."""
    parts = cut(blocks_of(document, form), lambda text: ([text], [""]))
    results = []
    for sentence in parts.sentences:
        numbers = order([*range(len(units(sentence)))])
        words = [sentence[start:end] for start, end in units(sentence)]
        results.append((" ".join(words[n] for n in numbers), [{n: 1.0} for n in numbers]))
    result = parts.translated(results, lambda texts, spaces: "".join(texts))
    return result.rpartition("<target>")[2].partition("</target>")[0] if form == "xliff" else result


@dataclass
class Sentence:
    """A random sentence of unique words and tags."""

    random: Random
    form: Format
    elements: list[tuple[str, str]] = field(default_factory=list)
    """The tags of all elements with words."""

    count: int = 0

    def content(self, depth: int = 0) -> str:
        wrappers = ELEMENTS + (PAIRS if self.form == "xliff" else [])
        voids = VOIDS + (LONE if self.form == "xliff" else [])
        parts = []
        for _ in range(self.random.randint(1, 4)):
            self.count += 1
            part = f"w{self.count}"
            if self.random.random() < 0.5 and depth < 4:
                opening, closing = (tag.format(self.count) for tag in self.random.choice(wrappers))
                self.elements.append((opening, closing))
                part = f"{opening}{self.content(depth + 1)}{closing}"
            self.count += 1
            void = self.random.choice(voids).format(self.count)
            forms = ["{1}"] * 6 + ["{0}{1}", "{0} {1}", "{1}{0}"]
            parts.append(self.random.choice(forms).format(void, part))
        return " ".join(parts)


def in_any_order(random: Random) -> Callable[[list[int]], list[int]]:
    return lambda numbers: random.sample(numbers, len(numbers))


def words_between(text: str, opening: str, closing: str) -> set[str]:
    return set(re.findall(r"\bw\d+", text[text.index(opening) : text.index(closing)]))


@pytest.mark.parametrize("form", AROUND)
@given(random=st.randoms(use_true_random=True))
def test_a_copy_of_all_words_is_the_document(form: Format, random: Random) -> None:
    content = Sentence(random, form).content()
    document = content.join(AROUND[form])
    assert translated(document, form, list) == (content if form == "xliff" else document)


@pytest.mark.parametrize("form", AROUND)
@given(random=st.randoms(use_true_random=True))
def test_elements_cover_their_words_in_another_order(form: Format, random: Random) -> None:
    sentence = Sentence(random, form)
    content = sentence.content()
    result = translated(content.join(AROUND[form]), form, lambda numbers: numbers[::-1])
    for opening, closing in sentence.elements:
        assert words_between(result, opening, closing) == words_between(content, opening, closing)


@pytest.mark.parametrize("form", AROUND)
@given(random=st.randoms(use_true_random=True))
def test_all_tags_stay_and_open_before_they_close(form: Format, random: Random) -> None:
    sentence = Sentence(random, form)
    content = sentence.content()
    result = translated(content.join(AROUND[form]), form, in_any_order(random))
    expected = content if form == "xliff" else content.join(AROUND[form])
    assert Counter(TAG.findall(result)) == Counter(TAG.findall(expected))
    assert all(result.index(opening) < result.index(closing) for opening, closing in sentence.elements)


@given(random=st.randoms(use_true_random=True), count=st.integers(1, 6))
def test_codes_that_cross_elements_open_before_they_close(random: Random, count: int) -> None:
    parts = [f"w{n}" for n in range(12)]
    parts[2:2], parts[8:8] = ["<g1>"], ["</g1>"]
    tags = [[tag.format(n) for tag in random.choice(PAIRS)] for n in range(count)]
    for opening, closing in tags:
        first = random.randint(0, len(parts))
        parts.insert(first, opening)
        parts.insert(random.randint(first + 1, len(parts)), closing)
    content = " ".join(parts)
    result = translated(content.join(AROUND["xliff"]), "xliff", in_any_order(random))
    assert Counter(TAG.findall(result)) == Counter(TAG.findall(content))
    assert all(result.index(opening) < result.index(closing) for opening, closing in tags)
