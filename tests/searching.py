"""Searches from ids to ids, for tests."""

from collections.abc import Sequence

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import ListQueue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, Sentence
from nmt_cli.model.transformer import Transformer


def translate_ids(
    models: Sequence[Transformer], sources: Sequence[Sequence[int]], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, best first. Ids are without end tokens."""
    found = translate_sentences(models, [Sentence(key, tokens) for key, tokens in enumerate(sources)], config)
    return [found[key] or [] for key in range(len(sources))]


def translate_sentences(
    models: Sequence[Transformer], sentences: Sequence[Sentence], config: SearchConfig
) -> dict[int, list[Hypothesis] | None]:
    """Return the hypotheses of each sentence by its key, best first, or None without enough memory."""
    translations = translated(Ensemble.of(models, config), config, ListQueue(sentences))
    return {sentence.key: hypotheses for sentence, hypotheses in translations}
