"""Pairs in memory make the dataset that the same text in files makes."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.api import PreprocessConfig, TokenizerConfig, UserError, preprocess

Pairs = list[tuple[str, str]]

TRAIN: Pairs = [(f"a b {n % 7} c", f"x {n % 5} y") for n in range(60)] + [("ä\tö", "ü"), ("", "x")]
VALID: Pairs = [("a b c", "x y"), ("c", "y")]
CONFIG = PreprocessConfig(tokenizer=TokenizerConfig(kind="char"))


def made(out: Path, train: Any, valid: Any = ()) -> Any:
    return preprocess("en", "de", train, out, valid=valid, config=CONFIG, workers=1)


@pytest.fixture
def in_files(tmp_path: Path) -> Callable[[str, Pairs], str]:
    """Return a function that writes pairs to files, and returns the name of the corpus."""

    def in_files(name: str, pairs: Pairs) -> str:
        for lang, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(tmp_path / name)

    return in_files


def contents(folder: Path) -> dict[str, object]:
    """Return the contents of all files of a dataset, without the paths of its inputs."""
    files: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    files["dataset.json"] = json.loads(files["dataset.json"])
    for item in files["dataset.json"]["inputs"]:
        for file in item["files"]:
            del file["path"]
    files["dataset.json"].pop("sha256", None)
    return files


@pytest.mark.parametrize(
    "given",
    [
        list,
        iter,
        lambda pairs: zip(*map(list, zip(*pairs, strict=True)), strict=True),  # two columns of a table
        lambda pairs: [[*pair] for pair in pairs],
    ],
    ids=["list", "iterator", "columns", "lists"],
)
def test_pairs_make_the_dataset_of_the_same_text_in_files(
    tmp_path: Path, in_files: Callable[[str, Pairs], str], given: Callable[[Pairs], Iterable[Any]]
) -> None:
    by_name = [in_files("train", TRAIN)], [in_files("valid", VALID)]
    made(tmp_path / "files", *by_name)
    outcome = made(tmp_path / "memory", given(TRAIN), given(VALID))
    assert outcome.manifest["splits"]["train"]["pairs"] == len(TRAIN) - 1
    assert contents(tmp_path / "memory") == contents(tmp_path / "files")
    # The same text is up to date, wherever it is.
    assert made(tmp_path / "memory", given(TRAIN), given(VALID)).report is None
    assert made(tmp_path / "memory", *by_name).report is None
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["files", "memory"]


def test_a_missing_text_is_empty_and_a_line_break_is_a_space(tmp_path: Path) -> None:
    outcome = made(tmp_path / "out", [("a\nb\r\nc", "x"), (None, "y"), ("d", None), ("e", "z")])
    assert (tmp_path / "out" / "train.source.txt").read_text() == "a b c\ne\n"
    assert outcome.report.reasons() == "empty side: 2"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("a", "b"), ("a",)], r'pair 2 must be a source and its translation \(got \["a"\]\)'),
        ([("a", "b"), "ab"], r'pair 2 must be a source and its translation \(got "ab"\)'),
        ([{"en": "a", "de": "b"}], "pair 1 must be a source and its translation"),
        ([3], r"pair 1 must be a source and its translation \(got 3\)"),
        ([("a", 3.5)], r"pair 1: the target is 3\.5, not text"),
        ([(float("nan"), "b")], r"pair 1: the source is nan, not text"),
        ([], "There is no training text"),
    ],
    ids=str,
)
@pytest.mark.parametrize("role", ["train", "valid"])
def test_an_invalid_pair_is_named(tmp_path: Path, pairs: Any, message: str, role: str) -> None:
    if role == "valid" and not pairs:
        return
    corpora = (pairs,) if role == "train" else (TRAIN, pairs)
    with pytest.raises(UserError, match=f"^{role if pairs else ''} ?{message}") as caught:
        made(tmp_path / "out", *corpora)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["train.tsv", b"train", Path("train.tsv")], ids=repr)
def test_one_text_instead_of_a_list_is_refused(tmp_path: Path, text: Any) -> None:
    with pytest.raises(TypeError, match=r"^train must be a list of corpora, .* Use \[train\]\.$"):
        made(tmp_path / "out", text)
    with pytest.raises(TypeError, match=r"^valid must be a list of corpora, .* Use \[valid\]\.$"):
        made(tmp_path / "out", TRAIN, text)


def test_a_table_is_refused_with_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"train must be pairs of texts\. Use zip of both columns"):
        made(tmp_path / "out", SimpleNamespace(columns=["en", "de"]))


def test_paths_name_corpora(tmp_path: Path, in_files: Callable[[str, Pairs], str]) -> None:
    outcome = made(tmp_path / "out", [Path(in_files("train", TRAIN))])
    assert outcome.manifest["inputs"][0]["name"] == "train"
