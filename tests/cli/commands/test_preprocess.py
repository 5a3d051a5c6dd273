"""`nmt preprocess`: settings and errors."""

import bz2
import gzip
import json
import lzma
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import Nmt, assert_one_line
from tests.conftest import LANGUAGES


def test_options_override_set_which_overrides_the_file(nmt: Nmt, tmp_path: Path, toy: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        '[tokenizer]\nkind = "char"\nvocab_size = 20\nsample_lines = 30\n[filter]\nmax_words = 7\n'
    )
    changes = ("--config", file, "--set", "tokenizer.kind=bpe", "--set", "tokenizer.sample_lines=1000")
    flags = ("--tokenizer", "word", "--separate", "--vocab-size", "99")
    arguments = ("--train", toy, "--out", tmp_path / "out", *changes, *flags)
    assert nmt("preprocess", *LANGUAGES, "--workers", "1", *arguments).returncode == 0
    settings = json.loads((tmp_path / "out" / "dataset.json").read_text())["settings"]
    expected = {"kind": "word", "joint": False, "vocab_size": 99, "sample_lines": 1000}
    assert settings["tokenizer"].items() >= expected.items()
    assert settings["filter"]["max_words"] == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "filter.max_word=3"), "did you mean filter.max_words?"),
        (("--set", "filter.max_words"), "--set filter.max_words must have the form section.key=value"),
        (("--set", "tokenizer.merges=10"), "tokenizer.merges has no effect with tokenizer.kind = char"),
        (("--vocab-size", "3"), "--vocab-size must be at least 8 (got 3)"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_the_right_one(
    nmt_preprocess: Nmt, tmp_path: Path, toy: str, arguments: tuple[str, ...], message: str
) -> None:
    result = nmt_preprocess("--train", toy, "--out", tmp_path / "out", *arguments)
    assert_one_line(result, 1, message)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flag", [("--tokenizer", "char"), ("--joint",), ("--separate",), ("--vocab-size", "99")]
)
def test_options_without_effect_on_a_reused_tokenizer_are_wrong_usage(
    nmt: Nmt, tmp_path: Path, toy: str, toy_dataset: Path, flag: tuple[str, ...]
) -> None:
    arguments = ("--train", toy, "--out", tmp_path / "out", "--reuse-tokenizer", toy_dataset)
    result = nmt("preprocess", *LANGUAGES, "--workers", "1", *arguments, *flag)
    assert result.returncode == 2
    assert f"{flag[0]} has no effect with --reuse-tokenizer. Remove it." in result.stderr


LINES = b"".join(b"line %d of a text\n" % number for number in range(2000))
TEXT = b"one\ntwo\nthree\n"
UNREADABLE = {".gz": gzip.compress(LINES), ".bz2": bz2.compress(LINES), ".xz": lzma.compress(LINES)}
SGM = b'<doc docid="a"><seg id="1">one</seg>%b</doc>'

Files = Mapping[str, bytes | None]
"""Content of files by name. None makes a folder."""

