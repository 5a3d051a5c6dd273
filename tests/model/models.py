"""Models for tests in which the text of the vocabulary does not matter."""

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary


def vocabulary_of(size: int) -> Vocabulary:
    """Return a vocabulary of `size` empty subwords."""
    return Vocabulary(("",) * size, end=0, start=0, unknown=1)


def model_of(config: ModelConfig, size: int) -> Transformer:
    """Return a model with one vocabulary of `size` subwords for both sides."""
    return Transformer(config, vocabulary_of(size), vocabulary_of(size), joint=True)
