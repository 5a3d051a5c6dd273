"""Greedy search against the argmax of a whole forward for each prefix."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from nmt_cli.decoding.greedy import CAP, greedy
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.subwords import END

VOCABULARY = 12
CONFIG = ModelConfig(
    encoder_layers=1, decoder_layers=2, width=16, heads=2, feed_forward=32, norm="pre", tie="none"
)
NOTHING = torch.tensor([], dtype=torch.int64)
SOURCES = [[5, 3, 8, END], [2, END], [7, 7, 4, 9, 10, 11, 3, END], [6, 1, END]]


@pytest.fixture(scope="module")
def build() -> Callable[..., Transformer]:
    """A model that ends its translations the sooner, the larger `end` is."""

    def build(end: float) -> Transformer:
        torch.manual_seed(3)
        model = Transformer(CONFIG, VOCABULARY, VOCABULARY, joint=True)
        last = model.decoder_norm
        assert isinstance(last, torch.nn.LayerNorm)
        last.bias.data[0] = 4.0
        model.output_matrix.data[:, 0] = 0.0
        model.output_matrix.data[END, 0] = end
        return model.eval()

    return build


def flat(sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Layout]:
    tokens = [token for sentence in sentences for token in sentence]
    return torch.tensor(tokens, dtype=torch.int64), Layout.of([len(sentence) for sentence in sentences])


@torch.no_grad()
def by_whole_forwards(model: Transformer, source: Sequence[int], banned: Tensor) -> list[int]:
    """One sentence, every prefix run through the model from its beginning."""
    found: list[int] = []
    while len(found) < len(source) + CAP:
        inputs = [END, *found]
        source_tokens, source_layout = flat([source])
        decoded = model(source_tokens, torch.tensor(inputs), source_layout, Layout.of([len(inputs)]))
        logits = model.logits(decoded)[-1]
        logits[banned] = -torch.inf
        if (token := int(logits.argmax())) == END:
            break
        found.append(token)
    return found


@pytest.mark.parametrize("banned", [NOTHING, torch.tensor([1, 4])], ids=["nothing banned", "two banned"])
@pytest.mark.parametrize("end", [0.3, 0.42, 2.0], ids="end {}".format)
def test_each_token_is_the_likeliest_after_those_before_it(
    build: Callable[..., Transformer], end: float, banned: Tensor
) -> None:
    model = build(end)
    found = greedy(model, *flat(SOURCES), banned)
    assert found == [by_whole_forwards(model, source, banned) for source in SOURCES]
    assert not {END, *banned.tolist()} & {token for row in found for token in row}


def test_a_translation_ends_fifty_tokens_behind_the_length_of_its_source(
    build: Callable[..., Transformer],
) -> None:
    sources = [*SOURCES, [5] * 60 + [END]]
    found = greedy(build(-9.0), *flat(sources), NOTHING)
    assert [len(row) for row in found] == [len(source) + 50 for source in sources]


def test_what_never_may_be_said_is_not_said(build: Callable[..., Transformer]) -> None:
    model = build(-9.0)
    everything = set(range(1, VOCABULARY))
    said = {token for row in greedy(model, *flat(SOURCES), NOTHING) for token in row}
    assert said
    remaining = {token for row in greedy(model, *flat(SOURCES), torch.tensor(sorted(said))) for token in row}
    assert remaining
    assert remaining <= everything - said


def test_a_translation_may_be_empty_and_so_may_a_source(
    build: Callable[..., Transformer],
) -> None:
    sources = [[END], [3, END], [END]]
    assert greedy(build(9.0), *flat(sources), NOTHING) == [[], [], []]
    talkative = build(-9.0)
    found = greedy(talkative, *flat(sources), NOTHING)
    assert found == [by_whole_forwards(talkative, source, NOTHING) for source in sources]
