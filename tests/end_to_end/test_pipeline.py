"""Validation during training gives the same scores as `nmt translate | nmt score`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Pairs


@pytest.fixture(scope="module")
def dataset(
    tmp_path_factory: pytest.TempPathFactory,
    make: Callable[..., object],
    write_pairs: Callable[[Path, Pairs], str],
    made_models: Path,
    toy_pairs: Pairs,
) -> Path:
    """Return a dataset with the characters of the made models, which lack the letter ñ."""
    folder = tmp_path_factory.mktemp("pipeline-dataset")
    pairs = [pair for pair in toy_pairs if "ñ" not in pair[0] and len(pair[0]) > 4]
    train, valid = write_pairs(folder / "train", pairs[20:]), write_pairs(folder / "dev", pairs[:20])
    make(folder / "out", [train], valid=[valid], reuse=made_models / "copies")
    return folder / "out"


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, dataset: Path, made_models: Path, run_nmt: Callable[..., bytes]
) -> Path:
    """Train one step from a model that copies its source, with a validation.

    A model trained from scratch repeats a token, and rounding decides how often.
    """
    out = tmp_path_factory.mktemp("pipeline") / "run"
    config = json.loads((made_models / "copies" / "config.json").read_bytes())["model"]
    model = [f"model.{name}={json.dumps(value)}" for name, value in config.items()]
    others = ("batch.longest=60", "schedule.factor=1e-6", "search.min_length=4", "training.precision=fp32")
    settings = [word for assignment in (*model, *others) for word in ("--set", assignment)]
    steps = ("--max-steps", 1, "--batch-tokens", 400, "--validate-every", 1, "--device", "cpu", "--quiet")
    run_nmt("train", dataset, "--out", out, "--init-from", made_models / "copies", *settings, *steps)
    return out


def test_validation_gives_the_scores_of_translate_and_score(
    run: Path, dataset: Path, run_nmt: Callable[..., bytes]
) -> None:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (validation,) = [line for line in lines if line.get("valid") == "dev"]
    raw = (dataset / "dev.source.raw.txt").read_bytes()
    translations = run_nmt("translate", run, "--set", "search.min_length=4", "--quiet", stdin=raw)
    reference = dataset / "dev.target.raw.txt"
    report = json.loads(run_nmt("score", "--reference", reference, "--json", stdin=translations))
    scores = {score["metric"]: score["score"] for score in report["systems"][0]["scores"]}
    assert translations.count(b"\n") == raw.count(b"\n")
    assert scores["chrf"] == pytest.approx(validation["chrf"], abs=1e-9)
    assert scores["bleu"] == pytest.approx(validation["bleu"], abs=1e-9)
    assert scores["chrf"] > 10 and len({*translations.splitlines()}) > 15
