"""Decoding step by step: what it gives, what it keeps, and what the rows of a beam share."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.model import cache as cache_module
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout

Batch = tuple[Tensor, Tensor, Layout, Layout]

POST = ModelConfig(encoder_layers=2, decoder_layers=2, width=16, feed_forward=24, heads=4)
CONFIGS = {
    "post": POST,
    "pre": replace(POST, norm="pre", activation="gelu"),
    "learned": replace(POST, positions="learned", longest=40, tie="none"),
    "window": replace(POST, encoder_window=3, decoder_window=4),
    "narrow window": replace(POST, norm="pre", decoder_window=1),
    "widths apart": replace(POST, key_width=8, value_width=12, attention_bias=True),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room in blocks of three tokens, so that a few of them cross a border."""
    monkeypatch.setattr(cache_module, "BLOCK", 3)


def stepped(model: Transformer, rows: Sequence[Tensor], cache: DecodingCache) -> list[Tensor]:
    """The logits [tokens of a row, V] of each row of the same length, fed one token after another."""
    steps = []
    for tokens_R in torch.stack(list(rows)).T:
        longest = int(cache.lengths.max()) + 1
        steps.append(model.logits(model.step(tokens_R, cache, longest)))
    return list(torch.stack(steps, dim=1)) if steps else []


def forced(model: Transformer, source_S: Tensor, source: Layout, rows: Sequence[Tensor]) -> list[Tensor]:
    """The same by teacher forcing; the rows of a sentence are neighbours."""
    siblings = len(rows) // len(source.lengths)
    parts = [source_S[part] for part in source.slices() for _ in range(siblings)]
    again, target = Layout.of([len(part) for part in parts]), Layout.of([len(row) for row in rows])
    logits = model.logits(model(torch.cat(parts), torch.cat(list(rows)), again, target))
    return [logits[part] for part in target.slices()]


def ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(40, shape, generator=torch.Generator().manual_seed(seed))


def assert_alike(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-5


@pytest.mark.parametrize("name", CONFIGS)
@given(
    sources=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    siblings=st.integers(1, 3),
    count=st.integers(1, 11),
    seed=st.integers(0, 1000),
)
@settings(max_examples=12)
@torch.no_grad()
def test_step_by_step_gives_the_logits_of_teacher_forcing(
    name: str,
    sources: list[int],
    siblings: int,
    count: int,
    seed: int,
    build: Callable[..., Transformer],
    batch: Callable[..., Batch],
) -> None:
    model = build(CONFIGS[name])
    source_S, _, source, _ = batch(sources, [], seed)
    rows = list(ids(len(sources) * siblings, count, seed=seed))
    cache = model.start(model.encode(source_S, source), source, siblings)
    assert_alike(stepped(model, rows, cache), forced(model, source_S, source, rows))


@pytest.mark.parametrize("name", CONFIGS)
@given(
    order=st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=2, max_size=2),
    before=st.integers(1, 7),
    behind=st.integers(1, 4),
)
@settings(max_examples=12)
@torch.no_grad()
def test_reordered_siblings_go_on_as_if_they_had_begun_so(
    name: str,
    order: list[list[int]],
    before: int,
    behind: int,
    build: Callable[..., Transformer],
    batch: Callable[..., Batch],
) -> None:
    model = build(CONFIGS[name])
    source_S, _, source, _ = batch([4, 6], [])
    prefixes, ends = ids(6, before, seed=before), ids(6, behind, seed=99)
    kept = torch.tensor([3 * sentence + row for sentence, chosen in enumerate(order) for row in chosen])
    cache = model.start(model.encode(source_S, source), source, 3)
    stepped(model, list(prefixes), cache)
    cache.take(kept)
    found = stepped(model, list(ends), cache)
    wanted = forced(model, source_S, source, list(torch.cat([prefixes[kept], ends], dim=1)))
    assert_alike(found, [row[before:] for row in wanted])


