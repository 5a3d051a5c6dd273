"""A step of beam search once logits are known, compiled for the CPU by Numba.

It does what `dispatch.log_softmax`, `choose.best`, `Beams.follow` and the functions that give up hypotheses
do one after another. For a lone line, PyTorch takes longer to start each of these operations than to compute
it. Axes are named as in `beams.py`.
"""

import numpy as np
from numba import boolean, float32, int64, void

from nmt_cli.attention.compiled import log_softmax, top
from nmt_cli.machine.compiled import OPTIONS, float_at, njit, order_of

NEVER = np.float32(-np.inf)


@njit(int64(float32[:, ::1], int64[::1], int64[:, :, ::1], int64[::1], int64[::1]), **OPTIONS)
def rows(totals_BN, ages_B, tokens_BNT, places_R, newest_R):
    """Write the places in use and the newest token at each, see `Beams.rows`; returns how many they are."""
    found, places = 0, totals_BN.shape[1]
    for sentence in range(len(totals_BN)):
        for place in range(places):
            if totals_BN[sentence, place] > NEVER:
                places_R[found] = sentence * places + place
                newest_R[found] = tokens_BNT[sentence, place, max(ages_B[sentence] - 1, 0)]
                found += 1
    return found


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
def _end(total, score, age, tokens_T, totals_T, scores_K, lengths_K, tokens_KT, totals_KT):
    """Take a hypothesis that ends among the best, if it is one of them."""
    if not score > scores_K[-1]:
        return
    k = len(scores_K) - 1
    while k > 0 and score > scores_K[k - 1]:
        scores_K[k], lengths_K[k] = scores_K[k - 1], lengths_K[k - 1]
        tokens_KT[k], totals_KT[k] = tokens_KT[k - 1], totals_KT[k - 1]
        k -= 1
    scores_K[k], lengths_K[k] = score, age + 1
    tokens_KT[k, :age], totals_KT[k, :age] = tokens_T[:age], totals_T[:age]
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
def _give_up(age, cap, pieces, worst, reach, gnmt, exponent, totals_N):
    """See `Beams.give_up_hopeless`."""
    least = np.float32(age + 1)
    most = min(max(np.float32(reach * np.float32(age)), np.float32(pieces)), np.float32(cap)) + np.float32(1)
    short, long = _penalty(least, gnmt, exponent), _penalty(most, gnmt, exponent)
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


@njit(
    void(
        float32[:, ::1], boolean, int64[::1], int64[::1], int64, boolean, float32, float32, int64,
        int64[::1], int64[::1], int64[::1], float32[:, ::1], int64[:, :, ::1], float32[:, :, ::1],
        int64[::1], float32[:, ::1], int64[:, ::1], int64[:, :, ::1], float32[:, :, ::1], int64[:, ::1],
    ),
    **OPTIONS,
)  # fmt: skip
def go_on(
    x_RV, raw, places_R, banned, end, gnmt, exponent, reach, enough,
    ages_B, caps_B, pieces_B, totals_BN, tokens_BNT, token_totals_BNT,
    ended_B, scores_BK, lengths_BK, ended_tokens_BKT, ended_totals_BKT, parents_BN,
):  # fmt: skip
    """Let all hypotheses take their likeliest ways on; `parents_BN` then says where each place comes from.

    `x_RV` are logits if they are `raw`, of which some are `banned`, else log-probabilities, of rows that
    stand at `places_R`. Hypotheses that can't win are given up, and where `enough` have ended, all are.
    """
    sentences, places = totals_BN.shape
    ways = len(x_RV), min(places + 1, x_RV.shape[1])  # see `choose.ways_on`
    steps_RW, tokens_RW = np.empty(ways, np.float32), np.empty(ways, np.int64)
    _likeliest(x_RV, raw, banned, steps_RW, tokens_RW)
    most = min(2 * places, places * steps_RW.shape[1])
    ranked, parents, tokens = np.empty(most, np.float32), np.empty(most, np.int64), np.empty(most, np.int64)
    newest = np.empty(places, np.int64)
    first = 0
    for b in range(sentences):
        behind, age = first, ages_B[b]
        while behind < len(places_R) and places_R[behind] // places == b:
            behind += 1
        best = ranked, parents, tokens
        found = _rank(steps_RW, tokens_RW, places_R, first, behind, totals_BN[b], *best)
        first, live, over = behind, 0, False
        for e in range(found):
            if tokens[e] != end:
                if live < places and not over:
                    totals_BN[b, live], parents_BN[b, live], newest[live] = ranked[e], parents[e], tokens[e]
                    live += 1
            elif e < places:
                ended_B[b] += 1
                over = places == 1  # greedy search ends where the end is the likeliest
                kept = scores_BK[b], lengths_BK[b], ended_tokens_BKT[b], ended_totals_BKT[b]
                written = tokens_BNT[b, parents[e]], token_totals_BNT[b, parents[e]]
                score = ranked[e] / _penalty(np.float32(age + 1), gnmt, exponent)
                _end(ranked[e], score, age, *written, *kept)
        for place in range(live, places):
            totals_BN[b, place], parents_BN[b, place], newest[place] = NEVER, place, 0
        _grow(age, parents_BN[b], newest, totals_BN[b], tokens_BNT[b], token_totals_BNT[b])
        ages_B[b] = age + 1
        _give_up(age + 1, caps_B[b], pieces_B[b], scores_BK[b, -1], reach, gnmt, exponent, totals_BN[b])
        if ended_B[b] >= enough:
            totals_BN[b] = NEVER
