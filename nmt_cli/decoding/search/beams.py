"""The hypotheses of a batch in search: of B sentences up to N each that go on, and the best K that have
ended.

A sentence has N places, each for one hypothesis that goes on, with room for T tokens. Sentences join a batch
at any time, so each has an age: the number of tokens that all of its hypotheses have by now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import islice, pairwise
from types import ModuleType

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.decoding.search.hypotheses import Hypothesis
from nmt_cli.decoding.search.lengths import LengthRule

UNLIMITED = 1 << 62
"""More endings than a sentence can have."""

BLOCK = 32
"""Room for tokens is made in blocks of this size."""


def beam_rules(
    kernels: ModuleType,
    banned: Tensor,
    end: int,
    rule: LengthRule,
    reach: float = np.inf,
    enough: int | None = None,
) -> object:
    """Return the `BeamRules` of `decoding.compiled`. A search stops at `enough` endings, if given."""
    return kernels.BeamRules(
        banned=banned.numpy(),
        end=end,
        gnmt=rule.name == "gnmt",
        exponent=np.float32(rule.exponent),
        reach=np.float32(reach),
        enough=UNLIMITED if enough is None else enough,
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """One step of each sentence: E hypotheses that end and N that go on, each made of a parent and a token.

    A total of -inf marks an entry that is not used. Parents are places of the same sentence.
    """

    ended_totals: Tensor
    """[B, E]: the sum of log-probabilities of each, end mark included."""

    ended_parents: Tensor
    live_totals: Tensor
    """[B, N]: the same of those that go on."""

    live_parents: Tensor
    live_tokens: Tensor


@dataclass(slots=True)
class Beams:
    """All hypotheses of the batch as tensors, which `go_on` changes and all else replaces. A place not in use
    has the total -inf, an entry of the best K that is not found yet the score -inf."""

    ages: Tensor
    """[B]: how many tokens the hypotheses of each sentence have."""

    caps: Tensor
    """[B]: the most tokens of a translation, end mark not counted."""

    pieces: Tensor
    """[B]: of each source, end mark not counted."""

    totals: Tensor
    """[B, N]: sums of log-probabilities."""

    tokens: Tensor
    """[B, N, T]: only the first `ages` of each are set."""

    token_totals: Tensor
    """[B, N, T]: the sums up to each token."""

    ended: Tensor
    """[B]: how many hypotheses have ended, also those that are not among the best K."""

    ended_scores: Tensor
    """[B, K], best first."""

    ended_lengths: Tensor
    """[B, K]: end marks counted."""

    ended_tokens: Tensor
    """[B, K, T]"""

    ended_token_totals: Tensor

    @staticmethod
    def begin(caps: Tensor, pieces: Tensor, places: int, in_use: int, best: int) -> Beams:
        """Sentences that have no tokens yet, with `places` places each, of which the first `in_use` are in
        use.

        `best` is K.
        """
        count, like = len(caps), torch.zeros((), device=caps.device)
        totals = like.new_full((count, places), -torch.inf)
        totals[:, :in_use] = 0.0
        return Beams(
            ages=torch.zeros_like(caps),
            caps=caps,
            pieces=pieces,
            totals=totals,
            tokens=caps.new_zeros(count, places, BLOCK),
            token_totals=like.new_zeros(count, places, BLOCK),
            ended=torch.zeros_like(caps),
            ended_scores=like.new_full((count, best), -torch.inf),
            ended_lengths=caps.new_zeros(count, best),
            ended_tokens=caps.new_zeros(count, best, BLOCK),
            ended_token_totals=like.new_zeros(count, best, BLOCK),
        )

    @property
    def in_use(self) -> Tensor:
        """[B, N]: which places hold a hypothesis that goes on."""
        return self.totals > -torch.inf

    def going(self) -> list[bool]:
        """Of each sentence, whether a hypothesis goes on."""
        if self.totals.device.type == "cpu":  # in a fraction of PyTorch's time
            return [bool(some.any()) for some in self.totals.numpy() > -np.inf]
        return self.in_use.any(1).tolist()

    def rows(self, everywhere: bool = False) -> tuple[Tensor, Tensor]:
        """Return [R] the numbers of the slots in use, and [R] the newest token of each, 0 if there is none.

        With `everywhere`, all slots count as used, and the host does not wait for the device.
        """
        if everywhere:
            newest_BN1 = (self.ages - 1).clamp(min=0)[:, None, None].expand(*self.totals.shape, 1)
            newest_R = self.tokens.gather(2, newest_BN1).flatten()
            return torch.arange(len(newest_R), device=newest_R.device), newest_R
        # In a fraction of PyTorch's time, which counts for a lone line.
        totals, tokens, ages = (x.numpy(force=True) for x in (self.totals, self.tokens, self.ages))
        sentences, slots = (totals > -np.inf).nonzero()
        newest = tokens[sentences, slots, np.maximum(ages - 1, 0)[sentences]]
        rows = torch.from_numpy(sentences * totals.shape[1] + slots)
        return rows.to(self.totals.device), torch.from_numpy(newest).to(self.totals.device)

    def follow(
        self,
        choice: Choice,
        rule: LengthRule,
        extra_BN: Tensor | None = None,
        waits: bool = True,
    ) -> None:
        """Extend the hypotheses as chosen. There must be room for two more tokens.

        `extra_BN`, never positive, is added to the score of an ending, by its parent. Unless it `waits`, the
        host does not look whether there is one.
        """
        self.ended = self.ended + (choice.ended_totals > -torch.inf).sum(1)
        self._end(choice.ended_totals, choice.ended_parents, rule, extra_BN, waits)
        self.tokens = _grown(self.tokens, choice.live_parents, choice.live_tokens, self.ages)
        self.token_totals = _grown(self.token_totals, choice.live_parents, choice.live_totals, self.ages)
        self.totals = choice.live_totals
        self.ages = self.ages + 1

    def go_on(self, x_RV: Tensor, raw: bool, rows_R: Tensor, rules: object, kernels: ModuleType) -> Tensor:
        """Choose the best continuations and follow them, in one compiled call on a CPU.

        This is `choose.best`, `follow`, `give_up_hopeless` and `give_up_where_enough_ended` in one. `x_RV`
        are log-probabilities, or logits if they are `raw`; they are overwritten. `rules` are `beam_rules`.
        Return [B, N]: the parent of each slot.
        """
        parents = torch.empty_like(self.tokens[:, :, 0])
        state = kernels.BeamState(**{name: getattr(self, name).numpy() for name in kernels.BeamState._fields})
        kernels.go_on(x_RV.float().contiguous().numpy(), raw, rows_R.numpy(), rules, state, parents.numpy())
        return parents

    def give_up_hopeless(self, rule: LengthRule, reach: float) -> None:
        """Drop hypotheses that would not beat the worst of their sentence's best K ended ones even if they
        grew at no cost: to `reach` times their length, or the source's if that is more, but not past the cap.

        Where it is past the cap anyway, none of them can beat it.
        """
        most = torch.maximum(reach * self.ages, self.pieces).minimum(self.caps)
        # One more on either side, since lengths count the end mark.
        bound = rule.bound(self.totals, self.ages[:, None] + 1, most[:, None] + 1)
        # What can only get as good as the worst of them changes nothing, so equality is enough.
        self.totals = self.totals.masked_fill(bound <= self.ended_scores[:, -1:], -torch.inf)

    def give_up_where_enough_ended(self, enough: int) -> None:
        """Drop all hypotheses of sentences of which at least `enough` have ended."""
        self.totals = self.totals.masked_fill((self.ended >= enough)[:, None], -torch.inf)

    def give_up(self, sentences: Tensor) -> None:
        """Drop all hypotheses of `sentences`, numbers in the batch."""
        self.totals = self.totals.index_fill(0, sentences, -torch.inf)

    def take(self, sentences: Tensor) -> None:
        """Keep only `sentences`, numbers in the batch, in this order."""
        # Every field is a tensor whose first axis is the sentences.
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[sentences])

    def join(self, others: Beams) -> None:
        """Put the sentences of `others` behind those that are here."""
        # Both get the larger room of the two, as tensors that are joined must have the same shape.
        for each, other in ((self, others), (others, self)):
            each.make_room(other.tokens.shape[2])
        for field in fields(self):
            setattr(self, field.name, torch.cat([getattr(self, field.name), getattr(others, field.name)]))

    def found(self, sentences: Tensor) -> list[list[Hypothesis]]:
        """The hypotheses of `sentences` that have ended, at most K each, best first."""
        tensors = (self.ended_scores, self.ended_lengths, self.ended_tokens, self.ended_token_totals)
        found = []
        for scores, lengths, tokens, totals in zip(*(x[sentences].tolist() for x in tensors), strict=True):
            each = zip(scores, lengths, tokens, totals, strict=True)
            found.append([_hypothesis(*one) for one in each if one[0] > -torch.inf])
        return found

    def _end(
        self, totals: Tensor, parents: Tensor, rule: LengthRule, extra_BN: Tensor | None, waits: bool
    ) -> None:
        lengths = (self.ages + 1)[:, None].expand_as(totals)
        new = rule.score(totals, lengths)
        if extra_BN is not None:
            new = new + extra_BN.gather(1, parents)
        scores = torch.cat([self.ended_scores, new], dim=1)
        self.ended_scores, kept = scores.topk(self.ended_scores.shape[1])
        # In most steps nothing ends that is among the best: then no tokens need to be copied.
        if waits and not bool((kept >= self.ended_scores.shape[1]).any()):
            return
        self.ended_lengths = torch.cat([self.ended_lengths, lengths], dim=1).gather(1, kept)
        # The end mark takes the room of a token, for its score; its id is never read, so 0 will do.
        tokens = _grown(self.tokens, parents, torch.zeros_like(parents), self.ages)
        token_totals = _grown(self.token_totals, parents, totals, self.ages)
        self.ended_tokens = _chosen(torch.cat([self.ended_tokens, tokens], dim=1), kept)
        self.ended_token_totals = _chosen(torch.cat([self.ended_token_totals, token_totals], dim=1), kept)

    def make_room(self, tokens: int) -> None:
        """Have room for at least so many tokens."""
        if (missing := tokens - self.tokens.shape[2]) > 0:
            more = (0, -(-missing // BLOCK) * BLOCK)
            for name in ("tokens", "token_totals", "ended_tokens", "ended_token_totals"):
                setattr(self, name, F.pad(getattr(self, name), more))


def _chosen(x_BNT: Tensor, which_BM: Tensor) -> Tensor:
    return x_BNT.gather(1, which_BM[:, :, None].expand(-1, -1, x_BNT.shape[2]))


def _grown(x_BNT: Tensor, parents_BM: Tensor, newest_BM: Tensor, ages_B: Tensor) -> Tensor:
    """For each parent its T values, with the newest one put where its sentence's age says."""
    place = ages_B[:, None, None].expand(*parents_BM.shape, 1)
    return _chosen(x_BNT, parents_BM).scatter_(2, place, newest_BM[:, :, None])


def _hypothesis(score: float, length: int, tokens: Sequence[int], totals: Sequence[float]) -> Hypothesis:
    # A step knows sums; each token's own score is the difference of two.
    sums = [0.0, *islice(totals, length)]
    return Hypothesis(tokens[: length - 1], score, [after - before for before, after in pairwise(sums)])
