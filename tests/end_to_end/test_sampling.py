"""Training on text that each epoch segments anew: resumed, shared among ranks, told of, and refused."""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

import pytest

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.data.preprocessing.preprocess import Outcome

PATIENCE = 300
STEPS = 30

TINY = (
    *("--set", "model.width=16", "--set", "model.feed_forward=32", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1", "--set", "schedule.warmup=20"),
    *("--batch-tokens", "400", "--device", "cpu", "--max-steps", STEPS, "--validate-every", STEPS),
)
SAMPLING = ("--set", "sampling.source_dropout=0.3", "--set", "sampling.target_dropout=0.3")
TIMES = {"tokens_per_second", "waiting"}

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def dataset(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[..., Outcome], toy: str, dev: str
) -> Path:
    """`toy` in byte pairs."""
    out = tmp_path_factory.mktemp("bpe") / "out"
    make(out, [toy], "tokenizer.kind=bpe", "tokenizer.vocab_size=96", valid=[dev])
    return out


def arguments(dataset: Path, out: Path, *more: object) -> list[object]:
    return ["train", dataset, "--out", out, *TINY, *SAMPLING, *more]


def lines_of(run: Path, valid: bool = False) -> Lines:
    """What the log says of every step, or of every validation, times apart."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines if ("valid" in line) == valid]


def weights_of(run: Path) -> bytes:
    return (run / "last" / "model.safetensors").read_bytes()


def finish(process: Popen[str]) -> str:
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    return stderr


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, dataset: Path, run_nmt: Callable[..., bytes]
) -> Path:
    """A run from its first step to its last."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run_nmt(*arguments(dataset, out))
    return out


def test_every_epoch_has_as_many_pairs_but_other_tokens(undisturbed: Path) -> None:
    steps = lines_of(undisturbed)
    epochs = [[step for step in steps if step["epoch"] == epoch] for epoch in range(steps[-1]["epoch"])]
    assert len(epochs) >= 2
    assert {sum(step["pairs"] for step in epoch) for epoch in epochs} == {300}
    assert len({sum(step["target_tokens"] for step in epoch) for epoch in epochs}) == len(epochs)


def test_killed_within_epochs_and_resumed_it_ends_bit_for_bit_the_same(
    tmp_path: Path, dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    seed, run = time.time_ns(), tmp_path / "run"
    chosen = random.Random(seed)
    for least in (2, 17):
        process = start_nmt(*arguments(dataset, run, "--save-every", 3))
        while process.poll() is None and max(checkpoints(run), default=0) < least:
            time.sleep(0.001)
        time.sleep(chosen.random() * 0.05)
        process.kill()
        process.wait()
    assert "resuming from step" in finish(start_nmt(*arguments(dataset, run, "--save-every", 3))), f"{seed=}"
    assert lines_of(run) == lines_of(undisturbed), f"{seed=}"
    assert weights_of(run) == weights_of(undisturbed), f"{seed=}"


def test_two_ranks_go_on_with_the_batches_that_one_began(
    tmp_path: Path, dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    first = arguments(dataset, run)
    first[first.index(STEPS)] = 13
    finish(start_nmt(*first))
    finish(start_nmt(*arguments(dataset, run, "--devices", 2)))
    counts = ("epoch", "pairs", "source_tokens", "target_tokens")
    known = [key for key in counts if key in lines_of(undisturbed)[0]]
    assert "target_tokens" in known
    assert [[step[key] for key in known] for step in lines_of(run)] == [
        [step[key] for key in known] for step in lines_of(undisturbed)
    ]


def test_validation_is_never_sampled(tmp_path: Path, dataset: Path, run_nmt: Callable[..., bytes]) -> None:
    still = ("--set", "schedule.factor=1e-20", "--max-steps", 2, "--validate-every", 1)
    plain = ("--set", "sampling.source_dropout=0.0", "--set", "sampling.target_dropout=0.0")
    run_nmt(*arguments(dataset, tmp_path / "sampled", *still))
    run_nmt(*arguments(dataset, tmp_path / "plain", *still, *plain))
    sampled, plain_lines = lines_of(tmp_path / "sampled"), lines_of(tmp_path / "plain")
    assert sampled[0]["target_tokens"] != plain_lines[0]["target_tokens"]
    first, second, *others = (
        line["nll"] for name in ("sampled", "plain") for line in lines_of(tmp_path / name, True)
    )
    assert [second, *others] == pytest.approx([first] * 3, rel=1e-6)


def test_pairs_that_outgrow_the_limit_are_counted_for_each_epoch(
    tmp_path: Path, dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    limits = ("--set", "batch.longest=20", "--set", "training.max_epochs=3", "--validate-every", 0)
    stderr = finish(start_nmt(*arguments(dataset, tmp_path / "run", *limits)))
    steps = lines_of(tmp_path / "run")
    for epoch in (0, 1):
        left_out = 300 - sum(step["pairs"] for step in steps if step["epoch"] == epoch)
        told = f"{left_out} pairs, as epoch {epoch} segments them, have more than 20 tokens on a side"
        assert left_out > 0
        assert told in " ".join(stderr.split())


@pytest.mark.parametrize("setting", ["source_dropout=0.1", "target_alpha=0.2"])
def test_a_dataset_that_cannot_be_sampled_is_refused_before_anything_is_begun(
    tmp_path: Path, toy_dataset: Path, nmt: Callable[..., CompletedProcess[str]], setting: str
) -> None:
    result = nmt("train", toy_dataset, "--out", tmp_path / "run", *TINY, "--set", f"sampling.{setting}")
    assert result.returncode == 1
    assert "has no effect on a vocabulary of characters or words. Leave it out" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_change_its_sampling_on_the_way(
    dataset: Path, undisturbed: Path, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    result = nmt(*arguments(dataset, undisturbed, "--set", "sampling.source_dropout=0.2"))
    assert result.returncode == 1
    assert "sampling.source_dropout: 0.3 -> 0.2" in result.stderr


def test_nothing_is_left_behind_in_the_temporary_folder(
    tmp_path: Path, dataset: Path, start_nmt: Callable[..., Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = start_nmt(*arguments(dataset, tmp_path / "run"))
    seen = set()
    while process.poll() is None:
        # os.walk, unlike glob, does not mind a folder that vanishes while it looks
        seen |= {name for _, folders, files in os.walk(temporary) for name in folders + files}
        time.sleep(0.005)
    finish(process)
    assert "epoch-000000" in seen
    assert not list(temporary.glob("nmt-epochs-*"))
