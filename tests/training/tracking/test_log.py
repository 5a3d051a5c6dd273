"""`log.jsonl`: the content of lines, when they are written, and how a resumed run reads them."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.data.batching.batch import Rounding, assemble
from nmt_cli.data.batching.loader import LocalBatch
from nmt_cli.data.dataset import Dataset
from nmt_cli.training.progress import Position
from nmt_cli.training.tracking import log as log_module
from nmt_cli.training.tracking.events import Event, Logged
from nmt_cli.training.tracking.history import RunHistory
from nmt_cli.training.tracking.log import Log, cut_behind, read_history
from tests.checks import refusal
from tests.training.runs import Go, warnings

FullDisk = Callable[[int], AbstractContextManager[None]]

OF_STEPS = {"step", "loss", "nll", "learning_rate", "target_tokens", "tokens_per_second"}
OF_VALIDATIONS = {"step", "valid", "nll", "perplexity", "word_perplexity", "bleu", "chrf", "signatures"}
"""Keys that readers of the log use."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the time by `clock.now`."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(log_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    with closing(Log(path, RunHistory())) as log:
        yield log


def add(
    log: Log, number: int, tokens: int = 50, nll: float = 75.0, bad: float = 0.0, scale: float = 1.0
) -> None:
    """Add a step with `tokens` target tokens to the log."""
    batch = LocalBatch(2, number, [], pairs=7, source_tokens=40, target_tokens=tokens, dropped=0)
    log.add(number, 0.5, batch, torch.tensor([100.0, nll, 3.0, bad, scale]))


def strict_lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines as other programs parse them, without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text("utf-8").splitlines()]


def steps_in(path: Path) -> list[int]:
    return [line["step"] for line in strict_lines_of(path)]


def test_a_line_has_the_measurements_of_a_step_per_target_token(
    clock: SimpleNamespace, log: Log, path: Path
) -> None:
    add(log, 12)
    clock.now += 2.0
    returned = log.flush(0.25)
    assert strict_lines_of(path) == returned
    assert returned == [
        {
            "step": 12,
            "epoch": 2,
            "loss": 2.0,
            "nll": 1.5,
            "learning_rate": 0.5,
            "gradient_norm": 3.0,
            "source_tokens": 40,
            "target_tokens": 50,
            "pairs": 7,
            "filler": 0.0,
            "skipped": False,
            "tokens_per_second": 25.0,
            "waiting": 0.25,
        }
    ]


def test_steps_are_written_in_groups_each_once_and_in_order(log: Log, path: Path) -> None:
    for number in range(1, 6):
        add(log, number)
        if number == 3:
            assert path.read_bytes() == b""
            log.flush()
            assert steps_in(path) == [1, 2, 3]
    assert log.flush()[0]["step"] == 4
    assert log.flush() == []
    assert steps_in(path) == [1, 2, 3, 4, 5]


def test_a_resumed_run_appends_to_its_log(path: Path) -> None:
    for number in (1, 2):
        with closing(Log(path, RunHistory())) as log:
            add(log, number)
            log.flush()
    assert steps_in(path) == [1, 2]


def test_a_rank_that_does_not_write_still_returns_its_lines() -> None:
    log = Log(None, RunHistory())
    add(log, 1)
    log.write([line(1)])
    assert [line["step"] for line in log.flush()] == [1]


def test_each_line_goes_to_the_file_the_history_and_the_readers_once_and_the_same(path: Path) -> None:
    events: list[Event] = []
    with closing(Log(path, RunHistory(), events.append)) as log:
        add(log, 1, nll=torch.nan, bad=1.0)
        add(log, 2)
        log.flush()
        log.write([json.loads(valid(2, bleu=float("inf")))])
        log.flush()
    lines = strict_lines_of(path)
    assert [line for event in events if isinstance(event, Logged) for line in event.lines] == lines
    assert len(events) == 2
    assert log.history == read_history(path)
    assert [point.end.step for point in log.history.points] == [1, 2]
    assert [validation.line for validation in log.history.validations] == [lines[2]]


