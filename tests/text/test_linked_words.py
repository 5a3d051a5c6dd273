"""Links between words follow the edits of a pair."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.text.glossary import Annotator
from nmt_cli.text.linked_words import Change, Edit, Link
from nmt_cli.text.placeholders import apart, family
from nmt_cli.text.tag_placement import units
from nmt_cli.text.variation import VARIATIONS, Variation, changes

MASKS = apart(family(4))[0]
TEXTS = st.lists(st.sampled_from(["a", "Bc", "d-e", "f.", "(g", ",", "⟦1⟧", "字", "ß'", "3.5"]), max_size=8)


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in units(text)]


@pytest.mark.parametrize(
    ("source", "edit", "result", "links"),
    [
        ("a b c", Edit(2, 3, "B"), "a B c", {(0, 0), (1, 1), (2, 2)}),
        ("a b c", Edit(2, 4, ""), "a c", {(0, 0), (1, 2)}),  # a word that is gone takes its links with it
        ("a b c", Edit(2, 2, "x "), "a x b c", {(0, 0), (2, 1), (3, 2)}),
        ("a bb c", Edit(2, 4, "b-c d"), "a b-c d c", {(0, 0), (1, 1), (2, 1), (3, 2)}),
        ("a bb, c", Edit(2, 5, "b,b"), "a b,b c", {(0, 0), (1, 1), (1, 2), (2, 3)}),
        ("a b-c d", Edit(4, 4, " x "), "a b- x c d", {(0, 0), (1, 1), (2, 1), (4, 1), (5, 2)}),
    ],
    ids=["replaced", "removed", "inserted", "more words", "fewer words", "split"],
)
def test_a_word_is_followed_to_what_it_became(source: str, edit: Edit, result: str, links: set[Link]) -> None:
    target, same = "x y z u", {(n, n) for n in range(len(units(source)))}
    change = Change([edit])
    assert change.of((source, target)) == (result, target)
    assert change.links((source, target), same) == links
    mirrored = Change(target=[edit])
    assert mirrored.links((target, source), same) == {(s, t) for t, s in links}


def test_words_of_a_text_on_both_sides_are_linked_to_each_other_alone() -> None:
    change = Change([Edit(0, 1, "b c")], equal="b c")
    assert change.of(("a", "x b c")) == ("b c", "x b c")
    assert change.links(("a", "x b c"), {(0, 0), (0, 1)}) == {(0, 1), (1, 2)}


@given(
    source=TEXTS,
    target=TEXTS,
    kind=st.sampled_from([*VARIATIONS, None]),
    seed=st.integers(0, 1000),
)
def test_links_name_words_that_exist_and_unchanged_words_keep_theirs(
    source: list[str], target: list[str], kind: Variation | None, seed: int
) -> None:
    pair = (" ".join(source), " ".join(target))
    links = {(s, t) for s in range(len(units(pair[0]))) for t in range(len(units(pair[1])))}
    terms = Annotator({"a": ["Bc"], "Bc": ["f"]}, str, str)
    steps = (
        changes(kind, pair, Random(seed), frozenset(family(4)), MASKS)
        if kind
        else terms.learnt(*pair, Random(seed))
    )
    for change in steps:
        before, links = pair, change.links(pair, links)
        pair = change.of(pair)
        sizes = [len(units(text)) for text in pair]
        assert all(s < sizes[0] and t < sizes[1] for s, t in links)
        if pair == before:
            assert change.links(pair, {(0, 0)} & links) == {(0, 0)} & links
