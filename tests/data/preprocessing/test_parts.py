"""Interrupted and resumed `preprocess` runs write the same bytes."""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.config import read
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.preprocessing import parts, training_set
from nmt_cli.data.preprocessing.job import PreprocessJob
from nmt_cli.data.preprocessing.parts import work_folder
from nmt_cli.data.preprocessing.pipeline import Outcome, preprocess
from nmt_cli.errors import UserError
from tests.data.corpora import COLUMNS, Digests, WritePairs, named_corpora

SETTINGS = ("tokenizer.kind=char", "filter.duplicates=true", "filter.max_subwords=30")


class Stopped(BaseException):
    """Stands for Ctrl-C."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide a corpus of 300 pairs into several parts of several blocks."""
    monkeypatch.setattr(training_set, "BLOCK_PAIRS", 20)
    monkeypatch.setattr(training_set, "BLOCKS_A_PART", 4)


@pytest.fixture
def corpora(tmp_path: Path, toy: str, write_pairs: WritePairs) -> list[str]:
    """Return three corpora with repeated pairs, and with more dropped pairs in a row than a part has."""
    pairs = [("" if 100 < n < 250 else f"a{n % 60} b", f"c d{n % 70}") for n in range(300)]
    return [toy, write_pairs(tmp_path / "second", pairs), toy]


def make(
    out: Path,
    corpora: list[str],
    stop: tuple[str, int] | None = None,
    settings: tuple[str, ...] = SETTINGS,
    valid: Sequence[str] = (),
) -> tuple[Outcome, list[tuple[str, int]]]:
    """Return the outcome and the reported progress. `stop` is a stage and a number. Raise `Stopped` when the
    stage has done this number."""
    reports: list[tuple[str, int]] = []

    def progress(stage: str, done: int, total: int) -> None:
        reports.append((stage, done))
        if stop and stage == stop[0] and done >= stop[1]:
            raise Stopped

    config = read(PreprocessConfig, assignments=settings)
    job = PreprocessJob("en", "de", corpora, valid, config=config)
    return preprocess(job, out, 1, False, progress), reports


def interrupt(out: Path, corpora: list[str], stage: str, done: int = 0, **how: Any) -> None:
    """Interrupt a run when it has `done` so much of `stage`, and check that there is no dataset."""
    with pytest.raises(Stopped):
        make(out, corpora, stop=(stage, done), **how)
    assert not out.exists()


def test_a_part_appears_whole_with_checksums_that_show_damage(tmp_path: Path) -> None:
    part = tmp_path / "work" / "clean-000000"
    killed = part.with_name(".clean-000000.unfinished")
    killed.mkdir(parents=True)
    (killed / "old").write_text("of a killed run")
    with parts.written_whole(part) as folder:
        (folder / "file").write_text("content")
        assert not part.exists() and not (folder / "old").exists()
    assert [*part.parent.iterdir()] == [part] and (part / "file").read_text() == "content"
    assert parts.drop_damaged(part.parent) == ()
    (part / "file").write_text("contemt")
    assert parts.drop_damaged(part.parent) == ("clean-000000",) and not part.exists()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_an_error_leaves_nothing_of_a_part(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), parts.written_whole(tmp_path / "ids-000000") as folder:
        (folder / "file").write_text("content")
        raise error
    assert not any(tmp_path.iterdir())


def test_a_disk_that_gets_full_is_an_error_with_the_name_of_the_dataset(
    tmp_path: Path, corpora: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parts, "_checksums", fails)
    out = tmp_path / "dataset"
    with pytest.raises(UserError, match=f"{out} can't be written: No space left on device. Free some space"):
        make(out, corpora)
    assert not out.exists()


