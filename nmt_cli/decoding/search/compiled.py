"""A step of beam search from logits to the next hypotheses, compiled for the CPU by Numba.

For a single sentence, PyTorch takes longer to start each operation than to compute it.

Axes: B sentences, N slots, K best finished hypotheses and T tokens, as in `beams.py`. R rows are the slots in
use, V entries of the vocabulary, W candidates of a row, E best continuations (parent, token) of a sentence.
"""

from collections import namedtuple

import numpy as np
from numba import boolean, float32, int64, types, void

from nmt_cli.decoding.next_token.compiled import log_softmax, top
from nmt_cli.runtime.kernels.compiled import OPTIONS, maximum, njit

NEVER = np.float32(-np.inf)


BeamRules = namedtuple("BeamRules", "banned end gnmt exponent reach enough")
"""Settings of a search: ids that are never written, the end token, whether the length rule is "gnmt", its
exponent, `SearchConfig.reach`, and the number of finished hypotheses that end the search for a sentence."""

BeamState = namedtuple(
    "BeamState",
    "ages caps pieces totals tokens token_totals "
    "ended ended_scores ended_lengths ended_tokens ended_token_totals",
)
"""The tensors of `Beams` that have the same names, as arrays."""

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
    """Return the divisor of totals at `length` n: ((5 + n) / 6)^exponent if `gnmt`, else n^exponent."""
    base = (np.float32(5) + length) / np.float32(6) if gnmt else length
    return base**exponent


@njit(**OPTIONS)
def _rank(steps_RW, tokens_RW, rows_R, first, end, totals_N, totals_E, parents_E, tokens_E):
    """Write the best continuations of a sentence, best first, and return their number, at most E.

    Rows [first, end) belong to the sentence. Each has candidates `tokens_RW` with log-probabilities
    `steps_RW`, best first. A total adds the parent slot's total in `totals_N`. Leave out totals of -inf.
    """
    slots, count, size = len(totals_N), 0, len(totals_E)
    for row in range(first, end):
        parent = rows_R[row] % slots
        for w in range(steps_RW.shape[1]):
            total = steps_RW[row, w] + totals_N[parent]
            if not total > (totals_E[size - 1] if count == size else NEVER):
                break  # later candidates of the row are no better
            count = min(count + 1, size)
            e = count - 1
            while e > 0 and total > totals_E[e - 1]:
                totals_E[e], parents_E[e], tokens_E[e] = totals_E[e - 1], parents_E[e - 1], tokens_E[e - 1]
                e -= 1
            totals_E[e], parents_E[e], tokens_E[e] = total, parent, tokens_RW[row, w]
    return count


@njit(**OPTIONS)
def _copy(values, copies, count):
    """Copy the first `count` values of a row. Assigning a slice takes 3 s to compile."""
    for t in range(count):
        copies[t] = values[t]


@njit(**OPTIONS)
def _end(b, score, total, parent, state):
    """Insert a finished hypothesis into the K best of sentence `b` if `score` exceeds the K-th best score.

    Its tokens are those of slot `parent` and an end token, stored as 0. `total` includes the end token.
    """
    scores_K, lengths_K = state.ended_scores[b], state.ended_lengths[b]
    tokens_KT, totals_KT = state.ended_tokens[b], state.ended_token_totals[b]
    if not score > scores_K[-1]:
        return
    k = len(scores_K) - 1
    while k > 0 and score > scores_K[k - 1]:
        scores_K[k], lengths_K[k] = scores_K[k - 1], lengths_K[k - 1]
        _copy(tokens_KT[k - 1], tokens_KT[k], lengths_K[k])
        _copy(totals_KT[k - 1], totals_KT[k], lengths_K[k])
        k -= 1
    age = state.ages[b]
    scores_K[k], lengths_K[k] = score, age + 1
    _copy(state.tokens[b, parent], tokens_KT[k], age)
    _copy(state.token_totals[b, parent], totals_KT[k], age)
    tokens_KT[k, age], totals_KT[k, age] = 0, total  # the end token takes the room of a token for its score


@njit(**OPTIONS)
def _grow(age, parents_N, newest_N, totals_N, tokens_NT, token_totals_NT):
    """Give each slot the first `age` tokens and totals of its parent. Write new values at index `age`."""
    slots = len(parents_N)
    for changed in range(slots):
        if parents_N[changed] != changed:
            old_tokens, old_totals = np.empty((slots, age), np.int64), np.empty((slots, age), np.float32)
            for slot in range(slots):
                _copy(tokens_NT[slot], old_tokens[slot], age)
                _copy(token_totals_NT[slot], old_totals[slot], age)
            for slot in range(slots):
                _copy(old_tokens[parents_N[slot]], tokens_NT[slot], age)
                _copy(old_totals[parents_N[slot]], token_totals_NT[slot], age)
            break
    for slot in range(slots):
        tokens_NT[slot, age], token_totals_NT[slot, age] = newest_N[slot], totals_N[slot]


