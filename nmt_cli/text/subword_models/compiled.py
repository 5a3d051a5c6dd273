"""Learning byte-pair merges, compiled for the CPU by Numba: the merges of subword-nmt, much sooner.

Pieces, pairs of pieces and words are numbers. A piece stands for its string: two merges that give the same
string give the same piece. Which of several pairs with the same count is merged, and what becomes of counts
that subword-nmt sets aside for speed, is as there, so that its codes are the same to the byte.
"""

from collections import namedtuple

import numpy as np
from numba import int64

from nmt_cli.runtime.kernels.compiled import njit

OPTIONS = {"nogil": True}

SELDOM = 2
"""A pair that occurs less often than this is not merged."""

SET_ASIDE_EVERY = 100
"""After so many merges the counts of rare pairs are set aside."""

PAIR = np.dtype([(name, np.int64) for name in ("left", "right", "count", "aside", "active", "last")])
"""A pair: its pieces, its count, the count that was set aside, whether it is active, its last link."""

LINK = np.dtype([(name, np.int64) for name in ("word", "times", "before")])
"""A link in the chain from a pair to the words that hold it, or did: how many times, and the link before."""

Table = namedtuple("Table", "pairs links active by_pieces by_word lengths")
"""All pairs and links, the numbers of active pairs in no order, hash tables of the numbers of pairs by their
pieces and of links by pair and word, and how many pairs, links and active ones there are."""

PAIRS, LINKS, ACTIVE = range(3)

LARGEST_KEY = (1 << 62) - 1


def learn_merges(symbols, starts, counts, letters, letter_starts, wanted):
    """At most `wanted` merges of words, as rows of left piece, right piece, their piece.

    Word w is `symbols` from starts[w] to starts[w + 1], which are overwritten, and occurs counts[w] times;
    piece p is `letters` from letter_starts[p] to letter_starts[p + 1].
    """
    nothing = [np.zeros(0, kind) for kind in (PAIR, LINK, np.int64)]
    empty = Table(*nothing, _hash_table(), _hash_table(), np.zeros(3, np.int64))
    return _learn(empty, symbols, starts, counts, letters, letter_starts, wanted)


@njit(**OPTIONS)
def _learn(table, symbols, starts, counts, letters, letter_starts, wanted):
    pieces = len(letter_starts) - 1
    known = _known(letters, letter_starts)
    sizes = starts[1:] - starts[:-1]
    table = _with_room(table, len(symbols))
    for word in range(len(sizes)):
        for i in range(starts[word], starts[word + 1] - 1):
            _add(table, symbols[i], symbols[i + 1], word, counts[word])
    for pair in table.pairs:
        pair.aside = pair.count
    merges = np.zeros((wanted, 3), np.int64)
    best = _best(table, letters, letter_starts)
    threshold = table.pairs[best].count / 10
    for number in range(wanted):
        if best < 0 or (number and table.pairs[best].count < threshold):
            # The best pair may be one that was set aside.
            _set_aside(table, threshold)
            _take_back(table)
            best = _best(table, letters, letter_starts)
            threshold = table.pairs[best].count * number / (number + 10_000.0)
            _set_aside(table, threshold)
        if table.pairs[best].count < SELDOM:
            return merges[:number]
        left, right = table.pairs[best].left, table.pairs[best].right
        letters = _grown(letters, 2 * letter_starts[pieces])
        letter_starts = _grown(letter_starts, pieces + 2)
        known = _roomy(known, pieces)
        joined = _joined(known, letters, letter_starts, left, right, pieces)
        pieces += joined == pieces
        merges[number] = left, right, joined
        for word in _released(table, best):
            row = symbols[starts[word] : starts[word] + sizes[word]]
            table = _with_room(table, 2 * len(row))
            before = row.copy()
            sizes[word] = _merge(row, left, right, joined)
            _recount(table, before, row[: sizes[word]], left, right, joined, word, counts[word])
        table.pairs[best].count = 0
        if number % SET_ASIDE_EVERY == 0:
            _set_aside(table, threshold)
        best = _best(table, letters, letter_starts)
    return merges


