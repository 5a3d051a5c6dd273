"""Runs of earlier versions resume with the batches that they would have taken: plans never change.

`plans.json` has a digest for each configuration below. It was written when mixtures and single corpora had a
planner each. A digest that differs is a bug: a run that resumes would skip some pairs and see others twice.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.data.batching.cut import share
from nmt_cli.data.batching.planner import plan_of
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.config import BatchConfig, MixingConfig
from nmt_cli.data.dataset import Dataset
from tests.data.corpora import SplitOf

DIGESTS: Mapping[str, str] = json.loads(Path(__file__).with_name("plans.json").read_bytes())

EPOCHS = 2
WORLDS = (1, 3)

MIXTURES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "weights": {"weights": {"a": 3.0, "b": 1.0}},
    "one of them": {"weights": {"a": 1.0}},
    "temperature": {"temperature": 5.0},
    "tags": {"temperature": 2.0, "over": "tag"},
    "epoch": {"epoch": "b", "temperature": 1.0},
}

CORPORA: Mapping[str, list[dict[str, Any]] | None] = {
    "old": None,
    "one": [{"name": "a", "pairs": 2500}],
    "two": [{"name": "a", "pairs": 700}, {"name": "b", "pairs": 1800, "tag": "<2de>"}],
    "weighted": [{"name": "a", "pairs": 1200, "weight": 1.0}, {"name": "b", "pairs": 900, "weight": 3.5}],
    "empty": [{"name": "a", "pairs": 400}, {"name": "none", "pairs": 0}, {"name": "b", "pairs": 300}],
}

BATCHES = {
    "usual": BatchConfig(tokens=900, longest=60),
    "shards": BatchConfig(tokens=700, longest=40, shard_pairs=500),
    "small blocks": BatchConfig(tokens=300, longest=256, shard_pairs=90),
}


def configurations() -> Iterator[tuple[str, str, str, int]]:
    """Yield the names of corpora, mixture and batches, and the seed, of each configuration that can train."""
    for corpora, entries in CORPORA.items():
        for mixture, settings in MIXTURES.items():
            names = {entry["name"] for entry in entries or [{"name": "train"}]}
            named = {*settings.get("weights", {}), *([settings["epoch"]] if "epoch" in settings else [])}
            if not named <= names:
                continue
            if corpora == "empty" and mixture not in ("default", "weights", "one of them"):
                continue  # an empty corpus cannot have a weight
            for batches in BATCHES:
                yield from ((corpora, mixture, batches, seed) for seed in (0, 20_261))


def dataset_of(corpora: str, split_of: SplitOf) -> Dataset:
    """Return a dataset with pairs of 1 to 61 tokens in these corpora."""
    entries = CORPORA[corpora]
    pairs = sum(entry["pairs"] for entry in entries) if entries else 2500
    split = split_of([(1 + i * 7 % 61, 1 + i * 11 % 53) for i in range(pairs)])
    manifest: dict[str, Any] = {}
    if entries:
        firsts = np.cumsum([0, *(entry["pairs"] for entry in entries)]).tolist()
        manifest["corpora"] = [
            {"weight": 0.0, "tag": "", **entry, "first": first}
            for entry, first in zip(entries, firsts, strict=False)
        ]
    return Dataset(Path(), {"splits": {"train": manifest}}, {"train": split})


def digest(dataset: Dataset, batch: BatchConfig, mixing: MixingConfig, seed: int, folder: Path) -> str:
    """Return a hash of all global batches of `EPOCHS` epochs, of each rank's part, and of their reports."""
    split, plan = dataset.splits["train"], plan_of(dataset, batch, mixing, seed)
    written = hashlib.sha256()
    with closing(Batches(split, plan, folder, planner=True)) as batches:
        for one in takewhile(lambda one: one.epoch < EPOCHS, batches.starting()):
            lengths = split.lengths(one.pairs)
            parts = [part for world in WORLDS for part in share(*lengths, world)]
            place = np.array([one.epoch, one.number, one.dropped])
            for numbers in (place, one.pairs, *parts):
                written.update(np.array([len(numbers), *numbers]).astype("<i8").tobytes())
            report = asdict(one.corpora) if one.corpora else None
            written.update(json.dumps(report, sort_keys=True).encode())
    return written.hexdigest()[:16]


@pytest.mark.parametrize(("corpora", "mixture", "batches", "seed"), [*configurations()])
def test_batches_are_those_of_earlier_versions(
    split_of: SplitOf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    corpora: str,
    mixture: str,
    batches: str,
    seed: int,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # thousands of files take minutes on some disks
    dataset, mixing = dataset_of(corpora, split_of), MixingConfig(**MIXTURES[mixture])
    expected = DIGESTS[f"{corpora}, {mixture}, {batches}, {seed}"]
    assert digest(dataset, BATCHES[batches], mixing, seed, tmp_path) == expected
