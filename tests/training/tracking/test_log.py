"""`log.jsonl`: the content of lines, when they are written, and how a resumed run reads them."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.data.batching.batch import assemble
from nmt_cli.data.batching.filler import Rounding
from nmt_cli.data.batching.loader import LocalBatch
from nmt_cli.data.dataset import Dataset
from nmt_cli.errors import UserError
from nmt_cli.training.position import Position
from nmt_cli.training.tracking import log as log_module
from nmt_cli.training.tracking.events import Event, Warned
from nmt_cli.training.tracking.history import History, read_history
from nmt_cli.training.tracking.log import Log, cut_behind

Go = Callable[..., tuple[bool, list[Event]]]
FullDisk = Callable[[int], AbstractContextManager[None]]

OF_STEPS = {"step", "loss", "nll", "learning_rate", "target_tokens", "tokens_per_second"}
OF_VALIDATIONS = {"step", "valid", "nll", "perplexity", "word_perplexity", "bleu", "chrf", "signatures"}
"""Keys that readers of the log use."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the time by `clock.now`."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(log_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    with Log(path) as log:
        yield log


def a_step(number: int = 0, target_tokens: int = 50) -> LocalBatch:
    return LocalBatch(
        epoch=2,
        number=number,
        micro_batches=[],
        pairs=7,
        source_tokens=40,
        target_tokens=target_tokens,
        dropped=0,
    )


def measured(
    smoothed: float = 100.0, nll: float = 75.0, bad: float = 0.0, scale: float = 1.0
) -> torch.Tensor:
    return torch.tensor([smoothed, nll, 3.0, bad, scale])


def strict(text: str) -> Any:
    """Parse JSON as other programs do, without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [strict(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_has_the_measurements_of_a_step_per_target_token(
    clock: SimpleNamespace, log: Log, path: Path
) -> None:
    log.add(12, 0.5, a_step(), measured())
    clock.now += 2.0
    returned = log.flush(0.25)
    assert lines_of(path) == returned
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
        log.add(number, 0.1, a_step(number), measured())
        if number == 3:
            assert path.read_bytes() == b""
            log.flush()
            assert len(lines_of(path)) == 3
    assert log.flush()[0]["step"] == 4
    assert log.flush() == []
    assert [line["step"] for line in lines_of(path)] == [1, 2, 3, 4, 5]


def test_the_remaining_steps_are_written_at_the_end(path: Path) -> None:
    log = Log(path)
    log.add(1, 0.1, a_step(), measured())
    log.__exit__(None)
    assert [line["step"] for line in lines_of(path)] == [1]


def test_a_log_is_appended_to(path: Path) -> None:
    for number in (1, 2):
        log = Log(path)
        log.write([{"step": number}])
        log.__exit__(None)
    assert lines_of(path) == [{"step": 1}, {"step": 2}]


def test_a_rank_that_does_not_write_still_knows_its_lines() -> None:
    log = Log(None)
    log.add(1, 0.1, a_step(), measured())
    log.write([{"step": 1}])
    assert [line["step"] for line in log.flush()] == [1]
    log.__exit__(None)


def test_speed_is_target_tokens_over_the_time_of_the_steps_alone(clock: SimpleNamespace, log: Log) -> None:
    for tokens in (100, 300):
        log.add(1, 0.1, a_step(target_tokens=tokens), measured())
        clock.now += 1.0
    assert log.age == 2.0
    assert [line["tokens_per_second"] for line in log.flush()] == [200.0, 200.0]
    clock.now += 1000.0  # a validation
    log.restart_clock()
    log.add(3, 0.1, a_step(target_tokens=60), measured())
    clock.now += 2.0
    assert [line["tokens_per_second"] for line in log.flush()] == [30.0]


def test_a_step_left_out_is_marked_and_its_line_is_json_too(log: Log, path: Path) -> None:
    log.add(1, 0.1, a_step(), measured(smoothed=torch.nan, nll=torch.inf, bad=1.0))
    log.add(2, 0.1, a_step(), measured())
    log.flush()
    assert [line["skipped"] for line in lines_of(path)] == [True, False]


def test_the_loss_scale_of_fp16_is_logged(log: Log, path: Path) -> None:
    log.add(1, 0.1, a_step(), measured(scale=1024.0))
    log.flush()
    assert lines_of(path)[0]["loss_scale"] == 1024.0


def test_filler_is_the_share_of_dummy_tokens(log: Log, dataset: Dataset) -> None:
    part = assemble(dataset.splits["train"], np.arange(9), Rounding(64))
    step = LocalBatch(0, 0, [part, part], 9, part.real_source_tokens, part.real_target_tokens, 0)
    log.add(1, 0.1, step, measured())
    both = len(part.source_tokens) + len(part.target_tokens)
    assert part.filler > 0
    assert log.flush()[0]["filler"] == round(part.filler / both, 5)


def step(number: int, **changes: object) -> bytes:
    """Return the line of a step."""
    counts = {"epoch": 0, "source_tokens": 9, "target_tokens": 9, "tokens_per_second": 1.5}
    return json.dumps({"step": number, **counts, "skipped": False, **changes}).encode() + b"\n"


def valid(number: int, **changes: object) -> bytes:
    """Return the line of a validation."""
    numbers = {"nll": 1.0, "perplexity": None, "word_perplexity": 9.0, "bleu": 3}
    line = {"step": number, "valid": "a", **numbers, "signatures": {"bleu": "x"}, **changes}
    return json.dumps(line).encode() + b"\n"


def at(step: int, *validated: int, log: bytes | None = None) -> Position:
    """Return a position with the hash of this log, or without one as in older versions."""
    known = (0, "") if log is None else (len(log), hashlib.sha256(log).hexdigest())
    scores = {str(number): 1.0 for number in validated}
    return Position(step=step, scores=scores, log_bytes=known[0], log_sha256=known[1])


@pytest.mark.parametrize("hashed", [True, False], ids=["", "of an older version"])
@pytest.mark.parametrize(
    ("ours", "behind"),
    [
        (step(1) + step(2), b""),
        (step(1) + step(2), step(3) + step(40)),
        (step(1) + step(2) + valid(2), step(3)[:9]),
        (step(1) + step(2), b"\0\0\0\n\n[]\n"),
    ],
    ids=["as it stands", "later steps", "half a line", "rubbish"],
)
def test_lines_after_the_restored_step_are_removed_without_a_warning(
    path: Path, ours: bytes, behind: bytes, hashed: bool
) -> None:
    path.write_bytes(ours + behind)
    validated = (2,) if b"valid" in ours else ()
    assert cut_behind(path, at(2, *validated, log=ours if hashed else None)) == ""
    assert path.read_bytes() == ours
    assert list(path.parent.iterdir()) == [path]


def test_a_validation_that_will_be_made_again_is_cut_too(path: Path) -> None:
    path.write_bytes(step(1) + valid(1) + step(2) + valid(2))
    cut_behind(path, at(2, 1))
    assert path.read_bytes() == step(1) + valid(1) + step(2)


def test_a_run_that_begins_again_keeps_nothing(path: Path) -> None:
    path.write_bytes(step(1) + b"{}\n" + step(2))
    assert cut_behind(path, at(0)) == ""
    assert path.read_bytes() == b""


WHOLE = step(1) + step(2) + valid(2) + step(3)
RUBBISH = (
    *(b"", b"\0\0\0", b"[]", b'{"step": "x"}', b"{}", b'{"step": 2}', b'\xff{"step": 2}', b"[" * 9999),
    *(step(2, skipped="no")[:-1], step(2, loss="x")[:-1], valid(2, samples={"1": 2})[:-1]),
    *(valid(2, signatures={"ter": "x"})[:-1], valid(2, signatures=3)[:-1], valid(2, nll=[])[:-1]),
)


@pytest.mark.parametrize("hashed", [True, False], ids=["", "of an older version"])
@pytest.mark.parametrize(
    ("actual", "stays", "message"),
    [
        *((step(1) + line + b"\n" + valid(2) + step(3), None, "1 damaged lines, 1 ") for line in RUBBISH),
        (step(1) + b"\0\n[]\n" + valid(2) + step(3), None, "2 damaged lines, 1 missing steps"),
        (step(1) + valid(2) + step(3), None, "1 missing steps"),
        (step(1) + step(2) + step(3), None, "1 missing validations"),
        (step(1) + step(2)[:20], step(1), "2 missing steps, 1 missing validations"),
        (b"", None, "3 missing steps, 1 missing validations"),
    ],
)
def test_losses_of_the_log_are_counted_and_the_file_is_copied(
    path: Path, actual: bytes, stays: bytes | None, message: str, hashed: bool
) -> None:
    path.write_bytes(actual)
    position = at(3, 2, log=WHOLE if hashed else None)
    said = cut_behind(path, position)
    assert said.startswith(f"{path} is damaged ({message}")
    assert path.read_bytes() == b"".join(
        line for line in actual.splitlines(keepends=True) if line in WHOLE.splitlines(keepends=True)
    )
    if stays is not None or "damaged" in message:
        assert said.endswith("; intact lines stay, and the damaged log is copied to log.jsonl.1")
        assert (path.parent / "log.jsonl.1").read_bytes() == actual
    assert cut_behind(path, position).endswith("intact lines stay")  # no second copy


def test_a_changed_number_is_reported(path: Path) -> None:
    path.write_bytes(WHOLE.replace(b"1.5", b"1.7"))
    said = cut_behind(path, at(3, 2, log=WHOLE))
    assert said == f"{path} is damaged (some bytes changed); intact lines stay"


def test_repeated_lines_count_once(path: Path) -> None:
    path.write_bytes(WHOLE + WHOLE + step(3, epoch=7))
    assert cut_behind(path, at(3, 2)) == ""
    assert path.read_bytes() == WHOLE


def test_a_missing_log_is_reported_and_a_new_run_has_none(path: Path) -> None:
    assert "3 missing steps" in cut_behind(path, at(3, 2, log=WHOLE))
    assert cut_behind(path, at(0)) == ""
    assert not path.exists()


def test_a_log_knows_its_hash_after_whatever_happened_to_it(path: Path, full_disk: FullDisk) -> None:
    path.write_bytes(b"before\n")
    with Log(path) as log:
        with full_disk(20):
            log.write([{"step": 1}, {"step": 2}])
        log.write([{"step": 3}])
        content = path.read_bytes()
        assert log.written == (len(content), hashlib.sha256(content).hexdigest())


def test_a_run_reports_losses_of_its_log_once(go: Go, tmp_path: Path) -> None:
    log = tmp_path / "run/log.jsonl"
    go("training.max_steps=4")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join((lines[0], b"\xff" + lines[1], *lines[2:])))
    warned = [e.text for e in go("training.max_steps=5")[1] if isinstance(e, Warned)]
    assert ["1 damaged lines, 1 missing steps" in text for text in warned] == [True]
    assert [line["step"] for line in lines_of(log)] == [1, 3, 4, 5]
    assert not [e for e in go("training.max_steps=6")[1] if isinstance(e, Warned)]


def test_lines_that_a_full_disk_refused_are_written_later(path: Path, full_disk: FullDisk) -> None:
    log = Log(path)
    with full_disk(10):
        log.write([{"step": 1}, {"step": 2}])
    log.write([{"step": 3}])
    log.__exit__(None)
    assert [line["step"] for line in lines_of(path)] == [1, 2, 3]


def test_a_runs_log_holds_every_step_and_every_validation_once(go: Go, tmp_path: Path) -> None:
    go("training.max_steps=5", "validation.every_steps=2", "training.log_every=3")
    lines = lines_of(tmp_path / "run/log.jsonl")
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
    with pytest.raises(UserError, match=r"log\.jsonl is not an ordinary file"):
        cut_behind(path, Position(3))


@pytest.mark.parametrize("line", [b"3", b"null", b"[]", b'""', b'{"step": 1}', b'{"format": 1, "files": {}}'])
def test_another_file_instead_of_the_log_is_reported_and_kept(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n")
    said = cut_behind(path, Position(3))
    assert "3 missing steps" in said
    assert read_history(path) == History()
    (stored,) = path.parent.glob("log.jsonl.*")
    assert stored.read_bytes() == line + b"\n"
