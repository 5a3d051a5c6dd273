"""Every dropped pair counts under the right reason, and samples name the right lines."""

import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.data.cleaning.filter_report import CorpusReport, FilterReport, filter_page
from nmt_cli.data.cleaning.filters import Filters, in_order
from nmt_cli.data.config import FilterConfig
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizer import SIDES
from tests.data.corpora import COLUMNS, Make, Pairs, WritePairs, dropped_pairs, report_on, train_lines

Rule = Callable[[str, str], bool]

OFF = ("filter.max_words=0", "filter.max_ratio=0.0", "filter.max_subwords=0")


def letters(text: str) -> str:
    return "".join(character for character in text if character.isalpha())


def in_script(text: str, script: str) -> bool:
    own = sum(unicodedata.name(letter).startswith(script) for letter in letters(text))
    return 2 * own >= len(letters(text))


def occurred_before() -> Rule:
    seen: list[tuple[str, str]] = []

    def holds(source: str, target: str) -> bool:
        seen.append((source, target))
        return (source, target) in seen[:-1]

    return holds


RULES: dict[str, tuple[tuple[str, ...], Callable[[], Rule]]] = {
    "empty side": ((), lambda: lambda s, t: not s or not t),
    "too many words": (("max_words=6",), lambda: lambda s, t: max(len(s.split()), len(t.split())) > 6),
    "word ratio": (
        ("max_ratio=2.0",),
        lambda: lambda s, t: max(len(s.split()), len(t.split())) > 2 * min(len(s.split()), len(t.split())),
    ),
    "identical sides": (("identical=true",), lambda: lambda s, t: s == t),
    "wrong script": (
        ("source_script=Latin", "target_script=Cyrillic"),
        lambda: lambda s, t: not (in_script(s, "LATIN") and in_script(t, "CYRILLIC")),
    ),
    "too many subwords": (("max_subwords=14",), lambda: lambda s, t: max(len(s), len(t)) + 1 > 14),
    "duplicate": (("duplicates=true",), occurred_before),
}
"""The settings that turn on each filter, and a simple implementation of it, in the order of the reasons."""


def mixed_pairs(seed: int) -> Pairs:
    """Return pairs of which every filter drops some, but none drops all."""
    generator = random.Random(seed)
    words = ["a", "bc", "das", "да", "нет", "ж", "12", "3.4", "?!", "ñ"]

    def sentence(limit: int) -> str:
        return " ".join(generator.choices(words, k=generator.randint(0, limit)))

    pairs = [(sentence(9), sentence(9)) for _ in range(300)]
    copies = [(text, text) for text, _ in pairs[:40]]
    mixed = [*pairs, *copies, *generator.choices(pairs, k=60)]
    generator.shuffle(mixed)
    return mixed


def first_reasons(pairs: Pairs, rules: dict[str, Rule]) -> list[str | None]:
    """Return the first reason that holds for each pair, or None."""
    return [next((reason for reason, holds in rules.items() if holds(*pair)), None) for pair in pairs]


@pytest.fixture
def corpora(tmp_path: Path, write_pairs: WritePairs) -> list[tuple[str, Pairs]]:
    """Return two corpora with common pairs."""
    mixed = [mixed_pairs(1), mixed_pairs(2)]
    mixed[1] = [*mixed[1], *mixed[0][:50]]
    return [(write_pairs(tmp_path / f"mixed{i}", pairs), pairs) for i, pairs in enumerate(mixed)]


