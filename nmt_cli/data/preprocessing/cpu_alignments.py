"""`Aligner` for many pairs, compiled by Numba.

Axes: S source words and T target words of a pair, K different pairs of words, W source words of the corpus.
"""

import numpy as np
from numba import boolean, float64, int32, int64, void

from nmt_cli.data.preprocessing.aligner import BASE, COUNTED, TINY, UNALIGNED
from nmt_cli.runtime.kernels.compiled import OPTIONS, added, njit

EXACT = OPTIONS | {"fastmath": False}  # sums in order, so that links do not depend on the processor


@njit(**EXACT)
def _row(key, first, end, keys_K):
    """Return the row of a pair of words, which is in [`first`, `end`), or 0 for an unknown one."""
    high = end
    while first < high:
        middle = (first + high) // 2
        if keys_K[middle] < key:
            first = middle + 1
        else:
            high = middle
    return first if first < end and keys_K[first] == key else np.int64(0)


@njit(**EXACT)
def _agree(p_AST, alone_S, alone_T, weight_ST, agreed_ST):
    """Do as `Aligner.agreed` without support. `p_AST` has the probabilities of both directions."""
    sources, targets = agreed_ST.shape
    for t in range(targets):
        weights, total = 0.0, 0.0
        for s in range(sources):
            weights += weight_ST[s, t]
        for s in range(sources):
            agreed_ST[s, t] = (1 - UNALIGNED) * weight_ST[s, t] / weights * p_AST[0, s, t]
            total += agreed_ST[s, t]
        for s in range(sources):
            agreed_ST[s, t] /= total + alone_T[t] + TINY
    scores_T = np.empty(targets)
    for s in range(sources):
        weights, total = 0.0, 0.0
        for t in range(targets):
            weights += weight_ST[s, t]
        for t in range(targets):
            scores_T[t] = (1 - UNALIGNED) * weight_ST[s, t] / weights * p_AST[1, s, t]
            total += scores_T[t]
        for t in range(targets):
            agreed_ST[s, t] *= scores_T[t] / (total + alone_S[s] + TINY)


@njit(**EXACT)
def _support(agreed_ST, weight_ST):
    """Multiply the weights of links by the support of the links before and after them."""
    sources, targets = agreed_ST.shape
    for s in range(sources):
        for t in range(targets):
            support = BASE
            if s and t:
                support += agreed_ST[s - 1, t - 1]
            if s + 1 < sources and t + 1 < targets:
                support += agreed_ST[s + 1, t + 1]
            weight_ST[s, t] *= support


@njit(
    void(int64, int64, int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, int32[::1]),
    **EXACT,
)
def find_rows(first, end, places, sources, targets, starts_W, keys_K, words, rows):
    """Write the row of each link of the pairs [`first`, `end`) in `keys_K`, or 0.

    - `places`: for each pair the positions of its first source word, first target word and first link, and at
      last the ends. Links are in order, source words first.
    - `starts_W`: the first row of each source word.
    - `words`: the number of target words, by which source words are multiplied in keys.
    """
    for pair in range(first, end):
        link = places[pair, 2]
        for s in range(places[pair, 0], places[pair + 1, 0]):
            source = sources[s]
            for t in range(places[pair, 1], places[pair + 1, 1]):
                key = source * words + targets[t]
                rows[link] = _row(key, starts_W[source], starts_W[source + 1], keys_K)
                link += 1


@njit(
    void(
        int64,
        int64,
        int64[:, ::1],
        int64[::1],
        int64[::1],
        int32[::1],
        float64[:, ::1],
        float64[::1],
        float64[::1],
        float64,
        boolean,
        int64[::1],
        float64[::1],
    ),
    **EXACT,
)
def align(
    first,
    end,
    places,
    sources,
    targets,
    rows,
    tables_AK,
    alone_of_sources,
    alone_of_targets,
    distance,
    supported,
    counts_K,
    agreed,
):
    """Compute the probabilities of all links of the pairs [`first`, `end`), see `Aligner`.

    - `places`, `rows`: as in `find_rows`.
    - `counts_K`: if not empty, probabilities are added to their rows, times `COUNTED`.
    - `agreed`: if not empty, probabilities are written here.
    """
    for pair in range(first, end):
        ids_S = sources[places[pair, 0] : places[pair + 1, 0]]
        ids_T = targets[places[pair, 1] : places[pair + 1, 1]]
        own, size = places[pair, 2], (len(ids_S), len(ids_T))
        p_AST, weight_ST, agreed_ST = np.empty((2, *size)), np.empty(size), np.empty(size)
        for s in range(size[0]):
            for t in range(size[1]):
                row = rows[own + s * size[1] + t]
                p_AST[0, s, t], p_AST[1, s, t] = tables_AK[0, row], tables_AK[1, row]
                weight_ST[s, t] = 1 / (1 + distance * abs((s + 0.5) / size[0] - (t + 0.5) / size[1]))
        alone_S, alone_T = alone_of_sources[ids_S], alone_of_targets[ids_T]
        _agree(p_AST, alone_S, alone_T, weight_ST, agreed_ST)
        if supported:
            _support(agreed_ST, weight_ST)
            _agree(p_AST, alone_S, alone_T, weight_ST, agreed_ST)
        for s in range(size[0]):
            for t in range(size[1]):
                link = own + s * size[1] + t
                if not len(counts_K):
                    agreed[link] = agreed_ST[s, t]
                elif agreed_ST[s, t] * COUNTED >= 0.5:
                    # Sums of integers do not depend on the order, so threads may share an array.
                    added(counts_K, rows[link], np.int64(agreed_ST[s, t] * COUNTED + 0.5))
