"""Starting from another model: copied, refused and frozen parameters."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from subword_nmt.apply_bpe import BPE

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.text.tokenizer import SIDES
from nmt_cli.text.tokenizers import load_tokenizers
from tests.checks import differing, refusal
from tests.training.runs import Complaint, Go, lines_of, notes, tensors_of

STILL = ("schedule.kind=constant", "schedule.warmup=0", "schedule.peak=1e-30", "training.max_steps=1")
"""A step that changes nothing."""


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parent") / "run"


@pytest.fixture
def init(go: Go, parent: Path) -> Go:
    """Return `go` with the setting to start from `parent`, a run of the tiny model."""
    if not parent.exists():
        go("training.seed=5", out=parent)
    return partial(go, f'start.model="{parent}"')


def test_a_run_starts_with_the_weights_of_the_model(
    go: Go, init: Go, parent: Path, run: Path, tmp_path: Path
) -> None:
    _, events = init(*STILL)
    assert notes(events)[0] == f"starting from {parent / 'last'} (26 of 26 parameters by name)"
    assert not differing(tensors_of(run), tensors_of(parent))
    go(*STILL, out=tmp_path / "random")
    assert differing(tensors_of(tmp_path / "random"), tensors_of(parent))


def test_optimiser_steps_and_data_start_from_scratch(init: Go, run: Path) -> None:
    init()
    assert [(line["step"], line["epoch"]) for line in lines_of(run)] == [(n, 0) for n in range(1, 5)]
    optimizer = tensors_of(run, "optimizer")
    assert {float(tensor) for name, tensor in optimizer.items() if name.endswith(".step")} == {4.0}


def test_the_moving_average_is_copied_if_there_is_one(go: Go, run: Path, tmp_path: Path) -> None:
    go("optimizer.ema=0.5", out=tmp_path / "averaged")
    go(f'start.model="{tmp_path}/averaged"', *STILL)
    assert not differing(tensors_of(run), tensors_of(tmp_path / "averaged", "ema"))


def test_resuming_does_not_need_the_parent_model(go: Go, run: Path, tmp_path: Path) -> None:
    go(out=tmp_path / "model")
    settings = f'start.model="{tmp_path}/model"'
    go(settings, "training.max_steps=2")
    go(settings, out=tmp_path / "whole")
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    go(settings)
    assert not differing(tensors_of(run), tensors_of(tmp_path / "whole"))


DEEPER, WIDER, UNTIED = "model.encoder_layers=2", "model.feed_forward=48", "model.tie=decoder"


@pytest.mark.parametrize(
    ("setting", "problems"),
    [
        (DEEPER, ["encoder.1.attention.output.weight is missing", "; and 7 more. Use its [model] "]),
        (WIDER, ["encoder.0.feed_forward.inner.weight is [32, 16], not [48, 16]"]),
        (UNTIED, ["is not this model: source_embedding.matrix is missing. Use its [model] "]),
        ("model.norm=pre", ["is another kind of model: norm is post there, but pre here. "]),
        ("model.window=3", ["is another kind of model: window is 0 there, but 3 here. "]),
        ("model.norm_epsilon=1e-5", ["is another kind of model: norm_epsilon is 1e-06 there, but 1e-05 "]),
        ("model.heads=4", ["is another kind of model: heads is 2 there, but 4 here; d_k is 8 there, but 4 "]),
    ],
)
def test_differences_are_listed_and_refused(init: Go, run: Path, setting: str, problems: list[str]) -> None:
    message = refusal(init, setting)
    assert [problem for problem in problems if problem not in message] == []
    assert checkpoints(run) == {}


def test_a_surplus_is_refused_too(go: Go, complaint: Complaint, tmp_path: Path) -> None:
    go(DEEPER, out=tmp_path / "deep")
    message = complaint(f'start.model="{tmp_path}/deep"')
    assert message.count(" is surplus") == 3
    assert "encoder.1.after_attention.norm.bias is surplus" in message and "; and 7 more." in message
    settings = Path(message.partition(" is not")[0]) / "train.toml"
    settings.touch()
    assert f"Use --config {settings}." in complaint(f'start.model="{tmp_path}/deep"')


def spelt(entry: str, merges: BPE) -> list[str]:
    """Return the pieces of an entry by subword-nmt, as a part of a longer word if it ends with @@."""
    word = entry.removesuffix("@@")
    pieces: list[str] = merges.segment_tokens([f"{word}|" if word != entry else word])
    return pieces[:-1] if word != entry else pieces


@pytest.mark.slow
@pytest.mark.parametrize("tie", ["all", "decoder"])
def test_entries_start_as_their_rows_or_pieces_in_a_model_with_another_vocabulary(
    go: Go, tmp_path: Path, make: Callable[..., Outcome], toy: str, tie: str
) -> None:
    joint = "true" if tie == "all" else "false"
    datasets = {}
    for size in (40, 60):
        datasets[size] = tmp_path / f"data-{size}"
        settings = ("tokenizer.kind=bpe", f"tokenizer.vocab_size={size}", f"tokenizer.joint={joint}")
        make(datasets[size], [toy], *settings)
    parent, child = tmp_path / "parent", tmp_path / "child"
    tied = f"model.tie={tie}"
    go("training.seed=5", tied, dataset=datasets[40], out=parent)
    _, events = go(f'start.model="{parent}"', *STILL, tied, dataset=datasets[60], out=child)
    before, after = tensors_of(parent), tensors_of(child)
    assert all(name.endswith("matrix") for name in differing(after, before))
    (note,) = (text for text in notes(events) if text.startswith("starting from"))
    for side in SIDES[1:] if tie == "all" else SIDES:
        entries, parent_entries = (
            load_tokenizers(datasets[size] / "tokenizer").side(side).vocabulary.entries for size in (60, 40)
        )
        name = "source_embedding.matrix" if side == "source" else "output_matrix"
        shared = [entry for entry in entries if entry and entry in parent_entries]
        codes = load_tokenizers(datasets[40] / "tokenizer").files[
            f"{'joint' if tie == 'all' else side}.codes"
        ]
        merges = BPE(io.StringIO(codes.decode()))
        for i, entry in enumerate(entries):
            # Each longer piece of the child is a merge of the parent's pieces, and padding is zeros.
            parts = [entry] if entry in shared else spelt(entry, merges)
            rows = before[name][[parent_entries.index(part) for part in parts if part]]
            expected = rows.mean(0) if entry else torch.zeros_like(after[name][i])
            torch.testing.assert_close(after[name][i], expected, rtol=0, atol=1e-6)
        assert 2 < len(shared) < sum(map(bool, entries))
        assert f"{len(shared)} of {sum(map(bool, entries))} " in note


def test_a_model_is_needed(complaint: Complaint, tmp_path: Path) -> None:
    assert "is not a model: " in complaint(f'start.model="{tmp_path}"')
    assert "take has no effect without a model to start from" in complaint('start.take=["data"]')


FREEZING = 'start.freeze=["encoder.*", "source_embedding.matrix"]'


@pytest.mark.parametrize("kind", ["adam", "adamw", "muon"])
def test_frozen_parameters_stay_and_the_others_are_trained(
    init: Go, parent: Path, run: Path, kind: str
) -> None:
    decay = () if kind == "adam" else ("optimizer.weight_decay=0.1",)
    _, events = init(FREEZING, f"optimizer.kind={kind}", *decay)
    before, after = tensors_of(parent), tensors_of(run)
    frozen = {name for name in after if name.startswith("encoder.") or name == "output_matrix"}
    assert differing(after, before) == after.keys() - frozen
    count, total = (sum(after[name].numel() for name in names) for names in (frozen, after))
    note = f"frozen: {count:,} of {total:,} parameters (encoder.*, source_embedding.matrix)"
    assert note in notes(events)
    assert 0 < count < total


def test_frozen_parameters_do_not_count_in_the_gradient_norm(init: Go, tmp_path: Path) -> None:
    init(FREEZING, *STILL, out=tmp_path / "frozen")
    init(*STILL, out=tmp_path / "free")
    (frozen,), (free,) = (lines_of(tmp_path / name) for name in ("frozen", "free"))
    assert frozen["loss"] == free["loss"]
    assert 0 < frozen["gradient_norm"] < free["gradient_norm"]


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        ('["encodr.*"]', "start.freeze: no parameter is named encodr.*: "),
        ('["encoder.*", "encoder_norm.*"]', "start.freeze: no parameter is named encoder_norm.*: "),
        ('["*"]', "start.freeze names all parameters, so there is nothing left to train."),
    ],
)
def test_a_pattern_that_freezes_nothing_or_everything_is_refused(
    init: Go, patterns: str, problem: str
) -> None:
    assert problem in refusal(init, f"start.freeze={patterns}")
