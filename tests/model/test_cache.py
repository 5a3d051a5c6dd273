"""Decoding step by step: what it gives, what it keeps, and what the rows of a beam share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.attention import dispatch
from nmt_cli.attention.cached import kernels
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
    "ssru": replace(POST, decoder_history="ssru"),
    "widths apart": replace(POST, key_width=8, value_width=12, attention_bias=True),
}


@pytest.fixture(autouse=True, params=[kernels, lambda: None], ids=["compiled", "plain"])
def small_blocks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Room for three steps and attention of two sentences at a time, so that a few of them cross a border."""
    monkeypatch.setattr(cache_module, "FIRST_STEPS", 3)
    monkeypatch.setattr(cache_module, "NODES_ROUNDED_TO", 2)
    monkeypatch.setattr(dispatch, "PART", {"cpu": 2})
    monkeypatch.setattr(dispatch, "kernels", request.param)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what is compiled is for one
    yield
    torch.set_num_threads(threads)


def stepped(
    model: Transformer, rows: Sequence[Tensor], cache: DecodingCache, places: Sequence[int] | None = None
) -> list[Tensor]:
    """The logits [tokens of a row, V] of each row of the same length, fed one token after another; rows
    stand at `places`, or fill them all."""
    standing = torch.arange(len(rows)) if places is None else torch.tensor(places)
    steps = []
    for tokens_R in torch.stack(list(rows)).T:
        longest = int(cache.ages.max()) + 1
        steps.append(model.logits(model.step(tokens_R, standing, cache, longest)))
    return list(torch.stack(steps, dim=1)) if steps else []


def follow(cache: DecodingCache, parents: Sequence[Sequence[int]]) -> None:
    """Let each place go on from its parent; -1 for a place that is in use no more."""
    chosen = torch.tensor(parents)
    cache.reorder(chosen.clamp(min=0), chosen >= 0)


def forced(model: Transformer, source_S: Tensor, source: Layout, rows: Sequence[Tensor]) -> list[Tensor]:
    """The same by teacher forcing; the rows of a sentence are neighbours. A row's first token stands for the
    start, whichever it is, and what the last one foretells is not looked at by anyone."""
    siblings = len(rows) // len(source.lengths)
    parts = [source_S[part] for part in source.slices() for _ in range(siblings)]
    again, target = Layout.of([len(part) for part in parts]), Layout.of([len(row) for row in rows])
    logits = model.logits(model(torch.cat(parts), torch.cat([row.roll(-1) for row in rows]), again, target))
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
@settings(max_examples=8)
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
    cache = model.begin(source_S, source, siblings)
    assert_alike(stepped(model, rows, cache), forced(model, source_S, source, rows))


@pytest.mark.parametrize("name", CONFIGS)
@given(data=st.data(), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3))
@settings(max_examples=8)
@torch.no_grad()
def test_any_sequence_of_reordering_leaving_and_joining_gives_the_logits_of_teacher_forcing(
    name: str,
    data: st.DataObject,
    lengths: list[int],
    build: Callable[..., Transformer],
    batch: Callable[..., Batch],
) -> None:
    """Hypotheses are kept as plain lists beside the cache, and run through a whole forward at each step."""
    model, places = build(CONFIGS[name]), 3
    source_S, _, source, _ = batch(lengths, [])
    sources = [source_S[part] for part in source.slices()]
    cache = model.begin(source_S, source, places)
    texts: list[list[list[int] | None]] = [[[], None, None] for _ in sources]
    for number in range(data.draw(st.integers(1, 9))):
        use = [(b, n) for b, some in enumerate(texts) for n, text in enumerate(some) if text is not None]
        tokens = ids(len(use), seed=number)
        rows = torch.tensor([b * places + n for b, n in use])
        found = model.logits(model.step(tokens, rows, cache, int(cache.ages.max()) + 1))
        for (b, n), token in zip(use, tokens.tolist(), strict=True):
            texts[b][n] = [*(texts[b][n] or []), token]
        wanted = [
            forced(model, sources[b], Layout.of([len(sources[b])]), [torch.tensor(texts[b][n])])[0][-1]
            for b, n in use
        ]
        assert_alike(list(found), wanted)
        parents = []
        for some in texts:
            standing = [n for n, text in enumerate(some) if text is not None]
            chosen = data.draw(st.lists(st.sampled_from([-1, *standing]), min_size=places, max_size=places))
            parents.append(chosen if any(n >= 0 for n in chosen) else [standing[0], -1, -1])
        follow(cache, parents)
        texts = [
            [some[n] if n >= 0 else None for n in chosen] for some, chosen in zip(texts, parents, strict=True)
        ]
        staying = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1))))
        texts, sources = [texts[b] for b in staying], [sources[b] for b in staying]
        others = None
        if data.draw(st.booleans()) or not texts:
            new_S, _, new, _ = batch([data.draw(st.integers(1, 9))], [], number)
            others = model.begin(new_S, new, places)
            texts, sources = [*texts, [[], None, None]], [*sources, new_S]
        cache.compact(torch.tensor(staying, dtype=torch.int64), others)


