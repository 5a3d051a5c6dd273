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
    "xhtml": ("<p>one ", "</p>"),
    "xml": ("<p>one ", "</p>"),
    "xliff": ("<segment><source>one ", "</source></segment>"),
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
    """The document with its words in another order, and with their exact alignment. In XLIFF, the target
    takes the place of the source."""
    parts = cut(blocks_of(document, form), lambda text: ([text], [""]))
    results = []
    for sentence in parts.sentences:
        numbers = order([*range(len(units(sentence)))])
        words = [sentence[start:end] for start, end in units(sentence)]
        results.append((" ".join(words[n] for n in numbers), [{n: 1.0} for n in numbers]))
    result = parts.translated(results, lambda texts, spaces: "".join(texts))
    return re.sub("<source>.*</source><target>(.*)</target>", r"<source>\1</source>", result, flags=re.DOTALL)


@dataclass
class Sentence:
    """A random sentence of unique words and tags."""

    random: Random
    form: Format
    elements: list[tuple[str, str]] = field(default_factory=list)
    """The tags of all elements with words."""

    staying: list[str] = field(default_factory=list)
    """The elements that are not translated."""

    count: int = 0

    @property
    def document(self) -> str:
        return self.content().join(AROUND[self.form])

    def content(self, depth: int = 0) -> str:
        wrappers = ELEMENTS + (PAIRS if self.form == "xliff" else [])
        voids = VOIDS + (LONE if self.form == "xliff" else [])
        parts = []
        for _ in range(self.random.randint(1, 4)):
            self.count += 1
            part = f"w{self.count}"
            if self.random.random() < 0.2:
                part = f"<k{self.count} translate='no'>{part} &lt;<b>b</b></k{self.count}>"
                self.staying.append(part)
            elif self.random.random() < 0.5 and depth < 4:
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
    document = Sentence(random, form).document
    assert translated(document, form, list) == document


@pytest.mark.parametrize("form", AROUND)
@given(random=st.randoms(use_true_random=True))
def test_elements_cover_their_words_in_another_order(form: Format, random: Random) -> None:
    sentence = Sentence(random, form)
    document = sentence.document
    result = translated(document, form, lambda numbers: numbers[::-1])
    for opening, closing in sentence.elements:
        assert words_between(result, opening, closing) == words_between(document, opening, closing)
    assert all(element in result for element in sentence.staying)


@pytest.mark.parametrize("form", AROUND)
@given(random=st.randoms(use_true_random=True))
def test_all_tags_stay_and_open_before_they_close(form: Format, random: Random) -> None:
    sentence = Sentence(random, form)
    document = sentence.document
    result = translated(document, form, in_any_order(random))
    assert Counter(TAG.findall(result)) == Counter(TAG.findall(document))
    assert all(element in result for element in sentence.staying)
    assert all(result.index(opening) < result.index(closing) for opening, closing in sentence.elements)


@given(random=st.randoms(use_true_random=True), count=st.integers(1, 6))
def test_codes_that_cross_elements_cover_their_words(random: Random, count: int) -> None:
    parts = [f"w{n}" for n in range(12)]
    parts[2:2], parts[8:8] = ["<g1>"], ["</g1>"]
    tags = [[tag.format(n) for tag in random.choice(PAIRS)] for n in range(count)]
    for opening, closing in tags:
        first = random.randint(0, len(parts))
        parts.insert(first, opening)
        parts.insert(random.randint(first + 1, len(parts)), closing)
    document = " ".join(parts).join(AROUND["xliff"])
    result = translated(document, "xliff", in_any_order(random))
    assert Counter(TAG.findall(result)) == Counter(TAG.findall(document))
    assert all(result.index(opening) < result.index(closing) for opening, closing in tags)
    result = translated(document, "xliff", lambda numbers: numbers[::-1])
    for opening, closing in tags:
        assert words_between(result, opening, closing) == words_between(document, opening, closing)
