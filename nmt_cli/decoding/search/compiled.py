"""A step of beam search once logits are known, compiled for the CPU by Numba.

It does what `dispatch.log_softmax`, `choose.best`, `Beams.follow` and the functions that give up hypotheses
do one after another. For a lone line, PyTorch takes longer to start each of these operations than to compute
it. Axes are named as in `beams.py`.
"""

from typing import NamedTuple

import numpy as np
from numba import boolean, float32, int64, types, void

from nmt_cli.decoding.next_token.compiled import log_softmax, top
from nmt_cli.runtime.kernels.compiled import OPTIONS, float_at, njit, order_of

NEVER = np.float32(-np.inf)


class BeamRules(NamedTuple):
    """The settings of a search."""

    banned: object
    """Ids that are never written."""

    end: object
    gnmt: object
    """Whether the length rule is "gnmt"."""

    exponent: object
    reach: object
    enough: object
    """Number of endings that end the search for a sentence."""


class BeamState(NamedTuple):
    """The tensors of `Beams` that have the same names, as arrays."""

    ages: object
    caps: object
    pieces: object
    totals: object
    tokens: object
    token_totals: object
    ended: object
    ended_scores: object
    ended_lengths: object
    ended_tokens: object
    ended_token_totals: object


BEAM_RULES = types.NamedTuple((int64[::1], int64, boolean, float32, float32, int64), BeamRules)
BEAM_STATE = types.NamedTuple(
    (
        *(int64[::1], int64[::1], int64[::1], float32[:, ::1], int64[:, :, ::1], float32[:, :, ::1]),
        *(int64[::1], float32[:, ::1], int64[:, ::1], int64[:, :, ::1], float32[:, :, ::1]),
    ),
    BeamState,
)


@njit(**OPTIONS)
def _penalty(length, gnmt, exponent):
    """See `LengthRule`."""
    base = (np.float32(5) + length) / np.float32(6) if gnmt else length
    return base**exponent


@njit(**OPTIONS)
def _rank(steps_RW, tokens_RW, places_R, first, behind, totals_N, ranked_E, parents_E, tokens_E):
    """The likeliest ways on of one sentence, whose rows are `first` to `behind`, best first; how many."""
    places, found, most = len(totals_N), 0, len(ranked_E)
    for row in range(first, behind):
        parent = places_R[row] % places
        for way in range(steps_RW.shape[1]):
            total = steps_RW[row, way] + totals_N[parent]
            if not total > (ranked_E[most - 1] if found == most else NEVER):
                break  # as are all that follow
            found = min(found + 1, most)
            e = found - 1
            while e > 0 and total > ranked_E[e - 1]:
                ranked_E[e], parents_E[e], tokens_E[e] = ranked_E[e - 1], parents_E[e - 1], tokens_E[e - 1]
                e -= 1
            ranked_E[e], parents_E[e], tokens_E[e] = total, parent, tokens_RW[row, way]
    return found


@njit(**OPTIONS)
def _end(b, score, total, parent, state):
    """Keep a hypothesis of sentence `b` that ends, if it is among the best. It extends `parent`."""
    scores_K, lengths_K = state.ended_scores[b], state.ended_lengths[b]
    tokens_KT, totals_KT = state.ended_tokens[b], state.ended_token_totals[b]
    if not score > scores_K[-1]:
        return
    k = len(scores_K) - 1
    while k > 0 and score > scores_K[k - 1]:
        scores_K[k], lengths_K[k] = scores_K[k - 1], lengths_K[k - 1]
        tokens_KT[k], totals_KT[k] = tokens_KT[k - 1], totals_KT[k - 1]
        k -= 1
    age = state.ages[b]
    scores_K[k], lengths_K[k] = score, age + 1
    tokens_KT[k, :age], totals_KT[k, :age] = (
        state.tokens[b, parent, :age],
        state.token_totals[b, parent, :age],
    )
    tokens_KT[k, age], totals_KT[k, age] = 0, total  # the end mark takes the room of a token, for its score


