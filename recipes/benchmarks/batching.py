"""Measure global batches: planning, cutting over ranks, filler. Print tables for results.md.

python -m recipes.benchmarks.batching     planning, cutting of random lengths, and multi30k (needs NMT_DATA)
"""

import subprocess
import sys
from os import environ

import click
import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.batching.batch import Rounding
from nmt_cli.data.batching.cut import costs, share
from nmt_cli.data.batching.plan import plan_shard
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Sentences, Split
from recipes.benchmarks import lengths
from recipes.benchmarks.machine import method, print_head, print_row, scratch

PLANNED_PAIRS = 36_000_000
NEWS_PAIRS = 1_000_000
BILLION = 1_000_000_000
BUDGETS = (4096, 25_000)
LONGEST = 250

CHILD = """
import sys, time
from pathlib import Path
import numpy
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.batching.plan import plan_shard, shard_count
from nmt_cli.data.dataset import Sentences, Split

class Endless:
    "Offsets of a billion sentences of 1 to 55 tokens, computed when they are asked for."
    def __len__(self):
        return int(sys.argv[1]) + 1
    def __getitem__(self, index):
        return index * 28 + index * 2_654_435_761 % 28

def peak():  # ru_maxrss would begin with what the parent held
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3

files = sys.argv[3:]
sides = [numpy.load(file, mmap_mode="r") for file in files] if files else [Endless(), Endless()]
split = Split("train", "train", *(Sentences(numpy.zeros(0), offsets) for offsets in sides))
config, before, seconds, batches, pairs = BatchConfig(), peak(), [], 0, 0
shards = shard_count(int(sys.argv[1]), config)
for number in range(min(shards, int(sys.argv[2]))):
    start = time.perf_counter()
    shard = plan_shard(split, config, 1, 0, number)
    seconds.append(time.perf_counter() - start)
    batches, pairs = batches + len(shard), pairs + len(shard.pairs) + shard.dropped
print(shards, len(seconds), f"{pairs:,} {batches:,} {seconds[0]:.2f} {sum(seconds):.1f}")
print(f"{peak():.0f} {before:.0f}")
"""

Lengths = NDArray[np.int64]


@click.group(help=method(__doc__), invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure global batches."""
    if context.invoked_subcommand is None:
        for command in (planning, cutting, multi30k):
            context.invoke(command)


@main.command()
def planning() -> None:
    """Plan an epoch of 36 million pairs, and the first shards of a billion, each plan in its own process."""
    print()
    print_head(
        *("pairs", "shards", "planned", "pairs in them", "batches", "s, first shard", "s, all of these"),
        *("peak MB", "of which Python and NumPy"),
    )
    with scratch() as folder:
        files = [str(folder / f"{side}.npy") for side in ("source", "target")]
        for seed, file in enumerate(files):
            drawn = np.random.default_rng(seed).lognormal(np.log(28) - 0.25, 0.7, PLANNED_PAIRS)
            np.save(file, _offsets(drawn.round().clip(1, LONGEST).astype(np.int64)))
        _plan(PLANNED_PAIRS, 1000, *files)
    _plan(BILLION, 5)


@main.command()
def cutting() -> None:
    """Cut batches of a million pairs, as long as newspaper sentences, over one and eight ranks."""
    draw = np.random.default_rng(1)
    source = draw.lognormal(np.log(28) - 0.25, 0.7, NEWS_PAIRS)
    target = source * draw.lognormal(0, 0.2, NEWS_PAIRS)
    sides = (side.round().clip(1, LONGEST).astype(np.int64) for side in (source, target))
    _print_table("log-normal, mean 28", *sides)


@main.command()
def multi30k() -> None:
    """Cut the batches of Multi30k, 10,000 joint subwords."""
    _print_table("Multi30k", *lengths.multi30k().T)


def _plan(pairs: int, shards: int, *files: str) -> None:
    command = [sys.executable, "-c", CHILD, str(pairs), str(shards), *files]
    limited = environ | {"OMP_NUM_THREADS": "1"}
    line = subprocess.run(command, check=True, capture_output=True, text=True, env=limited).stdout
    print_row(f"{pairs:,}", *line.split())


def _print_table(name: str, source: Lengths, target: Lengths) -> None:
    print()
    print_head(
        *(f"{name}: tokens of a batch", "batches", "ranks", "slowest rank above mean: average, worst"),
        *("filler", "shapes of a micro-batch"),
    )
    for tokens in BUDGETS:
        for ranks in (1, 8):
            print_row(*_cells(source, target, tokens, ranks))


def _cells(sources: Lengths, targets: Lengths, tokens: int, ranks: int) -> list[str]:
    """Return the cells of an epoch cut over `ranks`. The share of each rank is one micro-batch."""
    config = BatchConfig(tokens=tokens, shard_pairs=2 * len(sources))
    split_sides = (Sentences(np.zeros(0), _offsets(side)) for side in (sources, targets))
    shard = plan_shard(Split("train", "train", *split_sides), config, 1, 0, 0)
    rounding = Rounding.of(tokens // ranks)
    above, shapes, filler, whole = [], set(), 0, 0
    for number in range(len(shard)):
        source, target = (side[shard.batch(number)] for side in (sources, targets))
        shares = share(source, target, ranks)
        work = [costs(source, target)[mine].sum() for mine in shares]
        above.append(max(work) / np.mean(work) - 1)
        for mine in shares:
            sides = (source[mine], target[mine])
            dummies = rounding.dummies(*sides)
            shape = [int(side.sum() + dummy.sum()) for side, dummy in zip(sides, dummies, strict=True)]
            longest = rounding.reach(max(int(side.max(initial=1)) for side in sides))
            shapes.add((*shape, len(mine) + len(dummies[0]), longest))
            filler += sum(int(dummy.sum()) for dummy in dummies)
            whole += sum(shape)
    slowest = f"{np.mean(above):.2%}, {max(above):.2%}"
    return [f"{tokens:,}", f"{len(shard):,}", str(ranks), slowest, f"{filler / whole:.2%}", str(len(shapes))]


def _offsets(side: Lengths) -> Lengths:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(side)))


if __name__ == "__main__":
    main()
