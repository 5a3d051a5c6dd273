"""Names of files that are not UTF-8, from the corpus to the score."""

import json
import os
from collections.abc import Callable
from pathlib import Path

ODD = os.fsdecode(b"caf\xe9\x1b")


def test_every_command_accepts_file_names_that_are_not_utf_8(
    tmp_path: Path, dev: str, run_nmt: Callable[..., bytes]
) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    for language in ("en", "de"):
        (folder / f"{ODD}.{language}").write_bytes(Path(f"{dev}.{language}").read_bytes())
    corpus, dataset, run, model, out = (
        folder / f"{name}{ODD}" for name in ("", "data", "run", "model", "out")
    )
    preprocess = ("preprocess", "--source-lang=en", "--target-lang=de", "--workers=1", "--out", dataset)
    run_nmt(
        *preprocess,
        "--tokenizer=char",
        "--train",
        corpus,
        "--valid",
        corpus,
        "--set=filter.decontaminate=false",
    )
    run_nmt(
        *preprocess,
        "--overwrite",
        "--reuse-tokenizer",
        dataset,
        "--train",
        corpus,
        "--set=filter.max_words=50",
    )
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "heads": 2, "feed_forward": 16}
    tiny = [f"--set=model.{name}={size}" for name, size in sizes.items()]
    steps = ("--batch-tokens=100", "--save-every=1", "--device=cpu", "--preset=tiny", *tiny)
    run_nmt("train", dataset, "--out", run, *steps, "--max-steps=2")
    tuned = ("train", dataset, "--out", folder / "tuned")
    run_nmt(*tuned, *steps, "--init-from", run, "--max-steps=1")
    run_nmt(*tuned, "--config", folder / "tuned" / "config.toml", "--max-steps=2", "--device=cpu")
    run_nmt("average-checkpoints", run, "--last=2", "--out", model)
    run_nmt(
        "translate", model, "--input", f"{corpus}.en", "--output", out, "--attention", folder / "page.html"
    )
    scores = json.loads(run_nmt("score", "--reference", f"{corpus}.de", out, "--json"))
    assert (scores["lines"], scores["systems"][0]["system"]) == (20, str(out))
    assert b"caf\\udce9\\x1b" in run_nmt("score", "--reference", f"{corpus}.de", out, f"{corpus}.en")