@njit(**OPTIONS)
def _give_up(b, rules, state):
    """Drop live hypotheses of sentence `b` that cannot win, as `Beams.give_up_hopeless` does."""
    age, totals_N, worst = np.float32(state.ages[b]), state.totals[b], state.ended_scores[b, -1]
    longest = min(max(np.float32(rules.reach * age), np.float32(state.pieces[b])), np.float32(state.caps[b]))
    short = _penalty(age + np.float32(1), rules.gnmt, rules.exponent)
    long = _penalty(longest + np.float32(1), rules.gnmt, rules.exponent)
    for slot in range(len(totals_N)):
        total = totals_N[slot]
        if max(total / short, total / long) <= worst:
            totals_N[slot] = NEVER


@njit(**OPTIONS)
def _likeliest(x_RV, raw, banned, steps_RW, tokens_RW):
    """Write the W highest log-probabilities of each row to `steps_RW`, best first, and their tokens.

    If `raw`, `x_RV` holds logits, and `banned` tokens get -inf. Overwrite `x_RV`.
    """
    if raw:
        maxima = np.empty(len(x_RV), np.float32)
        for row in range(len(x_RV)):
            maxima[row] = maximum(x_RV[row])
        log_softmax(x_RV, maxima)
        for row in range(len(x_RV)):
            for token in banned:
                x_RV[row, token] = NEVER
    top(x_RV, steps_RW, tokens_RW)


@njit(**OPTIONS)
def _continue(b, count, best, rules, state, parents_N):
    """Apply the `count` best continuations of sentence `b` to `state`. Write the parent of each slot.

    `best` has the totals, parents and tokens that `_rank` wrote. A continuation with the end token finishes
    if it is among the first N, and is left out otherwise. The first N without end token become live. With one
    slot, none becomes live after an end token. A slot without a continuation becomes free and its own parent.
    """
    totals_E, parents_E, tokens_E = best
    slots, age, totals_N = len(parents_N), state.ages[b], state.totals[b]
    newest_N = np.zeros(slots, np.int64)
    live, over = 0, False
    for e in range(count):
        if tokens_E[e] != rules.end:
            if live < slots and not over:
                totals_N[live], parents_N[live], newest_N[live] = totals_E[e], parents_E[e], tokens_E[e]
                live += 1
        elif e < slots:
            state.ended[b] += 1
            over = slots == 1  # greedy search ends when the end token is the likeliest token
            score = totals_E[e] / _penalty(np.float32(age + 1), rules.gnmt, rules.exponent)
            _end(b, score, totals_E[e], parents_E[e], state)
    for slot in range(live, slots):
        totals_N[slot], parents_N[slot] = NEVER, slot
    _grow(age, parents_N, newest_N, totals_N, state.tokens[b], state.token_totals[b])
    state.ages[b] = age + 1


@njit(void(float32[:, ::1], boolean, int64[::1], BEAM_RULES, BEAM_STATE, int64[:, ::1]), **OPTIONS)
def advance(x_RV, raw, rows_R, rules, state, parents_BN):
    """Extend the hypotheses in `state` by a token. Write each slot's parent slot to `parents_BN`.

    Row i of `x_RV` is for slot `rows_R[i]`. Rows have logits if `raw`, else log-probabilities, and are
    overwritten. Drop hypotheses that cannot win, and all of a sentence with `rules.enough` finished ones. The
    reference is `best`, `follow`, `give_up_hopeless` and `give_up_where_enough_ended`.
    """
    sentences, slots = state.totals.shape
    shape = len(x_RV), min(slots + 1, x_RV.shape[1])  # as in `expansion.best`
    steps_RW, tokens_RW = np.empty(shape, np.float32), np.empty(shape, np.int64)
    _likeliest(x_RV, raw, rules.banned, steps_RW, tokens_RW)
    size = min(2 * slots, slots * steps_RW.shape[1])
    best = np.empty(size, np.float32), np.empty(size, np.int64), np.empty(size, np.int64)
    first = 0
    for b in range(sentences):
        end = first
        while end < len(rows_R) and rows_R[end] // slots == b:
            end += 1
        count = _rank(steps_RW, tokens_RW, rows_R, first, end, state.totals[b], *best)
        first = end
        _continue(b, count, best, rules, state, parents_BN[b])
        _give_up(b, rules, state)
        if state.ended[b] >= rules.enough:
            state.totals[b, :] = NEVER
