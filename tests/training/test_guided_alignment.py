"""Guided alignment: its gradients against float64 autograd, and runs with and without it."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, NoReturn, cast
from weakref import WeakSet

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.model_folder import Identity, read_model
from nmt_cli.data.batching.batch import Rounding, assemble
from nmt_cli.data.batching.loader import Cut, Loader, prepare
from nmt_cli.data.batching.schedule import GlobalBatch
from nmt_cli.data.dataset import Split, open_dataset, write_manifest
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.decoding.attention_maps import attention_maps
from nmt_cli.model.transformer import GUIDED_HEAD, DecoderLayer, Transformer
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer
from tests.data.corpora import WritePairs, named_corpora
from tests.training.runs import Complaint, Go, Tiny, tensors_of

CPU = torch.device("cpu")
PAIRS = np.arange(3, 27)
GUIDED = "training.guided_alignment=0.5"


@pytest.fixture(scope="module")
def aligned(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[..., Outcome], toy: str, dev: str
) -> Path:
    """Return the dataset of `toy_dataset` with alignments. Tests only read it."""
    out = tmp_path_factory.mktemp("aligned") / "out"
    make(out, [toy], "corpus.align=true", valid=[dev])
    return out


@pytest.fixture(scope="module")
def split(aligned: Path) -> Split:
    return open_dataset(aligned).splits["train"]


@pytest.fixture
def new_trainer(identity: Identity, tiny: Tiny) -> Iterator[Callable[..., Trainer]]:
    """Return a function that makes a trainer of the same model with guided alignment."""

    def new_trainer(precision: str = "fp32", rank: int = 0, norm: str = "post") -> Trainer:
        torch.manual_seed(1)
        config = tiny(GUIDED, f"model.norm={norm}")
        model = Identity(config.model, identity.tokenizers, {}).build()
        optimizer, group = Optimizer(model, config.optimizer), Group(Process(rank=rank), CPU, 1.0)
        return Trainer(model, optimizer, config, MixedPrecision(precision, CPU), group, model)

    yield new_trainer


def by_definition(model: Transformer, split: Split, weight: float) -> tuple[float, Tensor]:
    """Return in float64 the smoothed loss over PAIRS, and the gradient of the mean of it plus `weight` times
    the cross-entropy of the guided head, whose attention comes from the reference."""
    exact = deepcopy(model).double().train()
    exact.zero_grad()
    part = assemble(split, PAIRS)
    cross, inputs = cast(DecoderLayer, exact.decoder[-1]).cross, list[tuple[Any, ...]]()
    hook = cross.register_forward_pre_hook(lambda module, given: inputs.append(given))
    decoded = exact(part.source_tokens, part.target_tokens, part.source, part.target)
    hook.remove()
    log_p = exact.logits(decoded).log_softmax(-1)
    nll = -log_p[torch.arange(len(part.labels)), part.labels].sum()
    loss = smoothed = 0.9 * nll - 0.1 * log_p.mean(-1).sum()
    assert part.links is not None
    heads = cross.weights(*inputs[0])
    for pair, (t, s) in enumerate(zip(part.target.slices(), part.source.slices(), strict=True)):
        for target in range(t.start, t.stop):
            own = part.links[1, part.links[0] == target]
            assert all(s.start <= source < s.stop - 1 for source in own.tolist())
            if len(own):
                attention = heads[pair][GUIDED_HEAD, target - t.start, own - s.start]
                loss = loss - weight * attention.log().mean()
    (loss / len(part.labels)).backward()  # type: ignore[no-untyped-call]  # untyped in torch
    gradients = [parameter.grad.flatten() for parameter in exact.parameters() if parameter.grad is not None]
    return smoothed.item(), torch.cat(gradients)


def gradient_of(trainer: Trainer, split: Split, cut: Cut) -> tuple[float, Tensor]:
    """Return the smoothed loss and the gradient of a step of one rank."""
    step = prepare(split, GlobalBatch(0, 0, PAIRS, 0), cut)
    measured = trainer.step(1, 0.0, step, cast(Loader, None))
    return measured[0].item(), trainer.gradients.flat


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("cut", [Cut(0, 1, 10**6), Cut(0, 1, 150), Cut(0, 1, 300, Rounding(16))], ids=str)
def test_a_step_is_float64_autograd_on_the_whole_batch_however_it_is_cut(
    split: Split, new_trainer: Callable[..., Trainer], cut: Cut, norm: str
) -> None:
    trainer = new_trainer(norm=norm)
    loss, expected = by_definition(trainer.model, split, 0.5)
    actual_loss, actual = gradient_of(trainer, split, cut)
    assert actual_loss == pytest.approx(loss, rel=1e-6)
    assert (actual - expected).norm() < 3e-6 * expected.norm()
    assert (by_definition(trainer.model, split, 0.0)[1] - expected).norm() > 0.1 * expected.norm()


def test_the_gradients_of_two_ranks_sum_up_to_that_of_one(
    split: Split, new_trainer: Callable[..., Trainer]
) -> None:
    _, expected = gradient_of(new_trainer(), split, Cut(0, 1, 10**6))
    parts = [gradient_of(new_trainer(rank=rank), split, Cut(rank, 2, 200))[1] for rank in (0, 1)]
    assert (parts[0] + parts[1] - expected).norm() < 3e-6 * expected.norm()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_has_about_the_same_gradient(
    split: Split, new_trainer: Callable[..., Trainer], precision: str
) -> None:
    _, expected = gradient_of(new_trainer(), split, Cut(0, 1, 200))
    _, actual = gradient_of(new_trainer(precision), split, Cut(0, 1, 200))
    assert (actual - expected).norm() < 0.03 * expected.norm()


class Activation:
    """An activation that autograd keeps for the backward pass."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()  # a result would refer to its own graph