@torch.no_grad()
def test_hypotheses_of_a_sentence_share_the_keys_and_values_of_its_source(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model = build(POST)
    source_S, _, source, _ = batch([5, 2], [])

    def held(siblings: int) -> list[int]:
        cache = model.begin(source_S, source, siblings)
        stepped(model, list(ids(2 * siblings, 4)), cache)
        follow(cache, [list(range(siblings))] * 2)
        shared = [tensor for part in cache.layers for tensor in (part.source_keys, part.source_values)]
        return [tensor.untyped_storage().nbytes() for tensor in shared]

    assert held(1) == held(8)
    assert held(1)[0] == 2 * 4 * 5 * 4 * 4  # sentences, heads, longest, channels, bytes


@pytest.mark.parametrize("sources", [[3, 0, 2], [0, 0, 0]], ids=["one of three", "all"])
@torch.no_grad()
def test_an_empty_source_gives_the_logits_of_teacher_forcing(
    sources: list[int], build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model, rows = build(POST), list(ids(6, 5))
    source_S, _, source, _ = batch(sources, [])
    cache = model.begin(source_S, source, 2)
    found = stepped(model, rows, cache)
    assert all(row.isfinite().all() for row in found)
    assert_alike(found, forced(model, source_S, source, rows))


@torch.no_grad()
def test_a_token_that_hypotheses_share_is_stored_once(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    """Four hypotheses that part only at their last token: as many nodes as tokens, and three more."""
    model = build(POST)
    source_S, _, source, _ = batch([3], [])
    cache = model.begin(source_S, source, 4)
    for token in range(20):
        stepped(model, list(ids(1, 1, seed=token)), cache, [0])
        follow(cache, [[0, -1, -1, -1]])
    follow(cache, [[0, 0, 0, 0]])
    stepped(model, list(ids(4, 1)), cache)
    cache.compact(torch.tensor([0]))
    assert cache.used == 20 + 4


@torch.no_grad()
def test_nodes_of_dropped_hypotheses_are_reused(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model = build(POST)
    source_S, _, source, _ = batch([3], [])
    cache = model.begin(source_S, source, 2)
    room, used = [], []
    for number in range(120):
        stepped(model, list(ids(2, 1, seed=number)), cache)
        follow(cache, [[0, 0]])
        room.append(cache.layers[0].own_keys.shape[2])
        used.append(cache.used)
    assert max(room) <= 120 + 2 * (cache_module.MORE_STEPS_ALONE + 1)
    assert all(nodes <= tokens + 2 + cache_module.NODES_ROUNDED_TO for tokens, nodes in enumerate(used))


@torch.no_grad()
def test_the_content_of_an_unused_slot_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    """Nothing clears the memory of such a place; here it has the worst that memory can have."""
    empty = Tensor.new_empty
    monkeypatch.setattr(Tensor, "new_empty", lambda self, *shape: empty(self, *shape).fill_(torch.nan))
    model, rows = build(POST), list(ids(3, 6))
    source_S, _, source, _ = batch([4, 2, 5], [])
    cache = model.begin(source_S, source, 2)
    found = stepped(model, rows, cache, [0, 3, 4])
    assert_alike(found, forced(model, source_S, source, rows))


@torch.no_grad()
def test_steps_under_bfloat16_autocast_have_at_most_twice_the_error_of_teacher_forcing(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model, rows = build(POST), list(ids(4, 9))
    source_S, _, source, _ = batch([7, 4], [])
    exact = torch.cat(forced(model, source_S, source, rows))
    with torch.autocast("cpu", torch.bfloat16):
        plain = torch.cat(forced(model, source_S, source, rows))
        cache = model.begin(source_S, source, 2)
        found = torch.cat(stepped(model, rows, cache))
    assert (found - exact).norm() <= 2 * (plain - exact).norm()
