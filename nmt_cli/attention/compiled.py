"""Attention of a decoding step, compiled for the CPU by Numba. The reference is `cached.Masked`.

A node is a cached token, with a key and a value per head. B sentences have M nodes each. The R rows are the
newest tokens of hypotheses. H heads have K channels of keys and V of values. C columns are heads side by
side. Cached values are float32, or bfloat16 as uint16. A kernel reads only the nodes that a row sees. Rows of
a sentence are neighbours, so that shared nodes are read from memory once.
"""

import math

import numpy as np
from numba import boolean, float32, int32, int64, uint16, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, as_float32, exp, njit, rounded_as


@njit(void(boolean[:, :, :], int64[::1], int32[:, ::1], int32[::1]), **OPTIONS)
def list_nodes(seen_BNM, slots_R, nodes_RM, counts_R):
    """Write the nodes that each row sees to `nodes_RM`, ascending, and the number of nodes to `counts_R`.

    `seen_BNM` is True for the nodes that a slot sees. In `slots_R`, slot n of sentence b is b x N + n.
    """
    slots = seen_BNM.shape[1]
    for row in range(len(slots_R)):
        count = 0
        for node in range(seen_BNM.shape[2]):
            if seen_BNM[slots_R[row] // slots, slots_R[row] % slots, node]:
                nodes_RM[row, count] = node
                count += 1
        counts_R[row] = count


@njit(**OPTIONS)
def _attend_row(query_K, keys_MK, values_MV, nodes, scores, mixed_V):
    """Write the attention of one row and head over `nodes` to `mixed_V`. Without nodes, write zeros.

    `query_K` must be scaled already. `scores` is a buffer for a value per node.
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
    head, first, end, query_RC, keys_BHMK, values_BHMV, mixed_RC, work, sentences_R, nodes_RM, counts_R
):
    """Write the attention of one head to `mixed_RC`, for the rows in [first, end).

    Row r sees the first counts_R[r] nodes in nodes_RM[r] of sentence sentences_R[r]. The first H x K columns
    of `query_RC` are queries, not yet scaled. `work` is a buffer of K + V + M values.
    """
    width, value_width = keys_BHMK.shape[3], values_BHMV.shape[3]
    scale = np.float32(1.0 / math.sqrt(width))
    query_K, mixed_V, scores = work[:width], work[width : width + value_width], work[width + value_width :]
    for row in range(first, end):
        keys_MK, values_MV = keys_BHMK[sentences_R[row], head], values_BHMV[sentences_R[row], head]
        for k in range(width):
            query_K[k] = query_RC[row, head * width + k] * scale
        _attend_row(query_K, keys_MK, values_MV, nodes_RM[row, : counts_R[row]], scores, mixed_V)
        for v in range(value_width):
            mixed_RC[row, head * value_width + v] = mixed_V[v]


@njit(**OPTIONS)
def _store(new_C, cached_C):
    """Copy the first values of `new_C` to all of `cached_C`, rounded to the type of the cache."""
    for c in range(len(cached_C)):
        cached_C[c] = rounded_as(new_C[c], cached_C[c])


@njit(**OPTIONS)
def store_head(head, projected_RC, nodes_RH, keys_BHMK, values_BHMV):
    """Copy new keys and values of one head from `projected_RC` to the cache, as in `attend`."""
    sentences, heads, nodes, width = keys_BHMK.shape
    keys_NK = keys_BHMK.reshape(sentences * heads * nodes, width)
    values_NV = values_BHMV.reshape(sentences * heads * nodes, values_BHMV.shape[3])
    for row in range(len(nodes_RH)):
        node = nodes_RH[row, head]
        _store(projected_RC[row, (heads + head) * width :], keys_NK[node])
        _store(projected_RC[row, 2 * heads * width + head * values_NV.shape[1] :], values_NV[node])


SEEN = int64[::1], int32[:, ::1], int32[::1]
"""Types of `sentences_R`, `nodes_RM` and `counts_R` of `attend_head`."""


def _signature(cached):
    four = cached[:, :, :, ::1]
    return void(float32[:, ::1], int64[:, ::1], four, four, float32[:, ::1], *SEEN)


@njit([_signature(float32), _signature(uint16)], **OPTIONS)
def attend(projected_RC, nodes_RH, keys_BHMK, values_BHMV, mixed_RC, sentences_R, nodes_RM, counts_R):
    """Store new keys and values in the cache. Then write the attention of each row to `mixed_RC`.

    A row of `projected_RC` is a query, a key and a value, each with heads side by side. nodes_RH[r, h] is the
    index of the new node among all B x H x M cached ones. Rows after those of `nodes_RH` store nothing, and
    may be queries only. `attend_head` explains the last three arguments.
    """
    heads = keys_BHMK.shape[1]
    for head in range(heads):
        store_head(head, projected_RC, nodes_RH, keys_BHMK, values_BHMV)
    work = np.empty(keys_BHMK.shape[3] + values_BHMV.shape[3] + nodes_RM.shape[1], np.float32)
    seen = sentences_R, nodes_RM, counts_R
    first, rows = 0, len(mixed_RC)
    while first < rows:
        sentence = sentences_R[first]
        end = first + 1
        while end < rows and sentences_R[end] == sentence:
            end += 1
        # Heads in the outer loop: nodes that rows share are still in the processor's cache.
        for head in range(heads):
            attend_head(head, first, end, projected_RC, keys_BHMK, values_BHMV, mixed_RC, work, *seen)
        first = end
