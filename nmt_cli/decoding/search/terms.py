"""Terms that a translation must contain, and their share of the beam.

Hypotheses form groups by their progress in the terms. The beam takes the best of each group first, then the
second best, and so on (Post & Vilar 2018). A hypothesis with an unlikely term thus competes only with others
that have the term, and the best position wins. Scores do not change.

R hypotheses with up to T tokens, F forms of up to L tokens, P pairs of a hypothesis and a form of its
sentence, K terms of a sentence, C candidates, V entries of the vocabulary.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.decoding.next_token.dispatch import top
from nmt_cli.text.tag_placement import WORD

SPACE, JOINER = "\u2581", "@@"
"""The start of a SentencePiece token after a space, and the end of a BPE token inside a word."""

WORD_CHARACTER = re.compile(f"(?!{SPACE}){WORD}")

NOTHING = -1
"""Stands before the first token of a hypothesis, and after the last token of a form."""

Form = tuple[int, ...]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class TermsWanted:
    """The terms that a translation must contain."""

    terms: tuple[tuple[Form, ...], ...]
    """The forms of each term as token ids. A translation contains at least one of them."""

    joins: bool = False
    """Whether only tokens that end with "@@" join the next token. Otherwise tokens without a space do."""

    @cached_property
    def longest(self) -> int:
        """Number of tokens of the longest form."""
        return max(len(form) for forms in self.terms for form in forms)

    @property
    def least_tokens(self) -> int:
        """Number of tokens that suffice for all terms. One more token may have to end a word before them."""
        return sum(max(map(len, forms)) for forms in self.terms) + 1

    @cached_property
    def forms(self) -> tuple[Ints, Ints]:
        """All forms as arrays: their tokens one after the other, and [3, F] as the last fields of `Pairs`."""
        columns = [
            (len(form), term, max(map(len, forms))) for term, forms in enumerate(self.terms) for form in forms
        ]
        tokens = [token for forms in self.terms for form in forms for token in form]
        return np.array(tokens), np.array(columns).T


class WordParts(NamedTuple):
    """The parts of words in a vocabulary. Two tokens are parts of one word if `open_V` is true for the first
    and `joins_V` for the second."""

    open_V: Bools
    joins_V: Bools


@lru_cache(8)
def word_parts(entries: tuple[str, ...], joins: bool) -> WordParts:
    """Return the parts of words among the `entries` of a vocabulary. `joins` is as in `TermsWanted`."""
    if joins:
        return WordParts(np.array([entry.endswith(JOINER) for entry in entries]), np.ones(len(entries), bool))
    first, last = (
        np.array([WORD_CHARACTER.fullmatch(entry[place]) is not None for entry in entries])
        for place in (slice(1), slice(-1, None))
    )
    return WordParts(last, first)


class Pairs(NamedTuple):
    """Each hypothesis with each form of its sentence."""

    rows_P: Ints
    tokens_PL: Ints
    sizes_P: Ints
    """Number of tokens of the form."""

    terms_P: Ints
    """Index of the form's term in the sentence."""

    largest_P: Ints
    """Number of tokens of the longest form of the term."""

    @staticmethod
    def of(wanted: Sequence[TermsWanted]) -> "Pairs":
        """Return the pairs of hypotheses, given the terms of each."""
        tokens, columns = zip(*(one.forms for one in wanted), strict=True)
        sizes_P, terms_P, largest_P = np.concatenate(columns, axis=1)
        rows_P = np.arange(len(wanted)).repeat([own.shape[1] for own in columns])
        tokens_PL = np.full((len(rows_P), sizes_P.max()), NOTHING)
        tokens_PL[np.arange(tokens_PL.shape[1]) < sizes_P[:, None]] = np.concatenate(tokens)
        return Pairs(rows_P, tokens_PL, sizes_P, terms_P, largest_P)


class Progress(NamedTuple):
    """What hypotheses have of the terms."""

    complete_R: Ints
    """Number of terms that the hypothesis contains."""

    safe_R: Ints
    """Number of terms that it contains before a token that does not join them."""

    needed_R: Ints
    """Number of tokens that suffice for the missing terms, if no two share tokens. 0 if none is missing."""

    at_risk_R: Ints
    """Number of tokens that suffice after any other token, which may interrupt or join the newest form."""

    inside_R: Bools
    """Whether the last tokens begin a form of a missing term."""

    rows_N: Ints
    """The rows of next tokens that start or continue forms of missing terms."""

    tokens_N: Ints
    lengths_N: Ints
    """Number of tokens at the end that begin a form, after each next token. 0 if it completes the form."""