@pytest.mark.parametrize("reasons", [*([reason] for reason in RULES), list(RULES)], ids=lambda r: r[-1])
def test_pairs_are_kept_or_dropped_for_the_right_reason_with_samples(
    tmp_path: Path, make: Make, corpora: list[tuple[str, Pairs]], reasons: list[str]
) -> None:
    settings = [f"filter.{setting}" for reason in reasons for setting in RULES[reason][0]]
    make(tmp_path / "out", [prefix for prefix, _ in corpora], *OFF, *settings)
    rules = {reason: RULES[reason][1]() for reason in RULES if reason in ["empty side", *reasons]}
    kept: list[tuple[str, str]] = []
    counted: set[str] = set()
    for (_, pairs), corpus in zip(corpora, report_on(tmp_path / "out"), strict=True):
        expected = first_reasons(pairs, rules)
        counts = Counter(reason for reason in expected if reason)
        counted |= set(counts)
        assert dropped_pairs(corpus) == counts
        assert corpus["read"] == len(pairs) == corpus["kept"] + counts.total()
        kept += [pair for pair, reason in zip(pairs, expected, strict=True) if reason is None]
        for reason, entry in corpus["dropped"].items():
            numbers = {sample["number"] for sample in entry["samples"]}
            assert len(numbers) == len(entry["samples"]) == min(5, entry["pairs"])
            for sample in entry["samples"]:
                assert expected[sample["number"] - 1] == reason
                assert (sample["source"], sample["target"]) == pairs[sample["number"] - 1]
    assert counted == {"empty side", *reasons}
    sides = [train_lines(tmp_path / "out", side) for side in SIDES]
    assert list(zip(*sides, strict=True)) == kept


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (FilterConfig(source_script="Latn1"), "source_script"),
        (FilterConfig(target_script="no script"), "target_script"),
        (FilterConfig(source_script="Latin,Cyrillic"), "source_script"),
        (FilterConfig(target_script=")"), "target_script"),
        (FilterConfig(target_script="^Latin"), "target_script"),
    ],
)
def test_an_unknown_script_is_named(config: FilterConfig, name: str) -> None:
    with pytest.raises(UserError, match=rf"filter.{name} is .*, which is not a Unicode script. Use one"):
        Filters(config)


@pytest.mark.parametrize(
    ("source", "script", "kept"),
    [
        ("Привет", "Cyrillic", True),
        ("Привет hello", "Cyrillic", True),
        ("Привет hello you", "Cyrillic", False),
        ("12 - 34 !", "Cyrillic", True),
        ("漢字かな", "Han", True),
        ("漢字かなカナ", "Han", False),
    ],
)
def test_half_of_the_letters_decide_the_script(source: str, script: str, kept: bool) -> None:
    filters = Filters(FilterConfig(source_script=script))
    assert (filters.reason(source, "x") is None) == kept


def test_the_error_for_an_empty_training_set_counts_the_reasons(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    corpus = write_pairs(tmp_path / "c", [("a b c d", "x"), ("", "y"), ("a b c", "z")])
    with pytest.raises(UserError, match=r"No training pair is left \(word ratio: 2, empty side: 1\)"):
        make(tmp_path / "out", [corpus], "filter.max_ratio=2.0")
    with pytest.raises(UserError, match=r"No training pair is left \(too many subwords: 2, empty side: 1\)"):
        make(tmp_path / "out", [corpus], "filter.max_subwords=5")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("setting", "source", "target", "reason"),
    [
        ({"numbers": True}, "In 1999 or 2,500.", "1999 oder 2.500.", None),
        ({"numbers": True}, "2500 and 37", "37 und 2 500", None),
        ({"numbers": True}, "at 3, twelve of 12", "um drei, zwölf von 12", None),
        ({"numbers": True}, "١٩٩٩ and 007", "1999 und sieben", None),
        ({"numbers": True}, "In 1999.", "Im Jahr 1998.", "other numbers"),
        ({"numbers": True}, "In 1999.", "Es war einmal.", "other numbers"),
        ({"numbers": True}, "50 50", "50", "other numbers"),
        ({"numbers": True}, "1" * 5000, "x", "other numbers"),
        ({"markup": True}, "a < b & c > d", "1 <2> 3", None),
        ({"markup": True}, "I <3 you; AT&T", "x", None),
        ({"markup": True}, "a <b>c</b>", "x", "markup"),
        ({"markup": True}, "a", 'x <br/> <a href="y">', "markup"),
        ({"markup": True}, "a&nbsp;b", "x", "markup"),
        ({"markup": True}, "a &#xa0;b", "x", "markup"),
        ({"sentences": True}, "Hello. It is Dr. Wu.", "Hallo. Es ist Dr. Wu.", None),
        ({"sentences": True}, "Hello. It is Dr. Wu.", "Hallo, es ist Dr. Wu.", "other number of sentences"),
        ({"identical": True}, " same ", "same", "identical sides"),
    ],
)
def test_filters_of_raw_text(setting: dict[str, Any], source: str, target: str, reason: str | None) -> None:
    assert Filters(FilterConfig(**setting), "en", "de").raw_reason(source, target) == reason


