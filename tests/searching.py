"""Search from token ids to hypotheses, by the plain search or the engine, for tests."""

from collections.abc import Callable, Sequence

from nmt_cli.decoding.batch import ListQueue
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.engine.decoder import Decoder
from nmt_cli.model.transformer import Transformer

Prepare = Callable[[Sequence[Transformer]], Decoder]
"""Makes a decoder of the models of an ensemble."""


def plain(models: Sequence[Transformer]) -> Decoder:
    """Return a decoder that uses the plain search for all settings."""
    return Decoder(models)


def by_engine(models: Sequence[Transformer]) -> Decoder:
    """Return a decoder that uses the engine for the settings and sentences that the engine knows."""
    decoder = Decoder.of(models)
    assert decoder.packed or len(models) > 1, "the tests need Numba"
    return decoder


SEARCHES: dict[str, Prepare] = {"plain": plain, "engine": by_engine}


def translate_ids(
    models: Sequence[Transformer],
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    prepare: Prepare = Decoder.of,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, best first. `sources` are token ids without end tokens."""
    sentences = [Sentence(key, tokens) for key, tokens in enumerate(sources)]
    hypotheses = translate_sentences(models, sentences, config, prepare)
    return [hypotheses[key] or [] for key in range(len(sources))]


def translate_sentences(
    models: Sequence[Transformer],
    sentences: Sequence[Sentence],
    config: SearchConfig,
    prepare: Prepare = Decoder.of,
) -> dict[int, list[Hypothesis] | None]:
    """Return the hypotheses of each sentence by its key, best first.

    The value is None for a sentence that does not fit into memory.
    """
    translations = prepare(models).translated(config, ListQueue(sentences))
    return {sentence.key: hypotheses for sentence, hypotheses in translations}