@njit(**OPTIONS)
def _recount(table, before, after, left, right, joined, word, count):
    """Change the counts of the pairs that one word held `before` and holds `after` the merge."""
    i, last = 0, len(before) - 1
    while i < last:
        if before[i] != left or before[i + 1] != right:
            i += 1
            continue
        if i:
            _add(table, before[i - 1], left, word, -count)
        # In A B C B C the pair C B is also the one before the next B C, and is counted there.
        again = i + 3 <= last and before[i + 2] == left and before[i + 3] == right
        if i + 2 <= last and not again:
            _add(table, right, before[i + 2], word, -count)
        i += 2
    for i in range(len(after)):
        if after[i] == joined:
            if i:
                _add(table, after[i - 1], joined, word, count)
            if i + 1 < len(after) and after[i + 1] != joined:
                _add(table, joined, after[i + 1], word, count)


@njit(**OPTIONS)
def _add(table, left, right, word, count):
    """Count a pair of a word that occurs `count` times, or with a negative `count` take one back."""
    row = _row(table.by_pieces, left << 32 | right)
    if table.by_pieces[row, 0] < 0:
        new = table.pairs[table.lengths[PAIRS]]
        new.left, new.right, new.last = left, right, -1
        table.by_pieces[row] = left << 32 | right, table.lengths[PAIRS]
        table.lengths[PAIRS] += 1
    number = table.by_pieces[row, 1]
    pair = table.pairs[number]
    pair.count += count
    if not pair.active:
        pair.active = 1
        table.active[table.lengths[ACTIVE]] = number
        table.lengths[ACTIVE] += 1
    row = _row(table.by_word, number << 32 | word)
    if table.by_word[row, 0] < 0:
        new_link = table.links[table.lengths[LINKS]]
        new_link.word, new_link.before = word, pair.last
        pair.last = table.lengths[LINKS]
        table.by_word[row] = number << 32 | word, pair.last
        table.lengths[LINKS] += 1
    table.links[table.by_word[row, 1]].times += 1 if count > 0 else -1


@njit(**OPTIONS)
def _released(table, number):
    """The words that hold a pair; from now on it counts as held by none."""
    words = np.zeros(16, np.int64)
    held = 0
    place = table.pairs[number].last
    while place >= 0:
        link = table.links[place]
        if link.times > 0:
            words = _grown(words, held + 1)
            words[held] = link.word
            held += 1
        link.times = 0
        place = link.before
    return words[:held]


@njit(**OPTIONS)
def _merge(row, left, right, joined):
    """Merge a pair in a word, in place, from the left; returns its new length."""
    size = i = 0
    while i < len(row):
        found = i + 1 < len(row) and row[i] == left and row[i + 1] == right
        row[size] = joined if found else row[i]
        size += 1
        i += 1 + found
    return size


@njit(**OPTIONS)
def _best(table, letters, starts):
    """The active pair with the greatest count, of several the last by the strings of its pieces; -1 for
    none."""
    best = -1
    for i in range(table.lengths[ACTIVE]):
        pair, other = table.pairs[table.active[i]], table.pairs[best]
        if best >= 0 and pair.count < other.count:
            continue
        if best >= 0 and pair.count == other.count:
            order = _order(letters, starts, pair.left, other.left)
            if (order or _order(letters, starts, pair.right, other.right)) < 0:
                continue
        best = table.active[i]
    return best


@njit(**OPTIONS)
def _set_aside(table, threshold):
    """Make pairs inactive whose counts are below `threshold`."""
    kept = 0
    for i in range(table.lengths[ACTIVE]):
        pair = table.pairs[table.active[i]]
        if pair.count >= threshold:
            table.active[kept] = table.active[i]
            kept += 1
        else:
            # A negative count is what was taken back since the rest was set aside.
            pair.aside = pair.count + (pair.aside if pair.count < 0 else 0)
            pair.count = pair.active = 0
    table.lengths[ACTIVE] = kept


