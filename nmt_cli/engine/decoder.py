"""Models that are ready to translate, and the choice between the engine and the plain search."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

import torch

from nmt_cli.decoding.batch import Found, Queue, Searching, translated
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Done, Sentence
from nmt_cli.decoding.search.search import Search
from nmt_cli.engine.packing import Packed, packed
from nmt_cli.engine.search import EngineSearch
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision, is_gpu, translating_precisions
from nmt_cli.runtime.kernels import torch_private
from nmt_cli.text.shortlist import Shortlist

SETTINGS = set(
    """beam length_rule length_penalty min_length max_length cap_ratio cap_extra reach stop_early n_best
    unknown shortlist second_attempt mbr rows glossary ban top_k seed""".split()
)
"""The settings of a search that the engine applies, or that change nothing in it. Words of `ban` and of a
glossary come with the sentence. The settings of sampling have no effect without `sample`."""

OF_SENTENCE = {"key", "tokens", "prefix", "certain", "aligned", "placeholders"}
"""The fields of a sentence that the engine applies."""

NO_RULES = {"raw", "values", "spaces", "request", "deaths"}
"""The fields of a sentence that change nothing in a search. Any other field may ask for a rule that the
search of the engine does not know."""


def unknown(config: SearchConfig) -> list[str]:
    """Return the names of settings that differ from their defaults and that the engine does not apply."""
    changed = (one.name for one in fields(config) if getattr(config, one.name) != _default(one))
    return [name for name in changed if name not in SETTINGS]


def may_use(models: int, device: torch.device, precision: Precision) -> bool:
    """Return whether the engine can decode this number of models together, if it knows their layers."""
    return models == 1 and not is_gpu(device) and precision in ("fp32", "int8")


def knows(sentence: Sentence) -> bool:
    """Return whether the engine applies all rules of a sentence.

    Of the rules about placeholders, it applies one: a sentence without placeholders has no symbol of one in
    its translation.
    """
    if (placeholders := sentence.placeholders) and (placeholders.wanted or placeholders.joins):
        return False
    # An empty value asks for nothing, whatever its type.
    others = (one.name for one in fields(sentence) if one.name not in OF_SENTENCE | NO_RULES)
    return not any(getattr(sentence, name) for name in others)


def _default(one: Field[Any]) -> object:
    return one.default if one.default_factory is MISSING else one.default_factory()


@dataclass(frozen=True, slots=True)
class Decoder:
    """The models of an ensemble, ready to translate on their device."""

    models: Sequence[Transformer]
    packed: Packed | None = None
    """The weights of a single model in the form of the engine, if it can decode the model. Sentences with
    rules that it does not know are computed by `models`, always in fp32."""

    shortlist: Shortlist | None = None
    """Restricts the vocabulary of each sentence in the engine, unless search.shortlist is off."""

    @staticmethod
    def of(
        models: Sequence[Transformer], precision: Precision = "fp32", shortlist: Shortlist | None = None
    ) -> Decoder:
        """Prepare `models`, all on one device, for translating in `precision`.

        "fp16" and "bf16" convert the weights in place. On a CPU, the engine gets a copy of the weights of a
        single model, in 8 bits for "int8". Only the engine uses `shortlist`. Raise `UserError` if the device
        does not support `precision`, and for "int8" if the engine does not support the models.
        """
        torch_private.keep_few_kernels()
        device = models[0].device
        if precision not in (possible := translating_precisions(device)):
            where = "this GPU" if is_gpu(device) else "this CPU"
            choice = " or ".join(possible)
            raise UserError(f"{where} can't compute in {precision}. Choose --precision {choice}.")
        if precision in ("fp16", "bf16"):
            for model in models:
                model.to(torch.float16 if precision == "fp16" else torch.bfloat16)
        exact = all(model.output_matrix.dtype == torch.float32 for model in models)
        fits = exact and may_use(len(models), device, precision)
        engine = packed(models[0], precision == "int8", shortlist is not None) if fits else None
        if precision == "int8" and not engine:
            what = "an ensemble" if len(models) > 1 else "this model"
            raise UserError(f"{what} can't be computed in int8. Choose --precision fp32.")
        if not engine and not is_gpu(device):
            for parameter in (one for model in models for one in model.parameters()):
                # Otherwise weights stay a mapped file, which another program may change.
                parameter.data = parameter.data.clone()
        return Decoder(models, engine, shortlist)

    def translated(
        self,
        config: SearchConfig,
        queue: Queue,
        threads: Callable[[int], int] = lambda sentences: 1,
    ) -> Iterator[Found]:
        """Translate until the queue is empty. `batch.translated` explains arguments and results.

        threads: returns the number of threads for a batch with this number of sentences. Only the engine
            uses it.
        """
        ensemble = Ensemble(self.models)

        def plain(look_every: int) -> Search:
            return Search(ensemble, config, look_every)

        def fast(look_every: int) -> Searching:
            assert self.packed
            shortlist = self.shortlist if config.shortlist else None
            return Divided(EngineSearch(self.packed, config, threads, shortlist), plain(look_every))

        # The engine takes a sixth to a third of the processor time of the plain search for a file, and less
        # for a line.
        return translated(ensemble, config, queue, plain if unknown(config) or not self.packed else fast)


class Divided:
    """A batch of which the engine searches one part, and the plain search the sentences with other rules."""

    def __init__(self, engine: Searching, plain: Searching) -> None:
        self._searches = engine, plain
        self._done: list[Done] = []
        """What one search has finished before the other one ran out of memory."""

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences that are not done, or whose hypotheses `step` has not returned. Those of the engine
        come first."""
        running = [sentence for search in self._searches for sentence in search.sentences]
        return [*running, *(sentence for sentence, _ in self._done)]

    def join(self, sentences: Sequence[Sentence]) -> None:
        """Add `sentences` to the batch."""
        engine, plain = self._searches
        known, others = ([one for one in sentences if knows(one) is wanted] for wanted in (True, False))
        if known:
            engine.join(known)
        try:
            if others:
                plain.join(others)
        except BaseException:
            # The caller still has all of `sentences`, and would put these back twice.
            engine.drop([i for i, one in enumerate(engine.sentences) if one in known])
            raise

    def drop(self, numbers: Collection[int]) -> None:
        """Cancel the sentences with the indices `numbers` in `self.sentences`."""
        first = 0
        for search in self._searches:
            count = len(search.sentences)
            if own := [number - first for number in numbers if first <= number < first + count]:
                search.drop(own)
            first += count

    def step(self) -> list[Done]:
        """Extend all hypotheses. Return the sentences that are done with their hypotheses."""
        for search in self._searches:
            if search.sentences:
                self._done += search.step()
        done, self._done = self._done, []
        return done
