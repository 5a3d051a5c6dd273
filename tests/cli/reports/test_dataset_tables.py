"""The output of `nmt preprocess`: the same numbers as in the files."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nmt_cli.cli.reports.dataset_tables import show
from nmt_cli.data.cleaning.filter_report import CorpusReport, FilterReport
from nmt_cli.data.preprocessing.pipeline import Outcome
from tests.cli.conftest import Nmt

Pairs = Sequence[tuple[str, str]]


def rows(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose first column is `head`, row by row, with the header."""
    lines = [re.split(r"\s*[│┃]\s*", line.strip())[1:-1] for line in text.splitlines() if line[:1] in "│┃"]
    start = next(number for number, cells in enumerate(lines) if cells[0] == head)
    width = len(lines[start])
    return [cells for cells in lines[start:] if len(cells) == width]


def test_the_tables_show_every_corpus_with_the_numbers_of_the_files(
    nmt_preprocess: Nmt, tmp_path: Path, write_pairs: Callable[[Path, Pairs], str], dev: str
) -> None:
    pairs = [("a b", "b a")] * 1200 + [("", "x")] * 2 + [("a " * 9, "b")] * 3
    first, second = (write_pairs(tmp_path / name, some) for name, some in (("c", pairs), ("d", pairs[1200:])))
    arguments = ("--train", first, "--train", second, "--valid", dev, "--set", "filter.max_words=5")
    result = nmt_preprocess(*arguments, "--set", "filter.duplicates=true", "--out", tmp_path / "out")
    assert result.returncode == 0
    assert rows(result.stderr, "corpus") == [
        ["corpus", "read", "kept", "empty side", "too many words", "duplicate"],
        ["c", "1,205", "1", "2", "3", "1,199"],
        ["d", "5", "0", "2", "3", "0"],
    ]
    splits = json.loads((tmp_path / "out" / "dataset.json").read_text())["splits"]
    assert [row[:4] for row in rows(result.stderr, "split")] == [
        ["split", "role", "pairs", "source tokens"],
        ["train", "train", "1", "4"],
        ["dev", "valid", "20", f"{splits['dev']['source_tokens']:,}"],
    ]
    assert "vocabulary: 8 entries, joint" in result.stderr
    assert f"filter report with samples: {tmp_path}/out/filter-report.html" in result.stderr


def test_both_separate_vocabularies_are_shown(
    nmt_preprocess: Nmt, tmp_path: Path, write_pairs: Callable[[Path, Pairs], str]
) -> None:
    corpus = write_pairs(tmp_path / "c", [("abcdefgh", "x"), ("a", "y")])
    result = nmt_preprocess(
        "--train", corpus, "--separate", "--set", "filter.max_ratio=0.0", "--out", tmp_path / "o"
    )
    assert "vocabularies: 16 and 8 entries" in result.stderr


def test_each_odd_evaluation_set_causes_a_warning_with_a_line_number(
    nmt_preprocess: Nmt, tmp_path: Path, toy: str, write_pairs: Callable[[Path, Pairs], str]
) -> None:
    odd = write_pairs(tmp_path / "odd", [("abc", "abc"), ("", "abc"), ("\u4e00", "abc"), ("", "a")])
    result = nmt_preprocess("--train", toy, "--test", odd, "--out", tmp_path / "out", "--quiet")
    assert result.stderr.splitlines() == [
        "Warning: test set 'odd': empty side in 2 of 4 pairs (kept; for example line 2)",
        "Warning: test set 'odd': unknown subwords in 1 of 4 pairs (kept; for example line 3)",
    ]


def test_unknown_training_tokens_cause_a_warning_with_a_remedy_that_is_accepted(
    nmt_preprocess: Nmt, tmp_path: Path, toy: str, write_pairs: Callable[[Path, Pairs], str]
) -> None:
    nmt_preprocess("--train", toy, "--out", tmp_path / "first", "--quiet")
    odd = write_pairs(tmp_path / "odd", [("\u4e00", "abc")])
    reuse = ("--reuse-tokenizer", tmp_path / "first")
    result = nmt_preprocess("--train", odd, *reuse, "--out", tmp_path / "out", "--quiet")
    assert "are unknown. Learn new subwords with tokenizer.byte_fallback=true." in result.stderr


def test_a_pair_dropped_for_any_reason_has_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    report = FilterReport([CorpusReport("train", "corpus", 4, kept=2)])
    for number, reason in enumerate(("a reason of a new filter", "empty side"), start=1):
        report.corpora[0].dropped.add(reason, number, "a", "b")
    split = {"role": "train", "pairs": 2}
    split |= dict.fromkeys(("source_tokens", "source_unknowns", "target_tokens", "target_unknowns"), 0)
    tokenizer = {"joint": True, "source_vocabulary": 8, "target_vocabulary": 8}
    manifest = {"splits": {"train": split}, "tokenizer": tokenizer, "reused_tokenizer": None}
    show(Path("out"), Outcome(manifest, report), quiet=False)
    heads, numbers = rows(capsys.readouterr().err, "corpus")
    assert (heads, numbers) == (
        ["corpus", "read", "kept", "empty side", "a reason of a new filter"],
        ["corpus", "4", "2", "1", "1"],
    )