def test_speed_is_target_tokens_over_the_time_of_the_steps_alone(clock: SimpleNamespace, log: Log) -> None:
    for tokens in (100, 300):
        add(log, 1, tokens)
        clock.now += 1.0
    assert log.age == 2.0
    assert [line["tokens_per_second"] for line in log.flush()] == [200.0, 200.0]
    clock.now += 1000.0  # a validation
    log.restart_clock()
    add(log, 3, 60)
    clock.now += 2.0
    assert [line["tokens_per_second"] for line in log.flush()] == [30.0]


def test_a_step_left_out_is_marked_and_its_line_is_json_too(log: Log, path: Path) -> None:
    add(log, 1, nll=torch.inf, bad=1.0)
    add(log, 2, nll=torch.nan, bad=1.0)
    add(log, 3)
    log.flush()
    assert [line["skipped"] for line in strict_lines_of(path)] == [True, True, False]


def test_the_loss_scale_of_fp16_is_logged(log: Log, path: Path) -> None:
    add(log, 1, scale=1024.0)
    log.flush()
    assert strict_lines_of(path)[0]["loss_scale"] == 1024.0


def test_filler_is_the_share_of_dummy_tokens(log: Log, dataset: Dataset) -> None:
    part = assemble(dataset.splits["train"], np.arange(9), Rounding(64))
    step = LocalBatch(0, 0, [part, part], 9, part.real_source_tokens, part.real_target_tokens, 0)
    log.add(1, 0.1, step, torch.ones(5))
    both = len(part.source_tokens) + len(part.target_tokens)
    assert part.filler > 0
    assert log.flush()[0]["filler"] == round(part.filler / both, 5)


def line(number: int) -> dict[str, Any]:
    """Return the entries of a step."""
    entries: dict[str, Any] = json.loads(step(number))
    return entries


def step(number: int, **changes: object) -> bytes:
    """Return the line of a step."""
    counts = {"epoch": 0, "source_tokens": 9, "target_tokens": 9, "tokens_per_second": 1.5, "skipped": False}
    measured = {"loss": 2.0, "nll": None, "gradient_norm": 0.5, "learning_rate": 0.1}
    return json.dumps({"step": number, **counts, **measured, **changes}).encode() + b"\n"


def valid(number: int, **changes: object) -> bytes:
    """Return the line of a validation."""
    numbers = {"nll": 1.0, "perplexity": None, "word_perplexity": 9.0, "bleu": 3}
    line = {"step": number, "valid": "a", **numbers, "signatures": {"bleu": "x"}, **changes}
    return json.dumps(line).encode() + b"\n"


def at(step: int, *validated: int, log: bytes = b"") -> Position:
    """Return a position with the hash of this log, or without one as in older versions."""
    size, digest = (len(log), hashlib.sha256(log).hexdigest()) if log else (0, "")
    scores = {str(number): 1.0 for number in validated}
    return Position(step=step, scores=scores, log_bytes=size, log_sha256=digest)


def siblings(path: Path) -> list[Path]:
    """Return the other files in the folder of `path`."""
    return [other for other in path.parent.iterdir() if other != path]


@pytest.mark.parametrize("hashed", [True, False], ids=["hashed", "of an older version"])
@pytest.mark.parametrize(
    ("ours", "later"),
    [
        (step(1) + step(2), b""),
        (step(1) + step(2), step(3) + step(40)),
        (step(1) + step(2) + valid(2), step(3)[:5]),
        (step(1) + step(2) + valid(2), step(3)[:30]),
    ],
    ids=["intact", "later steps", "few bytes", "half a line"],
)
def test_lines_after_the_restored_step_are_removed_without_a_warning(
    path: Path, ours: bytes, later: bytes, hashed: bool
) -> None:
    path.write_bytes(ours + later)
    validated = (2,) if b"valid" in ours else ()
    history, warning = cut_behind(path, at(2, *validated, log=ours if hashed else b""))
    assert warning == ""
    assert history == read_history(path)
    assert path.read_bytes() == ours
    assert list(path.parent.iterdir()) == [path]


