"""Time translations with and without a shortlist. Print a table.

python -m recipes.benchmarks.shortlist

A student (`recipes/distillation/ssru-6-1.toml`) with 32,000 entries and random weights searches with one
thread. Its shortlist has 100 random tokens for every sentence and 50 for each source token, so a sentence may
use about 900. Both searches take turns. A cell is the least processor time of four rounds.
"""

import random
import time
from dataclasses import replace

import click
import numpy as np
import torch

from nmt_cli.api import SearchConfig, TrainConfig
from nmt_cli.config import read
from nmt_cli.decoding.batch import ListQueue
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.engine.decoder import Decoder
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.shortlist import shortlist_of
from recipes.benchmarks import machine
from recipes.benchmarks.machine import ROOT
from tests.model.models import model_of

ENTRIES, FREQUENT, BEST = 32_000, 100, 50
JOBS = {"a line": 1, "16 lines": 16, "128 lines": 128}
PRECISIONS: tuple[Precision, ...] = "int8", "fp32"
ROUNDS = 4


@click.command(help=machine.method(__doc__))
def main() -> None:
    """Measure each precision and number of lines."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    draws, ids = random.Random(1), range(ENTRIES)
    shortlist = shortlist_of(draws.sample(ids, BEST if token else FREQUENT) for token in ids)
    model = model_of(read(TrainConfig, ROOT / "recipes/distillation/ssru-6-1.toml").model, ENTRIES).eval()
    search = SearchConfig(beam=1, max_length=20, length_rule="power", reach=1000.0)
    sources = [draws.sample(ids, draws.randint(12, 25)) for _ in range(max(JOBS.values()))]
    machine.print_head("precision, lines", "all entries", "shortlist", "gain")
    for precision in PRECISIONS:
        decoder = Decoder.of([model], precision, shortlist)
        for name, count in JOBS.items():
            sentences = [Sentence(key, source) for key, source in enumerate(sources[:count])]
            least = {False: np.inf, True: np.inf}
            for uses in (False, True) * ROUNDS:
                began = time.process_time()
                for _ in decoder.translated(replace(search, shortlist=uses), ListQueue(sentences)):
                    pass
                least[uses] = min(least[uses], time.process_time() - began)
            cells = [f"{1000 * least[uses]:.1f} ms" for uses in (False, True)]
            machine.print_row(f"{precision}, {name}", *cells, f"{least[False] / least[True]:.2f} x")


if __name__ == "__main__":
    main()
