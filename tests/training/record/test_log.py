"""`log.jsonl`: what a line holds, when it is written, and what a resumed run finds in it."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.data.batch import assemble
from nmt_cli.data.dataset import Dataset
from nmt_cli.data.filler import Rounding
from nmt_cli.data.loader import LocalBatch
from nmt_cli.training.record import log as log_module
from nmt_cli.training.record.events import Event
from nmt_cli.training.record.log import Log, cut_behind

Go = Callable[..., tuple[bool, list[Event]]]
FullDisk = Callable[[int], AbstractContextManager[None]]

OF_STEPS = {"step", "loss", "nll", "learning_rate", "target_tokens", "tokens_per_second"}
OF_VALIDATIONS = {"step", "valid", "nll", "perplexity", "word_perplexity", "bleu", "chrf", "signatures"}
"""What others rely on to find in a line."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time stands still; `clock.now` moves it."""
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
    """JSON as every other program reads it: NaN and Infinity are none."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [strict(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_tells_all_of_a_step_per_target_token(clock: SimpleNamespace, log: Log, path: Path) -> None:
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


def test_what_is_left_is_written_at_the_end(path: Path) -> None:
    log = Log(path)
    log.add(1, 0.1, a_step(), measured())
    log.__exit__(None)
    assert [line["step"] for line in lines_of(path)] == [1]


def test_a_log_goes_on_behind_what_is_there(path: Path) -> None:
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b'{"step": 1}\n{"step": 2}\n', b'{"step": 1}\n{"step": 2}\n'),
        (b'{"step": 2}\n{"step": 3}\n{"step": 40}\n', b'{"step": 2}\n'),
        (b'{"step": 2}\n{"step": 2, "valid": "dev"}\n', b'{"step": 2}\n{"step": 2, "valid": "dev"}\n'),
        (b'{"step": 1}\n{"step": 2, "lo', b'{"step": 1}\n'),
        (b'{"step": 1}\n{"step": 2}', b'{"step": 1}\n'),
        (b'{"step": 1}\n\x00\x00\x00\n\n[]\n{"step": "x"}\n{}\n{"step": 2}\n', b'{"step": 1}\n{"step": 2}\n'),
        (b'{"step": 3}\n', b""),
    ],
    ids=["empty", "as it stands", "later steps", "validated", "half a line", "no end", "rubbish", "all"],
)
def test_behind_the_restored_step_the_log_is_cut(path: Path, before: bytes, after: bytes) -> None:
    path.write_bytes(before)
    cut_behind(path, 2, judged=True)
    assert path.read_bytes() == after
    assert list(path.parent.iterdir()) == [path]


def test_a_validation_that_will_be_made_again_is_cut_too(path: Path) -> None:
    before = b'{"step": 1, "valid": "a"}\n{"step": 2}\n{"step": 2, "valid": "a"}\n'
    path.write_bytes(before)
    cut_behind(path, 2, judged=False)
    assert path.read_bytes() == b'{"step": 1, "valid": "a"}\n{"step": 2}\n'


def test_lines_that_found_no_room_are_written_when_there_is_some(path: Path, full_disk: FullDisk) -> None:
    log = Log(path)
    with full_disk(10):
        log.write([{"step": 1}, {"step": 2}])
    log.write([{"step": 3}])
    log.__exit__(None)
    assert [line["step"] for line in lines_of(path)] == [1, 2, 3]


def test_where_there_is_no_log_yet_none_is_cut(path: Path) -> None:
    cut_behind(path, 2, judged=True)
    assert not path.exists()


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
