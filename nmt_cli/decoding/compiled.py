"""A step of beam search once logits are known, or several whole steps of few rows, compiled for the CPU by
Numba.

The first does what `dispatch.log_softmax`, `choose.best`, `Beams.follow` and those that give up hypotheses do
one after another: for a lone line, PyTorch takes longer to begin each of their operations than to carry it
out. `steps` is begun once for all its steps, in as many threads as are free: one keeps the books, and all
take what there is to do of `model.compiled`. Axes are named as in `beams.py`.
"""

import numpy as np
from numba import boolean, float32, int32, int64, uint16, void
from numba.core.types import Tuple

from nmt_cli.attention.compiled import follow, list_nodes, log_softmax, take_nodes, top
from nmt_cli.machine.compiled import OPTIONS, added, float_at, njit, order_of
from nmt_cli.model.compiled import product, step

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


@njit(**OPTIONS)
def _open(start, books, tree, filled, lists):
    """Make the next step of all rows ready, and nodes for them; how many they are, 0 if there is no room."""
    ages_B, totals_BN, tokens_BNT = books[0], books[3], books[4]
    places_R, tokens_R, positions_R, sentences_R, nodes_RH, _ = filled
    nodes_RM, counts_R, source_BNM, source_RM, source_counts_R = lists
    found = rows(totals_BN, ages_B, tokens_BNT, places_R, tokens_R)
    here = places_R[:found]
    if not take_nodes(*tree, here, here, nodes_RH[:found], nodes_RM[:found], counts_R[:found]):
        return 0
    list_nodes(source_BNM, here, source_RM[:found], source_counts_R[:found])
    for row in range(found):
        sentences_R[row] = places_R[row] // totals_BN.shape[1]
        positions_R[row] = ages_B[sentences_R[row]]
        if positions_R[row] == 0:
            tokens_R[row] = start
    return found


@njit(**OPTIONS)
def _take_part(claims, model, sizes, output, room, rows, filled, lists):
    """The part of a step that this thread finds to do, up to the logits."""
    _, tokens_R, positions_R, sentences_R, nodes_RH, _ = filled
    nodes_RM, counts_R, _, source_RM, source_counts_R = lists
    x_RD, input_RD, wide_RC, mixed_RC, y_RD, logits_RV = room
    buffers = x_RD[:rows], input_RD[:rows], wide_RC[:rows], mixed_RC[:rows], y_RD[:rows]
    own = sentences_R[:rows], nodes_RM[:rows], counts_R[:rows]
    source = sentences_R[:rows], source_RM[:rows], source_counts_R[:rows]
    step(
        *(claims[0], tokens_R[:rows], positions_R[:rows], *model, *buffers, sizes),
        *(nodes_RH[:rows], *own, *source),
    )
    matrix, bias_O, scale_O, levels = output
    product(claims[1], matrix, input_RD[:rows], logits_RV[:rows], bias_O, scale_O, levels)


@njit(**OPTIONS)
def _close(x_RV, rules, books, tree, filled):
    """What is to be done once logits are known; how many sentences then go on."""
    totals_BN, paths_BNM, ages_B, parents_BN = books[3], tree[0], tree[2], filled[-1]
    go_on(x_RV, True, filled[0][: len(x_RV)], *rules, *books, parents_BN)
    follow(paths_BNM, parents_BN, totals_BN > NEVER)
    for b in range(len(ages_B)):
        ages_B[b] += 1
    return _going(totals_BN)


@njit(**OPTIONS)
def _going(totals_BN):
    """How many sentences have a place in use."""
    going = 0
    for b in range(len(totals_BN)):
        for place in range(totals_BN.shape[1]):
            if totals_BN[b, place] > NEVER:
                going += 1
                break
    return going


def _signature(kept):
    floats, numbers, lists = float32[:, ::1], int64[::1], (int32[:, ::1], int32[::1])
    sums = float32[:, :, ::1]
    model = (
        floats, floats, float32, int64[:, ::1], int64[:, ::1], kept[::1], floats, floats, sums, float32,
        boolean,
    )  # fmt: skip
    books = (
        numbers, numbers, numbers, floats, int64[:, :, ::1], sums, numbers, floats, int64[:, ::1],
        int64[:, :, ::1], sums,
    )  # fmt: skip
    return void(
        *(numbers, boolean, int64[:, :, ::1], int64[:, :, ::1], numbers),
        *(Tuple(model), numbers, Tuple((int64, float32[::1], float32[::1], int64)), Tuple((floats,) * 6)),
        *(int64, Tuple((numbers, int64, boolean, float32, float32, int64)), Tuple(books)),
        Tuple((boolean[:, :, ::1], int64[:, ::1], numbers, int64, int64)),
        Tuple((*(numbers,) * 4, int64[:, ::1], int64[:, ::1])),
        Tuple((*lists, boolean[:, :, :], *lists)),
    )


@njit([_signature(float32), _signature(uint16)], **OPTIONS)
def steps(
    opened, leads, claims_S2P, output_claims_S2P, rows_S, model, sizes, output, room, start, rules, books,
    tree, filled, lists,
):  # fmt: skip
    """Take up to S steps; the thread that `leads` keeps the books, others find what else there is to do.

    `filled` and `lists` are room for what is told of each step's rows, but for the source's mask.

    It opens each step, whose number of rows then stands in `rows_S`, and takes no more of them once a
    sentence is done, or there is no room for nodes. Others end where a step is open that has no rows.
    """
    going = _going(books[3]) if leads else 0
    for s in range(len(rows_S)):
        if leads:
            rows_S[s] = _open(start, books, tree, filled, lists)
            added(opened, 0, 1)
        while added(opened, 0, 0) <= s:
            pass
        if not rows_S[s]:
            break
        claims = claims_S2P[s], output_claims_S2P[s]
        _take_part(claims, model, sizes, output, room, rows_S[s], filled, lists)
        if leads and _close(room[-1][: rows_S[s]], rules, books, tree, filled) < going:
            break