BAD_INPUT: dict[str, tuple[Files, list[str]]] = {
    "unequal lines": (
        {"c.en": TEXT, "c.de": b"eins\nzwei"},
        ["c.en has 3 lines", "c.de has 2", "must match line for line"],
    ),
    "both files empty": ({"c.en": b"", "c.de": b""}, ["c.en is empty", "Give a file"]),
    "an empty side": (
        {"c.en": b"\n \n\t\n", "c.de": TEXT},
        ["No training pair is left (empty side: 3)", "relax"],
    ),
    "no files": ({}, ["there is no ", "c.en", "Give PREFIX"]),
    "a directory for a prefix": ({"c": None}, ["c (a directory: name the files in it)", "c.en"]),
    "one file": ({"c": TEXT}, ["c is one file", "two sides", "Give PREFIX"]),
    "two files for a side": (
        {"c.en": TEXT, "c.en.gz": TEXT, "c.de": TEXT},
        ["c.en.gz both exist", "Name the"],
    ),
    **{
        f"cut {ending}": (
            {f"c.en{ending}": packed[:-20], "c.de": TEXT},
            [f"c.en{ending}", "cut off", "Copy it"],
        )
        for ending, packed in UNREADABLE.items()
    },
    **{
        f"damaged {ending}": (
            {f"c.en{ending}": packed[:40] + bytes(20) + packed[60:], "c.de": TEXT},
            [f"c.en{ending} is damaged", "Copy it again"],
        )
        for ending, packed in UNREADABLE.items()
    },
    "not UTF-8": (
        {"c.en": b"one\ntw\xff\nthree\n", "c.de": TEXT},
        ["c.en line 2, byte 3 (0xff) is not UTF-8", "Repair it", "invalid_utf8=replace"],
    ),
    "UTF-16": (
        {"c.en": TEXT.decode().encode("utf-16"), "c.de": TEXT.decode().encode("utf-16")},
        ["c.en is UTF-16", "iconv -f UTF-16"],
    ),
    "too few columns": ({"c.tsv": b"a\tb\nc\n"}, ["c.tsv line 2 has 1 columns", "one tab"]),
    "too many columns": (
        {"c.tsv": b"a\tb\nc\td\ne\tf\tg\n"},
        ["c.tsv line 3 has 3 columns", "corpus.source_column"],
    ),
    "other segments": (
        {"c.en.sgm": SGM % b"", "c.de.sgm": SGM % b'<seg id="2">two</seg>'},
        ["c.en.sgm segment 2 is nothing", "c.de.sgm has doc a seg 2", "same order"],
    ),
    "a set of two kinds": (
        {"c.en.sgm": SGM % b"", "c.de": TEXT},
        ["c.en.sgm", "c.de", "one is a WMT test set", "two of a kind"],
    ),
}


@pytest.mark.parametrize("role", ["--train", "--valid"])
@pytest.mark.parametrize(("files", "words"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_clear_line_and_leaves_nothing(
    nmt_preprocess: Nmt, tmp_path: Path, toy: str, role: str, files: Files, words: list[str]
) -> None:
    (tmp_path / "in").mkdir()
    for name, content in files.items():
        path = tmp_path / "in" / name
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
    corpora = ("--train", toy) if role == "--valid" else ()
    result = nmt_preprocess(*corpora, role, spelling(tmp_path / "in", files), "--out", tmp_path / "out")
    if role == "--valid" and "No training pair is left (empty side: 3)" in words:
        assert result.returncode == 0
        return
    assert_one_line(result, 1, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def spelling(folder: Path, files: Files) -> str:
    """Return the name of the corpus on the command line."""
    if any(name.endswith(".sgm") for name in files):
        return ":".join(str(folder / name) for name in files)
    return str(folder / next((name for name in files if name.endswith(".tsv")), "c"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--train", "{0}/a.en:{0}/none.de"), ["none.de does not exist. Check the path."]),
        (
            ("--train", "{0}/a", "--valid", "{0}/a", "--test", "{0}/b/a"),
            ["Two sets are named a", "another name"],
        ),
        (("--train", "{0}/a", "--valid", "{0}/b/train"), ["named train", "another name"]),
        (("--train", "{0}/a", "--out", "{0}/a.en"), ["a.en is a file. Choose another --out"]),
        (("--train", "{0}/a", "--out", "{0}/a.en/out"), ["out can't be written", "Choose another path"]),
        (("--train", "{0}/a", "--out", "{0}/b"), ["b holds files but no dataset.json", "Choose another"]),
    ],
)
def test_unusable_files_are_one_clear_line(
    nmt_preprocess: Nmt, tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    (tmp_path / "b").mkdir()
    for name in ("a.en", "a.de", "b/a.en", "b/a.de", "b/train.en", "b/train.de"):
        (tmp_path / name).write_bytes(TEXT)
    before = sorted(tmp_path.rglob("*"))
    out = () if "--out" in arguments else ("--out", tmp_path / "out")
    result = nmt_preprocess(*(word.format(tmp_path) for word in arguments), *out)
    assert_one_line(result, 1, *words)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_current_folder_can_be_the_output(
    nmt_preprocess: Nmt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: str
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    result = nmt_preprocess("--train", toy, "--out", ".")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out" / "dataset.json").exists()
