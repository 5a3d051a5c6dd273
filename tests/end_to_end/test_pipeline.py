"""Validation during training gives the same scores as `nmt translate | nmt score`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = (
    *("model.width=32", "model.feed_forward=64", "model.heads=2", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "schedule.warmup=30", "batch.longest=24", "search.min_length=4"),
    "training.precision=fp32",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toy_dataset: Path, run_nmt: Callable[..., bytes]) -> Path:
    """Train a run with a validation at its last step. Its sentences have at most 23 tokens."""
    out = tmp_path_factory.mktemp("pipeline") / "run"
    settings = [word for assignment in TINY for word in ("--set", assignment)]
    steps = ("--max-steps", 250, "--batch-tokens", 400, "--validate-every", 250)
    run_nmt("train", toy_dataset, "--out", out, *settings, *steps, "--device", "cpu", "--quiet")
    return out


def test_validation_gives_the_scores_of_translate_and_score(
    run: Path, toy_dataset: Path, run_nmt: Callable[..., bytes]
) -> None:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (validation,) = [line for line in lines if line.get("valid") == "dev"]
    raw = (toy_dataset / "dev.source.raw.txt").read_bytes()
    translations = run_nmt("translate", run, "--set", "search.min_length=4", "--quiet", stdin=raw)
    reference = toy_dataset / "dev.target.raw.txt"
    report = json.loads(run_nmt("score", "--reference", reference, "--json", stdin=translations))
    scores = {score["metric"]: score["score"] for score in report["systems"][0]["scores"]}
    assert translations.count(b"\n") == raw.count(b"\n")
    assert scores["chrf"] == pytest.approx(validation["chrf"], abs=1e-9)
    assert scores["bleu"] == pytest.approx(validation["bleu"], abs=1e-9)
    assert scores["chrf"] > 1
