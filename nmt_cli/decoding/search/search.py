"""Beam search over a batch: sentences join, take steps together, and leave when they are done."""

from collections.abc import Collection, Sequence
from itertools import zip_longest

import torch

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.beams import Beams
from nmt_cli.decoding.search.constraints import bans_of
from nmt_cli.decoding.search.hypotheses import BatchItem, Done, Sentence
from nmt_cli.decoding.search.plan import Planner
from nmt_cli.decoding.search.steppers import Stepper
from nmt_cli.model.cache import FIRST_STEPS, DecodingCache

COMPACT_AT = 0.75
"""Sentences that are done are removed when at most this share of the batch is not done."""


class Search:
    """Searches for the translations of a batch of sentences. Each sentence has its own age."""

    def __init__(self, ensemble: Ensemble, config: SearchConfig, look_every: int = 1) -> None:
        """Start with an empty batch. The host looks for finished sentences every `look_every` steps, 1 to 8.
        Above 1, all slots take each step, in use or not, so the host need not wait."""
        assert look_every <= FIRST_STEPS
        self._ensemble, self._config = ensemble, config
        self._look_every, self._unseen = look_every, 0
        self._items: list[BatchItem] = []
        self._beams: Beams | None = None
        self._caches: list[DecodingCache] = []
        self._planner = Planner(config, ensemble.vocabulary, everywhere=look_every > 1)
        self._stepper = Stepper(ensemble, config, waits=look_every == 1)

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences that are not done, in the order of the batch."""
        return [item.sentence for item in self._items if not item.done]

    @torch.inference_mode()
    def join(self, sentences: Sequence[Sentence]) -> None:
        """Encode `sentences`. Then remove done sentences from the batch, and append the new ones to it."""
        config, slots, device = self._config, self._config.slots, self._ensemble.device
        caches = self._ensemble.start([sentence.tokens for sentence in sentences], slots)
        for cache in caches:
            cache.reserve_for(self._look_every)
        lengths = [len(sentence.tokens) for sentence in sentences]
        limits = zip(config.caps(lengths, self._ensemble.longest), sentences, strict=True)
        # A prefix, placeholders and terms must fit, even if the settings allow fewer tokens.
        items = [BatchItem(s, max(cap, s.least_tokens), bans_of(s.banned), s.terms) for cap, s in limits]
        caps_B = torch.tensor([item.cap for item in items], device=device)
        lengths_B = torch.tensor(lengths, device=device)
        beams = Beams.begin(caps_B, lengths_B, slots, slots if config.sample else 1, config.results)
        if self._beams is None:
            self._beams, self._caches = beams, caches
        else:
            self._compact(self._beams, caches)
            self._beams.join(beams)
        self._items = [*self._items, *items]

    @torch.inference_mode()
    def drop(self, numbers: Collection[int]) -> None:
        """Cancel the sentences with the indices `numbers` in `self.sentences`. `step` never returns them."""
        assert self._beams is not None
        active = [i for i, item in enumerate(self._items) if not item.done]
        leaving = [active[number] for number in numbers]
        for i in leaving:
            self._items[i].end()
        self._beams.give_up(torch.tensor(leaving, dtype=torch.int64, device=self._ensemble.device))

    @torch.inference_mode()
    def step(self) -> list[Done]:
        """Extend each hypothesis by a token, and return the sentences that are done since the last look, with
        their hypotheses.

        The host looks every `look_every` steps, and after a sentence has reached its cap. Other calls return
        [].
        """
        assert self._beams is not None
        # Not right after sentences are done: if compacting ran out of memory, their results would be lost.
        if len(self.sentences) <= COMPACT_AT * len(self._items):
            self._compact(self._beams)
        self._beams.make_room(max(item.age for item in self._items) + 2)  # a token and the end token
        plan = self._planner.plan(self._items, self._beams)
        self._stepper.step(plan, self._beams, self._caches)
        for item in self._items:
            item.age += 1
        return self._finished(self._beams)

    def _finished(self, beams: Beams) -> list[Done]:
        """Mark the sentences that are done, and return them with their hypotheses. Calls in which the host
        does not look return [], as in `step`."""
        self._unseen += 1
        # A sentence is always done after its cap. It must not take another step.
        at_cap = any(item.room < 0 for item in self._items if not item.done)
        if self._unseen < self._look_every and not at_cap:
            return []
        self._unseen = 0
        finished = [
            number
            for number, (item, going) in enumerate(zip(self._items, beams.going(), strict=True))
            if not item.done and not going
        ]
        if not finished:
            return []
        hypotheses = beams.finished(torch.tensor(finished, device=self._ensemble.device))
        items = [self._items[number] for number in finished]
        for item in items:
            item.end()
        return [(item.sentence, best) for item, best in zip(items, hypotheses, strict=True)]

    def _compact(self, beams: Beams, joining: Sequence[DecodingCache] = ()) -> None:
        """Remove sentences that are done from batch, beams and caches. Append `joining` to the caches."""
        stay = [i for i, item in enumerate(self._items) if not item.done]
        stay_B = torch.tensor(stay, dtype=torch.int64, device=self._ensemble.device)
        beams.take(stay_B)
        for cache, other in zip_longest(self._caches, joining):
            cache.compact(stay_B, other)
        self._items = [self._items[i] for i in stay]