def test_a_validation_that_will_be_made_again_is_cut_too(path: Path) -> None:
    path.write_bytes(step(1) + valid(1) + step(2) + valid(2))
    cut_behind(path, at(2, 1))
    assert path.read_bytes() == step(1) + valid(1) + step(2)


RUBBISH = (
    *(b"", b"\0\0\0", b"3", b"null", b"[]", b'""', b'{"step": "x"}', b"{}", b'{"step": 2}', b"[" * 9999),
    *(b'\xff{"step": 2}', step(2, skipped="no")[:-1], step(2, loss="x")[:-1], step(2, epoch=None)[:-1]),
    *(valid(2, signatures={"ter": "x"})[:-1], valid(2, signatures=3)[:-1], valid(2, nll=[])[:-1]),
    b"\0\n[]",
)


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_damaged_lines_are_counted_and_removed(path: Path, rubbish: bytes) -> None:
    path.write_bytes(step(1) + rubbish + b"\n" + valid(2) + step(3))
    history, warning = cut_behind(path, at(3, 2))
    count = rubbish.count(b"\n") + 1
    assert f"It has 2 steps up to step 3, and {count} damaged or foreign lines were removed." in warning
    assert path.read_bytes() == step(1) + valid(2) + step(3)
    assert history == read_history(path)
    assert (history.now.step, len(history.points), len(history.validations)) == (3, 2, 1)


WHOLE = step(1) + step(2) + valid(2) + step(3)


@pytest.mark.parametrize(
    ("found", "left", "steps", "removed"),
    [
        (None, None, 0, 0),
        (b"", b"", 0, 0),
        (step(1) + step(2)[:30], step(1), 1, 0),
        (step(1) + step(2) + valid(2), step(1) + step(2) + valid(2), 2, 0),
        (step(3), step(3), 1, 0),
        (step(1) + step(3), step(1) + step(3), 2, 0),
        (step(1) + step(2) + step(3), step(1) + step(2) + step(3), 3, 0),
        (WHOLE.replace(b"1.5", b"1.7"), WHOLE.replace(b"1.5", b"1.7"), 3, 0),
        (WHOLE + b"any other text", WHOLE, 3, 1),
        (WHOLE + b"any other\ntext\n", WHOLE, 3, 2),
        (WHOLE + step(4) + b"[]\n", WHOLE, 3, 1),
        (WHOLE + WHOLE, WHOLE, 3, 4),
    ],
    ids=[
        *("missing", "empty", "cut in a line", "cut at a line", "no beginning", "a gap", "no validation"),
        *("other numbers", "text without an end", "text", "text after later steps", "twice"),
    ],
)
def test_a_log_that_was_lost_or_changed_is_reported_and_what_is_removed_is_kept(
    path: Path, found: bytes | None, left: bytes | None, steps: int, removed: int
) -> None:
    if found is not None:
        path.write_bytes(found)
    history, warning = cut_behind(path, at(3, 2, log=WHOLE))
    assert warning.startswith(f"{path} is not as the run wrote it. It has {steps} steps up to step 3")
    assert (f"and {removed} damaged or foreign lines" in warning) == bool(removed)
    assert (path.read_bytes() if path.exists() else None) == left
    assert history == read_history(path)
    assert [copy.read_bytes() for copy in siblings(path)] == ([] if found == left else [found])
    assert warning.endswith("log.jsonl.1 is the file as it was.") == (found != left)


def test_the_steps_of_an_older_version_without_a_hash_are_counted(path: Path) -> None:
    assert "It has 0 steps up to step 3." in cut_behind(path, at(3, 2))[1]
    path.write_bytes(step(1) + step(2))
    assert "It has 2 steps up to step 3." in cut_behind(path, at(3))[1]


