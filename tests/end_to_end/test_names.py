"""Names of files that are not UTF-8, from the corpus to the score."""

import json
import os
from collections.abc import Callable
from pathlib import Path

ODD = os.fsdecode(b"caf\xe9\x1b")


def test_names_that_are_not_utf_8_work_everywhere(
    tmp_path: Path, dev: str, run_nmt: Callable[..., bytes]
) -> None:
    there = tmp_path / ODD
    there.mkdir()
    for language in ("en", "de"):
        (there / f"{ODD}.{language}").write_bytes(Path(f"{dev}.{language}").read_bytes())
    corpus, dataset, run, model, out = (
        there / f"{name}{ODD}" for name in ("", "data", "run", "model", "out")
    )
    made = ("preprocess", "--source-lang=en", "--target-lang=de", "--workers=1", "--out", dataset)
    run_nmt(
        *made, "--tokenizer=char", "--train", corpus, "--valid", corpus, "--set=filter.decontaminate=false"
    )
    run_nmt(
        *made, "--overwrite", "--reuse-tokenizer", dataset, "--train", corpus, "--set=filter.max_words=50"
    )
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 16}
    tiny = [f"--set=model.{name}={size}" for name, size in sizes.items()]
    steps = ("--batch-tokens=100", "--save-every=1", "--device=cpu", "--preset=tiny", *tiny)
    run_nmt("train", dataset, "--out", run, *steps, "--max-steps=2")
    tuned = ("train", dataset, "--out", there / "tuned")
    run_nmt(*tuned, *steps, "--init-from", run, "--max-steps=1")
    run_nmt(*tuned, "--config", there / "tuned" / "config.toml", "--max-steps=2", "--device=cpu")
    run_nmt("average-checkpoints", run, "--last=2", "--out", model)
    run_nmt(
        "translate", model, "--input", f"{corpus}.en", "--output", out, "--attention", there / "page.html"
    )
    scores = json.loads(run_nmt("score", "--reference", f"{corpus}.de", out, "--json"))
    assert (scores["lines"], scores["systems"][0]["system"]) == (20, str(out))
    assert b"caf\\udce9\\x1b" in run_nmt("score", "--reference", f"{corpus}.de", out, f"{corpus}.en")
