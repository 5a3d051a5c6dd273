"""Validation and test sets are kept unchanged, and odd pairs are only noted."""

import os
from pathlib import Path

import pytest

from nmt_cli.data.dataset import open_dataset, raw_lines
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizers import load_tokenizers
from tests.data.corpora import Make, WritePairs, named_corpora, report_on, train_lines

ODD_LINES = [
    b"plain",
    b"",
    b"  spaces \t around  ",
    "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg".encode(),
    "e\u0301 decomposed \u200b zero\u00adwidth".encode(),
    b"carriage\rreturn",
    b"nul\0byte",
    "\ufeffmark inside".encode(),
    "</s> <unk> @@ \u2581".encode(),
    b"x" * 1_000_000,
    b"no line feed at the end",
]


def test_raw_lines_are_kept_byte_for_byte(tmp_path: Path, make: Make, toy: str) -> None:
    for ending in ("en", "de"):
        (tmp_path / f"odd.{ending}").write_bytes(b"\n".join(ODD_LINES))
    make(tmp_path / "out", [toy], valid=[str(tmp_path / "odd")])
    for side in ("source", "target"):
        assert (tmp_path / "out" / f"odd.{side}.raw.txt").read_bytes() == b"\n".join(ODD_LINES) + b"\n"
    assert len(open_dataset(tmp_path / "out").splits["odd"]) == len(ODD_LINES)


def test_raw_lines_have_no_line_ends_and_no_byte_order_mark(tmp_path: Path, make: Make, toy: str) -> None:
    (tmp_path / "dos.en").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    (tmp_path / "dos.de").write_bytes(b"eins\nzwei\r\n")
    make(tmp_path / "out", [toy], valid=[str(tmp_path / "dos")])
    assert (tmp_path / "out" / "dos.source.raw.txt").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "out" / "dos.target.raw.txt").read_bytes() == b"eins\nzwei\n"


def test_tokens_encode_the_prepared_lines(tmp_path: Path, make: Make, toy: str) -> None:
    (tmp_path / "d.en").write_bytes(" a\u2028 b\u0308\n".encode())
    (tmp_path / "d.de").write_bytes("a\u0308\n".encode())
    make(tmp_path / "out", [toy], valid=[str(tmp_path / "d")])
    tokenizers = load_tokenizers(tmp_path / "out" / "tokenizer")
    split = open_dataset(tmp_path / "out").splits["d"]
    assert split.source.tokens.tolist() == [*tokenizers.source.encode("a b\u0308"), 0]
    assert split.target.tokens.tolist() == [*tokenizers.target.encode("ä"), 0]
    unknown = 1
    assert unknown in split.source.tokens
    assert unknown not in split.target.tokens


@pytest.mark.parametrize(
    ("source", "target", "settings", "warning"),
    [
        ("", "a", (), "empty side"),
        ("a " * 7, "a " * 7, ("filter.max_words=6",), "too many words"),
        ("a", "a b c d", ("filter.max_ratio=3.0",), "word ratio"),
        ("abc", "abc", ("filter.identical=true",), "identical sides"),
        ("a" * 30, "abc", ("filter.max_subwords=30",), "too many subwords"),
        ("abc", "\u4e00", (), "unknown subwords"),
    ],
)
def test_pairs_that_the_filters_would_drop_are_kept_and_noted(
    tmp_path: Path,
    make: Make,
    write_pairs: WritePairs,
    source: str,
    target: str,
    settings: tuple[str, ...],
    warning: str,
) -> None:
    train = write_pairs(tmp_path / "train", [("abc", "abcd"), ("a b", "c d")])
    valid = write_pairs(tmp_path / "valid", [("abc", "abcd"), (source, target)])
    make(tmp_path / "out", [train], *settings, valid=[valid])
    report = report_on(tmp_path / "out")[1]
    assert (report["read"], report["kept"], report["dropped"]) == (2, 2, {})
    sample = {"number": 2, "source": source, "target": target}
    assert report["noted"] == {warning: {"pairs": 1, "samples": [sample]}}


def test_a_set_of_ordinary_pairs_has_no_notes(toy_dataset: Path) -> None:
    assert report_on(toy_dataset)[1]["noted"] == {}