def progress(paths_RT: Ints, pairs: Pairs, parts: WordParts) -> Progress:
    """Return what hypotheses have of the terms. `paths_RT` ends with their tokens, at least one column."""
    rows_P, tokens_PL, sizes_P, terms_P, largest_P = pairs
    length, longest = paths_RT.shape[1], tokens_PL.shape[1]
    # joined_RT: whether a token, or the one after the last, joins the token before.
    joined_RT = np.zeros((len(paths_RT), length + 1), bool)
    open_RT = parts.open_V[paths_RT] & (paths_RT != NOTHING)
    joined_RT[:, 1:-1] = open_RT[:, :-1] & parts.joins_V[paths_RT[:, 1:]]
    # found_PT: whether the first n tokens of a form start at a token. begun_PL: whether they are the end.
    found_PT = ~joined_RT[rows_P, :-1]
    begun_PL = np.zeros(tokens_PL.shape, bool)
    begun_PL[:, 0] = ~(open_RT[rows_P, -1] & parts.joins_V[tokens_PL[:, 0]])
    paths_PT = np.pad(paths_RT, ((0, 0), (0, longest)), constant_values=NOTHING - 1)[rows_P]
    for n in range(longest):
        found_PT &= (paths_PT[:, n : n + length] == tokens_PL[:, n, None]) | (n >= sizes_P[:, None])
        if n + 1 < min(longest, length + 1):
            begun_PL[:, n + 1] = found_PT[:, length - n - 1] & (n + 1 < sizes_P)
    found, starts = np.nonzero(found_PT)
    ends = starts + sizes_P[found]
    alone = ~joined_RT[rows_P[found], ends]
    found, ends = found[alone], ends[alone]
    shape = len(paths_RT), terms_P.max() + 1
    sizes_RK, complete_RK, safe_RK = np.zeros(shape, int), np.zeros(shape, bool), np.zeros(shape, bool)
    sizes_RK[rows_P, terms_P] = largest_P
    for has_RK, pairs in ((complete_RK, found), (safe_RK, found[ends < length])):
        has_RK[rows_P[pairs], terms_P[pairs]] = True
    pairs_N, counts_N = np.nonzero(begun_PL & ~complete_RK[rows_P, terms_P][:, None])
    rows_N, lengths_N = rows_P[pairs_N], np.where(counts_N + 1 == sizes_P[pairs_N], 0, counts_N + 1)
    missing_R = np.where(complete_RK, 0, sizes_RK).sum(1)
    # Without a form that can start here, another token has to end the word.
    saved_R = np.full(len(paths_RT), -1)
    np.maximum.at(saved_R, rows_N, largest_P[pairs_N] - sizes_P[pairs_N] + counts_N)
    return Progress(
        complete_R=complete_RK.sum(1),
        safe_R=safe_RK.sum(1),
        needed_R=np.where(missing_R > 0, missing_R - saved_R, 0),
        at_risk_R=np.where(safe_RK, 0, sizes_RK).sum(1) + 1,
        inside_R=np.bincount(rows_N, counts_N, len(paths_RT)) > 0,
        rows_N=rows_N,
        tokens_N=tokens_PL[pairs_N, counts_N],
        lengths_N=lengths_N,
    )


class Candidates(NamedTuple):
    """Continuations of rows."""

    rows_C: Ints
    """Indices in the rows of the rule."""

    tokens_C: Ints
    log_probs_C: NDArray[np.float32]
    lengths_C: Ints
    """Number of tokens at the end that begin a form, or 0."""

    groups_C: Ints
    """Twice the number of complete terms, plus 1 if the hypothesis, or its parent, ends inside a form."""


