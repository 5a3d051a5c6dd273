"""Types of fixtures for corpora and datasets, and what tests read from a dataset folder."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nmt_cli.data.batching.plan import Shard
from nmt_cli.data.batching.schedule import GlobalBatch
from nmt_cli.data.dataset import Sentences, Split
from nmt_cli.data.preprocessing.pipeline import Outcome

Pairs = Sequence[tuple[str, str]]
Lengths = Sequence[tuple[int, int]]
Make = Callable[..., Outcome]
WritePairs = Callable[[Path, Pairs], str]
Digests = Callable[[Path], dict[str, str]]
SplitOf = Callable[[Lengths], Split]

COLUMNS = ("corpus.source_column=en", "corpus.target_column=de", "corpus.score_column=s")
"""Settings of a table with the columns en, de and s."""


def named_corpora(*corpora: tuple[str, object, str]) -> str:
    """Return the setting of training corpora, each with a name, a path, and more settings or ""."""
    tables = (f'{{name="{name}", path="{path}"{more and ", "}{more}}}' for name, path, more in corpora)
    return f"corpus.named=[{', '.join(tables)}]"


def train_lines(folder: Path, side: str = "source") -> list[str]:
    """Return the prepared lines of one side of the training set."""
    return (folder / f"train.{side}.txt").read_bytes().decode().split("\n")[:-1]


def report_on(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the filter report, one per input."""
    report: list[dict[str, Any]] = json.loads((folder / "filter-report.json").read_text())
    return report


def dropped_pairs(corpus: dict[str, Any]) -> dict[str, int]:
    """Return the number of dropped pairs by reason in an entry of the filter report."""
    return {reason: entry["pairs"] for reason, entry in corpus["dropped"].items()}


def ids_of(side: Sentences) -> list[list[int]]:
    """Return the ids of each sentence, with its end token."""
    ends = side.offsets[1:]
    return [side.tokens[start:end].tolist() for start, end in zip(side.offsets, ends, strict=False)]


def batches_of(shards: Sequence[Shard]) -> list[list[int]]:
    """Return the pairs of each batch of all shards."""
    return [shard.batch(number).tolist() for shard in shards for number in range(len(shard))]


def first_batches(running: Iterator[GlobalBatch], count: int) -> list[tuple[Any, ...]]:
    """Return (epoch, number, pairs, dropped, pairs of each corpus) of the next `count` batches."""
    return [(b.epoch, b.number, b.pairs.tolist(), b.dropped, b.corpora) for b in islice(running, count)]
