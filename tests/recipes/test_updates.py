"""What the comparison at equal updates makes of batches and logs; nothing is trained here."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.data.arrays import Offsets
from nmt_cli.data.dataset import Sentences, Split
from recipes.benchmarks import updates
from recipes.benchmarks.lengths import of_split
from recipes.benchmarks.updates import Run

RUN = Run("tiny", "fairseq", seed=1, updates=300, tokens=600, every=100)


def offsets(lengths: list[int]) -> Offsets:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


@pytest.fixture
def train() -> Split:
    """1,000 pairs of 2 to 30 tokens a side."""
    draw = np.random.default_rng(1)
    sides = [
        Sentences(tokens=np.zeros(lengths.sum(), dtype=np.uint16), offsets=offsets(lengths.tolist()))
        for lengths in draw.integers(2, 31, (2, 1000))
    ]
    return Split("train", "train", *sides)


@pytest.mark.parametrize("budget", [60, 200, 1000])
def test_padded_batches_hold_each_pair_once_within_the_budget_filler_included(
    train: Split, budget: int
) -> None:
    batches = updates.padded_batches(train, budget)
    assert sorted(map(tuple, np.concatenate(batches))) == sorted(map(tuple, of_split(train)))
    assert all(len(batch) * int(batch.max()) <= budget for batch in batches)
    full = pairwise(batches)
    assert all((len(one) + 1) * max(one.max(), following[0].max()) > budget for one, following in full)


def test_the_padded_budget_gives_an_epoch_as_many_updates_as_ours_has(train: Split) -> None:
    ours, budget = len(updates.our_batches(train, 300)), updates.padded_budget(train, 300)
    assert len(updates.padded_batches(train, budget)) <= ours < len(updates.padded_batches(train, budget - 1))


def test_a_longer_run_covers_a_shorter_one_of_the_same_kind_alone() -> None:
    done = {"model": "tiny", "trainer": "fairseq", "seed": 1, "updates": 600, "tokens": 600, "every": 100}
    assert updates.covers(done, RUN)
    assert not updates.covers(done | {"updates": 200}, RUN)
    assert not updates.covers(done | {"seed": 2}, RUN)


def test_a_log_of_fairseq_is_read_in_nats_without_the_time_of_validation_and_for_the_same_pieces_alone(
    tmp_path: Path,
) -> None:
    valid = {"valid_num_updates": "2", "valid_nll_loss": "3", "valid_wpb": "40"}
    lines = [
        '2026-01-01 23:59:57 | INFO | train_inner | {"wpb": "11", "num_updates": "1"}',
        '2026-01-01 23:59:59 | INFO | train_inner | {"wpb": "13", "num_updates": "2"}',
        f"2026-01-02 00:00:09 | INFO | valid | {json.dumps(valid)}",
        '2026-01-02 00:00:13 | INFO | train_inner | {"wpb": "12", "num_updates": "3"}',
        f"2026-01-02 00:00:20 | INFO | valid | {json.dumps(valid | {'valid_num_updates': '3'})}",
    ]
    (tmp_path / "printed").write_text("\n".join(lines), "utf-8")
    seen = updates.read_fairseq(tmp_path / "printed", valid_tokens=40)
    assert seen.train_tokens == [11, 13, 12]
    assert seen.valid == {2: pytest.approx(3 * math.log(2)), 3: pytest.approx(3 * math.log(2))}
    assert seen.seconds == {2: 2, 3: 2 + 4}
    with pytest.raises(SystemExit, match="fairseq validates on 40 pieces, we on 41"):
        updates.read_fairseq(tmp_path / "printed", valid_tokens=41)


def test_our_log_is_read_with_the_seconds_that_steps_took(tmp_path: Path) -> None:
    step: dict[str, object] = {
        "epoch": 0,
        "source_tokens": 9,
        "target_tokens": 10,
        "skipped": False,
        "filler": 0.0,
        "loss": 5.0,
    }
    step |= {"nll": 5.0, "gradient_norm": 1.0, "learning_rate": 1e-3, "pairs": 2}
    lines: list[dict[str, object]] = [
        step | {"step": 1, "tokens_per_second": 2.5},
        step | {"step": 2, "tokens_per_second": 5.0},
        {"step": 2, "valid": "valid", "nll": 4.5, "signatures": {}},
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    seen = updates.read_nmt(tmp_path / "log.jsonl")
    assert (seen.train_tokens, seen.valid) == ([10, 10], {2: 4.5})
    assert seen.seconds == {2: pytest.approx(10 / 2.5 + 10 / 5)}


def test_a_table_has_each_trainer_s_mean_and_the_time_of_the_runs_that_were_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"model": "tiny", "trainer": "fairseq", "updates": 200, "tokens": 600}
    timed = run | {"seed": 1, "valid": {"100": 1.0, "200": 0.0}, "seconds_until": {"100": 6.0, "200": 10.0}}
    untimed = run | {"seed": 2, "valid": {"100": 2.0, "200": 0.0}}
    (tmp_path / "updates.jsonl").write_text(f"{json.dumps(timed)}\n{json.dumps(untimed)}\n", "utf-8")
    monkeypatch.setattr(updates, "RESULTS", tmp_path / "updates.jsonl")
    updates.print_table("tiny", 600)
    header, _, row, *_ = capsys.readouterr().out.splitlines()
    assert header == "| tiny | update 100 | update 200 | ms an update |"
    assert row == "| fairseq | 5.05 (2: 2.72 to 7.39) | 1.00 (2: 1.00 to 1.00) | 50.00 |"


@pytest.mark.parametrize("trainer", updates.TRAINERS)
@pytest.mark.parametrize("model", list(updates.MODELS))
def test_every_run_is_one_that_training_takes(model: str, trainer: str) -> None:
    config = Run(model, trainer, seed=1, updates=300, tokens=600, every=100).config
    assert config.schedule.kind == "inverse-sqrt"
    assert trainer in ("fairseq", f"nmt, {config.model.init}")