def test_a_log_knows_its_hash_also_after_a_full_disk(path: Path, full_disk: FullDisk) -> None:
    path.write_bytes(b"before\n")
    with closing(Log(path, RunHistory())) as log:
        with full_disk(20):
            log.write([line(1), line(2)])
            content = path.read_bytes()
            assert log.written == (len(content), hashlib.sha256(content).hexdigest())
        log.write([line(3)])
        content = path.read_bytes()
        assert log.written == (len(content), hashlib.sha256(content).hexdigest())


def test_a_run_that_begins_again_keeps_nothing(path: Path) -> None:
    assert cut_behind(path, at(0)) == (RunHistory(), "")
    assert not path.exists()
    path.write_bytes(step(1) + step(2))
    assert cut_behind(path, at(0)) == (RunHistory(), "")
    assert path.read_bytes() == b""


def test_lines_that_a_full_disk_refused_are_written_later(path: Path, full_disk: FullDisk) -> None:
    path.write_bytes(b"before\n")
    with closing(Log(path, RunHistory())) as log:
        with full_disk(20):
            log.write([line(1), line(2)])
        log.write([line(3)])  # writes also the lines that the full disk refused
    assert path.read_bytes() == b"before\n" + step(1) + step(2) + step(3)


@pytest.mark.parametrize("last", [Log.flush, Log.close])
def test_lines_that_a_full_disk_refused_are_written_without_later_ones(
    path: Path, full_disk: FullDisk, last: Callable[[Log], object]
) -> None:
    with closing(Log(path, RunHistory())) as log:
        with full_disk(5):
            log.write([line(1)])
        last(log)
        assert path.read_bytes() == step(1)


def test_a_run_reports_what_was_lost_of_its_log_once(go: Go, run: Path) -> None:
    log = run / "log.jsonl"
    go("training.max_steps=4")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(damaged := b"".join((lines[0], b"\xff" + lines[1], *lines[2:])))
    (warning,) = warnings(go("training.max_steps=5")[1])
    assert "It has 3 steps up to step 4, and 1 damaged" in warning
    assert steps_in(log) == [1, 3, 4, 5]
    assert (run / "log.jsonl.1").read_bytes() == damaged
    assert warnings(go("training.max_steps=6")[1]) == []
    log.unlink()
    (warning,) = warnings(go("training.max_steps=7")[1])
    assert warning == f"{log} is not as the run wrote it. It has 0 steps up to step 6."
    assert steps_in(log) == [7]


def test_a_run_that_continues_the_schedule_of_another_has_a_log_from_its_first_step(
    go: Go, run: Path, tmp_path: Path
) -> None:
    go("training.max_steps=2")
    taken = run.rename(tmp_path / "taken")
    start = (f'start.model="{taken}"', 'start.take=["schedule"]')
    for steps in (4, 6):
        assert warnings(go(*start, f"training.max_steps={steps}")[1]) == []
    assert steps_in(run / "log.jsonl") == [3, 4, 5, 6]


def test_the_log_of_a_run_has_each_step_and_each_validation_once(go: Go, run: Path) -> None:
    go("training.max_steps=5", "validation.every_steps=2", "training.log_every=3")
    lines = strict_lines_of(run / "log.jsonl")
    validations = [line for line in lines if "valid" in line]
    steps = [line for line in lines if "valid" not in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5]
    assert [(line["valid"], line["step"]) for line in validations] == [("dev", 2), ("dev", 4), ("dev", 5)]
    assert all(line.keys() >= OF_STEPS for line in steps)
    assert all(line.keys() >= OF_VALIDATIONS for line in validations)
    assert set(validations[0]["signatures"]) == {"bleu", "chrf"}
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)


def test_a_log_that_is_not_an_ordinary_file_is_refused_without_blocking(path: Path) -> None:
    os.mkfifo(path)
    assert "log.jsonl is not an ordinary file" in refusal(cut_behind, path, Position(3))