@pytest.mark.parametrize("kept", [[0, 1, 2, 3], [1, 0, 3, 3]], ids=["as they were", "reordered"])
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_rows_of_different_lengths_take_a_step_together(
    name: str, kept: list[int], build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    """Each row stands where its own tokens end; rows are wound back here to 1, 7, 4 and 2 of 7 tokens."""
    model = build(CONFIGS[name])
    source_S, _, source, _ = batch([5, 2], [])
    rows, ends, lengths = list(ids(4, 7)), list(ids(4, 3, seed=5)), [1, 7, 4, 2]
    cache = model.start(model.encode(source_S, source), source, 2)
    stepped(model, rows, cache)
    cache.lengths.copy_(torch.tensor(lengths))
    cache.take(torch.tensor(kept))
    found = stepped(model, ends, cache)
    whole = [torch.cat([rows[row][: lengths[row]], end]) for row, end in zip(kept, ends, strict=True)]
    wanted = forced(model, source_S, source, whole)
    assert_alike(found, [logits[-3:] for logits in wanted])
    assert cache.lengths.tolist() == [lengths[row] + 3 for row in kept]


@torch.no_grad()
def test_siblings_share_the_keys_and_values_of_their_source(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model = build(POST)
    source_S, _, source, _ = batch([5, 2], [])

    def held(siblings: int) -> list[int]:
        cache = model.start(model.encode(source_S, source), source, siblings)
        stepped(model, list(ids(2 * siblings, 4)), cache)
        cache.take(torch.arange(2 * siblings))
        shared = [tensor for _, part in cache.layers for tensor in (part.keys, part.values, part.seen)]
        return [tensor.untyped_storage().nbytes() for tensor in shared]

    assert held(1) == held(8)
    assert held(1)[0] == 2 * 4 * 5 * 4 * 4  # sentences, heads, longest, channels, bytes


@torch.no_grad()
def test_sentences_do_not_disturb_each_other_step_by_step(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model, rows = build(POST), list(ids(3, 8))
    source_S, _, source, _ = batch([9, 1, 4], [])
    together = stepped(model, rows, model.start(model.encode(source_S, source), source, 1))
    alone = []
    for row, part in zip(rows, source.slices(), strict=True):
        layout = Layout.of([part.stop - part.start])
        cache = model.start(model.encode(source_S[part], layout), layout, 1)
        alone += stepped(model, [row], cache)
    assert_alike(together, alone)


@pytest.mark.parametrize("sources", [[3, 0, 2], [0, 0, 0]], ids=["one of three", "all"])
@torch.no_grad()
def test_a_source_without_tokens_gives_the_logits_of_teacher_forcing_too(
    sources: list[int], build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model, rows = build(POST), list(ids(6, 5))
    source_S, _, source, _ = batch(sources, [])
    cache = model.start(model.encode(source_S, source), source, 2)
    found = stepped(model, rows, cache)
    assert all(row.isfinite().all() for row in found)
    assert_alike(found, forced(model, source_S, source, rows))


@torch.no_grad()
def test_room_grows_in_blocks_and_only_when_it_is_needed(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model = build(POST)
    source_S, _, source, _ = batch([3], [])
    cache = model.start(model.encode(source_S, source), source, 1)
    room = []
    for tokens_R in ids(10, 1):
        model.step(tokens_R, cache, int(cache.lengths.max()) + 1)
        room.append(cache.layers[0][0].keys.shape[2])
    assert all(have % 3 == 0 and 0 <= have - needed <= 3 for needed, have in enumerate(room, start=1))


@torch.no_grad()
def test_more_room_than_needed_changes_nothing(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model, rows = build(POST), list(ids(2, 4))
    source_S, _, source, _ = batch([3, 5], [])
    tight, wide = (model.start(model.encode(source_S, source), source, 1) for _ in range(2))
    wide.make_room(30)
    assert_alike(stepped(model, rows, wide), stepped(model, rows, tight))


@torch.no_grad()
def test_a_step_under_bfloat16_autocast_errs_no_more_than_twice_as_teacher_forcing_does(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model, rows = build(POST), list(ids(4, 9))
    source_S, _, source, _ = batch([7, 4], [])
    exact = torch.cat(forced(model, source_S, source, rows))
    with torch.autocast("cpu", torch.bfloat16):
        plain = torch.cat(forced(model, source_S, source, rows))
        cache = model.start(model.encode(source_S, source), source, 2)
        found = torch.cat(stepped(model, rows, cache))
    assert (found - exact).norm() <= 2 * (plain - exact).norm()
