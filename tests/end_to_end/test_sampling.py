"""Training on text that is segmented again in each epoch: resumed, distributed, and refused."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess, Popen

import pytest

from nmt_cli.data.preprocessing.pipeline import Outcome
from tests.end_to_end.processes import TINY_MODEL, kill_repeatedly, log_lines, succeed, weights_of

STEPS = 30

TINY = (
    *(*TINY_MODEL, "--set", "schedule.warmup=20", "--batch-tokens", "400"),
    *("--max-steps", STEPS, "--validate-every", STEPS),
)
SAMPLING = ("--set", "sampling.source=0.3", "--set", "sampling.target=0.3")


@pytest.fixture(scope="module")
def dataset(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[..., Outcome], toy: str, dev: str
) -> Path:
    """Return the dataset of `toy` with BPE."""
    out = tmp_path_factory.mktemp("bpe") / "out"
    make(out, [toy], "tokenizer.kind=bpe", "tokenizer.vocab_size=96", valid=[dev])
    return out


def arguments(dataset: Path, out: Path, *additional: object) -> list[object]:
    """Return the arguments of `nmt train` with sampling, with additional ones at the end."""
    return ["train", dataset, "--out", out, *TINY, *SAMPLING, *additional]


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, dataset: Path, run_nmt: Callable[..., bytes]
) -> Path:
    """Train without interruption, and return the run."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run_nmt(*arguments(dataset, out))
    return out


def test_every_epoch_has_the_same_number_of_pairs_but_other_tokens(undisturbed: Path) -> None:
    steps = log_lines(undisturbed)
    epochs = [[step for step in steps if step["epoch"] == epoch] for epoch in range(steps[-1]["epoch"])]
    assert len(epochs) >= 2
    assert {sum(step["pairs"] for step in epoch) for epoch in epochs} == {300}
    assert len({sum(step["target_tokens"] for step in epoch) for epoch in epochs}) == len(epochs)


def test_a_run_that_is_killed_within_epochs_and_resumed_ends_bit_identical(
    tmp_path: Path, dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    seed, run = time.time_ns(), tmp_path / "run"
    start = partial(start_nmt, *arguments(dataset, run, "--save-every", 3))
    kill_repeatedly(start, run, (2, 17), seed)
    assert "resuming from step" in succeed(start()), f"{seed=}"
    assert log_lines(run) == log_lines(undisturbed), f"{seed=}"
    assert weights_of(run) == weights_of(undisturbed), f"{seed=}"


def test_two_ranks_resume_the_run_of_one_with_the_same_batches(
    tmp_path: Path, dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    first = arguments(dataset, run)
    first[first.index(STEPS)] = 13
    succeed(start_nmt(*first))
    succeed(start_nmt(*arguments(dataset, run, "--devices", 2)))
    counts = ("epoch", "pairs", "source_tokens", "target_tokens")
    resumed, expected = ([[step[key] for key in counts] for step in log_lines(r)] for r in (run, undisturbed))
    assert resumed == expected


def test_validation_is_never_sampled(tmp_path: Path, dataset: Path, run_nmt: Callable[..., bytes]) -> None:
    still = ("--set", "schedule.factor=1e-20", "--max-steps", 2, "--validate-every", 1)
    plain = ("--set", "sampling.source=0.0", "--set", "sampling.target=0.0")
    run_nmt(*arguments(dataset, tmp_path / "sampled", *still))
    run_nmt(*arguments(dataset, tmp_path / "plain", *still, *plain))
    sampled, plain_lines = log_lines(tmp_path / "sampled"), log_lines(tmp_path / "plain")
    assert sampled[0]["target_tokens"] != plain_lines[0]["target_tokens"]
    first, *later = (
        line["nll"] for name in ("sampled", "plain") for line in log_lines(tmp_path / name, True)
    )
    assert later == pytest.approx([first] * 3, rel=1e-6)


def test_pairs_that_become_too_long_are_reported_for_each_epoch(
    tmp_path: Path, dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    limits = ("--set", "batch.longest=20", "--set", "training.max_epochs=3", "--validate-every", 0)
    stderr = succeed(start_nmt(*arguments(dataset, tmp_path / "run", *limits)))
    steps = log_lines(tmp_path / "run")
    for epoch in (0, 1):
        left_out = 300 - sum(step["pairs"] for step in steps if step["epoch"] == epoch)
        message = f"{left_out} pairs, as epoch {epoch} segments them, have more than 20 tokens on a side"
        assert left_out > 0
        assert message in " ".join(stderr.split())


@pytest.mark.parametrize("setting", ["source=0.1", "target=0.2"])
def test_a_dataset_that_cannot_be_sampled_is_refused_before_training(
    tmp_path: Path, toy_dataset: Path, nmt: Callable[..., CompletedProcess[str]], setting: str
) -> None:
    result = nmt("train", toy_dataset, "--out", tmp_path / "run", *TINY, "--set", f"sampling.{setting}")
    assert result.returncode == 1
    assert "has no effect on a vocabulary of characters or words. Leave it out" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_refuses_other_sampling(
    dataset: Path, undisturbed: Path, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    result = nmt(*arguments(dataset, undisturbed, "--set", "sampling.source=0.2"))
    assert result.returncode == 1
    assert "sampling.source: 0.3 -> 0.2" in result.stderr


def test_a_finished_run_leaves_no_temporary_files(
    tmp_path: Path, dataset: Path, start_nmt: Callable[..., Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = start_nmt(*arguments(dataset, tmp_path / "run"))
    names = set()
    while process.poll() is None:
        # os.walk, unlike glob, ignores folders that are removed meanwhile.
        names |= {name for _, folders, files in os.walk(temporary) for name in folders + files}
        time.sleep(0.005)
    succeed(process)
    assert "epoch-000000" in names
    assert not list(temporary.glob("nmt-epochs-*"))
