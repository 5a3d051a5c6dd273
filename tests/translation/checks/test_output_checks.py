"""Flags of wrong translations."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.decoding.config import InputConfig, SearchConfig, TranslateConfig
from nmt_cli.translation.checks.notes import Noted
from nmt_cli.translation.checks.output_checks import Degenerate, Flag, flags, terms_flag

SOURCE = "A man in a blue shirt is standing on a ladder cleaning a window."
TRANSLATION = "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster."


def flagged(source: str, translation: str) -> tuple[Flag, ...]:
    """Return the flags of a translation whose words are the pieces."""
    return flags(source, translation, len(source.split()), len(translation.split()))


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Hello", "", ("empty",)),
        ("42", " ", ("empty",)),
        ("日本", "", ("empty",)),
        ("- . -", "", ()),
        ("", "", ()),
        ("Hello", "!", ()),
    ],
)
def test_a_translation_without_text_is_empty(
    source: str, translation: str, expected: tuple[Flag, ...]
) -> None:
    assert flagged(source, translation) == expected


@pytest.mark.parametrize(
    "tail",
    [
        " und" * 9,
        " und der Mann" * 5,
        " in einem blauen Hemd und" * 3,
        " einer Leiter und einem Fenster in einem blauen Hemd, und" * 3,
        "-und-ab" * 8,
        "日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日",
    ],
)
def test_a_translation_that_ends_in_a_loop_is_flagged(tail: str) -> None:
    assert "looping" in flagged(SOURCE, "Ein Mann steht" + tail)


@pytest.mark.parametrize(
    "translation",
    [
        TRANSLATION,
        "Ha ha ha ha ha ha ha, lachte der Mann in dem blauen Hemd.",
        "Das ist sehr, sehr, sehr, sehr, sehr, sehr gut, sagte der Mann.",
        "New York, New York, New York ist der Name der Stadt.",
        "Ein Mann in einem Hemd und ein Mann in einem Mantel und ein Mann in einer Jacke.",
        "Der Mann putzt ein altes Fenster. Der Mann putzt ein altes Fenster. Der Mann lacht.",
        "Rufen Sie an: 1000000000000 oder 0000 0000 0000 0000 auf der Leiter.",
    ],
)
def test_good_translations_are_not_flagged(translation: str) -> None:
    assert flagged(SOURCE, translation) == ()


PASSAGE = (
    "Die Frau mit dem roten Hut steht vor dem großen Haus und wartet auf den Bus in die Stadt. "
    "Ein Mann in einem blauen Hemd putzt ein Fenster, ein Mann in einem blauen Hemd putzt ein Dach. "
)


@given(
    unit=st.text("abc ", min_size=1, max_size=25),
    times=st.integers(3, 10),
    around=st.tuples(st.text("xyz", max_size=50), st.text("xyz", max_size=50)),
)
def test_a_loop_is_flagged_at_any_position(unit: str, times: int, around: tuple[str, str]) -> None:
    times = max(times, 2 + 30 // len(unit))
    assert "looping" in flags("Ein Wort", f"x{around[0]}{unit * times}{around[1]}x", 50, 50)


@given(words=st.lists(st.integers(0, 10**6), min_size=1, max_size=200, unique=True))
def test_different_words_and_a_passage_with_a_repeated_phrase_are_not_flagged(words: list[int]) -> None:
    for text in (" ".join(f"w{word}" for word in words), PASSAGE * 2):
        assert flags("Ein Wort", text, 50, 50) == ()


@pytest.mark.parametrize("loop", ["ha " * 30, "." * 60])
def test_a_loop_of_the_source_may_be_translated(loop: str) -> None:
    assert flagged("Chapter 1 " + loop, "Kapitel 1 " + loop) == ()


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        (SOURCE, SOURCE),
        (SOURCE, SOURCE.upper()),
        (SOURCE, SOURCE.replace("window", "Fenster")),
        ("这个人在梯子上。", "这个人在梯子上。"),
        ("एक आदमी सीढ़ी पर खड़ा है", "एक आदमी सीढ़ी पर खड़ा है"),
    ],
    ids=["whole", "other case", "one word translated", "no blanks", "vowel signs"],
)
def test_a_returned_source_is_copied(source: str, translation: str) -> None:
    assert flagged(source, translation) == ("copied",)


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("Angela Merkel, Emmanuel Macron, Boris Johnson", "Angela Merkel, Emmanuel Macron, Boris Johnson"),
        ("12.03.2024 14:30 +49 30 1234567 12 13 14", "12.03.2024 14:30 +49 30 1234567 12 13 14"),
        ("a hot-dog", "a hot-dog"),
        ("Merkel and Macron meet with Johnson in Bonn", "Merkel und Macron treffen Johnson in Bonn"),
        (
            "he said no and she said no",
            "no, er sagte no and sie wollte he said she said in dem Haus an der Ecke",
        ),
        ("हिन्दी विश्वविद्यालय", "हिन्दी विश्वविद्यालय"),
        ("the man was in an old hotel in winter", "der mann war in einem alten hotel im winter"),
    ],
    ids="names|numbers|few words|names in a sentence|quoted in a longer one|vowel signs|related".split("|"),
)
def test_text_that_is_equal_in_both_languages_is_not_copied(source: str, translation: str) -> None:
    assert "copied" not in flagged(source, translation)


@pytest.mark.parametrize(
    ("source_pieces", "pieces", "ratio", "flagged"),
    [
        *[(20, 70, 1.0, False), (20, 71, 1.0, True), (50, 18, 1.0, False), (51, 18, 1.0, True)],
        *[(1, 13, 1.0, False), (7, 1, 1.0, False), (8, 1, 1.0, True)],
        *[(40, 16, 0.3, False), (40, 16, 1.0, False), (40, 16, 1.5, True)],
    ],
)
def test_implausible_lengths_are_flagged(
    source_pieces: int, pieces: int, ratio: float, flagged: bool
) -> None:
    expected = ("length",) if flagged else ()
    assert flags(SOURCE, TRANSLATION, source_pieces, pieces, ratio) == expected


@pytest.mark.parametrize(
    ("token_scores", "expected"), [([], ()), ([-6.9, -0.1], ()), ([-0.1, -6.95, -0.1], ("terms",))]
)
def test_a_token_that_only_a_term_explains_is_flagged(
    token_scores: list[float], expected: tuple[str]
) -> None:
    assert terms_flag(token_scores) == expected


def test_several_flags_are_raised_together() -> None:
    source = "the man sees the dog"
    assert flags(source, source, 5, 70) == ("copied", "length")
    assert flags(source, "ab cd " * 40, 5, 70) == ("looping", "length")


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([17], "line 17"),
        ([1500, 2], "lines 2, 1,500"),
        (random.Random(1).sample(range(1, 2001), 2000), "lines 1, 2, 3, 4, 5 and 1,995 more"),
    ],
    ids=["one", "two", "many"],
)
def test_the_lowest_line_numbers_are_listed(numbers: list[int], expected: str) -> None:
    lines = Noted()
    for number in numbers:
        lines.add(number)
    assert str(lines) == expected


def test_an_address_is_no_copy_of_its_source() -> None:
    address = "see first.second.third.fourth.fifth@one.two.org"
    assert flags(address, address, 20, 20) == ()


def test_the_report_counts_each_flag_and_lists_its_first_lines() -> None:
    tally = Degenerate(TranslateConfig())
    assert tally.report() == []
    numbers = list(range(1, 1001))
    random.Random(1).shuffle(numbers)
    for number in numbers:
        raised: list[Flag] = ["looping"] if number in (17, 40, 512) else []
        raised += ["empty"] if number == 1000 else []
        raised += ["length"] if number % 100 == 40 else []
        tally.add(number, raised, repaired=number in (8, 9))
    assert tally.report() == [
        "1 of 1,000 translations is empty (search.min_length=1 prevents this): line 1,000",
        "3 of 1,000 translations loop (search.second_attempt=true tries again): lines 17, 40, 512",
        "10 of 1,000 translations are far longer or shorter than their source: "
        "lines 40, 140, 240, 340, 440 and 5 more",
        "2 of 1,000 translations looped or copied at first and were replaced: lines 8, 9",
    ]


def test_the_report_suggests_no_setting_that_is_set() -> None:
    tally = Degenerate(
        TranslateConfig(
            search=SearchConfig(min_length=1, second_attempt=True), input=InputConfig(sentences="split")
        )
    )
    every: list[Flag] = ["empty", "looping", "copied", "short"]
    tally.add(1, every)
    assert tally.report() == [
        "1 of 1 translations is empty: line 1",
        "1 of 1 translations loops: line 1",
        "1 of 1 translations copies its source: line 1",
        "1 of 1 translations lacks sentences of its source: line 1",
    ]


@pytest.mark.skipif("NMT_DATA" not in os.environ, reason="NMT_DATA names no folder of corpora")
def test_human_translations_are_not_flagged() -> None:
    folder = Path(os.environ["NMT_DATA"]) / "multi30k"
    sources, references = (
        (folder / f"train.{lang}").read_text(encoding="utf-8").splitlines() for lang in ("en", "de")
    )
    raised = [flagged(*pair) for pair in zip(sources, references, strict=True)]
    assert len(raised) == 29_000
    assert sum(map(bool, raised)) < 0.001 * len(raised)


@pytest.mark.parametrize(
    ("source", "translation", "pieces", "expected"),
    [
        ("One is. Two is. Three is.", "Eins ist.", (30, 10), True),
        ("One is. Two is. Three is.", "Eins ist, zwei ist, drei ist.", (30, 25), False),
        ("One is. Two is.", "Eins. Zwei.", (30, 10), False),
        ("One is all there is.", "Eins.", (30, 12), False),
    ],
)
def test_missing_sentences_are_flagged(
    source: str, translation: str, pieces: tuple[int, int], expected: bool
) -> None:
    assert ("short" in flags(source, translation, *pieces)) is expected


MARKUP = "<b> </b> <br/> {{name}} {0} ${user.name} %s %1$s %(name)d https://a.org/a?b=c me.you@example.org"


@pytest.mark.parametrize("markup", [*MARKUP.split(), '<a href="x">'])
def test_missing_markup_and_placeholders_are_flagged(markup: str) -> None:
    source = f"the house {markup} is small"
    assert flags(source, "das Haus ist klein", 5, 5) == ("markup",)
    assert flags(source, f"das Haus ist {markup} klein", 5, 5) == ()
    assert flags(source, f"das {markup} Haus ist {markup} klein", 5, 6) == ("markup",)
    assert flags(f"{source} {markup}", f"das Haus ist {markup} klein", 5, 5) == ("markup",)


@pytest.mark.parametrize(
    "text", ["100% sure", "5 < 6 and 7 > 3", "a set {of, things}", "write me @home", "50 %"]
)
def test_ordinary_text_is_not_markup(text: str) -> None:
    assert "markup" not in flags(text, "das Haus ist klein", 5, 5)
