"""Search from token ids to hypotheses, for tests."""

from collections.abc import Sequence

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import ListQueue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.model.transformer import Transformer


def translate_ids(
    models: Sequence[Transformer], sources: Sequence[Sequence[int]], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, best first. `sources` are token ids without end tokens."""
    sentences = [Sentence(key, tokens) for key, tokens in enumerate(sources)]
    hypotheses = translate_sentences(models, sentences, config)
    return [hypotheses[key] or [] for key in range(len(sources))]


def translate_sentences(
    models: Sequence[Transformer], sentences: Sequence[Sentence], config: SearchConfig
) -> dict[int, list[Hypothesis] | None]:
    """Return the hypotheses of each sentence by its key, best first.

    The value is None for a sentence that does not fit into memory.
    """
    translations = translated(Ensemble.of(models, config), config, ListQueue(sentences))
    return {sentence.key: hypotheses for sentence, hypotheses in translations}
