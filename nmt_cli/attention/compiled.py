"""What a step of decoding computes besides matrix products, compiled for the CPU by Numba.

B sentences have cached keys and values of H heads at M nodes each; R rows are the newest tokens of their
hypotheses (`cached.py` says more). Attention reads those nodes only that a row sees, its path, and rows of
one sentence are neighbours, so that the nodes they share are read from memory once. Cached numbers are
float32, or bfloat16 as uint16.
"""

import math

import numpy as np
from numba import boolean, float32, int32, int64, uint16, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, as_float32, exp, njit, rounded_as


@njit(void(boolean[:, :, :], int64[::1], int32[:, ::1], int32[::1]), **OPTIONS)
def list_nodes(seen_BNM, places_R, nodes_RM, counts_R):
    """Write the nodes that the row at each place sees, in ascending order, and how many they are."""
    places = seen_BNM.shape[1]
    for row in range(len(places_R)):
        count = 0
        for node in range(seen_BNM.shape[2]):
            if seen_BNM[places_R[row] // places, places_R[row] % places, node]:
                nodes_RM[row, count] = node
                count += 1
        counts_R[row] = count


@njit(**OPTIONS)
def _walk(query_K, keys_MK, values_MV, nodes, scores, mixed_V):
    """Attention of one row with one head over the given nodes of its sentence, written to `mixed_V`.

    `scores` is room to work in, for at least as many numbers as there are nodes.
    """
    top = np.float32(-np.inf)
    for i in range(len(nodes)):
        key_K = keys_MK[nodes[i]]
        score = np.float32(0)
        for k in range(len(query_K)):
            score += query_K[k] * as_float32(key_K[k])
        scores[i] = score
        top = max(top, score)
    total = np.float32(0)
    for i in range(len(nodes)):
        scores[i] = exp(scores[i] - top)
        total += scores[i]
    mixed_V[:] = 0
    for i in range(len(nodes)):
        value_V = values_MV[nodes[i]]
        weight = scores[i] / total
        for v in range(len(mixed_V)):
            mixed_V[v] += weight * as_float32(value_V[v])


@njit(**OPTIONS)
def attend_head(
    head, first, behind, query_RC, keys_BHMK, values_BHMV, mixed_RC, work, sentences_R, nodes_RM, counts_R
):
    """The part of `attend` that is one head of some neighbouring rows.

    `work` is room for a query, a value, and as many numbers as a row may see nodes.
    """
    width, wide = keys_BHMK.shape[3], values_BHMV.shape[3]
    scale = np.float32(1.0 / math.sqrt(width))
    query_K, mixed_V, scores = work[:width], work[width : width + wide], work[width + wide :]
    for row in range(first, behind):
        keys_MK, values_MV = keys_BHMK[sentences_R[row], head], values_BHMV[sentences_R[row], head]
        for k in range(width):
            query_K[k] = query_RC[row, head * width + k] * scale
        _walk(query_K, keys_MK, values_MV, nodes_RM[row, : counts_R[row]], scores, mixed_V)
        for v in range(wide):
            mixed_RC[row, head * wide + v] = mixed_V[v]


@njit(**OPTIONS)
def _attend(query_RC, keys_BHMK, values_BHMV, mixed_RC, sentences_R, nodes_RM, counts_R):
    work = np.empty(keys_BHMK.shape[3] + values_BHMV.shape[3] + nodes_RM.shape[1], np.float32)
    seen = sentences_R, nodes_RM, counts_R
    first, rows = 0, len(mixed_RC)
    while first < rows:
        sentence = sentences_R[first]
        behind = first + 1
        while behind < rows and sentences_R[behind] == sentence:
            behind += 1
        # All rows with one head, then the next: what they share is still in the processor's cache.
        for head in range(keys_BHMK.shape[1]):
            attend_head(head, first, behind, query_RC, keys_BHMK, values_BHMV, mixed_RC, work, *seen)
        first = behind


SEEN = int64[::1], int32[:, ::1], int32[::1]
"""The sentence of each row, neighbours where it is the same; the nodes that it sees; how many these are."""


def _attend_signature(kept):
    four = kept[:, :, :, ::1]
    return void(float32[:, ::1], four, four, float32[:, ::1], *SEEN)


@njit([_attend_signature(float32), _attend_signature(uint16)], **OPTIONS)
def attend(query_RC, keys_BHMK, values_BHMV, mixed_RC, sentences_R, nodes_RM, counts_R):
    """Write to `mixed_RC` the attention of each row, heads side by side, over what it sees."""
    _attend(query_RC, keys_BHMK, values_BHMV, mixed_RC, sentences_R, nodes_RM, counts_R)


@njit(**OPTIONS)
def _keep(new_C, kept_C):
    for c in range(len(kept_C)):
        kept_C[c] = rounded_as(new_C[c], kept_C[c])


@njit(**OPTIONS)
def keep_head(head, projected_RC, nodes_RH, keys_BHMK, values_BHMV):
    """The part of `attend_newest` that keeps the keys and values of one head."""
    sentences, heads, nodes, width = keys_BHMK.shape
    keys_NK = keys_BHMK.reshape(sentences * heads * nodes, width)
    values_NV = values_BHMV.reshape(sentences * heads * nodes, values_BHMV.shape[3])
    for row in range(len(nodes_RH)):
        node = nodes_RH[row, head]
        _keep(projected_RC[row, (heads + head) * width :], keys_NK[node])
        _keep(projected_RC[row, 2 * heads * width + head * values_NV.shape[1] :], values_NV[node])


def _newest_signature(kept):
    four = kept[:, :, :, ::1]
    return void(float32[:, ::1], int64[:, ::1], four, four, float32[:, ::1], *SEEN)


@njit([_newest_signature(float32), _newest_signature(uint16)], **OPTIONS)
def attend_newest(projected_RC, nodes_RH, keys_BHMK, values_BHMV, mixed_RC, sentences_R, nodes_RM, counts_R):
    """Keep the keys and values of each row where `nodes_RH` says, among all nodes of all sentences; then as
    `attend`.

    A row of `projected_RC` is a query, a key and a value, each with its heads side by side. Rows behind those
    of `nodes_RH` are of no use.
    """
    for head in range(keys_BHMK.shape[1]):
        keep_head(head, projected_RC, nodes_RH, keys_BHMK, values_BHMV)
    _attend(projected_RC, keys_BHMK, values_BHMV, mixed_RC, sentences_R, nodes_RM, counts_R)
