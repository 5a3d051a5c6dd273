"""Embeddings and their dropout, sinusoidal positions for any length, and learned ones for a fixed number."""

import math
from dataclasses import replace

import pytest
import torch

from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import (
    FIRST_ROWS,
    Embedding,
    LearnedPositions,
    Sinusoids,
    embedding_matrix,
    sinusoids,
)
from nmt_cli.model.keyed_dropout import dropout
from nmt_cli.ragged import Layout
from tests.model.models import model_of

CONFIG = ModelConfig(width=64, residual_dropout=0.0)


def test_embeddings_have_a_standard_deviation_of_one_over_the_root_of_the_width() -> None:
    """Xavier over the whole matrix would give 0.007 for 37,000 subwords and a width of 512."""
    matrix = embedding_matrix(2000, 512).detach()
    assert float(matrix.std()) == pytest.approx(512**-0.5, rel=0.01)
    assert float(matrix.mean()) == pytest.approx(0, abs=1e-3)
    assert float(matrix.abs().max()) > 4 * 512**-0.5  # normal, not uniform


def test_an_embedding_is_scaled_by_the_root_of_the_width_before_its_position_is_added() -> None:
    embedding = Embedding(CONFIG, embedding_matrix(10, 64)).eval()
    actual = embedding(torch.tensor([3, 7, 3]), torch.tensor([0, 1, 5]), 6)
    expected = embedding.matrix[[3, 7, 3]] * 8 + sinusoids(6, 64)[[0, 1, 5]]
    assert torch.equal(actual, expected)


def test_ids_of_any_shape_are_embedded() -> None:
    embedding = Embedding(CONFIG, embedding_matrix(10, 64)).eval()
    ids, positions = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.arange(3).expand(2, 3)
    assert embedding(ids, positions, 3).shape == (2, 3, 64)
    assert torch.equal(embedding(ids, positions, 3)[1], embedding(ids[1], positions[1], 3))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_dropout_applies_to_the_sum_of_embedding_and_position(positions: str) -> None:
    learned = replace(CONFIG, positions="learned")
    config = replace(learned if positions == "learned" else CONFIG, residual_dropout=0.4)
    embedding = Embedding(config, embedding_matrix(10, 64))
    ids, indices = torch.tensor([1, 2, 3, 4]), torch.arange(4)
    expected = embedding.eval()(ids, indices, 4)
    torch.manual_seed(5)
    layout = Layout.of([4])
    actual = embedding.train()(ids, indices, 4, layout=layout)
    torch.manual_seed(5)
    assert torch.equal(actual, dropout(expected, 0.4, True, layout))
    assert (actual == 0).any()


def closed_form(position: int, width: int) -> list[float]:
    """Return the sinusoids of section 3.5 of the paper, one channel at a time."""
    angles = [position / 10_000 ** (2 * (channel // 2) / width) for channel in range(width)]
    return [math.cos(a) if channel % 2 else math.sin(a) for channel, a in enumerate(angles)]


@pytest.mark.parametrize("width", [2, 6, 64, 512])
def test_sines_and_cosines_alternate_with_the_papers_wavelengths(width: int) -> None:
    positions = [0, 1, 2, 3, 31, 100, FIRST_ROWS - 1]
    actual = Sinusoids(width)(torch.tensor(positions), FIRST_ROWS)
    expected = torch.tensor([closed_form(position, width) for position in positions], dtype=torch.float64)
    assert actual.dtype == torch.float32
    assert (actual - expected).abs().max() <= 2**-24


@pytest.mark.slow
@pytest.mark.parametrize(("width", "first"), [(4, 0), (64, 0), (64, 2), (512, 1)])
def test_marians_lowest_frequency_is_a_ten_thousandth_of_the_highest(width: int, first: int) -> None:
    """Return the sinusoids of M2M100, fairseq and Marian, with alternating sines and cosines."""
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(FIRST_ROWS + first, width)[first:]
    actual = Sinusoids(width, "marian", first)(torch.arange(FIRST_ROWS), FIRST_ROWS)
    # Their angles, of up to FIRST_ROWS radians, are fp32 products of two rounded numbers.
    rounded = 2 * FIRST_ROWS * torch.finfo(torch.float32).eps
    assert (actual[:, 0::2] - theirs[:, : width // 2]).abs().max() <= rounded
    assert (actual[:, 1::2] - theirs[:, width // 2 :]).abs().max() <= rounded
    assert float(actual[1, -2]) == pytest.approx(math.sin((first + 1) / 10_000), rel=1e-5)


@pytest.mark.parametrize("longest", [FIRST_ROWS, FIRST_ROWS + 1, 2000, 9999])
def test_sinusoids_are_exact_at_any_length(longest: int) -> None:
    sinusoids, positions = Sinusoids(16), [0, 5, longest - 1]
    actual = sinusoids(torch.tensor(positions), longest)
    expected = torch.tensor([closed_form(position, 16) for position in positions], dtype=torch.float64)
    assert (actual - expected).abs().max() <= 2**-24
    assert torch.equal(sinusoids(torch.tensor([0, 5]), 6), actual[:2])


def test_a_growing_table_of_sinusoids_keeps_its_dtype() -> None:
    sinusoids = Sinusoids(8).to(torch.bfloat16)
    assert sinusoids(torch.tensor([3 * FIRST_ROWS]), 3 * FIRST_ROWS + 1).dtype == torch.bfloat16


def test_sinusoids_are_neither_parameters_nor_saved() -> None:
    table = Sinusoids(8)
    assert not list(table.parameters())
    assert not table.state_dict()


def test_learned_positions_are_rows_of_a_matrix_that_gets_gradients() -> None:
    learned = LearnedPositions(10, 6)
    actual = learned(torch.tensor([9, 0, 9]), 10)
    assert torch.equal(actual, learned.table[[9, 0, 9]])
    actual.sum().backward()
    assert learned.table.grad is not None
    assert learned.table.grad.sum(1).tolist() == [6, *[0] * 8, 12]


def test_learned_positions_are_initialised_as_embeddings() -> None:
    assert float(LearnedPositions(1000, 64).table.detach().std()) == pytest.approx(64**-0.5, rel=0.02)


def test_a_sentence_longer_than_the_learned_positions_is_an_error_with_a_remedy() -> None:
    learned = LearnedPositions(10, 6)
    with pytest.raises(UserError) as caught:
        learned(torch.arange(11), 11)
    assert "11 tokens" in str(caught.value)
    assert "10 positions" in str(caught.value)
    assert "model.longest" in str(caught.value)


def test_sentences_that_fit_the_learned_positions_may_be_in_a_longer_layout() -> None:
    """`Layout.longest` may be more than any length, and more than the number of positions."""
    config = ModelConfig(
        encoder_layers=1, decoder_layers=1, width=8, feed_forward=8, heads=2, positions="learned", longest=12
    )
    model = model_of(config, 10).eval()
    exact, rounded = Layout.of([12, 3]), Layout.of([12, 3], longest=16)
    ids = torch.arange(15) % 10
    assert torch.allclose(model(ids, ids, rounded, rounded), model(ids, ids, exact, exact), atol=1e-6)
