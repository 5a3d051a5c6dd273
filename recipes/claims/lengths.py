"""Train on short sentences with each kind of positions, and score longer ones (section 3.5).

    python -m recipes.claims.lengths [--seeds N] [--steps N]

The paper chose sinusoids because they "may allow the model to extrapolate to sequence lengths longer than the
ones encountered during training". The command trains models of 2 + 2 layers on the pairs of Multi30k whose
sides have at most 12 tokens each, with all four kinds of positions, and sinusoids on pairs of all lengths to
compare with. It scores pairs that no model was trained on, by the longer side of the pair.

It writes `lengths.svg` and the table in README.md. Runs that are in `results.jsonl` are not repeated.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import torch

from nmt_cli.model.config import ModelConfig
from recipes.benchmarks.charts import charts
from recipes.claims.results import HERE, Runs, Values, write_table
from recipes.claims.small_training import Corpus, Pair, new_model, read_corpus, train, valid_loss

LONGEST = 12
"""Maximum number of tokens of each side in training, with the end token."""

GROUPS = ((1, 12), (13, 16), (17, 20), (21, 25), (26, 60))
"""Minimum and maximum number of tokens of the longer side of a pair."""

PAIRS = 300
"""Maximum number of pairs of each group to score."""

HELD_OUT = 10
"""Every tenth pair is scored, and not trained on."""

KINDS = {
    "sinusoidal": "sinusoids",
    "learned": "learned",
    "rotary": "rotary",
    "relative": "relative (T5)",
    "all lengths": "sinusoids, trained on all lengths",
}


def scored_groups(corpus: Corpus) -> Mapping[str, Sequence[Pair]]:
    """Return pairs to score by the name of their group, such as "13 to 16"."""
    held_out = corpus.train[::HELD_OUT]
    return {
        f"{low} to {high}": [pair for pair in held_out if low <= longer(pair) <= high][:PAIRS]
        for low, high in GROUPS
    }


def longer(pair: Pair) -> int:
    """Return the number of tokens of the longer side."""
    return max(map(len, pair))


def measured(corpus: Corpus, kind: str, steps: int, seed: int) -> Values:
    """Train a model and return the perplexity of each group."""
    config = ModelConfig(
        encoder_layers=2, decoder_layers=2, width=64, feed_forward=128, heads=2, norm="pre", tie="decoder"
    )
    if kind == "learned":
        config = replace(config, positions="learned", longest=64)
    elif kind in ("rotary", "relative"):
        config = replace(config, positions=kind)  # type: ignore[arg-type]
    pairs = [pair for i, pair in enumerate(corpus.train) if i % HELD_OUT]
    if kind != "all lengths":
        pairs = [pair for pair in pairs if longer(pair) <= LONGEST]
    model = new_model(corpus, config, seed)
    train(model, pairs, steps, seed)
    return {name: math.exp(valid_loss(model, group)) for name, group in scored_groups(corpus).items()}


def main() -> None:
    """Run what is missing, and write the chart and the table."""
    parser = argparse.ArgumentParser(description="Sentences longer than in training.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus, runs = read_corpus(), Runs("lengths")
    for seed, kind in product(range(1, options.seeds + 1), KINDS):
        runs.run(kind, seed, partial(measured, corpus, kind, options.steps, seed))
    report(runs)


def report(runs: Runs) -> None:
    """Write the chart and the table of the runs."""
    groups = [f"{low} to {high}" for low, high in GROUPS]
    kinds = {kind: name for kind, name in KINDS.items() if runs.values(kind)}
    lines = {
        name: [(low, runs.mean(kind, group)) for (low, _), group in zip(GROUPS, groups, strict=True)]
        for kind, name in kinds.items()
    }
    title = f"perplexity by length from ..., trained up to {LONGEST} tokens"
    (HERE / "lengths.svg").write_text(charts({title: lines}), encoding="utf-8")
    rows = [(name, *(runs.cell(kind, group, 1) for group in groups)) for kind, name in kinds.items()]
    write_table("lengths", ("positions", *(f"{group} tokens" for group in groups)), rows, runs.origin())


if __name__ == "__main__":
    main()