def test_the_language_filter_checks_both_sides(tmp_path: Path, make: Make, write_pairs: WritePairs) -> None:
    pytest.importorskip("py3langid")
    english = "A group of people is waiting for the train in the station."
    german = "Eine Gruppe von Menschen wartet im Bahnhof auf den nächsten Zug."
    pairs = [(english, german), (german, english), (english, english), ("Yes", "Yes")]
    make(tmp_path / "out", [write_pairs(tmp_path / "c", pairs)], "filter.language=true")
    assert dropped_pairs(report_on(tmp_path / "out")[0])["other language"] == 2


SCORED = "en\tde\ts\na\tx\t0.2\nb\tx\t0.9\nc\tx\t0.9\nd\ty\t\nd\tz\t0.5\ne\tw\t-1\nb\tx\t0.9\n"


@pytest.mark.parametrize(
    ("settings", "kept", "dropped"),
    [
        ((), "abcddeb", {}),
        (("min_score=0.5",), "bcddb", {"score too low": 2}),
        (("one_per_target=true",), "bdde", {"better source of its target": 3}),
        (
            ("one_per_target=true", "duplicates=true"),
            "bdde",
            {"duplicate": 1, "better source of its target": 2},
        ),
    ],
)
def test_scores_decide_which_pairs_stay(
    tmp_path: Path, make: Make, settings: Sequence[str], kept: str, dropped: dict[str, int]
) -> None:
    (tmp_path / "c.tsv").write_text(SCORED)
    make(
        tmp_path / "out", [str(tmp_path / "c.tsv")], *COLUMNS, *(f"filter.{setting}" for setting in settings)
    )
    assert train_lines(tmp_path / "out") == list(kept)
    assert dropped_pairs(report_on(tmp_path / "out")[0]) == dropped


def test_without_scores_the_pair_of_closest_lengths_is_best(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    pairs = [("a b c d e f", "x y z"), ("a b d", "x y z"), ("a", "x y z"), ("k l m", "u v w")]
    make(tmp_path / "out", [write_pairs(tmp_path / "c", pairs)], "filter.one_per_target=true")
    assert train_lines(tmp_path / "out") == ["a b d", "k l m"]


def test_a_minimum_score_needs_scores(tmp_path: Path, make: Make, write_pairs: WritePairs) -> None:
    corpus = write_pairs(tmp_path / "c", [("a", "b")])
    with pytest.raises(UserError, match=r"filter\.min_score is 0\.5, .*corpus\.score_column"):
        make(tmp_path / "out", [corpus], "filter.min_score=0.5")


def test_reasons_are_in_the_order_of_the_checks_and_none_is_left_out() -> None:
    counted = ["addresses", "duplicate", "markup", "empty side", "markup"]
    assert in_order(counted) == ["empty side", "markup", "duplicate", "addresses"]
    report = FilterReport([CorpusReport("train", "one", 4)])
    for number, reason in enumerate(counted):
        report.corpora[0].dropped.add(reason, number, "a", "b")
    page = filter_page(report, FilterConfig(), "en", "de")
    assert '"reasons":["empty side","markup","duplicate","addresses"]' in page
