"""Pairs of validation and test sets are never trained on, however they are written."""

import re
import unicodedata
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.data.cleaning import held_out
from nmt_cli.errors import UserError
from tests.data.corpora import Make, WritePairs, dropped_pairs, report_on, train_lines

LINE = st.text(st.sampled_from("aBcßÄä ,.!„“…—\u0301ﬁfi語。٣3"), max_size=6)


def normalized(text: str) -> str:
    """Compute the key of a line character by character."""
    plain = unicodedata.normalize("NFKC", text.casefold()).replace("\u0301", "")
    return "".join(mark for mark in plain if unicodedata.category(mark)[0] not in "PZS")


@given(st.lists(LINE, min_size=1, max_size=5), st.integers(1, 3))
def test_keys_ignore_case_spaces_and_punctuation(lines: list[str], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "AT_ONCE", at_once)
        line_keys = held_out.keys([line.encode() for line in lines])
    assert len(line_keys) == len(lines)
    # A combining accent depends on its neighbours, so lines with one are not compared.
    for line, key in zip(lines, line_keys, strict=True):
        if "\u0301" not in line:
            assert key.decode() == normalized(line)


def test_keys_of_long_runs_of_marks_are_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, unpatched = list[int](), unicodedata.normalize

    def normalize(form: Literal["NFKC"], text: str) -> str:
        runs.extend(map(len, re.findall("[\u0301\u0327]+", text)))
        return unpatched(form, text)

    monkeypatch.setattr(unicodedata, "normalize", normalize)
    # Punctuation is removed, so it must not hide a long run.
    line = ("a" + "\u0301\u0327…" * 1000).encode()
    assert held_out.keys([b"b\xc3\xa9", line])[1] == held_out.keys([line])[0]
    assert max(runs) == 30


VARIANTS = [
    ("A man sleeps.", "Ein Mann schläft."),
    ("a MAN sleeps", "EIN MANN SCHLÄFT"),
    ("A man, sleeps…", "„Ein Mann schla\u0308ft“!"),
    ("A  man sleeps .", "Ein Mann\xa0schläft ."),
]


@pytest.mark.parametrize("role", ["valid", "held_out"])
def test_pairs_of_other_sets_are_dropped_and_counted(
    tmp_path: Path, make: Make, write_pairs: WritePairs, role: str
) -> None:
    unrelated = [
        ("A man sleeps.", "Eine Frau schläft."),
        ("A dog sleeps.", "Ein Mann schläft."),
        ("?", "!"),
        ("?", ""),
    ]
    train = write_pairs(tmp_path / "train", [*VARIANTS, *unrelated])
    other = write_pairs(tmp_path / "known", [VARIANTS[0], ("!", "?")])
    if role == "valid":
        make(tmp_path / "out", [train], valid=[other])
    else:
        make(tmp_path / "out", [train], f'filter.held_out=["{other}"]')
    corpus = report_on(tmp_path / "out")[0]
    assert dropped_pairs(corpus) == {"in a valid or test set": 4, "empty side": 1}
    samples = corpus["dropped"]["in a valid or test set"]["samples"]
    assert sorted(sample["number"] for sample in samples) == [1, 2, 3, 4]
    assert train_lines(tmp_path / "out") == ["A man sleeps.", "A dog sleeps.", "?"]


@pytest.mark.parametrize(
    ("by", "kept"), [("pair", [2, 3, 4]), ("source", [3, 4]), ("target", [2, 4]), ("either", [4])]
)
def test_pairs_with_one_side_of_other_sets_can_be_dropped(
    tmp_path: Path, make: Make, write_pairs: WritePairs, by: str, kept: list[int]
) -> None:
    pairs = [("one 1", "eins 1"), ("One 1!", "zwei 2"), ("three 3", "Eins 1."), ("?", "vier 4")]
    train = write_pairs(tmp_path / "train", pairs)
    other = write_pairs(tmp_path / "known", [pairs[0], ("?", "!")])
    make(tmp_path / "out", [train], f"filter.decontaminate_by={by}", valid=[other])
    assert train_lines(tmp_path / "out") == [pairs[number - 1][0] for number in kept]


def test_pairs_of_other_sets_stay_if_the_filter_is_off(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    train = write_pairs(tmp_path / "set", VARIANTS)
    with pytest.raises(UserError, match=r"in a valid or test set: 4\).*filter\.decontaminate=false"):
        make(tmp_path / "out", [train], valid=[train])
    make(tmp_path / "out", [train], "filter.decontaminate=false", valid=[train])
    assert len(train_lines(tmp_path / "out")) == 4


def test_a_changed_held_out_corpus_is_a_difference(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    train, known = (write_pairs(tmp_path / name, [("a", "b"), (name, name)]) for name in ("train", "known"))
    held = f'filter.held_out=["{known}"]'
    outcome = make(tmp_path / "out", [train], held)
    assert list(outcome.manifest["splits"]) == ["train"]
    write_pairs(tmp_path / "known", [("a", "c")])
    with pytest.raises(UserError, match=r"input 2: held out known"):
        make(tmp_path / "out", [train], held)
    with pytest.raises(UserError, match="there is no"):
        make(tmp_path / "out2", [train], f'filter.held_out=["{tmp_path}/nowhere"]')
