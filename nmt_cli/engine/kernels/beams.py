"""Beam search from logits to the next hypotheses, compiled for the CPU by Numba.

The reference is `nmt_cli/decoding/search`. A hypothesis has a path: the nodes of its tokens in the memory of
keys and values. Hypotheses share the nodes of a common beginning. `uses` counts the paths of each node, and a
node without a path is free.

Axes: B sentences, N slots for live hypotheses, K best finished hypotheses, T tokens. R rows are the slots in
use, V entries of the vocabulary, W candidates of a row, E best continuations (parent, token) of a sentence, P
nodes, L layers, S source tokens, C columns.
"""

import math
from collections import namedtuple

import numpy as np
from numba import boolean, float32, int32, int64, types

from nmt_cli.engine.kernels.layers import LOGITS, score_listed
from nmt_cli.engine.kernels.team import next_unit, take
from nmt_cli.runtime.kernels.compiled import OPTIONS, exp, maximum, njit

NEVER = np.float32(-np.inf)

Rules = namedtuple("Rules", "banned symbols spaces end early gnmt exponent reach enough")
"""The rules of a search: ids that are never written, symbols of placeholders, ids after which no hypothesis
ends, the end token, the number of tokens before which no hypothesis ends, whether the length rule is "gnmt",
its exponent, `SearchConfig.reach`, and the number of finished hypotheses that end the search of a
sentence."""

RULES_TYPE = types.NamedTuple(
    (int64[::1], int64[::1], int64[::1], int64, int64, boolean, float32, float32, int64), Rules
)

STATE_FIELDS = {
    "live": int64[::1],
    "ages": int64[::1],
    "caps": int64[::1],
    "pieces": int64[::1],
    "certain": int64[::1],
    "without": int64[::1],
    "listed": int64[::1],
    "shortlists": int32[:, ::1],
    "prefixes": int64[:, ::1],
    "totals": float32[:, ::1],
    "tokens": int64[:, :, ::1],
    "token_totals": float32[:, :, ::1],
    "ended": int64[::1],
    "ended_scores": float32[:, ::1],
    "ended_lengths": int64[:, ::1],
    "ended_tokens": int64[:, :, ::1],
    "ended_token_totals": float32[:, :, ::1],
    "paths": int32[:, :, ::1],
    "uses": int32[::1],
    "free": int32[::1],
    "counts": int64[::1],
    "own_LPC": float32[:, :, ::1],
    "source_BLSC": float32[:, :, :, ::1],
    "lengths_B": int64[::1],
}
"""The types of the fields of `State`, by name."""

State = namedtuple("State", " ".join(STATE_FIELDS))  # type: ignore[misc]
"""The hypotheses of all sentences. `decoding.search.beams` explains fields of the same names.

`live` is 1 for sentences that are not done, 2 for those that became done in this call, -1 for those with a
probability that is not a number, and 0 for empty places. The first `listed` ids of `shortlists` [B, I] are
the tokens that a sentence may have, ascending. `shortlists` has no columns if no vocabulary is restricted.
`prefixes` has forced tokens [B, T], then -1. The first `certain` of them count as certain. `without` is 1 for
sentences that may not have placeholders. `paths` [B, N, T] are the nodes of the tokens of each slot. The free
nodes are the first `counts[0]` of `free`. `counts[1]` is the number of rows, and `counts[2]` that of
sentences that became done.

`own_LPC` has the keys and values of target tokens by node, and `source_BLSC` those of the first `lengths_B`
source tokens of each sentence. With an SSRU, the node of a token has the state after the token instead.
"""

LIVE, DONE, BROKEN = 1, 2, -1

STATE_TYPE = types.NamedTuple(tuple(STATE_FIELDS.values()), State)

FREE, ROWS, FINISHED = 0, 1, 2