@pytest.mark.parametrize("rule", ["replace", "skip"])
def test_invalid_utf8_is_replaced_even_if_the_setting_is_skip(
    tmp_path: Path, make: Make, toy: str, rule: str
) -> None:
    (tmp_path / "bad.en").write_bytes(b"good\nb\xffd\n")
    (tmp_path / "bad.de").write_bytes(b"gut\nschlecht\n")
    make(tmp_path / "out", [toy], f"corpus.invalid_utf8={rule}", valid=[str(tmp_path / "bad")])
    assert (tmp_path / "out" / "bad.source.raw.txt").read_text() == "good\nb\ufffdd\n"
    assert report_on(tmp_path / "out")[1]["noted"]["invalid UTF-8 replaced"]["pairs"] == 1


def test_a_variant_is_a_separate_set(tmp_path: Path, make: Make, toy: str, write_pairs: WritePairs) -> None:
    dev = write_pairs(tmp_path / "dev", [("A house %s.", "Ein Haus %s."), ("ab", "cd")])
    make(tmp_path / "out", [toy], valid=[dev, f"{dev}+upper", f"{dev}+unended"])
    dataset = open_dataset(tmp_path / "out")
    assert {name: split.role for name, split in dataset.splits.items()} == {
        "train": "train",
        "dev": "valid",
        "dev+upper": "valid",
        "dev+unended": "valid",
    }
    assert raw_lines(dataset, dataset.splits["dev"], "source") == ["A house %s.", "ab"]
    assert raw_lines(dataset, dataset.splits["dev+upper"], "source") == ["A HOUSE %s.", "AB"]
    assert raw_lines(dataset, dataset.splits["dev+unended"], "target") == ["Ein Haus %s", "cd"]


def test_training_corpora_have_no_variants(tmp_path: Path, make: Make, toy: str) -> None:
    with pytest.raises(UserError, match=r"\+upper: a training corpus has no variants\. Use the \[augment\]"):
        make(tmp_path / "out", [f"{toy}+upper"])


def test_sets_are_drawn_even_if_few_pairs_pass_the_filters(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    pairs = [(f"a{n}", f"b{n}") if n % 50 == 0 else (f"a{n} a a", f"b{n}") for n in range(6000)]
    train = write_pairs(tmp_path / "train", pairs)
    make(tmp_path / "out", [train], "filter.max_words=2", "corpus.valid_size=100")
    lines = (tmp_path / "out" / "valid.source.raw.txt").read_text().split()
    assert len({int(line[1:]) % 50 for line in lines}) == 1
    assert len(set(lines)) == 100


def test_given_sets_are_held_out_by_the_setting_next_to_drawn_sets(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    train = write_pairs(tmp_path / "train", [(f"a{n}", f"b{n}") for n in range(60)])
    dev = write_pairs(tmp_path / "dev", [("a1", "x"), ("a2", "b2")])
    make(tmp_path / "out", [train], "corpus.valid_size=5", valid=[dev])
    drawn = (tmp_path / "out" / "valid.source.raw.txt").read_text().split()
    assert set(train_lines(tmp_path / "out")) == {f"a{n}" for n in range(60) if n != 2} - set(drawn)


def test_drawn_pairs_share_no_side_with_given_sets(
    tmp_path: Path, make: Make, write_pairs: WritePairs
) -> None:
    pairs = [(f"a{n}", f"b{n}") for n in range(60)]
    train = write_pairs(tmp_path / "train", pairs)
    dev = write_pairs(tmp_path / "dev", [(f"<2de> A{n}!", f"b {n}") for n in range(25)])
    other = write_pairs(tmp_path / "other", [(f"a{n}", "x") for n in range(25, 40)])
    named = named_corpora(("train", train, 'tag="<2de>"'))
    make(tmp_path / "out", (), named, f'filter.held_out=["{other}"]', "corpus.valid_size=15", valid=[dev])
    lines = (tmp_path / "out" / "valid.source.raw.txt").read_text().splitlines()
    assert len(lines) == 15 and min(int(line.removeprefix("<2de> a")) for line in lines) >= 40


def test_copies_that_a_killed_run_left_are_removed(tmp_path: Path, make: Make, toy: str) -> None:
    left = tmp_path / ".nmt-stdin-killed"
    left.mkdir()
    os.utime(left, (0, 0))
    with pytest.raises(UserError, match="No training pair is left"):
        make(tmp_path / "new" / "out", [toy], "corpus.valid_size=5", "filter.max_subwords=1")
    with pytest.raises(UserError, match="can be held out"):
        make(tmp_path / "other", [toy], "corpus.valid_size=5000")
    make(tmp_path / "out", [toy], "corpus.valid_size=5")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
