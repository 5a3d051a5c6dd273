"""Running `preprocess` again does nothing, names a difference, or replaces the dataset."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.config import read
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.preprocessing.job import PreprocessJob
from nmt_cli.data.preprocessing.pipeline import preprocess
from nmt_cli.errors import UserError
from tests.checks import refusal
from tests.data.corpora import Digests, Make, WritePairs


@pytest.fixture
def make(make: Make) -> Make:
    """Return a function that makes a dataset whose sets may occur in the training text."""
    return lambda out, train, *assignments, **how: make(
        out, train, "filter.decontaminate=false", *assignments, **how
    )


@pytest.fixture
def dataset(tmp_path: Path, make: Make, write_pairs: WritePairs) -> Path:
    """Make a dataset from the corpus `c` beside it."""
    corpus = write_pairs(tmp_path / "c", [("ab", "ba"), ("cd", "dc")])
    make(tmp_path / "out", [corpus], valid=[corpus])
    return tmp_path / "out"


@pytest.fixture
def again(dataset: Path, make: Make) -> Make:
    """Return a function that makes `dataset` again: `again("section.key=value", ...)`."""
    corpus = str(dataset.parent / "c")
    return lambda *assignments, **how: make(dataset, [corpus], *assignments, valid=[corpus], **how)


def states(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in [folder, *folder.rglob("*")]}


def test_running_again_changes_nothing(dataset: Path, again: Make) -> None:
    before = states(dataset.parent)
    assert again().report is None
    after = states(dataset.parent)
    del before[dataset.parent], after[dataset.parent]
    assert after == before


def test_moved_input_files_are_not_a_change(dataset: Path, make: Make) -> None:
    shutil.copytree(dataset.parent, moved := dataset.parent / "moved")
    corpus = str(moved / "c")
    assert make(dataset, [corpus], valid=[corpus]).report is None


CHANGES: dict[str, tuple[tuple[str, ...], str]] = {
    "a setting": (("filter.max_words=7",), "filter.max_words: 250 -> 7"),
    "two settings": (
        ("tokenizer.kind=word", "text.lowercase=true"),
        'text.lowercase: false -> true; tokenizer.kind: "char" -> "word"',
    ),
    "symbols": (('tokenizer.symbols=["<BT>"]',), 'tokenizer.symbols: [] -> ["<BT>"]'),
}


@pytest.mark.parametrize(("assignments", "change"), CHANGES.values(), ids=CHANGES)
def test_a_changed_setting_is_named_and_needs_overwrite(
    dataset: Path, again: Make, digests: Digests, assignments: tuple[str, ...], change: str
) -> None:
    before = digests(dataset)
    message = refusal(again, *assignments)
    assert f"{dataset} was made with other inputs or settings ({change}). Give --overwrite" in message
    assert digests(dataset) == before
    assert again(*assignments, overwrite=True).report is not None
    assert again(*assignments).report is None


def test_changed_text_is_named_and_needs_overwrite(dataset: Path, again: Make) -> None:
    corpus = dataset.parent / "c"
    corpus.with_suffix(".de").write_text("ba\ndC\n")
    with pytest.raises(
        UserError, match=r"input 1: train c \(\w+ (\w+)\) -> train c \(\w+ (?!\1)\w+\); input 2"
    ):
        again()
    again(overwrite=True)
    assert (dataset / "train.target.txt").read_text() == "ba\ndC\n"


def test_added_and_removed_sets_are_named(dataset: Path, make: Make, dev: str) -> None:
    corpus = str(dataset.parent / "c")
    with pytest.raises(UserError, match=r"input 3: nothing -> valid dev"):
        make(dataset, [corpus], valid=[corpus, dev])
    with pytest.raises(UserError, match=r"input 2: valid c \(.*\) -> nothing"):
        make(dataset, [corpus])


def test_other_languages_are_named(dataset: Path, tmp_path: Path) -> None:
    for ending in ("en", "de"):
        (tmp_path / f"c.{ending}").rename(tmp_path / f"c.{ending}.txt")
    pair = f"{tmp_path}/c.en.txt:{tmp_path}/c.de.txt"
    config = read(PreprocessConfig, assignments=["tokenizer.kind=char"])
    with pytest.raises(UserError, match=r"languages: en-de -> en-nl"):
        preprocess(
            PreprocessJob("en", "nl", [pair], [pair], config=config), dataset, 1, False, lambda *_: None
        )


def test_overwriting_removes_the_old_dataset(dataset: Path, make: Make, digests: Digests) -> None:
    (dataset / "notes.txt").touch()
    corpus = str(dataset.parent / "c")
    make(dataset, [corpus], overwrite=True)
    make(fresh := dataset.parent / "fresh", [corpus])
    assert digests(dataset) == digests(fresh)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_other_files_is_never_changed(
    tmp_path: Path, make: Make, toy: str, overwrite: bool
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    with pytest.raises(UserError, match=r"thesis holds files but no dataset.json"):
        make(tmp_path / "thesis", [toy], overwrite=overwrite)
    with pytest.raises(UserError, match=r"chapter is a file\. Choose another out"):
        make(tmp_path / "thesis" / "chapter", [toy], overwrite=overwrite)
    assert (tmp_path / "thesis" / "chapter").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "train.source.tokens.npy",
            None,
            r"tokens.npy is missing\. Make the dataset again with overwrite=True",
        ),
        ("train.source.txt", "reversed", r"train\.source\.txt was changed: .* overwrite=True"),
        ("dataset.json", b"{", r"dataset.json is damaged"),
    ],
)
def test_a_damaged_dataset_is_never_up_to_date_and_overwriting_repairs_it(
    dataset: Path, again: Make, file: str, content: Any, message: str
) -> None:
    if content == "reversed":
        content = (dataset / file).read_bytes()[::-1]
    (dataset / file).unlink()
    if content is not None:
        (dataset / file).write_bytes(content)
    with pytest.raises(UserError, match=message):
        again()
    assert again(overwrite=True).report is not None
    assert again().report is None


def test_a_failure_keeps_the_older_dataset(
    dataset: Path, make: Make, digests: Digests, tmp_path: Path
) -> None:
    before = digests(dataset)
    (tmp_path / "c.en").write_bytes(b"ab\n\xff\n")
    with pytest.raises(UserError, match="not UTF-8"):
        make(dataset, [str(tmp_path / "c")], overwrite=True)
    assert digests(dataset) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.de", "c.en", "out"]


def test_progress_reports_each_stage_to_its_end(tmp_path: Path, toy: str, dev: str) -> None:
    reports: dict[str, list[tuple[int, int]]] = {}

    def listen(stage: str, done: int, total: int) -> None:
        reports.setdefault(stage, []).append((done, total))

    config = read(PreprocessConfig, assignments=["tokenizer.kind=char"])
    preprocess(PreprocessJob("en", "de", [toy], [dev], config=config), tmp_path / "out", 1, False, listen)
    assert (reports["cleaning"][-1], reports["encoding"][-1]) == ((300, 300), (300, 300))
    assert list(reports).index("cleaning") < list(reports).index("encoding")


def test_the_manifest_counts_unknowns_and_tokens(tmp_path: Path, make: Make, write_pairs: WritePairs) -> None:
    train = write_pairs(tmp_path / "c", [("ab", "ba")])
    valid = write_pairs(tmp_path / "d", [("axyb", "b"), ("", "z")])
    make(tmp_path / "out", [train], valid=[valid])
    splits = json.loads((tmp_path / "out" / "dataset.json").read_text())["splits"]
    assert splits["d"] == {
        "role": "valid",
        "pairs": 2,
        "source_tokens": 6,
        "source_unknowns": 2,
        "target_tokens": 4,
        "target_unknowns": 1,
    }
    assert (splits["train"]["source_tokens"], splits["train"]["source_unknowns"]) == (3, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ('filter.held_out=["{0}"]', "filter.decontaminate=false"),
            r"filter\.held_out has no effect with filter\.decontaminate=false\. Leave one out\.",
        ),
        (("corpus.source_column=en",), r"corpus\.source_column is 'en', but no corpus has columns\. Leave"),
        (("corpus.score_column=s",), r"corpus\.score_column is 's', but no corpus has columns\."),
    ],
)
def test_settings_without_effect_are_refused(
    tmp_path: Path, make: Make, toy: str, settings: Sequence[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make(tmp_path / "out", [toy], *(setting.format(toy) for setting in settings))


def test_a_drawn_set_is_not_blamed_on_a_file(tmp_path: Path, make: Make, toy: str, dev: str) -> None:
    (tmp_path / "valid.en").write_text("a\n")
    (tmp_path / "valid.de").write_text("b\n")
    with pytest.raises(
        UserError, match=r"^corpus\.valid_size draws a set named valid, but .* Remove the setting"
    ):
        make(tmp_path / "out", [toy], "corpus.valid_size=2", valid=[dev, str(tmp_path / "valid")])


def test_stdin_is_used_once_with_and_without_variations(tmp_path: Path, make: Make, toy: str) -> None:
    with pytest.raises(UserError, match=r"stdin \(-\) is given twice but can be read only once"):
        make(tmp_path / "out", [toy], valid=["-", "-+upper"])


def test_an_error_of_subwords_names_the_vocabulary_and_the_option_to_change(
    tmp_path: Path, make: Make, toy: str
) -> None:
    message = refusal(
        make, tmp_path / "out", [toy], "tokenizer.kind=sentencepiece", "tokenizer.vocab_size=5000"
    )
    assert message.startswith("joint vocabulary: ")
    assert "Take --vocab-size " in message