@njit(**OPTIONS)
def _take_back(table):
    """Make all pairs active, with the counts that were set aside."""
    for number in range(table.lengths[PAIRS]):
        pair = table.pairs[number]
        pair.count, pair.active, table.active[number] = pair.aside, 1, number
    table.lengths[ACTIVE] = table.lengths[PAIRS]


@njit(**OPTIONS)
def _order(letters, starts, piece, other):
    """Negative, 0 or positive, as the string of `piece` comes before, is or comes after that of `other`."""
    length, length_of_other = starts[piece + 1] - starts[piece], starts[other + 1] - starts[other]
    for i in range(min(length, length_of_other)):
        difference = letters[starts[piece] + i] - letters[starts[other] + i]
        if difference:
            return difference
    return length - length_of_other


@njit(**OPTIONS)
def _joined(known, letters, starts, left, right, new):
    """The piece with the string of two pieces together; `new`, where it is written, if it is a new one."""
    place = starts[new]
    for piece in (left, right):
        for i in range(starts[piece], starts[piece + 1]):
            letters[place] = letters[i]
            place += 1
    starts[new + 1] = place
    return _piece(known, letters, starts, new)


@njit(**OPTIONS)
def _known(letters, starts):
    """A hash table of all pieces by their letters."""
    known = _hash_table()
    for piece in range(len(starts) - 1):
        known = _roomy(known, piece)
        _piece(known, letters, starts, piece)
    return known


@njit(**OPTIONS)
def _piece(known, letters, starts, new):
    """The known piece with the string of `new`, which becomes known if there is none."""
    key = int64(0)
    for i in range(starts[new], starts[new + 1]):
        key = (key * 1_000_003 + letters[i]) & LARGEST_KEY
    # Another string may have made the same key: then the next one is tried.
    row = _row(known, key)
    while known[row, 0] >= 0:
        if _order(letters, starts, known[row, 1], new) == 0:
            return known[row, 1]
        key = (key + 1) & LARGEST_KEY
        row = _row(known, key)
    known[row] = key, new
    return new


@njit(**OPTIONS)
def _hash_table():
    """Rows of key and value, a power of 2 of them; those with the key -1 are free."""
    return np.full((16, 2), -1, np.int64)


@njit(**OPTIONS)
def _row(table, key):
    """The row that has a key, or the free one where it belongs."""
    mixed = key * 0x9E3779B97F4A7C1
    row = (mixed ^ (mixed >> 32)) & (len(table) - 1)
    while table[row, 0] != key and table[row, 0] >= 0:
        row = (row + 1) & (len(table) - 1)
    return row


@njit(**OPTIONS)
def _roomy(table, entries):
    """A copy of a hash table, or itself where `entries` and one more leave half of it free."""
    size = len(table)
    while size < 2 * (entries + 1):
        size *= 2
    if size == len(table):
        return table
    larger = np.full((size, 2), -1, np.int64)
    for i in range(len(table)):
        if table[i, 0] >= 0:
            larger[_row(larger, table[i, 0])] = table[i]
    return larger


@njit(**OPTIONS)
def _with_room(table, more):
    """The table with room for so many `more` pairs and links."""
    pairs, links = table.lengths[PAIRS] + more, table.lengths[LINKS] + more
    return Table(
        _grown(table.pairs, pairs),
        _grown(table.links, links),
        _grown(table.active, pairs),
        _roomy(table.by_pieces, pairs),
        _roomy(table.by_word, links),
        table.lengths,
    )


@njit(**OPTIONS)
def _grown(array, size):
    """The array, or a copy of it with twice that room where it has less than `size`."""
    if size <= len(array):
        return array
    larger = np.zeros(2 * size, array.dtype)
    larger[: len(array)] = array
    return larger
