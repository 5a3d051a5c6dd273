"""Embeddings: initial values, scale, positions and dropout."""

from dataclasses import replace

import pytest
import torch

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.dropout import dropout
from nmt_cli.model.embedding import Embedding, embedding_matrix
from nmt_cli.model.positions import sinusoids

CONFIG = ModelConfig(width=64, embedding_dropout=0.0)


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
    config = replace(learned if positions == "learned" else CONFIG, embedding_dropout=0.4)
    embedding = Embedding(config, embedding_matrix(10, 64))
    ids, indices = torch.tensor([1, 2, 3, 4]), torch.arange(4)
    expected = embedding.eval()(ids, indices, 4)
    torch.manual_seed(5)
    actual = embedding.train()(ids, indices, 4)
    torch.manual_seed(5)
    assert torch.equal(actual, dropout(expected, 0.4, training=True))
    assert (actual == 0).any()
