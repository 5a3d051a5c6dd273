"""Make a preprocessed dataset of random words with lengths as in WMT, small enough to travel to a GPU.

python -m recipes.benchmarks.gpu.dataset FOLDER [--pairs 30000]     FOLDER/dataset, and FOLDER/text/valid.en

A translation has the same first words in another spelling, so that the loss falls.
"""

import subprocess
import sys
from pathlib import Path

import click
import numpy as np

from recipes.benchmarks.lengths import wmt_like

WORDS = 18_000
"""Words of a side. With both sides, the joint vocabulary is about as large as that of the paper."""

VALID_PAIRS = 500


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--pairs", default=30_000, show_default=True, help="Pairs for training.")
def main(folder: Path, pairs: int) -> None:
    """Write text, and preprocess it."""
    draw, text = np.random.default_rng(1), folder / "text"
    text.mkdir(parents=True, exist_ok=True)
    lengths = wmt_like()[: pairs + VALID_PAIRS]
    sentences = [draw.integers(WORDS, size=longer) for longer in lengths.max(1)]
    for name, part in ("valid", slice(VALID_PAIRS)), ("train", slice(VALID_PAIRS, None)):
        for side, language in enumerate(("en", "de")):
            rows = zip(sentences[part], lengths[part, side], strict=True)
            lines = (" ".join(f"{language}{word:x}" for word in words[:length]) for words, length in rows)
            (text / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "nmt_cli", "preprocess", "--source-lang", "en", "--target-lang", "de"]
    command += ["--train", str(text / "train"), "--valid", str(text / "valid"), "--tokenizer", "word"]
    command += [
        "--joint",
        "--vocab-size",
        str(2 * WORDS + 4),
        "--out",
        str(folder / "dataset"),
        "--overwrite",
    ]
    subprocess.run(command, check=True)
    for language in "en", "de":
        (text / f"train.{language}").unlink()


if __name__ == "__main__":
    main()