@dataclass(frozen=True, slots=True)
class TermsRule:
    """The hypotheses of sentences with terms in a step, each a row of the step."""

    numbers_R: Ints
    """Indices in the rows of the step."""

    sentences_R: Ints
    wanted: Sequence[TermsWanted]
    """The terms of each row."""

    paths_RT: Ints
    """The tokens, after `NOTHING`."""

    totals_RT: NDArray[np.float32]
    """The total after each token."""

    room_R: Ints
    """Number of tokens that may still come before the end mark, without those reserved for placeholders."""

    absent: Sequence[frozenset[int]]
    """Placeholders that each row still needs."""

    progress: Progress
    parts: WordParts
    slots: int
    """Maximum number of hypotheses of a sentence."""

    def choose(self, log_probs_RV: Tensor, end: int) -> None:
        """Set to -inf all continuations of sentences with terms that the beam does not take.

        A hypothesis ends only with all terms. If the remaining room is just enough for missing terms, nothing
        else is allowed. A row to which other rules leave only the end mark may end.
        """
        numbers_R = torch.from_numpy(self.numbers_R).to(log_probs_RV.device)
        found = self._candidates(log_probs_RV[numbers_R], end)
        taken = self._taken(found, self._allowed(found, end))
        rows, tokens, log_probs = (
            torch.from_numpy(x[taken]).to(log_probs_RV.device)
            for x in (self.numbers_R[found.rows_C], found.tokens_C, found.log_probs_C)
        )
        log_probs_RV[numbers_R] = -torch.inf
        log_probs_RV[rows, tokens] = log_probs

    def _candidates(self, own_RV: Tensor, end: int) -> Candidates:
        """Return the tokens that may follow each row: those of forms, the end mark, and the likeliest.
        Overwrite `own_RV`."""
        state, device, count = self.progress, own_RV.device, min(self.slots + 1, own_RV.shape[1])
        # Of equal tokens, take one that completes a form, else the one that continues the longest.
        order = np.lexsort((-state.lengths_N, state.lengths_N > 0))
        keys_N = (state.rows_N * own_RV.shape[1] + state.tokens_N)[order]
        first = order[np.unique(keys_N, return_index=True)[1]]
        every = np.arange(len(self.wanted))
        rows_F = np.concatenate([state.rows_N[first], every])
        tokens_F = np.concatenate([state.tokens_N[first], np.full(len(every), end)])
        cells_2F = torch.from_numpy(rows_F).to(device), torch.from_numpy(tokens_F).to(device)
        log_probs_F = own_RV[cells_2F].numpy(force=True)
        own_RV[cells_2F] = -torch.inf
        log_probs_RC, tokens_RC = (x.numpy(force=True) for x in top(own_RV, count))
        rows_C = np.concatenate([rows_F, every.repeat(count)])
        tokens_C = np.concatenate([tokens_F, tokens_RC.flat])
        log_probs_C = np.concatenate([log_probs_F, log_probs_RC.flat])
        groups_C = (2 * state.complete_R + state.inside_R)[rows_C]
        lengths_C, of_forms = np.zeros_like(rows_C), slice(len(first))
        lengths_C[of_forms] = lengths = state.lengths_N[first]
        groups_C[of_forms] = 2 * state.complete_R[rows_C[of_forms]] + 1 + (lengths == 0)
        return Candidates(rows_C, tokens_C, log_probs_C, lengths_C, groups_C)

    def _allowed(self, found: Candidates, end: int) -> Bools:
        """Return which candidates are allowed: those that leave enough room for missing terms."""
        rows_C, tokens_C = found.rows_C, found.tokens_C
        possible_C = found.log_probs_C > -np.inf
        allowed_C: Bools = possible_C & ((tokens_C != end) | (self.progress.needed_R == 0)[rows_C])
        tight = np.flatnonzero(
            (self.room_R <= self.progress.at_risk_R)[rows_C] & allowed_C & (tokens_C != end)
        )
        if len(tight):
            rows, tokens = rows_C[tight], tokens_C[tight]
            paths = np.concatenate([self.paths_RT[rows], tokens[:, None]], axis=1)
            after = progress(paths, Pairs.of([self.wanted[row] for row in rows]), self.parts)
            pairs = zip(rows.tolist(), tokens.tolist(), strict=True)
            reserved = [self.wanted[row].longest * (token in self.absent[row]) for row, token in pairs]
            allowed_C[tight] = after.needed_R < self.room_R[rows] + reserved
        # A row to which nothing is allowed may take any token. It ends only if no other token is possible.
        for choice_C in (possible_C & (tokens_C != end), possible_C):
            stuck_R = np.bincount(rows_C[allowed_C], minlength=len(self.wanted)) == 0
            allowed_C |= choice_C & stuck_R[rows_C]
        return allowed_C

    def _taken(self, found: Candidates, allowed_C: Bools) -> Ints:
        """Return the indices of the allowed candidates that the beam takes: of each sentence the best of each
        group, then the second best, and so on."""
        ranks_C = self.totals_RT[found.rows_C, -1] + found.log_probs_C
        # Inside a form, the total after its first token counts: the rest has to follow anyway, and starting
        # the form at another position would not avoid it.
        inside = np.flatnonzero(found.lengths_C > 1)
        ranks_C[inside] = self.totals_RT[found.rows_C[inside], -found.lengths_C[inside] + 1]
        own = np.flatnonzero(allowed_C)
        sentences, groups, ranks = self.sentences_R[found.rows_C[own]], found.groups_C[own], -ranks_C[own]
        turns = _indices_within(sentences * (1 + groups.max()) + groups, ranks)
        return own[_indices_within(sentences, ranks, turns) < self.slots]


def _indices_within(keys_C: Ints, *order: NDArray[np.generic]) -> Ints:
    """Return the index of each element among those with the same key, in ascending `order`. The last array of
    `order` counts most."""
    by_key = np.lexsort((*order, keys_C))
    ordered = keys_C[by_key]
    indices_C = np.empty_like(by_key)
    indices_C[by_key] = np.arange(len(by_key)) - np.searchsorted(ordered, ordered)
    return indices_C
