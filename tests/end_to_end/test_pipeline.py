"""The daily pipeline: what validation said of a model is what `nmt translate | nmt score` says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = (
    *("model.width=32", "model.feed_forward=64", "model.heads=2", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "schedule.warmup=30", "batch.longest=24", "search.min_length=4"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toy_dataset: Path, run_nmt: Callable[..., bytes]) -> Path:
    """A run whose last step was validated; sentences of more than 23 pieces are too long for it."""
    out = tmp_path_factory.mktemp("pipeline") / "run"
    settings = [word for assignment in TINY for word in ("--set", assignment)]
    steps = ("--max-steps", 250, "--batch-tokens", 400, "--validate-every", 250)
    run_nmt("train", toy_dataset, "--out", out, *settings, *steps, "--device", "cpu", "--quiet")
    return out


def test_validation_scores_what_translate_and_score_give(
    run: Path, toy_dataset: Path, run_nmt: Callable[..., bytes]
) -> None:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (judged,) = [line for line in lines if line.get("valid") == "dev"]
    raw = (toy_dataset / "dev.source.raw.txt").read_bytes()
    translations = run_nmt("translate", run, "--set", "search.min_length=4", "--quiet", stdin=raw)
    reference = toy_dataset / "dev.target.raw.txt"
    found = json.loads(run_nmt("score", "--reference", reference, "--json", stdin=translations))
    scores = {score["metric"]: score["score"] for score in found["systems"][0]["scores"]}
    assert translations.count(b"\n") == raw.count(b"\n")
    assert scores["chrf"] == pytest.approx(judged["chrf"], abs=1e-9)
    assert scores["bleu"] == pytest.approx(judged["bleu"], abs=1e-9)
    assert scores["chrf"] > 1