@njit(**OPTIONS)
def _grow(age, parents_N, newest_N, totals_N, tokens_NT, token_totals_NT):
    """Let each place take over the tokens of its parent, and one more."""
    for place in range(len(parents_N)):
        if parents_N[place] != place:
            before, before_totals = tokens_NT[:, :age].copy(), token_totals_NT[:, :age].copy()
            for each in range(len(parents_N)):
                tokens_NT[each, :age] = before[parents_N[each]]
                token_totals_NT[each, :age] = before_totals[parents_N[each]]
            break
    for place in range(len(parents_N)):
        tokens_NT[place, age], token_totals_NT[place, age] = newest_N[place], totals_N[place]


@njit(**OPTIONS)
def _give_up(b, rules, state):
    """Give up hypotheses of sentence `b` that cannot win, as `Beams.give_up_hopeless` does."""
    age, totals_N, worst = np.float32(state.ages[b]), state.totals[b], state.ended_scores[b, -1]
    most = min(max(np.float32(rules.reach * age), np.float32(state.pieces[b])), np.float32(state.caps[b]))
    short = _penalty(age + np.float32(1), rules.gnmt, rules.exponent)
    long = _penalty(most + np.float32(1), rules.gnmt, rules.exponent)
    for place in range(len(totals_N)):
        total = totals_N[place]
        if max(total / short, total / long) <= worst:
            totals_N[place] = NEVER


@njit(**OPTIONS)
def _likeliest(x_RV, raw, banned, steps_RW, tokens_RW):
    """Write the likeliest tokens of each row; of logits if they are `raw` still, without those banned."""
    if raw:
        tops = np.empty(len(x_RV), np.float32)
        for row in range(len(x_RV)):
            top_order = np.int32(-(2**31))
            for v in range(x_RV.shape[1]):
                top_order = max(top_order, order_of(x_RV[row, v]))
            tops[row] = float_at(top_order)
        log_softmax(x_RV, tops)
        for row in range(len(x_RV)):
            for token in banned:
                x_RV[row, token] = NEVER
    top(x_RV, steps_RW, tokens_RW)


@njit(void(float32[:, ::1], boolean, int64[::1], BEAM_RULES, BEAM_STATE, int64[:, ::1]), **OPTIONS)
def go_on(x_RV, raw, rows_R, rules, state, parents_BN):
    """Let all hypotheses take their best continuations, and write the parent of each slot to `parents_BN`.

    `x_RV` are logits if they are `raw`, else log-probabilities, of the slots `rows_R`. Hypotheses that cannot
    win are given up, and so are all of a sentence of which enough have ended.
    """
    sentences, places = state.totals.shape
    ways = len(x_RV), min(places + 1, x_RV.shape[1])  # see `choose.ways_on`
    steps_RW, tokens_RW = np.empty(ways, np.float32), np.empty(ways, np.int64)
    _likeliest(x_RV, raw, rules.banned, steps_RW, tokens_RW)
    most = min(2 * places, places * steps_RW.shape[1])
    ranked, parents, tokens = np.empty(most, np.float32), np.empty(most, np.int64), np.empty(most, np.int64)
    newest = np.empty(places, np.int64)
    first = 0
    for b in range(sentences):
        behind, age = first, state.ages[b]
        while behind < len(rows_R) and rows_R[behind] // places == b:
            behind += 1
        best = ranked, parents, tokens
        totals_N, written = state.totals[b], (state.tokens[b], state.token_totals[b])
        found = _rank(steps_RW, tokens_RW, rows_R, first, behind, totals_N, *best)
        first, live, over = behind, 0, False
        for e in range(found):
            if tokens[e] != rules.end:
                if live < places and not over:
                    totals_N[live], parents_BN[b, live], newest[live] = ranked[e], parents[e], tokens[e]
                    live += 1
            elif e < places:
                state.ended[b] += 1
                over = places == 1  # greedy search ends where the end is the likeliest
                score = ranked[e] / _penalty(np.float32(age + 1), rules.gnmt, rules.exponent)
                _end(b, score, ranked[e], parents[e], state)
        for place in range(live, places):
            totals_N[place], parents_BN[b, place], newest[place] = NEVER, place, 0
        _grow(age, parents_BN[b], newest, totals_N, *written)
        state.ages[b] = age + 1
        _give_up(b, rules, state)
        if state.ended[b] >= rules.enough:
            totals_N[:] = NEVER
