"""Filters: every pair is accounted for under the right reason, and samples point at the right lines."""

import json
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.data.config import FilterConfig
from nmt_cli.data.filters import Filters
from nmt_cli.errors import UserError

Pairs = Sequence[tuple[str, str]]
Rule = Callable[[str, str], bool]

OFF = ("filter.max_words=0", "filter.max_ratio=0.0", "filter.max_subwords=0")


def letters(text: str) -> str:
    return "".join(character for character in text if character.isalpha())


def in_script(text: str, script: str) -> bool:
    own = sum(unicodedata.name(letter).startswith(script) for letter in letters(text))
    return 2 * own >= len(letters(text))


def few_letters(text: str) -> bool:
    return len(letters(text)) < 0.5 * len(text.replace(" ", ""))


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
    "too few letters": (("min_letters=0.5",), lambda: lambda s, t: few_letters(s) or few_letters(t)),
    "duplicate": (("duplicates=true",), occurred_before),
    "too many subwords": (("max_subwords=14",), lambda: lambda s, t: max(len(s), len(t)) + 1 > 14),
}
"""For each reason, in their order: the settings that switch it on, and what it means in the plainest code."""


def mixed_pairs(seed: int) -> Pairs:
    """Pairs of which every filter catches some, and none all."""
    chosen = random.Random(seed)
    words = ["a", "bc", "das", "да", "нет", "ж", "12", "3.4", "?!", "ñ"]

    def sentence(most: int) -> str:
        return " ".join(chosen.choices(words, k=chosen.randint(0, most)))

    pairs = [(sentence(9), sentence(9)) for _ in range(300)]
    copies = [(text, text) for text, _ in pairs[:40]]
    mixed = [*pairs, *copies, *chosen.choices(pairs, k=60)]
    chosen.shuffle(mixed)
    return mixed


def accounted(pairs: Pairs, rules: dict[str, Rule]) -> list[str | None]:
    """For each pair the first reason that holds."""
    return [next((reason for reason, holds in rules.items() if holds(*pair)), None) for pair in pairs]


def report_on(folder: Path) -> list[dict[str, Any]]:
    report: list[dict[str, Any]] = json.loads((folder / "filter-report.json").read_text())
    return report


@pytest.fixture
def corpora(tmp_path: Path, write_pairs: Callable[[Path, Pairs], str]) -> list[tuple[str, Pairs]]:
    """Two corpora, with pairs in common."""
    mixed = [mixed_pairs(1), mixed_pairs(2)]
    mixed[1] = [*mixed[1], *mixed[0][:50]]
    return [(write_pairs(tmp_path / f"mixed{i}", pairs), pairs) for i, pairs in enumerate(mixed)]


@pytest.mark.parametrize("reasons", [*([reason] for reason in RULES), list(RULES)], ids=lambda r: r[-1])
def test_lines_read_are_kept_or_dropped_for_the_right_reason(
    tmp_path: Path, make: Callable[..., object], corpora: list[tuple[str, Pairs]], reasons: list[str]
) -> None:
    wanted = [f"filter.{setting}" for reason in reasons for setting in RULES[reason][0]]
    make(tmp_path / "out", [prefix for prefix, _ in corpora], *OFF, *wanted)
    rules = {reason: RULES[reason][1]() for reason in RULES if reason in ["empty side", *reasons]}
    kept: list[tuple[str, str]] = []
    all_found: set[str] = set()
    for (_, pairs), found in zip(corpora, report_on(tmp_path / "out"), strict=True):
        expected = accounted(pairs, rules)
        counts = Counter(reason for reason in expected if reason)
        all_found |= set(counts)
        assert {reason: entry["pairs"] for reason, entry in found["dropped"].items()} == counts
        assert found["read"] == len(pairs) == found["kept"] + counts.total()
        kept += [pair for pair, reason in zip(pairs, expected, strict=True) if reason is None]
    assert all_found == {"empty side", *reasons}
    text = [(tmp_path / "out" / f"train.{side}.txt").read_text() for side in ("source", "target")]
    assert list(zip(*(side.split("\n")[:-1] for side in text), strict=True)) == kept


def test_samples_show_dropped_pairs_with_the_numbers_of_their_lines(
    tmp_path: Path, make: Callable[..., object], corpora: list[tuple[str, Pairs]]
) -> None:
    wanted = [f"filter.{setting}" for settings, _ in RULES.values() for setting in settings]
    make(tmp_path / "out", [prefix for prefix, _ in corpora], *OFF, *wanted)
    rules = {reason: rule() for reason, (_, rule) in RULES.items()}
    for (_, pairs), found in zip(corpora, report_on(tmp_path / "out"), strict=True):
        expected = accounted(pairs, rules)
        assert list(found["dropped"]) == sorted(set(filter(None, expected)))
        for reason, entry in found["dropped"].items():
            numbers = [sample["number"] for sample in entry["samples"]]
            assert len(numbers) == len(set(numbers)) == min(5, entry["pairs"])
            for sample in entry["samples"]:
                assert expected[sample["number"] - 1] == reason
                assert (sample["source"], sample["target"]) == pairs[sample["number"] - 1]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (FilterConfig(source_script="Latn1"), "source_script"),
        (FilterConfig(target_script="no script"), "target_script"),
    ],
)
def test_a_script_that_does_not_exist_is_named(config: FilterConfig, name: str) -> None:
    with pytest.raises(UserError, match=rf"\[filter\]: {name} is .*, which is no Unicode script"):
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
def test_a_side_is_in_a_script_when_half_of_its_letters_are(source: str, script: str, kept: bool) -> None:
    filters = Filters(FilterConfig(source_script=script))
    assert (filters.reason(source, "x") is None) == kept


def test_a_corpus_of_which_nothing_is_left_says_why(
    tmp_path: Path, make: Callable[..., object], write_pairs: Callable[[Path, Pairs], str]
) -> None:
    corpus = write_pairs(tmp_path / "c", [("a b c d", "x"), ("", "y"), ("a b c", "z")])
    with pytest.raises(UserError, match=r"no training pair is left \(word ratio: 2, empty side: 1\)"):
        make(tmp_path / "out", [corpus], "filter.max_ratio=2.0")
    with pytest.raises(UserError, match=r"no training pair is left \(too many subwords: 2, empty side: 1\)"):
        make(tmp_path / "out", [corpus], "filter.max_subwords=5")
    assert not (tmp_path / "out").exists()
