"""From raw lines to translations, for models that share their tokenizers.

A line is cut into sentences (`segmenter`). The search returns hypotheses of each sentence. They are ranked,
if another score than that of the model is wanted (`text.ranking`), and joined to translations (`joiner`).
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import torch

from nmt_cli.decoding.batch import ListQueue
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.decoding.ensemble import limit_of
from nmt_cli.engine.decoder import Decoder
from nmt_cli.model.transformer import Transformer
from nmt_cli.scoring.confidence import Calibration
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.translation.call_options import CallOptions
from nmt_cli.translation.joiner import Joiner
from nmt_cli.translation.lines import FinishedLine, Translation
from nmt_cli.translation.second_attempt import SecondAttempts, best_first
from nmt_cli.translation.segmenter import Segmenter
from nmt_cli.translation.text.long_lines import longest_source
from nmt_cli.translation.text.model_glossary import Glossary
from nmt_cli.translation.text.ranking import Scorer, check_scorer, ranked, searched


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """What the training of the models showed. Some model folders lack these values."""

    longest: int | None = None
    """Maximum number of tokens of training sentences, with the end token."""

    length_ratio: float = 1.0
    """Mean number of target tokens per source token."""

    calibration: Calibration | None = None
    """Turns the probabilities of the model into confidence."""


class Translator:
    """The parts that turn lines into sentences, and hypotheses into translations."""

    def __init__(
        self,
        tokenizers: Tokenizers,
        models: Sequence[Transformer],
        config: TranslateConfig,
        trained: TrainedOn | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        """Make the parts for `models`, which share `tokenizers`. `scorer` ranks hypotheses."""
        self.tokenizers, self.config, self.scorer = tokenizers, config, scorer
        trained = trained or TrainedOn()
        longest = min(longest_source(model.config, trained.longest) for model in models)
        self.segmenter = Segmenter(tokenizers, config.input, longest, limit_of(models))
        in_fp16 = models[0].output_matrix.dtype == torch.float16
        self.joiner = Joiner(tokenizers, in_fp16, trained.length_ratio, trained.calibration)

    def directed(self, source: str | None, target: str | None) -> Self:
        """Return a translator for one direction of the models. Raise `UserError` for an unknown language."""
        other = copy(self)
        other.tokenizers = self.tokenizers.directed(source, target)
        other.segmenter = self.segmenter.directed(other.tokenizers)
        other.joiner = replace(self.joiner, tokenizers=other.tokenizers)
        return other

    def options(
        self, search: SearchConfig | None = None, aligned: bool = False, glossary: Glossary | None = None
    ) -> CallOptions:
        """Return how to translate the lines of a call. Raise `UserError` if `search` does not suit the
        scorer.

        search: the settings of the search, by default those of `config`.
        aligned: whether translations have the alignment of their words.
        glossary: terms that translations must have.
        """
        search = search or self.config.search
        check_scorer(search, self.scorer)
        return CallOptions(search, _banned(self.tokenizers.target, search.ban), aligned, glossary)

    def translations(self, lines: Sequence[FinishedLine], options: CallOptions) -> list[Translation]:
        """Return the translations of `lines`.

        If search.mbr or a scorer ranks hypotheses, those of all lines are ranked together first. Raise
        `UserError` if the scorer fails, or if log-probabilities overflow in fp16.
        """
        search = options.search
        if self.scorer or search.mbr != "off":
            # A hypothesis that loops may agree with others that loop, so the better one may have a low rank.
            kept = replace(search, n_best=search.slots) if search.second_attempt else search
            lines = ranked(lines, kept, self.scorer, self.joiner.text)
        if search.second_attempt:
            lines = [(line, best_first(self.joiner, line, found, search.n_best)) for line, found in lines]
        return [self.joiner.translation(line, hypotheses) for line, hypotheses in lines]

    def second_attempts(self, options: CallOptions) -> SecondAttempts | None:
        """Return the second attempts of a call, or None if the settings do not ask for them."""
        return SecondAttempts(self.joiner) if options.search.second_attempt else None

    def translate(
        self, decoder: Decoder, lines: Sequence[str], options: CallOptions | None = None
    ) -> list[Translation]:
        """Return the translation of each of `lines`, in order, in the calling thread. Without `options`, the
        settings of `config` apply."""
        options = options or self.options()
        cut = [self.segmenter.line(number, raw, options) for number, raw in enumerate(lines, start=1)]
        queue = ListQueue([sentence for line in cut for sentence in line.sentences])
        search = searched(options.search, self.scorer)
        attempts = self.second_attempts(options)
        for sentence, found in decoder.translated(search, queue, lambda sentences: torch.get_num_threads()):
            if attempts and (again := attempts.again(sentence, found)):
                queue.put_back([again])
            else:
                queue.finish(sentence, attempts.better(sentence, found) if attempts else found)
        finished = [(line, [queue.hypotheses[one.key] for one in line.sentences]) for line in cut]
        return self.translations(finished, options)


def _banned(target: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text that translations must not contain. Empty texts are left out, and so
    are texts with unknown tokens, which no translation contains."""
    # Each encoded text begins with a language code, which is not part of the banned text.
    codes = 1 if target.begin else 0
    encoded = (target.encode(target.prepare(text))[codes:] for text in texts)
    return [ids for ids in encoded if ids and target.vocabulary.unknown not in ids]
