"""The plan of a mixture has the right shares and epochs of each corpus."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.config import read
from nmt_cli.data.batching.planner import BatchPlan, plan_of
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.config import BatchConfig, MixingConfig
from nmt_cli.data.dataset import Dataset, Split
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig
from tests.checks import refusal
from tests.data.corpora import Lengths, SplitOf, batches_of, first_batches

CONFIG = BatchConfig(tokens=600, longest=28)
NAMES = ("bitext", "synthetic", "web", "news")
SHORT = [500, 700, 300]
"""Sizes of three small corpora."""


def dataset_of(split: Split, sizes: Sequence[int], **fields: Sequence[Any]) -> Dataset:
    """Return a dataset of consecutive corpora with these sizes."""
    corpora = [
        {"name": NAMES[n], "first": sum(sizes[:n]), "pairs": size, "weight": 0.0, "tag": ""}
        | {key: values[n] for key, values in fields.items()}
        for n, size in enumerate(sizes)
    ]
    return Dataset(Path(), {"splits": {"train": {"corpora": corpora}}}, {"train": split})


def lengths_of(sizes: Sequence[int], seed: int = 0) -> Lengths:
    """Return random lengths of 1 to 30 tokens. Later corpora have longer pairs."""
    rng = np.random.default_rng(seed)
    lengths: list[tuple[int, int]] = []
    for number, size in enumerate(sizes):
        random_lengths = rng.integers(1, 20 + 3 * number, (size, 2))
        lengths += [(int(source), int(target)) for source, target in random_lengths]
    return lengths


def mixing(**settings: str) -> MixingConfig:
    return read(TrainConfig, None, [f"mixing.{key}={value}" for key, value in settings.items()]).mixing


def mixed(dataset: Dataset, config: MixingConfig, batch: BatchConfig = CONFIG, seed: int = 1) -> BatchPlan:
    plan = plan_of(dataset, batch, config, seed)
    assert plan.counted
    return plan


def planned(plan: BatchPlan, split: Split, *epochs: int) -> list[list[int]]:
    """Return the batches of these epochs."""
    return batches_of([plan.shard(split, epoch, n) for epoch in epochs for n in range(plan.shards(epoch))])


def corpus_of(sizes: Sequence[int]) -> Callable[[int], int]:
    ends = np.cumsum(sizes)
    return lambda pair: int(np.searchsorted(ends, pair, side="right"))


SIZES = st.lists(st.integers(300, 3000), min_size=2, max_size=4)
WEIGHTS = st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4)


@pytest.mark.slow
@settings(max_examples=15)
@given(SIZES, WEIGHTS, st.integers(0, 3))
def test_any_200_steps_have_the_requested_shares(
    split_of: SplitOf, sizes: list[int], weights: list[float], seed: int
) -> None:
    split = split_of(lengths_of(sizes, seed))
    weight_of = dict(zip(NAMES, weights[: len(sizes)], strict=False))
    plan = mixed(dataset_of(split, sizes), MixingConfig(weights=weight_of), seed=seed)
    batches: list[list[int]] = []
    for epoch in count():
        batches += planned(plan, split, epoch)
        if len(batches) > 400:
            break
    corpus = corpus_of(sizes)
    counts = np.array([np.bincount([*map(corpus, batch)], minlength=len(sizes)) for batch in batches])
    sums = np.concatenate((np.zeros((1, len(sizes)), int), counts.cumsum(axis=0)))
    windows = sums[200:] - sums[:-200]
    shares = windows / windows.sum(axis=1, keepdims=True)
    expected = np.array(list(weight_of.values())) / sum(weight_of.values())
    assert len(windows) > 100
    assert abs(shares - expected).max() < 0.005


@pytest.mark.slow
@settings(max_examples=15)
@given(SIZES, WEIGHTS, st.integers(0, 3))
def test_every_pair_of_a_corpus_comes_once_before_any_comes_again(
    split_of: SplitOf, sizes: list[int], weights: list[float], seed: int
) -> None:
    lengths = lengths_of(sizes, seed)
    split, corpus = split_of(lengths), corpus_of(sizes)
    weight_of = dict(zip(NAMES, weights[: len(sizes)], strict=False))
    plan = mixed(dataset_of(split, sizes), MixingConfig(weights=weight_of), seed=seed)
    fitting = Counter(corpus(n) for n, pair in enumerate(lengths) if max(pair) <= CONFIG.longest)
    stream: dict[int, list[int]] = {n: [] for n in range(len(sizes))}
    for batch in planned(plan, split, *range(3)):
        assert 0 < max(sum(lengths[pair][side] for pair in batch) for side in (0, 1)) <= CONFIG.tokens
        for pair in batch:
            assert max(lengths[pair]) <= CONFIG.longest
            stream[corpus(pair)].append(pair)
    for number, pairs in stream.items():
        for begin in range(0, len(pairs), fitting[number]):
            epoch = pairs[begin : begin + fitting[number]]
            assert len(set(epoch)) == len(epoch)
    assert len(stream[0]) == 3 * fitting[0]


def test_batches_are_as_full_as_without_mixing_and_have_pairs_of_similar_length(
    split_of: SplitOf, natural_lengths: Lengths
) -> None:
    split, config = split_of(natural_lengths), BatchConfig(tokens=2000)
    dataset = dataset_of(split, [5_000, 15_000])
    plan = mixed(dataset, mixing(weights="{bitext=1, synthetic=3}"), config)
    batches = planned(plan, split, 0)
    fullest = [max(sum(natural_lengths[i][side] for i in batch) for side in (0, 1)) for batch in batches]
    assert np.mean(fullest) > 1940
    spreads = [np.std([sum(natural_lengths[i]) for i in batch]) for batch in batches]
    assert np.mean(spreads) < np.std([sum(pair) for pair in natural_lengths]) * 0.6


@pytest.mark.parametrize(
    ("temperature", "over", "shares"),
    [
        (1, "corpus", [0.8, 0.1, 0.1]),
        (2, "corpus", [800**0.5, 100**0.5, 100**0.5]),
        (100, "corpus", [1, 1, 1]),
        (2, "tag", [800**0.5, 200**0.5 / 2, 200**0.5 / 2]),
    ],
)
def test_temperature_weighs_by_size_of_corpora_or_tags(
    split_of: SplitOf, temperature: int, over: str, shares: list[float]
) -> None:
    sizes = [800, 100, 100]
    split = split_of([(5, 5)] * 1000)
    dataset = dataset_of(split, sizes, tag=["<2de>", "<2fr>", "<2fr>"])
    plan = mixed(dataset, mixing(temperature=str(temperature), over=over))
    actual = [*plan.shares.values()]
    assert actual == pytest.approx([share / sum(shares) for share in shares], abs=0.02)


def test_settings_override_the_weights_of_the_dataset(split_of: SplitOf) -> None:
    dataset = dataset_of(split_of([(5, 5)] * 100), [50, 50], weight=[1.0, 3.0])
    for config, shares in (
        (MixingConfig(), {"bitext": 0.25, "synthetic": 0.75}),
        (mixing(weights="{bitext=1}"), {"bitext": 1.0}),
    ):
        assert mixed(dataset, config).shares == shares


def test_without_settings_and_weights_nothing_is_mixed(split_of: SplitOf) -> None:
    split = split_of([(5, 5)] * 100)
    old = Dataset(Path(), {"splits": {"train": {}}}, {"train": split})
    for dataset in (dataset_of(split, [50, 50]), old):
        plan = plan_of(dataset, CONFIG, MixingConfig(), 1)
        assert (plan.counted, plan.shares, plan.pairs_of_epoch) == ("", {}, 100)
        assert sorted(pair for batch in planned(plan, split, 0) for pair in batch) == [*range(100)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"weights": "{bitex=1}"},
            "weights names bitex, which is not a corpus of the dataset: did you mean bitext?",
        ),
        ({"weights": "{bitext=0}"}, "All weights of [mixing] are 0"),
        ({"epoch": "news", "temperature": "1"}, "epoch names news"),
        ({"epoch": "synthetic", "weights": "{bitext=1}"}, "The mixture has no pairs of synthetic"),
    ],
)
def test_settings_that_do_not_fit_the_dataset_are_refused(
    split_of: SplitOf, settings: Mapping[str, str], message: str
) -> None:
    dataset = dataset_of(split_of([(5, 5)] * 100), [50, 50])
    assert message in refusal(plan_of, dataset, CONFIG, mixing(**settings), 1)


def test_a_corpus_of_long_pairs_cannot_have_a_weight(split_of: SplitOf) -> None:
    dataset = dataset_of(split_of([(5, 5)] * 50 + [(5, 40)] * 50), [50, 50])
    with pytest.raises(UserError, match="Corpus synthetic has a weight, but all its 50 pairs are too long"):
        plan_of(dataset, CONFIG, mixing(weights="{bitext=1, synthetic=1}"), 1)


def test_a_corpus_without_pairs_cannot_have_a_weight(split_of: SplitOf) -> None:
    dataset = dataset_of(split_of([(5, 5)] * 50), [50, 0])
    with pytest.raises(UserError, match="Corpus synthetic has a weight, but the filters of nmt preprocess"):
        plan_of(dataset, CONFIG, mixing(weights="{bitext=1, synthetic=1}"), 1)


@pytest.fixture(scope="module")
def corpora(split_of: SplitOf) -> Dataset:
    return dataset_of(split_of(lengths_of(SHORT)), SHORT)


def batches(dataset: Dataset, folder: Path, *, planner: bool = True, seed: int = 1) -> Batches:
    config = BatchConfig(tokens=600, longest=28, shard_pairs=400)
    plan = plan_of(dataset, config, mixing(weights="{bitext=2, synthetic=1, web=1}"), seed)
    return Batches(dataset.splits["train"], plan, folder, planner=planner)


def test_a_run_resumes_at_any_batch_as_if_never_stopped(tmp_path: Path, corpora: Dataset) -> None:
    with closing(batches(corpora, tmp_path)) as schedule:
        expected = first_batches(schedule.starting(), 130)
        for done in range(1, 125, 3):
            epoch, number = expected[done - 1][:2]
            assert first_batches(schedule.starting(epoch, number + 1), 4) == expected[done : done + 4]


def test_all_processes_of_a_machine_take_the_same_batches(tmp_path: Path, corpora: Dataset) -> None:
    with (
        closing(batches(corpora, tmp_path)) as one,
        closing(batches(corpora, tmp_path, planner=False)) as other,
    ):
        assert first_batches(one.starting(), 60) == first_batches(other.starting(), 60)


def test_batches_report_how_often_each_corpus_was_seen(tmp_path: Path, corpora: Dataset) -> None:
    corpus = corpus_of(SHORT)
    sizes = Counter(corpus(n) for n, pair in enumerate(lengths_of(SHORT)) if max(pair) <= 28)
    seen: Counter[str] = Counter()
    with closing(batches(corpora, tmp_path)) as running:
        for batch in islice(running.starting(), 130):
            assert batch.corpora and batch.corpora.counted == "bitext"
            counts = Counter(NAMES[corpus(pair)] for pair in batch.pairs)
            assert batch.corpora.pairs == counts
            seen += counts
            expected = {name: seen[name] / sizes[NAMES.index(name)] for name in seen}
            assert batch.corpora.epochs == pytest.approx(expected, abs=1e-3)
            assert int(batch.corpora.epochs["bitext"] - 1e-4) == batch.epoch


def test_a_mixture_is_the_same_on_every_machine_and_with_every_version_of_numpy(split_of: SplitOf) -> None:
    sizes = [3000, 5000, 2000]
    split = split_of([(1 + i * 7 % 61, 1 + i * 11 % 67) for i in range(10_000)])
    config = BatchConfig(tokens=1000, longest=60, shard_pairs=3000)
    plan = mixed(dataset_of(split, sizes), mixing(temperature="3"), config)
    written = hashlib.sha256()
    for batch in planned(plan, split, 0, 1):
        written.update(np.array([len(batch), *batch]).astype("<i8").tobytes())
    assert written.hexdigest()[:16] == "6abb0e94f2f5eb7e"
