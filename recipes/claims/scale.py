"""Train with scaled dot-product, unscaled dot-product and additive attention at growing d_k (section 3.2.1).

    python -m recipes.claims.scale [--seeds N] [--steps N]

The paper says: for large d_k, dot products grow large and push softmax to where its gradients are extremely
small, and additive attention is better than dot products without scaling. For each kind of scores and d_k,
the command trains a model of 1 + 1 layers, 64 wide, with 2 heads, and measures the validation perplexity.
It also measures at the beginning, as means of 10 batches,

- the entropy of the encoder's attention weights, as a share of that of equal weights. 0 means that each query
  attends to one token only,
- the gradient of the softmax: the sum over the weights of a query of the derivative by the own score. It is 0
  if a query attends to one token only, and almost 1 for equal weights,
- the norm of the gradient of all query and key projections.

It writes `scale.svg` and the table in README.md. Runs that are in `results.jsonl` are not repeated.
"""

import argparse
import math
import statistics
from functools import partial
from itertools import product
from typing import get_args

import torch

from nmt_cli.model.config import ModelConfig
from recipes.benchmarks.charts import charts
from recipes.claims.other_scores import Kind, change, query_key_gradient
from recipes.claims.results import HERE, Runs, Values, write_table
from recipes.claims.small_training import Corpus, batches, loss_of, new_model, read_corpus, train, valid_loss

KEY_WIDTHS = (4, 16, 64, 256, 1024)
ADDITIVE_UP_TO = 64
"""More would take hours: additive attention computes a tanh for each channel of each pair of tokens."""

NAMES = {"scaled": "dot product / sqrt(d_k)", "dot": "dot product", "additive": "additive"}
MEASURES = {
    "perplexity": "perplexity, validation",
    "entropy": "entropy at the beginning",
    "slope": "gradient of softmax at the beginning",
    "gradient": "gradient of queries and keys at the beginning",
}


def shape(key_width: int) -> ModelConfig:
    """Return the model of this experiment."""
    return ModelConfig(
        encoder_layers=1,
        decoder_layers=1,
        width=64,
        feed_forward=128,
        heads=2,
        key_width=key_width,
        norm="pre",
        tie="decoder",
    )


def measured(corpus: Corpus, kind: Kind, key_width: int, steps: int, seed: int) -> Values:
    """Train a model and return its measures."""
    model = new_model(corpus, shape(key_width), seed)
    modules = change(model, kind)
    entropies, slopes, gradients = list[float](), list[float](), list[float]()
    for _, batch in zip(range(10), batches(corpus.train, seed), strict=False):
        model.zero_grad()
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
        longest = max(len(pair[0]) for pair in batch)
        entropies.append(modules[0].entropy / math.log(longest))
        slopes.append(modules[0].slope)
        gradients.append(query_key_gradient(modules))
    train(model, corpus.train, steps, seed)
    return {
        "perplexity": math.exp(valid_loss(model, corpus.valid)),
        "entropy": statistics.mean(entropies),
        "slope": statistics.mean(slopes),
        "gradient": statistics.mean(gradients),
    }


def main() -> None:
    """Run what is missing, and write the chart and the table."""
    parser = argparse.ArgumentParser(description="Attention with other scores at growing d_k.")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus, runs = read_corpus(), Runs("scale")
    for seed, width, kind in product(range(1, options.seeds + 1), KEY_WIDTHS, get_args(Kind)):
        if kind != "additive" or width <= ADDITIVE_UP_TO:
            compute = partial(measured, corpus, kind, width, options.steps, seed)
            runs.run(f"{kind} {width}", seed, compute)
    report(runs)


def report(runs: Runs) -> None:
    """Write the chart and the table of the runs."""
    done = {
        kind: [width for width in KEY_WIDTHS if runs.values(f"{kind} {width}")] for kind in get_args(Kind)
    }
    by_title = {
        title: {
            NAMES[kind]: [(math.log2(width), runs.mean(f"{kind} {width}", measure)) for width in widths]
            for kind, widths in done.items()
        }
        for measure, title in MEASURES.items()
    }
    svg = charts({f"{title} by log2(d_k)": lines for title, lines in by_title.items()})
    (HERE / "scale.svg").write_text(svg, encoding="utf-8")
    rows = [
        (NAMES[kind], str(width), *(runs.cell(f"{kind} {width}", measure) for measure in MEASURES))
        for kind, widths in done.items()
        for width in widths
    ]
    write_table("scale", ("scores", "d_k", *MEASURES.values()), rows, runs.origin())


if __name__ == "__main__":
    main()
