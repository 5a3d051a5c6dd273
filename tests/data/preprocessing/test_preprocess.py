"""Making a dataset again: nothing to do, a difference, or a replacement."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nmt_cli.config import read
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.preprocessing.job import Job
from nmt_cli.data.preprocessing.preprocess import Outcome, preprocess
from nmt_cli.errors import UserError

Pairs = Sequence[tuple[str, str]]


@pytest.fixture
def make(make: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Makes a dataset whose sets may be of the training text."""
    return lambda out, train, *assignments, **how: make(
        out, train, "filter.decontaminate=false", *assignments, **how
    )


@pytest.fixture
def made(tmp_path: Path, make: Callable[..., Outcome], write_pairs: Callable[[Path, Pairs], str]) -> Path:
    """A dataset, and beside it the corpus `c` that it was made of."""
    corpus = write_pairs(tmp_path / "c", [("ab", "ba"), ("cd", "dc")])
    make(tmp_path / "out", [corpus], valid=[corpus])
    return tmp_path / "out"


def states(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in [folder, *folder.rglob("*")]}


def test_the_same_again_changes_nothing_and_says_so(made: Path, make: Callable[..., Outcome]) -> None:
    before = states(made.parent)
    corpus = str(made.parent / "c")
    assert make(made, [corpus], valid=[corpus]).report is None
    after = states(made.parent)
    del before[made.parent], after[made.parent]
    assert after == before


def test_the_same_text_under_another_name_of_folder_is_the_same(
    made: Path, make: Callable[..., Outcome]
) -> None:
    shutil.copytree(made.parent, moved := made.parent / "moved")
    corpus = str(moved / "c")
    assert make(made, [corpus], valid=[corpus]).report is None


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
    made: Path,
    make: Callable[..., Outcome],
    digests: Callable[[Path], dict[str, str]],
    assignments: tuple[str, ...],
    change: str,
) -> None:
    before = digests(made)
    corpus = str(made.parent / "c")
    with pytest.raises(UserError) as error:
        make(made, [corpus], *assignments, valid=[corpus])
    assert f"{made} was made with other inputs or settings ({change}). Give --overwrite" in str(error.value)
    assert digests(made) == before
    assert make(made, [corpus], *assignments, valid=[corpus], overwrite=True).report is not None
    assert make(made, [corpus], *assignments, valid=[corpus]).report is None


def test_changed_text_is_named_and_needs_overwrite(made: Path, make: Callable[..., Outcome]) -> None:
    corpus = made.parent / "c"
    corpus.with_suffix(".de").write_text("ba\ndC\n")
    with pytest.raises(
        UserError, match=r"input 1: train c \(\w+ (\w+)\) -> train c \(\w+ (?!\1)\w+\); input 2"
    ):
        make(made, [str(corpus)], valid=[str(corpus)])
    make(made, [str(corpus)], valid=[str(corpus)], overwrite=True)
    assert (made / "train.target.txt").read_text() == "ba\ndC\n"


def test_a_set_more_and_a_set_less_are_named(made: Path, make: Callable[..., Outcome], dev: str) -> None:
    corpus = str(made.parent / "c")
    with pytest.raises(UserError, match=r"input 3: nothing -> valid dev"):
        make(made, [corpus], valid=[corpus, dev])
    with pytest.raises(UserError, match=r"input 2: valid c \(.*\) -> nothing"):
        make(made, [corpus])


def test_other_languages_are_named(made: Path, tmp_path: Path) -> None:
    for ending in ("en", "de"):
        (tmp_path / f"c.{ending}").rename(tmp_path / f"c.{ending}.txt")
    pair = f"{tmp_path}/c.en.txt:{tmp_path}/c.de.txt"
    config = read(PreprocessConfig, assignments=["tokenizer.kind=char"])
    with pytest.raises(UserError, match=r"languages: en-de -> en-nl"):
        preprocess(Job("en", "nl", [pair], [pair], config=config), made, 1, False, lambda *_: None)