@njit(**OPTIONS)
def list_rows(work, state, start):
    """List the slots in use as the rows of a step, and give each a new node at the end of its path.

    The token of a row is the newest of its hypothesis, or `start` for an empty one.
    """
    slots, count = state.totals.shape[1], 0
    for b in range(len(state.live)):
        if state.live[b] != LIVE:
            continue
        age = state.ages[b]
        for slot in range(slots):
            if state.totals[b, slot] > NEVER:
                state.counts[FREE] -= 1
                node = state.free[state.counts[FREE]]
                state.uses[node] = 1
                state.paths[b, slot, age] = node
                work.tokens_R[count] = state.tokens[b, slot, age - 1] if age else start
                work.positions_R[count], work.nodes_R[count] = age, node
                work.sentences_R[count], work.slots_R[count] = b, slot
                count += 1
    state.counts[ROWS] = count


@njit(**OPTIONS)
def _forced(b, rules, state):
    """Return the token that must come next in sentence `b`, or -1."""
    age = state.ages[b]
    if age >= state.caps[b]:
        return rules.end
    return state.prefixes[b, age] if age < state.prefixes.shape[1] else np.int64(-1)


@njit(**OPTIONS)
def _column(token, listed_I):
    """Return the column of a token's logit, or -1. Without a shortlist, it is the token itself."""
    if len(listed_I) == 0:
        return token
    low, high = 0, len(listed_I) - 1
    while low < high:
        middle = (low + high) // 2
        if listed_I[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low if listed_I[low] == token else np.int64(-1)


@njit(**OPTIONS)
def _forbid_one(token, x_V, listed_I):
    v = _column(token, listed_I)
    if v >= 0:
        x_V[v] = NEVER


@njit(**OPTIONS)
def _forbid(b, newest, x_V, listed_I, rules, state):
    """Set the logits of the tokens that must not come after `newest` in sentence `b` to -inf."""
    for token in rules.banned:
        _forbid_one(token, x_V, listed_I)
    for i in range(len(rules.symbols) * state.without[b]):
        _forbid_one(rules.symbols[i], x_V, listed_I)
    if state.ages[b] < rules.early + state.certain[b]:
        _forbid_one(rules.end, x_V, listed_I)
    for token in rules.spaces:
        if token == newest:
            _forbid_one(rules.end, x_V, listed_I)


@njit(**OPTIONS)
def _top(x_V, highest_W, tokens_W):
    """Write the highest values of a row, best first and the earlier of equal ones first, and their tokens."""
    last = len(highest_W) - 1
    for w in range(last + 1):
        highest_W[w], tokens_W[w] = NEVER, 0
    for v in range(len(x_V)):
        if x_V[v] > highest_W[last]:
            w = last
            while w > 0 and x_V[v] > highest_W[w - 1]:
                highest_W[w], tokens_W[w] = highest_W[w - 1], tokens_W[w - 1]
                w -= 1
            highest_W[w], tokens_W[w] = x_V[v], v


@njit(**OPTIONS)
def rank_tokens(team, phase, output, weights, work, rules, state):
    """Write the W highest log-probabilities of each row, best first, and their tokens.

    With shortlists, first write the logits of their tokens, by the operation `output`. Other tokens have the
    probability 0. The logits are changed. Forbidden tokens have -inf. Return the next phase.
    """
    count = state.counts[ROWS]
    row = take(team, phase, count)
    while row >= 0:
        b, x_V = work.sentences_R[row], work.buffers[LOGITS][row]
        listed_I = state.shortlists[b, : state.listed[b]]
        if len(listed_I):
            score_listed(row, output, listed_I, weights, work)
            x_V = x_V[: len(listed_I)]
        steps_W, tokens_W = work.steps_RW[row], work.likely_RW[row]
        top, total = maximum(x_V), np.float32(0)
        for v in range(len(x_V)):
            total += exp(x_V[v] - top)
        log_total = np.float32(math.log(total))
        if not abs(log_total) < np.float32(np.inf):
            state.live[b] = BROKEN
        forced = _forced(b, rules, state)
        if forced >= 0:
            for w in range(len(steps_W)):
                steps_W[w], tokens_W[w] = NEVER, 0
            certain = state.ages[b] < state.certain[b]
            steps_W[0] = np.float32(0) if certain else (x_V[_column(forced, listed_I)] - top) - log_total
            tokens_W[0] = forced
        else:
            _forbid(b, work.tokens_R[row], x_V, listed_I, rules, state)
            _top(x_V, steps_W, tokens_W)
            for w in range(len(steps_W)):
                steps_W[w] = (steps_W[w] - top) - log_total
                if len(listed_I):
                    tokens_W[w] = listed_I[tokens_W[w]]
        row = next_unit(team, phase, count)
    return phase + 1


@njit(**OPTIONS)
def _penalty(length, rules):
    """Return the divisor of totals at `length` n: ((5 + n) / 6)^exponent for gnmt, else n^exponent."""
    base = (np.float32(5) + length) / np.float32(6) if rules.gnmt else length
    return base**rules.exponent


@njit(**OPTIONS)
def _find_best(work, first, end, totals_N, best):
    """Write the `best` continuations of a sentence, best first, and return their number, at most E.

    The sentence has the rows [first, end), with their likeliest tokens. A total adds the parent slot's total
    in `totals_N`. Leave out totals of -inf.
    """
    totals_E, parents_E, tokens_E = best
    count, size = 0, len(totals_E)
    for row in range(first, end):
        parent, steps_W, tokens_W = work.slots_R[row], work.steps_RW[row], work.likely_RW[row]
        for w in range(len(steps_W)):
            total = steps_W[w] + totals_N[parent]
            if not total > (totals_E[size - 1] if count == size else NEVER):
                break  # later candidates of the row are no better
            count = min(count + 1, size)
            e = count - 1
            while e > 0 and total > totals_E[e - 1]:
                totals_E[e], parents_E[e], tokens_E[e] = totals_E[e - 1], parents_E[e - 1], tokens_E[e - 1]
                e -= 1
            totals_E[e], parents_E[e], tokens_E[e] = total, parent, tokens_W[w]
    return count


@njit(**OPTIONS)
def _copy(values, copies, count):
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
    tokens_KT[k, age], totals_KT[k, age] = 0, total


@njit(**OPTIONS)
def _release(b, slot, length, state):
    """Take the path of a slot, of `length` nodes, away. Nodes on no other path become free."""
    for t in range(length):
        node = state.paths[b, slot, t]
        state.uses[node] -= 1
        if state.uses[node] == 0:
            state.free[state.counts[FREE]] = node
            state.counts[FREE] += 1


@njit(**OPTIONS)
def _changes(had_N, parents_N, has_N):
    """Return whether any slot gets another path than its own."""
    changes = False
    for slot in range(len(parents_N)):
        changes |= parents_N[slot] != slot or had_N[slot] != has_N[slot]
    return changes


@njit(**OPTIONS)
def _follow(b, had_N, parents_N, has_N, state):
    """Give each slot with `has_N` the tokens, totals and path of its parent. Other slots get no path.

    `had_N` is 1 for the slots with a path, which now has a node more than the slot has tokens.
    """
    slots, age = len(parents_N), state.ages[b]
    paths = np.empty((slots, age + 1), np.int32)
    tokens, totals = np.empty((slots, age), np.int64), np.empty((slots, age), np.float32)
    for slot in range(slots):
        if had_N[slot]:
            _copy(state.paths[b, slot], paths[slot], age + 1)
            _copy(state.tokens[b, slot], tokens[slot], age)
            _copy(state.token_totals[b, slot], totals[slot], age)
    for slot in range(slots):
        for t in range((age + 1) * has_N[slot]):
            state.uses[paths[parents_N[slot], t]] += 1
    for slot in range(slots):
        if had_N[slot]:
            _release(b, slot, age + 1, state)
    for slot in range(slots):
        if has_N[slot]:
            _copy(paths[parents_N[slot]], state.paths[b, slot], age + 1)
            _copy(tokens[parents_N[slot]], state.tokens[b, slot], age)
            _copy(totals[parents_N[slot]], state.token_totals[b, slot], age)


@njit(**OPTIONS)
def _continue(b, count, best, rules, state, had_N):
    """Apply the `count` best continuations of sentence `b`, whose slots in use are those with `had_N`.

    `best` has the totals, parents and tokens that `_find_best` wrote. A continuation with the end token
    finishes if it is among the first N, and is left out otherwise. The first N without end token become live.
    With one slot, none becomes live after an end token. A slot without a continuation becomes free.
    """
    totals_E, parents_E, tokens_E = best
    totals_N, age = state.totals[b], state.ages[b]
    slots = len(totals_N)
    newest_N, parents_N, has_N = (
        np.empty(slots, np.int64),
        np.empty(slots, np.int64),
        np.empty(slots, np.int64),
    )
    for slot in range(slots):
        newest_N[slot], parents_N[slot], has_N[slot] = 0, slot, 0
    live, over = 0, False
    for e in range(count):
        if tokens_E[e] != rules.end:
            if live < slots and not over:
                totals_N[live], parents_N[live], newest_N[live] = totals_E[e], parents_E[e], tokens_E[e]
                has_N[live] = 1
                live += 1
        elif e < slots:
            state.ended[b] += 1
            over = slots == 1  # greedy search ends when the end token is the likeliest token
            _end(b, totals_E[e] / _penalty(np.float32(age + 1), rules), totals_E[e], parents_E[e], state)
    for slot in range(live, slots):
        totals_N[slot] = NEVER
    if _changes(had_N, parents_N, has_N):
        _follow(b, had_N, parents_N, has_N, state)
    for slot in range(live):
        state.tokens[b, slot, age], state.token_totals[b, slot, age] = newest_N[slot], totals_N[slot]
    state.ages[b] = age + 1


@njit(**OPTIONS)
def _give_up(b, rules, state):
    """Drop live hypotheses of sentence `b` that cannot win, as `Beams.give_up_hopeless` does."""
    age, totals_N, worst = np.float32(state.ages[b]), state.totals[b], state.ended_scores[b, -1]
    longest = min(max(np.float32(rules.reach * age), np.float32(state.pieces[b])), np.float32(state.caps[b]))
    short, long = _penalty(age + np.float32(1), rules), _penalty(longest + np.float32(1), rules)
    enough = state.ended[b] >= rules.enough
    for slot in range(len(totals_N)):
        total = totals_N[slot]
        if total > NEVER and (enough or max(total / short, total / long) <= worst):
            totals_N[slot] = NEVER
            _release(b, slot, state.ages[b], state)


@njit(**OPTIONS)
def choose(work, rules, state):
    """Extend the hypotheses of each sentence by their best continuations. Mark sentences that are done."""
    slots, count = state.totals.shape[1], state.counts[ROWS]
    size = min(2 * slots, slots * work.steps_RW.shape[1])
    best = np.empty(size, np.float32), np.empty(size, np.int64), np.empty(size, np.int64)
    had_N = np.empty(slots, np.int64)
    first = 0
    while first < count:
        b, end = work.sentences_R[first], first
        while end < count and work.sentences_R[end] == b:
            end += 1
        for slot in range(slots):
            had_N[slot] = state.totals[b, slot] > NEVER
        broken = state.live[b] == BROKEN
        continuations = 0 if broken else _find_best(work, first, end, state.totals[b], best)
        first = end
        _continue(b, continuations, best, rules, state, had_N)
        _give_up(b, rules, state)
        live = False
        for slot in range(slots):
            live |= state.totals[b, slot] > NEVER
        if not live:
            state.live[b] = BROKEN if broken else DONE
            state.counts[FINISHED] += 1
