"""The beam state of a batch: live hypotheses, and the best finished ones.

B sentences have N slots each, with one live hypothesis per slot, and K best finished hypotheses. A total is a
sum of log-probabilities. Tensors have space for T tokens. Sentences join a batch at any time, so each has an
age: the number of tokens of all of its live hypotheses.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import islice, pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.decoding.config import Rule
from nmt_cli.decoding.search.hypotheses import Hypothesis

BLOCK = 32
"""The space for tokens grows by multiples of this."""


@dataclass(frozen=True, slots=True)
class LengthRule:
    """Divides the sum of log-probabilities of a hypothesis by a penalty that grows with its length.

    The length is the number of target tokens with the end token.
    """

    name: Rule
    """The penalty is ((5 + n) / 6)^exponent for gnmt, as in the paper, and n^exponent for power."""

    exponent: float

    def score(self, total: Tensor, length: Tensor) -> Tensor:
        """Return scores: `total`, the sum of log-probabilities, divided by the penalty at `length`."""
        base = (5 + length) / 6 if self.name == "gnmt" else length.to(torch.float32)
        return total / base**self.exponent

    def bound(self, total: Tensor, shortest: Tensor, longest: Tensor) -> Tensor:
        """Return the best score of a live hypothesis at a length from `shortest` to `longest`.

        More tokens only lower `total`. At an equal total, the score is highest at one end of the range.
        """
        return torch.maximum(self.score(total, shortest), self.score(total, longest))


@dataclass(frozen=True, slots=True)
class Continuations:
    """The continuations chosen in one step: up to E that finish and N that stay live, per sentence.

    A continuation is a parent slot of the same sentence and a token. A total of -inf marks an unused entry.
    """

    ended_totals: Tensor
    """[B, E]: totals with the end token."""

    ended_parents: Tensor
    live_totals: Tensor
    """[B, N]: totals with the new token."""

    live_parents: Tensor
    live_tokens: Tensor


@dataclass(slots=True)
class Beams:
    """All hypotheses of a batch as tensors. Methods replace tensors.

    A free slot has the total -inf. A missing finished hypothesis has the score -inf.
    """

    ages: Tensor
    """[B]: number of tokens of the live hypotheses of each sentence."""

    caps: Tensor
    """[B]: maximum number of tokens of a translation, without the end token."""

    pieces: Tensor
    """[B]: number of tokens of each source, without the end token."""

    totals: Tensor
    """[B, N]: sums of log-probabilities."""

    tokens: Tensor
    """[B, N, T]: the first `ages` tokens of each hypothesis are set."""

    token_totals: Tensor
    """[B, N, T]: the total up to each token."""

    ended: Tensor
    """[B]: number of hypotheses that have finished, including those that are not among the best K."""

    ended_scores: Tensor
    """[B, K], best first."""

    ended_lengths: Tensor
    """[B, K]: number of tokens with the end token."""

    ended_tokens: Tensor
    """[B, K, T]"""

    ended_token_totals: Tensor

    @staticmethod
    def begin(caps: Tensor, pieces: Tensor, slots: int, in_use: int, best: int) -> Beams:
        """Return beams without tokens. The first `in_use` of a sentence's `slots` are in use. `best` is K."""
        count, like = len(caps), torch.zeros((), device=caps.device)
        totals = like.new_full((count, slots), -torch.inf)
        totals[:, :in_use] = 0.0
        return Beams(
            ages=torch.zeros_like(caps),
            caps=caps,
            pieces=pieces,
            totals=totals,
            tokens=caps.new_zeros(count, slots, BLOCK),
            token_totals=like.new_zeros(count, slots, BLOCK),
            ended=torch.zeros_like(caps),
            ended_scores=like.new_full((count, best), -torch.inf),
            ended_lengths=caps.new_zeros(count, best),
            ended_tokens=caps.new_zeros(count, best, BLOCK),
            ended_token_totals=like.new_zeros(count, best, BLOCK),
        )

    @property
    def in_use(self) -> Tensor:
        """[B, N]: True for slots with a live hypothesis."""
        return self.totals > -torch.inf

    def going(self) -> list[bool]:
        """Return for each sentence whether a hypothesis is live. The host waits for the device."""
        if self.totals.device.type == "cpu":  # NumPy takes a fraction of PyTorch's time
            return [bool(live_N.any()) for live_N in self.totals.numpy() > -np.inf]
        return self.in_use.any(1).tolist()

    def rows(self, everywhere: bool = False) -> tuple[Tensor, Tensor]:
        """Return [R]: the numbers of the slots in use, ascending, and [R]: the newest token of each, or 0.

        With `everywhere`, all slots count as in use, and the host does not wait for the device.
        """
        if everywhere:
            newest_BN1 = (self.ages - 1).clamp(min=0)[:, None, None].expand(*self.totals.shape, 1)
            newest_R = self.tokens.gather(2, newest_BN1).flatten()
            return torch.arange(len(newest_R), device=newest_R.device), newest_R
        # NumPy takes a fraction of PyTorch's time, which matters for a single sentence.
        totals, tokens, ages = (x.numpy(force=True) for x in (self.totals, self.tokens, self.ages))
        sentences, slots = (totals > -np.inf).nonzero()
        newest = tokens[sentences, slots, np.maximum(ages - 1, 0)[sentences]]
        rows = torch.from_numpy(sentences * totals.shape[1] + slots)
        return rows.to(self.totals.device), torch.from_numpy(newest).to(self.totals.device)

    def follow(self, chosen: Continuations, rule: LengthRule, waits: bool = True) -> None:
        """Extend the hypotheses as chosen, and add those that finish to the K best by the score of `rule`.

        The tensors must have space for two more tokens. Without `waits`, the host does not wait for the
        device.
        """
        self.ended = self.ended + (chosen.ended_totals > -torch.inf).sum(1)
        self._end(chosen.ended_totals, chosen.ended_parents, rule, waits)
        self.tokens = _grown(self.tokens, chosen.live_parents, chosen.live_tokens, self.ages)
        self.token_totals = _grown(self.token_totals, chosen.live_parents, chosen.live_totals, self.ages)
        self.totals = chosen.live_totals
        self.ages = self.ages + 1

    def give_up_hopeless(self, rule: LengthRule, reach: float) -> None:
        """Drop live hypotheses that cannot become better than the K-th best finished one.

        The bound is optimistic: more tokens cost nothing, and the final length is the one with the best
        score. That length is at most `reach` times the current length, or the source length if this is more,
        and at most the cap.
        """
        longest = torch.maximum(reach * self.ages, self.pieces).minimum(self.caps)
        # 1 is added because lengths include the end token.
        bound = rule.bound(self.totals, self.ages[:, None] + 1, longest[:, None] + 1)
        # A hypothesis that could only equal the K-th best would change nothing.
        self.totals = self.totals.masked_fill(bound <= self.ended_scores[:, -1:], -torch.inf)

    def give_up_where_enough_ended(self, enough: int) -> None:
        """Drop the live hypotheses of sentences with at least `enough` finished hypotheses."""
        self.totals = self.totals.masked_fill((self.ended >= enough)[:, None], -torch.inf)

    def give_up(self, sentences: Tensor) -> None:
        """Drop all live hypotheses of `sentences`, indices in the batch, by setting their totals to -inf."""
        self.totals = self.totals.index_fill(0, sentences, -torch.inf)

    def take(self, sentences: Tensor) -> None:
        """Keep only `sentences`, indices in the batch, in the order of `sentences`."""
        # The first axis of every field is the sentences.
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[sentences])

    def join(self, joining: Beams) -> None:
        """Append the sentences of `joining`. First give both batches the same space for tokens."""
        self.make_room(joining.tokens.shape[2])
        joining.make_room(self.tokens.shape[2])
        for field in fields(self):
            setattr(self, field.name, torch.cat([getattr(self, field.name), getattr(joining, field.name)]))

    def finished(self, sentences: Tensor) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of `sentences`, indices in the batch: at most K each, best first.

        A sentence with a log-probability that was not a number has none. As the largest value, nan has ended
        its other hypotheses.
        """
        scores = self.ended_scores.where(~self.totals.isnan().any(1, keepdim=True), -torch.inf)
        tensors = (scores, self.ended_lengths, self.ended_tokens, self.ended_token_totals)
        results = list[list[Hypothesis]]()
        for columns in zip(*(x[sentences].tolist() for x in tensors), strict=True):
            results.append([])
            for score, length, tokens, totals in zip(*columns, strict=True):
                if score > -torch.inf:
                    sums = [0.0, *islice(totals, length)]
                    token_scores = [after - before for before, after in pairwise(sums)]
                    results[-1].append(Hypothesis(tokens[: length - 1], score, token_scores))
        return results

    def _end(self, totals: Tensor, parents: Tensor, rule: LengthRule, waits: bool) -> None:
        """Merge finished continuations into the K best. `rule` and `waits` are as in `follow`."""
        lengths = (self.ages + 1)[:, None].expand_as(totals)
        new = rule.score(totals, lengths)
        scores = torch.cat([self.ended_scores, new], dim=1)
        self.ended_scores, indices = scores.topk(self.ended_scores.shape[1])
        # In most steps no new ending is among the best. Then there are no tokens to copy.
        if waits and not bool((indices >= self.ended_scores.shape[1]).any()):
            return
        self.ended_lengths = torch.cat([self.ended_lengths, lengths], dim=1).gather(1, indices)
        # The end token takes the room of a token for its score. Its id is never read, so it is 0.
        tokens = _grown(self.tokens, parents, torch.zeros_like(parents), self.ages)
        token_totals = _grown(self.token_totals, parents, totals, self.ages)
        self.ended_tokens = _chosen(torch.cat([self.ended_tokens, tokens], dim=1), indices)
        self.ended_token_totals = _chosen(torch.cat([self.ended_token_totals, token_totals], dim=1), indices)

    def make_room(self, tokens: int) -> None:
        """Extend the tensors, if necessary, to space for at least `tokens` tokens."""
        if (missing := tokens - self.tokens.shape[2]) > 0:
            more = (0, -(-missing // BLOCK) * BLOCK)
            for name in ("tokens", "token_totals", "ended_tokens", "ended_token_totals"):
                setattr(self, name, F.pad(getattr(self, name), more))


def _chosen(x_BNT: Tensor, which_BM: Tensor) -> Tensor:
    """Return [B, M, T]: for each sentence the rows of `x_BNT` whose indices are in `which_BM`."""
    return x_BNT.gather(1, which_BM[:, :, None].expand(-1, -1, x_BNT.shape[2]))


def _grown(x_BNT: Tensor, parents_BM: Tensor, newest_BM: Tensor, ages_B: Tensor) -> Tensor:
    """Return [B, M, T]: the values of each parent slot, with `newest_BM` at the index `ages_B`."""
    index = ages_B[:, None, None].expand(*parents_BM.shape, 1)
    return _chosen(x_BNT, parents_BM).scatter_(2, index, newest_BM[:, :, None])
