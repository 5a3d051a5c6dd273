"""Updates of the tree of hypotheses in a decoding cache, compiled for the CPU by Numba.

B sentences have N slots for hypotheses and a tree of M nodes each, one node per cached token. A path is the
set of nodes of a hypothesis. H heads. The PyTorch operations of `token_tree.py` are the reference.
"""

from collections import namedtuple

import numpy as np
from numba import boolean, int32, int64, types, void

from nmt_cli.runtime.kernels.compiled import OPTIONS, njit

Tree = namedtuple("Tree", "paths_BNM depths_BM ages_B")
"""The trees of a `DecodingCache`, as arrays with the names of its tensors."""

Rows = namedtuple("Rows", "slots_R nodes_PH seen_RM counts_R")
"""The rows of a step, with results of `take_nodes`. R rows, of which the first P get a node.

`slots_R` are the numbers of their slots: slot n of sentence b has number b x N + n. The results are, for each
head, the index of the new node among the [B x H x M] cached keys, `nodes_PH`, and the nodes that each row
attends to, oldest first: the first `counts_R` of `seen_RM`.
"""

TREE = types.NamedTuple((boolean[:, :, ::1], int64[:, ::1], int64[::1]), Tree)
ROWS = types.NamedTuple((int64[::1], int64[:, ::1], int32[:, ::1], int32[::1]), Rows)


@njit(**OPTIONS)
def _find_free(paths_BNM, used, free_BN):
    """Write to `free_BN` the first N nodes of each sentence that are on no path. Return True.

    If a sentence has fewer than N free nodes among the first `used`, return False, with `free_BN` incomplete.
    """
    sentences, slots, _ = paths_BNM.shape
    for sentence in range(sentences):
        count = node = 0
        while count < slots:
            if node == used:
                return False
            taken = False
            for slot in range(slots):
                taken |= paths_BNM[sentence, slot, node]
            if not taken:
                free_BN[sentence, count] = node
                count += 1
            node += 1
    return True


@njit(**OPTIONS)
def _list_seen(path_M, depths_M, used, newest, reach, seen_M):
    """Write the nodes of a path that are less than `reach` tokens before depth `newest` to `seen_M`.

    Order the nodes by depth, oldest first. Return their number. Search only the first `used` nodes.
    """
    count = 0
    for node in range(used):
        if not path_M[node] or newest - depths_M[node] >= reach:
            continue
        i = count
        while i > 0 and depths_M[seen_M[i - 1]] > depths_M[node]:
            seen_M[i] = seen_M[i - 1]
            i -= 1
        seen_M[i] = node
        count += 1
    return count


@njit(boolean(TREE, int64, int64, ROWS), **OPTIONS)
def take_nodes(tree, used, reach, rows):
    """Add a new node to the path of each of the first P rows. List the nodes that each row attends to.

    Slot n of a sentence takes the n-th free node among the first `used`. Return False, without a change, if a
    sentence has fewer than N free nodes there, else True. A row attends to its new node and path nodes less
    than `reach` tokens older. List them oldest first, as node numbers depend on other sentences.
    """
    sentences, slots, nodes = tree.paths_BNM.shape
    free_BN = np.empty((sentences, slots), np.int64)
    if not _find_free(tree.paths_BNM, used, free_BN):
        return False
    count, heads = rows.nodes_PH.shape
    for p in range(count):
        sentence, slot = rows.slots_R[p] // slots, rows.slots_R[p] % slots
        node = free_BN[sentence, slot]
        tree.paths_BNM[sentence, slot, node] = True
        tree.depths_BM[sentence, node] = tree.ages_B[sentence]
        for head in range(heads):
            rows.nodes_PH[p, head] = (sentence * heads + head) * nodes + node
    for row in range(len(rows.slots_R)):
        sentence, slot = rows.slots_R[row] // slots, rows.slots_R[row] % slots
        path_M, depths_M = tree.paths_BNM[sentence, slot], tree.depths_BM[sentence]
        rows.counts_R[row] = _list_seen(
            path_M, depths_M, used, tree.ages_B[sentence], reach, rows.seen_RM[row]
        )
    return True


@njit(void(boolean[:, :, ::1], int64[:, ::1], boolean[:, ::1]), **OPTIONS)
def follow(paths_BNM, parents_BN, in_use_BN):
    """Replace the path of each slot by that of its parent slot, in place. Slots not in use get no nodes."""
    for sentence in range(len(paths_BNM)):
        before_NM = paths_BNM[sentence].copy()
        for slot in range(paths_BNM.shape[1]):
            parent, used = parents_BN[sentence, slot], in_use_BN[sentence, slot]
            for node in range(paths_BNM.shape[2]):  # assigning a whole array takes 2 s to compile
                paths_BNM[sentence, slot, node] = used and before_NM[parent, node]
