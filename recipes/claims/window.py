"""Measure BLEU with restricted self-attention: each token sees r neighbours only (section 4).

    python -m recipes.claims.window [--seeds N] [--steps N] [--out FOLDER]

The paper leaves restricted attention to future work. The command trains one model on Multi30k (English to
German, raw text) for each `model.window` = r, in the encoder and the decoder, and translates the validation
set with a beam of 4. It writes `window.svg` and the table in README.md. Runs that are in `results.jsonl` are
not repeated, and a stopped training continues.
"""

import argparse
import os
from functools import partial
from itertools import product
from pathlib import Path

from nmt_cli.api import (
    PreprocessConfig,
    SearchConfig,
    TokenizerConfig,
    load,
    preprocess,
    preset,
    score_texts,
    train,
)
from recipes.benchmarks.charts import charts
from recipes.claims.results import HERE, Runs, Values, write_table

WINDOWS = (1, 3, 5, 9, 17, 0)
"""The neighbours that a token sees, itself included. 0 is all."""

LAYERS = 2
SETTINGS = (
    f"model.encoder_layers={LAYERS}",
    f"model.decoder_layers={LAYERS}",
    "model.width=128",
    "model.feed_forward=256",
    "model.heads=4",
    "model.norm=pre",
    "batch.tokens=1500",
    "schedule.kind=linear",
    "schedule.peak=0.003",
    "schedule.warmup=200",
    "validation.every_steps=1000000",
    "validation.metric=nll",
    "validation.sentences=1",
    "checkpoints.keep_last=1",
    "checkpoints.keep_best=0",
)


def measured(out: Path, text: Path, window: int, steps: int, seed: int) -> Values:
    """Train a model, translate the validation set, and return its BLEU."""
    assigned = (*SETTINGS, f"model.window={window}", f"training.max_steps={steps}", f"training.seed={seed}")
    run = out / f"window-{window}-{seed}"
    train(out / "dataset", run, preset("tiny", *assigned))
    sources, references = (_lines(text / f"valid.{language}") for language in ("en", "de"))
    with load(run, device="cpu", threads=1) as model:
        translations = model.translate(sources, SearchConfig(beam=4))
    (bleu,) = score_texts(translations, [references], ["bleu"])
    return {"BLEU": bleu.value}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def main() -> None:
    """Run what is missing, and write the chart and the table."""
    parser = argparse.ArgumentParser(description="BLEU with restricted self-attention.")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=HERE / "run")
    options = parser.parse_args()
    text = Path(os.environ.get("NMT_DATA", "."), "multi30k")
    runs, dataset = Runs("window"), options.out / "dataset"
    if not dataset.exists():
        subwords = PreprocessConfig(tokenizer=TokenizerConfig(vocab_size=4000))
        preprocess("en", "de", [text / "train"], dataset, valid=[text / "valid"], config=subwords, workers=1)
    for seed, window in product(range(1, options.seeds + 1), WINDOWS):
        runs.run(f"r = {window}", seed, partial(measured, options.out, text, window, options.steps, seed))
    report(runs)


def report(runs: Runs) -> None:
    """Write the chart and the table of the runs. The chart draws attention to all tokens as r = 32."""
    done = [window for window in WINDOWS if runs.values(f"r = {window}")]
    line = [(window or 32, runs.mean(f"r = {window}", "BLEU")) for window in done]
    (HERE / "window.svg").write_text(
        charts({"BLEU by r; all tokens at 32": {"BLEU, validation": line}}), "utf-8"
    )
    rows = [(str(window or "all tokens"), runs.cell(f"r = {window}", "BLEU")) for window in done]
    write_table("window", ("r", "BLEU, validation"), rows, runs.origin())


if __name__ == "__main__":
    main()
