"""Step-by-step decoding: results, memory, and the values that hypotheses of a sentence share."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.attention import attention
from nmt_cli.model import cache as cache_module
from nmt_cli.model import token_tree
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
    "window": replace(POST, window=4),
    "narrow window": replace(POST, norm="pre", window=1),
    "ssru": replace(POST, decoder_history="ssru"),
    "widths apart": replace(POST, key_width=8, value_width=12, attention_bias=True),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reserve memory for 3 steps, and attend to 2 sentences at a time, so short tests exceed both."""
    monkeypatch.setattr(cache_module, "FIRST_STEPS", 3)
    monkeypatch.setattr(token_tree, "NODES_ROUNDED_TO", 2)
    monkeypatch.setattr(attention, "PART", {"cpu": 2})


def stepped(
    model: Transformer, rows: Sequence[Tensor], cache: DecodingCache, slots: Sequence[int] | None = None
) -> list[Tensor]:
    """Return the logits [tokens of a row, V] of each row, fed token by token.

    All rows have the same length. They are in `slots`, or in all slots.
    """
    row_numbers = torch.arange(len(rows)) if slots is None else torch.tensor(slots)
    steps = []
    for tokens_R in torch.stack(list(rows)).T:
        longest = int(cache.ages.max()) + 1
        steps.append(model.logits(model.step(tokens_R, row_numbers, cache, longest)))
    return list(torch.stack(steps, dim=1)) if steps else []


def follow(cache: DecodingCache, parents: Sequence[Sequence[int]]) -> None:
    """Replace the hypothesis of each slot by its parent's. The parent -1 makes a slot free."""
    chosen = torch.tensor(parents)
    cache.reorder(chosen.clamp(min=0), chosen >= 0)


def forced(model: Transformer, source_S: Tensor, source: Layout, rows: Sequence[Tensor]) -> list[Tensor]:
    """Return the same by teacher forcing, for adjacent rows of a sentence.

    The first token of a row is replaced by the start token. The prediction after the last token is not used.
    """
    siblings = len(rows) // len(source.lengths)
    parts = [source_S[part] for part in source.slices() for _ in range(siblings)]
    again, target = Layout.of([len(part) for part in parts]), Layout.of([len(row) for row in rows])
    logits = model.logits(model(torch.cat(parts), torch.cat([row.roll(-1) for row in rows]), again, target))
    return [logits[part] for part in target.slices()]


def ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(40, shape, generator=torch.Generator().manual_seed(seed))


def assert_alike(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-4


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
    """Compare the cache with plain lists of hypotheses, which are passed through a forward at each step."""
    model, slots = build(CONFIGS[name]), 3
    source_S, _, source, _ = batch(lengths, [])
    sources = [source_S[part] for part in source.slices()]
    cache = model.begin(source_S, source, slots)
    texts: list[list[list[int] | None]] = [[[], None, None] for _ in sources]
    for number in range(data.draw(st.integers(1, 9))):
        use = [
            (b, n)
            for b, hypotheses in enumerate(texts)
            for n, text in enumerate(hypotheses)
            if text is not None
        ]
        tokens = ids(len(use), seed=number)
        rows = torch.tensor([b * slots + n for b, n in use])
        actual = model.logits(model.step(tokens, rows, cache, int(cache.ages.max()) + 1))
        for (b, n), token in zip(use, tokens.tolist(), strict=True):
            texts[b][n] = [*(texts[b][n] or []), token]
        expected = [
            forced(model, sources[b], Layout.of([len(sources[b])]), [torch.tensor(texts[b][n])])[0][-1]
            for b, n in use
        ]
        assert_alike(list(actual), expected)
        parents = []
        for hypotheses in texts:
            live = [n for n, text in enumerate(hypotheses) if text is not None]
            chosen = data.draw(st.lists(st.sampled_from([-1, *live]), min_size=slots, max_size=slots))
            parents.append(chosen if any(n >= 0 for n in chosen) else [live[0], -1, -1])
        follow(cache, parents)
        texts = [
            [hypotheses[n] if n >= 0 else None for n in chosen]
            for hypotheses, chosen in zip(texts, parents, strict=True)
        ]
        staying = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1))))
        texts, sources = [texts[b] for b in staying], [sources[b] for b in staying]
        joining = None
        if data.draw(st.booleans()) or not texts:
            new_S, _, new, _ = batch([data.draw(st.integers(1, 9))], [], number)
            joining = model.begin(new_S, new, slots)
            texts, sources = [*texts, [[], None, None]], [*sources, new_S]
        cache.compact(torch.tensor(staying, dtype=torch.int64), joining)


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
    actual = stepped(model, rows, cache)
    assert all(row.isfinite().all() for row in actual)
    assert_alike(actual, forced(model, source_S, source, rows))


@torch.no_grad()
def test_a_token_that_hypotheses_share_is_stored_once(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    """Four hypotheses that differ only in their last token need one node per token, and three more."""
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
    capacity, used = [], []
    for number in range(120):
        stepped(model, list(ids(2, 1, seed=number)), cache)
        follow(cache, [[0, 0]])
        capacity.append(cache.layers[0].own_keys.shape[2])
        used.append(cache.used)
    assert max(capacity) <= 120 + 2 * (token_tree.MORE_STEPS_ALONE + 1)
    assert all(nodes <= tokens + 2 + token_tree.NODES_ROUNDED_TO for tokens, nodes in enumerate(used))


@torch.no_grad()
def test_the_content_of_an_unused_slot_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    """Fill new memory with nan, as nothing clears the memory of an unused slot."""
    empty = Tensor.new_empty
    monkeypatch.setattr(Tensor, "new_empty", lambda self, *shape: empty(self, *shape).fill_(torch.nan))
    model, rows = build(POST), list(ids(3, 6))
    source_S, _, source, _ = batch([4, 2, 5], [])
    cache = model.begin(source_S, source, 2)
    actual = stepped(model, rows, cache, [0, 3, 4])
    assert_alike(actual, forced(model, source_S, source, rows))


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
        actual = torch.cat(stepped(model, rows, cache))
    assert (actual - exact).norm() <= 2 * (plain - exact).norm()
