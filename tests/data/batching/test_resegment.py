"""The training text is segmented again for each epoch."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from itertools import islice
from pathlib import Path

import pytest

from nmt_cli.data.batching import resegment as resegment_module
from nmt_cli.data.batching import schedule
from nmt_cli.data.batching.planner import EveryPairOnce
from nmt_cli.data.batching.resegment import EpochChanges, Resegmented, refuse_no_effect
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import TOKENIZERS, Dataset, Split, open_dataset
from nmt_cli.errors import UserError
from nmt_cli.text.config import AugmentConfig, SamplingConfig
from nmt_cli.text.placeholders import TERM, restored
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.text.tokenizers import load_tokenizers
from tests.data.corpora import Make, WritePairs, first_batches, ids_of

Resegment = Callable[..., AbstractContextManager[Resegmented]]

CONFIG = SamplingConfig(source=0.3, target=0.3)
BATCHES = BatchConfig(tokens=150, longest=24, shard_pairs=100)
UNCHANGED = AugmentConfig()
PLAN = EveryPairOnce(300, BATCHES, seed=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, make: Make, toy: str, dev: str) -> Dataset:
    """Return a dataset of `toy` with BPE subwords."""
    out = tmp_path_factory.mktemp("bpe") / "out"
    make(out, [toy], "tokenizer.kind=bpe", "tokenizer.vocab_size=96", valid=[dev])
    return open_dataset(out)


@pytest.fixture
def resegmented(tmp_path: Path, dataset: Dataset) -> Resegment:
    """Return a function that makes the epochs of `dataset`, to be closed."""

    def resegmented(
        config: SamplingConfig = CONFIG,
        seed: int = 1,
        workers: int = 1,
        folder: Path = tmp_path,
        of: Dataset = dataset,
        augment: AugmentConfig = UNCHANGED,
    ) -> AbstractContextManager[Resegmented]:
        tokenizers = load_tokenizers(of.folder / TOKENIZERS)
        changes = EpochChanges(config, augment, seed)
        return closing(Resegmented(of, tokenizers, changes, folder, workers=workers))

    return resegmented


def test_every_epoch_has_the_same_text_in_other_pieces(dataset: Dataset, resegmented: Resegment) -> None:
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    with resegmented() as epochs:
        drawn = [ids_of(epochs.split(epoch).source) for epoch in (0, 1)]
    plain = ids_of(dataset.splits["train"].source)
    assert drawn[0] != drawn[1] != plain != drawn[0]
    texts = [[tokenizers.source.decode(ids[:-1]) for ids in epoch] for epoch in (*drawn, plain)]
    assert texts[0] == texts[1] == texts[2]
    assert {ids[-1] for epoch in drawn for ids in epoch} == {0}


def test_seed_epoch_and_line_alone_decide_the_segmentation(
    tmp_path: Path, resegmented: Resegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with resegmented() as epochs:
        expected = [ids_of(epochs.split(epoch).target) for epoch in (0, 1, 2)]
    monkeypatch.setattr(resegment_module, "BLOCK_PAIRS", 7)
    with resegmented(workers=2, folder=tmp_path / "other") as epochs:
        assert [ids_of(epochs.split(epoch).target) for epoch in (2, 0, 1)] == [expected[n] for n in (2, 0, 1)]
    with resegmented(seed=2, folder=tmp_path / "seed") as epochs:
        assert ids_of(epochs.split(0).target) != expected[0]


def test_equal_lines_and_both_sides_are_sampled_independently(
    tmp_path: Path, make: Make, resegmented: Resegment, write_pairs: WritePairs
) -> None:
    same = write_pairs(tmp_path / "same", [("abcabc abcabc abcabc", "abcabc abcabc abcabc")] * 100)
    make(tmp_path / "out", [same], "tokenizer.kind=bpe", "tokenizer.vocab_size=12")
    with resegmented(of=open_dataset(tmp_path / "out")) as epochs:
        split = epochs.split(0)
    source, target = ids_of(split.source), ids_of(split.target)
    assert len({tuple(ids) for ids in source}) > 10
    assert source != target


def test_only_the_sampled_side_is_segmented_again(dataset: Dataset, resegmented: Resegment) -> None:
    with resegmented(SamplingConfig(target=0.3)) as epochs:
        split = epochs.split(0)
    assert split.source is dataset.splits["train"].source
    assert ids_of(split.target) != ids_of(dataset.splits["train"].target)


def test_an_epoch_can_be_prepared_in_advance(tmp_path: Path, resegmented: Resegment) -> None:
    with resegmented() as epochs:
        epochs.begin(5)
        end = time.monotonic() + 300
        while not (tmp_path / "epoch-000005").exists() and time.monotonic() < end:
            time.sleep(0.01)
        with resegmented(workers=0) as of_another_rank:
            assert ids_of(of_another_rank.split(5).source) == ids_of(epochs.split(5).source)


def test_an_epoch_appears_complete_and_is_removed_after_use(tmp_path: Path, resegmented: Resegment) -> None:
    with resegmented() as epochs:
        split = epochs.split(0)
        assert [path.name for path in tmp_path.iterdir()] == ["epoch-000000"]
        before = ids_of(split.source)
        epochs.forget(0)
        assert not list(tmp_path.iterdir())
        assert ids_of(split.source) == before


def test_a_full_disk_is_reported(
    resegmented: Resegment, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    message = r"epoch-000000 can't be written: File too large. Free some space"
    with resegmented() as epochs, full_disk(3000), pytest.raises(UserError, match=message):
        epochs.split(0)


def test_a_dataset_that_was_made_again_meanwhile_is_refused(
    tmp_path: Path, dataset: Dataset, resegmented: Resegment, make: Make, dev: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(dataset.folder, folder)
    with resegmented(of=open_dataset(folder), folder=tmp_path / "epochs") as epochs:
        make(folder, [dev], reuse=dataset.folder, overwrite=True)
        with pytest.raises(UserError, match=f"{folder} was made again during training"):
            epochs.split(0)


@pytest.fixture
def batches(dataset: Dataset, resegmented: Resegment, tmp_path: Path) -> Iterator[Batches]:
    with resegmented() as epochs:
        split = dataset.splits["train"]
        with closing(Batches(split, PLAN, tmp_path, planner=True, resegmented=epochs)) as batches:
            yield batches


def test_batches_respect_their_limits_with_the_lengths_of_their_epoch(batches: Batches) -> None:
    dropped: dict[int, int] = {}
    for batch in islice(batches.starting(), 120):
        split = batches.split(batch.epoch)
        for side in (split.source, split.target):
            lengths = side.offsets[batch.pairs + 1] - side.offsets[batch.pairs]
            assert lengths.max() <= 24
            assert lengths.sum() <= 150
        dropped[batch.epoch] = batch.dropped
    assert len(dropped) > 2
    for epoch in sorted(dropped)[:-1]:
        split = batches.split(epoch)
        longest = [
            max(map(len, pair)) for pair in zip(ids_of(split.source), ids_of(split.target), strict=True)
        ]
        assert dropped[epoch] == sum(length > 24 for length in longest) > 0


def test_a_run_resumes_within_any_epoch_as_if_never_stopped(
    tmp_path: Path, dataset: Dataset, resegmented: Resegment, batches: Batches
) -> None:
    expected = first_batches(batches.starting(), 100)
    split = dataset.splits["train"]
    for done in (10, 55, 90):
        epoch, number, *_ = expected[done]
        folder = tmp_path / f"{done}"
        with (
            resegmented(folder=folder) as epochs,
            closing(Batches(split, PLAN, folder, planner=True, resegmented=epochs)) as again,
        ):
            assert first_batches(again.starting(epoch, number), 10) == expected[done : done + 10]


def test_finished_epochs_are_removed_from_the_disk(
    tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "KEPT_BATCHES", 5)
    for batch in islice(batches.starting(), 300):
        there = {int(path.name.removeprefix("epoch-")) for path in tmp_path.glob("epoch-??????")}
        assert there <= {batch.epoch - 1, batch.epoch, batch.epoch + 1}


def test_closing_ends_planning_that_waits_for_an_epoch(
    tmp_path: Path, dataset: Dataset, resegmented: Resegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resegment_module, "BLOCK_PAIRS", 1)
    segmented: list[int] = []
    write = Resegmented._write

    def counting(epochs: Resegmented, epoch: int) -> None:
        write(epochs, epoch)
        segmented.append(epoch)

    monkeypatch.setattr(Resegmented, "_write", counting)
    with resegmented() as epochs:
        batches = Batches(dataset.splits["train"], PLAN, tmp_path, planner=True, resegmented=epochs)
        for epoch in range(1000):
            epochs.begin(epoch)
        batches.close()
    assert len(segmented) < 1000


def test_other_ranks_of_a_machine_read_the_same_epochs(
    tmp_path: Path, dataset: Dataset, resegmented: Resegment, batches: Batches
) -> None:
    split = dataset.splits["train"]
    with (
        resegmented(workers=0) as epochs,
        closing(Batches(split, PLAN, tmp_path, planner=False, resegmented=epochs)) as others,
    ):
        for mine, theirs in islice(zip(batches.starting(), others.starting(), strict=True), 60):
            assert mine.pairs.tolist() == theirs.pairs.tolist()
            ours = [ids_of(b.split(mine.epoch).source)[mine.pairs[0]] for b in (batches, others)]
            assert ours[0] == ours[1]


def texts(dataset: Dataset, split: Split) -> list[tuple[str, str]]:
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    sides = [
        [tokenizers.side(side).decode(ids[:-1]) for ids in ids_of(getattr(split, side))] for side in SIDES
    ]
    return list(zip(*sides, strict=True))


def test_every_epoch_augments_other_pairs(
    tmp_path: Path, dataset: Dataset, resegmented: Resegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = AugmentConfig(typos=0.3)
    with resegmented(SamplingConfig(), augment=config) as epochs:
        drawn = [texts(dataset, epochs.split(epoch)) for epoch in (0, 1)]
    plain = texts(dataset, dataset.splits["train"])
    for epoch in drawn:
        changed = sum(source != was for (source, _), (was, _) in zip(epoch, plain, strict=True))
        assert 0.2 < changed / len(plain) < 0.4
        assert [target for _, target in epoch] == [target for _, target in plain]
    assert drawn[0] != drawn[1]
    monkeypatch.setattr(resegment_module, "BLOCK_PAIRS", 7)
    with resegmented(SamplingConfig(), augment=config, workers=2, folder=tmp_path / "other") as epochs:
        assert texts(dataset, epochs.split(1)) == drawn[1]
    with resegmented(SamplingConfig(), augment=config, seed=2, folder=tmp_path / "seed") as epochs:
        assert texts(dataset, epochs.split(1)) != drawn[1]


def test_augmentation_does_not_change_the_sampling(tmp_path: Path, resegmented: Resegment) -> None:
    with resegmented() as epochs:
        expected = ids_of(epochs.split(0).target)
    with resegmented(augment=AugmentConfig(typos=0.5), folder=tmp_path / "other") as epochs:
        assert ids_of(epochs.split(0).target) == expected


def test_augmentation_without_effect_is_refused(dataset: Dataset) -> None:
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    with pytest.raises(UserError, match=r"needs a dataset with symbols for placeholders.*placeholders=8"):
        refuse_no_effect(tokenizers, AugmentConfig(placeholders=0.1))
    terms = AugmentConfig(terms=0.1, terms_file="terms.tsv")
    with pytest.raises(
        UserError, match=r"needs a dataset with symbols for terms.*--set tokenizer\.terms=true"
    ):
        refuse_no_effect(tokenizers, terms)
    with pytest.raises(UserError, match=r"^augment\.noise needs a dataset.*tokenizer\.byte_fallback=true"):
        refuse_no_effect(tokenizers, AugmentConfig(noise=0.01))
    with pytest.raises(UserError, match=r"add up to 1\.2"):
        AugmentConfig(upper=0.6, title=0.6)
    for values in ({"terms": 0.1}, {"terms_file": "terms.tsv"}):
        with pytest.raises(UserError, match="need each other"):
            AugmentConfig(**values)


def test_seed_epoch_and_line_alone_decide_the_annotations(
    tmp_path: Path,
    make: Make,
    write_pairs: WritePairs,
    resegmented: Resegment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [(f"dog {n} ⟦<⟧ cat", f"Hund {n} ⟦<⟧ Katze") for n in range(100)]
    make(
        tmp_path / "out",
        [write_pairs(tmp_path / "pairs", lines)],
        "tokenizer.kind=char",
        "tokenizer.terms=true",
    )
    of = open_dataset(tmp_path / "out")
    (tmp_path / "terms.tsv").write_text("dog\tHund\ncat\tKatze\nbird\tKatze Hund\n", encoding="utf-8")
    config = AugmentConfig(terms=0.5, terms_file=str(tmp_path / "terms.tsv"))
    refuse_no_effect(load_tokenizers(of.folder / TOKENIZERS), config)
    with resegmented(SamplingConfig(), of=of, augment=config, folder=tmp_path / "1") as epochs:
        drawn = [texts(of, epochs.split(epoch)) for epoch in (0, 1)]
    assert drawn[0] != drawn[1]
    plain = texts(of, of.splits["train"])
    assert {source.count(TERM) for source, _ in plain} == {0}
    assert 30 < sum(TERM in source for source, _ in drawn[1]) < 70
    for (source, _), (before, _) in zip(drawn[1], plain, strict=True):
        assert restored(source, {}) == restored(before, {})
    monkeypatch.setattr(resegment_module, "BLOCK_PAIRS", 7)
    with resegmented(SamplingConfig(), of=of, augment=config, workers=2, folder=tmp_path / "2") as epochs:
        assert texts(of, epochs.split(1)) == drawn[1]
    (tmp_path / "terms.tsv").write_text("dog\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1 needs a source and a translation"):
        refuse_no_effect(load_tokenizers(of.folder / TOKENIZERS), config)