@pytest.mark.parametrize("stage", ["cleaning", "learning subwords", "encoding", "merging", "finishing"])
def test_an_interrupted_run_resumes(tmp_path: Path, corpora: list[str], digests: Digests, stage: str) -> None:
    _, plain = make(tmp_path / "plain", corpora)
    counts = [done for name, done in plain if name == stage]
    interrupt(tmp_path / "out", corpora, stage, counts[len(counts) // 2])
    _, resumed = make(tmp_path / "out", corpora)
    assert digests(tmp_path / "out") == digests(tmp_path / "plain")
    assert not work_folder(tmp_path / "out").exists()
    blocks = [
        sum(name == stage for name, _ in run)
        for stage in ("cleaning", "encoding")
        for run in (resumed, plain)
    ]
    # Only the unfinished part is cleaned or encoded again.
    assert blocks[0] <= (blocks[1] // 2 + 4 if stage == "cleaning" else 0)
    assert blocks[2] <= {"encoding": blocks[3] // 2 + 4, "merging": 0, "finishing": 0}.get(stage, blocks[3])


@pytest.fixture
def named(tmp_path: Path) -> tuple[tuple[str, ...], str]:
    """Return settings of three corpora with their own filters, and a validation set with one of their pairs.

    Two corpora share a part. Some pairs have placeholders.
    """
    header = "en\tde\ts\n"
    corpora = []
    for name, size, settings in (
        ("bitext", 110, 'tag="<2de>", filters={one_per_target=true, min_score=0.2}'),
        ("small", 30, "filters={decontaminate=false, max_subwords=10}"),
        ("web", 130, 'tag="<BT>", filters={duplicates=true, one_per_target=true}'),
    ):
        rows = (
            f"a{n % 20} {{{{x}}}}\tb{n % 40} {{{{x}}}} {'c' * (n % 8)}\t{n % 10 / 10}\n" for n in range(size)
        )
        (tmp_path / f"{name}.tsv").write_text(header + "".join(rows))
        corpora.append((name, tmp_path / f"{name}.tsv", settings))
    (tmp_path / "dev.tsv").write_text(f"{header}A7 {{{{x}}}}!\tb7 {{{{x}}}} ccccccc\t1\n")
    tokenizer = ("tokenizer.kind=char", "tokenizer.placeholders=2")
    return (*tokenizer, *COLUMNS, named_corpora(*corpora)), str(tmp_path / "dev.tsv")


@pytest.mark.parametrize("stage", ["cleaning", "merging"])
def test_named_corpora_are_equal_after_an_interrupt(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    digests: Digests,
    named: tuple[tuple[str, ...], str],
    stage: str,
) -> None:
    settings, dev = named
    with monkeypatch.context() as patch:
        patch.setattr(training_set, "BLOCKS_A_PART", 1000)
        plain, reports = make(tmp_path / "plain", [], settings=settings, valid=[dev])
    corpora = plain.manifest["splits"]["train"]["corpora"]
    named_tags = [(corpus["name"], corpus["tag"]) for corpus in corpora]
    assert named_tags == [("bitext", "<2de>"), ("small", ""), ("web", "<BT>")]
    ends = accumulate(corpus["pairs"] for corpus in corpora[:2])
    assert [corpus["first"] for corpus in corpora] == [0, *ends]
    assert plain.report and [sorted(corpus.dropped.counts) for corpus in plain.report.of_role("train")] == [
        ["better source of its target", "in a valid or test set", "score too low"],
        ["too many subwords"],
        ["better source of its target", "duplicate", "in a valid or test set"],
    ]
    done = [done for name, done in reports if name == stage]
    interrupt(tmp_path / "out", [], stage, done[2 * len(done) // 3], settings=settings, valid=[dev])
    assert work_folder(tmp_path / "out").exists()
    make(tmp_path / "out", [], settings=settings, valid=[dev])
    assert digests(tmp_path / "out") == digests(tmp_path / "plain")


def test_drawn_sets_share_no_side_with_the_training_set(
    tmp_path: Path, corpora: list[str], digests: Digests
) -> None:
    settings = (*SETTINGS, "corpus.valid_size=30", "corpus.test_size=10")
    outcome, _ = make(tmp_path / "plain", corpora, settings=settings)
    splits = outcome.manifest["splits"]
    assert [(name, split["role"]) for name, split in splits.items()] == [
        *[("train", "train"), ("valid", "valid"), ("test", "test")]
    ]
    assert (splits["valid"]["pairs"], splits["test"]["pairs"]) == (30, 10)
    assert outcome.report
    assert sum(one.dropped.counts["in a valid or test set"] for one in outcome.report.of_role("train")) > 40
    for side in ("source", "target"):
        trained, valid, test = (
            (tmp_path / "plain" / f"{name}.{side}.{content}").read_text().splitlines()
            for name, content in (("train", "txt"), ("valid", "raw.txt"), ("test", "raw.txt"))
        )
        drawn = {line.casefold() for line in (*valid, *test)}
        assert len(drawn) == 40 and drawn.isdisjoint(line.casefold() for line in trained)
    interrupt(tmp_path / "out", corpora, "encoding", settings=settings)
    make(tmp_path / "out", corpora, settings=settings)
    assert digests(tmp_path / "out") == digests(tmp_path / "plain")
    with pytest.raises(UserError, match=r"corpus\.valid_size: 30 -> 31"):
        make(tmp_path / "out", corpora, settings=(*settings, "corpus.valid_size=31"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "filter.decontaminate=false",
            "corpus.valid_size and corpus.test_size need filter.decontaminate=true",
        ),
        ("corpus.valid_size=5000", r"add up to 5,000, but only \d+ training pairs can be held out"),
    ],
)
def test_sets_that_cannot_be_drawn_are_refused(
    tmp_path: Path, corpora: list[str], setting: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make(tmp_path / "out", corpora, settings=(*SETTINGS, "corpus.valid_size=5", setting))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_damaged_part_is_made_again(
    tmp_path: Path, corpora: list[str], digests: Digests, damage: Callable[[Path], None]
) -> None:
    valid, training = corpora[:1], [*corpora[1:], corpora[1]]
    plain, _ = make(tmp_path / "plain", training, valid=valid)
    interrupt(tmp_path / "out", training, "finishing", valid=valid)
    work = work_folder(tmp_path / "out")
    kinds, damaged = set(), set()
    folders = sorted(path for path in work.iterdir() if path.is_dir() and path.name != "buckets")
    for folder in folders:
        files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
        for path in sorted(files):
            kind = folder.name.partition("-")[0], path.name
            if kind not in kinds and folder.name not in damaged:
                kinds.add(kind)
                damaged.add(folder.name)
                damage(path)
    assert {("clean", "source.txt"), ("clean", "report.json"), ("ids", "train.target.tokens.npy")} <= kinds
    assert {"tokenizer", "held-out"} < damaged < {folder.name for folder in folders}
    outcome, _ = make(tmp_path / "out", training, valid=valid)
    assert set(outcome.remade) == damaged and not plain.remade
    assert digests(tmp_path / "out") == digests(tmp_path / "plain")


def test_other_settings_start_again(tmp_path: Path, corpora: list[str], digests: Digests) -> None:
    other = (*SETTINGS, "filter.max_words=1")
    make(tmp_path / "plain", corpora, settings=other)
    interrupt(tmp_path / "out", corpora, "encoding")
    make(tmp_path / "out", corpora, settings=other)
    assert digests(tmp_path / "out") == digests(tmp_path / "plain")


def test_finished_parts_are_kept_if_a_corpus_is_spelled_differently(
    tmp_path: Path, corpora: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(tmp_path / "out", corpora, "encoding")
    monkeypatch.chdir(tmp_path)
    interrupt(tmp_path / "out", [corpora[0], "second", corpora[2]], "learning subwords")
    assert [name for name, _ in make(tmp_path / "out", corpora)[1]].count("cleaning") == 0


def test_finished_parts_of_another_version_are_made_again(
    tmp_path: Path, corpora: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(tmp_path / "out", corpora, "encoding")
    monkeypatch.setattr(parts, "__version__", "other")
    assert [name for name, _ in make(tmp_path / "out", corpora)[1]].count("cleaning") > 0


def test_an_early_failure_leaves_nothing(
    tmp_path: Path, corpora: list[str], full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    interrupt(tmp_path / "new" / "out", corpora, "cleaning")
    assert not (tmp_path / "new").exists()
    with full_disk(1000), pytest.raises(UserError, match=r"can't be written: .*\. Free some space"):
        make(tmp_path / "out", corpora)
    assert not work_folder(tmp_path / "out").exists()