def test_overwriting_leaves_nothing_of_the_old_dataset(
    made: Path, make: Callable[..., Outcome], digests: Callable[[Path], dict[str, str]]
) -> None:
    (made / "notes.txt").touch()
    corpus = str(made.parent / "c")
    make(made, [corpus], overwrite=True)
    make(fresh := made.parent / "fresh", [corpus])
    assert digests(made) == digests(fresh)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_dataset_is_never_touched(
    tmp_path: Path, make: Callable[..., Outcome], toy: str, overwrite: bool
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    with pytest.raises(UserError, match=r"thesis holds files but no dataset.json"):
        make(tmp_path / "thesis", [toy], overwrite=overwrite)
    with pytest.raises(UserError, match=r"chapter is a file\. Choose another --out"):
        make(tmp_path / "thesis" / "chapter", [toy], overwrite=overwrite)
    assert (tmp_path / "thesis" / "chapter").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


def test_an_empty_folder_may_be_filled(tmp_path: Path, make: Callable[..., Outcome], toy: str) -> None:
    (tmp_path / "out").mkdir()
    make(tmp_path / "out", [toy])
    assert (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train.source.tokens.npy", None, r"tokens.npy is missing\. Make the dataset again with --overwrite"),
        ("train.source.tokens.npy", b"x", r"tokens.npy has 1 bytes, but [\d,]+ were written"),
        ("dataset.json", b"{", r"dataset.json is damaged"),
        ("dataset.json", b'{"format": 0}', r"dataset.json does not have format 1"),
        ("dataset.json", b'{"format": 1}', r"dataset.json is damaged"),
    ],
)
def test_a_damaged_dataset_is_never_up_to_date_and_overwriting_mends_it(
    made: Path, make: Callable[..., Outcome], file: str, content: bytes | None, message: str
) -> None:
    if content is None:
        (made / file).unlink()
    else:
        (made / file).write_bytes(content)
    corpus = str(made.parent / "c")
    with pytest.raises(UserError, match=message):
        make(made, [corpus], valid=[corpus])
    assert make(made, [corpus], valid=[corpus], overwrite=True).report is not None
    assert make(made, [corpus], valid=[corpus]).report is None


def test_a_failure_leaves_an_older_dataset_as_it_was(
    made: Path, make: Callable[..., Outcome], digests: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    before = digests(made)
    (tmp_path / "c.en").write_bytes(b"ab\n\xff\n")
    with pytest.raises(UserError, match="not UTF-8"):
        make(made, [str(tmp_path / "c")], overwrite=True)
    assert digests(made) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.de", "c.en", "out"]


def test_progress_tells_each_stage_and_reaches_the_whole(tmp_path: Path, toy: str, dev: str) -> None:
    told: dict[str, list[tuple[int, int]]] = {}

    def listen(stage: str, done: int, total: int) -> None:
        told.setdefault(stage, []).append((done, total))

    config = read(PreprocessConfig, assignments=["tokenizer.kind=char"])
    preprocess(Job("en", "de", [toy], [dev], config=config), tmp_path / "out", 1, False, listen)
    assert (told["cleaning"][-1], told["encoding"][-1]) == ((300, 300), (300, 300))
    assert list(told).index("cleaning") < list(told).index("encoding")


def test_the_manifest_counts_unknowns_and_tokens(
    tmp_path: Path, make: Callable[..., Outcome], write_pairs: Callable[[Path, Pairs], str]
) -> None:
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


def test_a_dataset_with_a_damaged_file_is_not_up_to_date(
    tmp_path: Path, make: Callable[..., Outcome], toy: str, digests: Callable[[Path], dict[str, str]]
) -> None:
    out = tmp_path / "out"
    make(out, [toy])
    whole = digests(out)
    content = (out / "train.source.txt").read_bytes()
    (out / "train.source.txt").write_bytes(content[::-1])
    with pytest.raises(UserError, match=r"train\.source\.txt was changed: .* --overwrite"):
        make(out, [toy])
    make(out, [toy], overwrite=True)
    assert digests(out) == whole
