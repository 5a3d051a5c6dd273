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
    batches = updates._padded_batches(train, budget)
    assert sorted(map(tuple, np.concatenate(batches))) == sorted(map(tuple, updates._lengths(train)))
    assert all(len(batch) * int(batch.max()) <= budget for batch in batches)
    full = pairwise(batches)
    assert all((len(one) + 1) * max(one.max(), following[0].max()) > budget for one, following in full)


def test_the_padded_budget_gives_an_epoch_as_many_updates_as_ours_has(train: Split) -> None:
    ours, budget = len(updates._our_batches(train, 300)), updates._padded_budget(train, 300)
    assert (
        len(updates._padded_batches(train, budget)) <= ours < len(updates._padded_batches(train, budget - 1))
    )


def test_a_longer_run_covers_a_shorter_one_of_the_same_kind_alone() -> None:
    done = {"model": "tiny", "trainer": "fairseq", "seed": 1, "updates": 600, "tokens": 600, "every": 100}
    assert updates._covers(done, RUN)
    assert not updates._covers(done | {"updates": 200}, RUN)
    assert not updates._covers(done | {"seed": 2}, RUN)


def test_a_log_of_fairseq_is_read_in_nats_and_for_the_same_pieces_alone(tmp_path: Path) -> None:
    valid = {"valid_num_updates": "100", "valid_nll_loss": "3", "valid_wpb": "40"}
    lines = [
        'day | INFO | train_inner | {"wpb": "11", "num_updates": "1"}',
        'day | INFO | train_inner | {"wpb": "13", "num_updates": "2"}',
        f"day | INFO | valid | {json.dumps(valid)}",
    ]
    (tmp_path / "printed").write_text("\n".join(lines), "utf-8")
    seen = updates._read_fairseq(tmp_path / "printed", valid_tokens=40)
    assert seen.train_tokens == [11, 13]
    assert seen.valid == {100: pytest.approx(3 * math.log(2))}
    with pytest.raises(SystemExit, match="fairseq validates on 40 pieces, we on 41"):
        updates._read_fairseq(tmp_path / "printed", valid_tokens=41)


@pytest.mark.parametrize("trainer", list(updates.TRAINERS))
@pytest.mark.parametrize("model", list(updates.MODELS))
def test_every_run_is_one_that_training_takes(model: str, trainer: str) -> None:
    config = Run(model, trainer, seed=1, updates=300, tokens=600, every=100).config
    assert config.schedule.kind == "inverse-sqrt"
    assert trainer in ("fairseq", f"nmt, {config.model.init}")