def test_a_batch_that_does_not_fit_leaves_its_activations_to_the_next_one(
    split: Split, new_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, kept, counts = new_trainer(), WeakSet[Activation](), []

    def keep(tensor: Tensor) -> Activation:
        kept.add(activation := Activation(tensor))
        return activation

    def does_not_fit(*_: object, **__: object) -> NoReturn:
        counts.append(len(kept))
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("nmt_cli.training.step.trainer.cross_entropy", does_not_fit)
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda activation: activation.tensor)
    with suppress(torch.OutOfMemoryError), hooks:
        trainer.try_out(assemble(split, PAIRS))
    assert counts[0] > 10 and not kept


def test_alignments_without_the_setting_change_no_bit(
    go: Go, toy_dataset: Path, aligned: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "plain", tmp_path / "aligned"
    for dataset, out in zip((toy_dataset, aligned), runs, strict=True):
        go("model.residual_dropout=0.2", dataset=dataset, out=out)
    plain, other = map(tensors_of, runs)
    assert all(torch.equal(plain[name], other[name]) for name in plain)
    assert not read_model(find_model(runs[1])).transformer.guided


def test_a_guided_run_resumes_exactly_and_its_model_aligns_with_the_guided_head(
    go: Go, aligned: Path, tmp_path: Path
) -> None:
    settings = (GUIDED, "model.residual_dropout=0.2", "training.max_steps=8")
    go(*settings, dataset=aligned, out=tmp_path / "whole")
    assert not go(*settings, dataset=aligned, out=tmp_path / "resumed", stop_at=3)[0]
    go(*settings, dataset=aligned, out=tmp_path / "resumed")
    whole, resumed = (tensors_of(tmp_path / name) for name in ("whole", "resumed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    model = read_model(find_model(tmp_path / "whole"))
    assert model.identity.trained_on["guided_alignment"] == 0.5
    (maps,) = attention_maps(model.transformer, [([5, 6, 7], [8, 9])])
    assert maps.alignment() == maps.cross[-1, GUIDED_HEAD, :2, :3].argmax(-1).tolist()


def test_guided_alignment_goes_with_sampling_augmentation_and_mixtures(
    go: Go, make: Callable[..., Outcome], toy: str, dev: str, write_pairs: WritePairs, tmp_path: Path
) -> None:
    other = write_pairs(tmp_path / "other", [("a b c", "x y z"), ("c d", "z u")] * 20)
    named = named_corpora(("toy", toy, ""), ("other", other, ""))
    bpe = ("tokenizer.kind=bpe", "tokenizer.vocab_size=60")
    make(tmp_path / "data", [], named, "corpus.align=true", *bpe, valid=[dev])
    mixture = "mixing.weights={toy=2.0, other=1.0}"
    changes = ("sampling.source=0.2", "sampling.target=0.2", "augment.typos=0.5", mixture)
    settings = (GUIDED, *changes, "training.max_steps=6")
    go(*settings, dataset=tmp_path / "data", out=tmp_path / "whole")
    assert not go(*settings, dataset=tmp_path / "data", out=tmp_path / "resumed", stop_at=3)[0]
    go(*settings, dataset=tmp_path / "data", out=tmp_path / "resumed")
    whole, resumed = (tensors_of(tmp_path / name) for name in ("whole", "resumed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    go(*changes, "training.max_steps=6", dataset=tmp_path / "data", out=tmp_path / "unguided")
    unguided = tensors_of(tmp_path / "unguided")
    assert not all(torch.equal(whole[name], unguided[name]) for name in whole)


def test_a_dataset_without_links_between_words_is_refused_only_if_they_are_needed(
    go: Go, complaint: Complaint, aligned: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(aligned, old)
    manifest = {
        key: value
        for key, value in json.loads((old / "dataset.json").read_text()).items()
        if key not in ("format", "files")
    }
    for path in (*old.glob("train.word_links.*"), old / "dataset.json"):
        path.unlink()
    write_manifest(old, manifest)
    go(GUIDED, dataset=old, out=tmp_path / "run")
    assert complaint(GUIDED, "augment.typos=0.1", dataset=old) == (
        f"{old} was made by an older version, without the links between words that "
        "training.guided_alignment needs if [sampling] or [augment] changes the text. Make it again."
    )


def test_the_guided_head_learns_the_alignments(go: Go, aligned: Path, split: Split, tmp_path: Path) -> None:
    schedule = ("schedule.kind=constant", "schedule.peak=0.01", "schedule.warmup=0", "training.max_steps=60")
    part, shares = assemble(split, PAIRS), []
    assert part.links is not None
    for weight in (0, 1):
        out = tmp_path / str(weight)
        go(f"training.guided_alignment={weight}", *schedule, dataset=aligned, out=out)
        model = read_model(find_model(out)).transformer
        sources, targets = (
            [tokens[side].tolist()[:-1] for side in layout.slices()]
            for tokens, layout in ((part.source_tokens, part.source), (part.target_tokens, part.target))
        )
        weights = [
            pair.cross[-1, GUIDED_HEAD]
            for pair in attention_maps(model, [*zip(sources, targets, strict=True)])
        ]
        linked = [
            weights[int(part.target.segments[t])][part.target.positions[t], part.source.positions[s]].item()
            for t, s in part.links.T.tolist()
        ]
        shares.append(sum(linked) / len({*part.links[0].tolist()}))
    assert shares[1] > 2 * shares[0]


def test_guided_alignment_needs_alignments_that_fit(complaint: Complaint, aligned: Path) -> None:
    assert complaint(GUIDED).endswith(
        " has no alignments for training.guided_alignment. Make it again with --set corpus.align=true."
    )
