"""Learning of byte-pair merges, compiled by Numba: the same merges as subword-nmt in much less time.

Pieces, pairs of pieces and words are numbers. Two merges with the same string give the same piece. Like
subword-nmt, the learner orders pairs with equal counts and sets rare counts aside for speed. So the codes are
the same byte for byte.
"""

from collections import namedtuple

import numpy as np
from numba import int64

from nmt_cli.runtime.kernels.compiled import njit

OPTIONS = {"nogil": True}

MIN_COUNT = 2
"""Minimum count of a pair that is merged."""

SET_ASIDE_EVERY = 100
"""Number of merges after which the counts of rare pairs are set aside."""

PAIR = np.dtype([(name, np.int64) for name in ("left", "right", "count", "aside", "active", "last")])
"""A pair: its pieces, its count, the count set aside, 1 if it is active, and its last link."""

LINK = np.dtype([(name, np.int64) for name in ("word", "times", "before")])
"""A link in the chain from a pair to its words: a word, its number of such pairs, and the link before."""

Table = namedtuple("Table", "pairs links active by_pieces by_word lengths")
"""All pairs and links. `active` has the numbers of the active pairs in any order. `by_pieces` is a hash table
of pairs by their pieces, and `by_word` one of links by pair and word. `lengths` has the numbers of pairs, of
links and of active pairs."""

PAIRS, LINKS, ACTIVE = range(3)

LARGEST_KEY = (1 << 62) - 1


def learn_merges(symbols, starts, counts, letters, letter_starts, limit):
    """Return at most `limit` merges of words, as rows of left piece, right piece and merged piece.

    Word w is `symbols` from starts[w] to starts[w + 1], and occurs counts[w] times. Piece p is `letters` from
    letter_starts[p] to letter_starts[p + 1]. New pieces get the next numbers. Each merged pair occurs at
    least twice. `symbols` is overwritten.
    """
    nothing = [np.zeros(0, kind) for kind in (PAIR, LINK, np.int64)]
    empty = Table(*nothing, _hash_table(), _hash_table(), np.zeros(3, np.int64))
    return _learn(empty, symbols, starts, counts, letters, letter_starts, limit)


@njit(**OPTIONS)
def _learn(table, symbols, starts, counts, letters, letter_starts, limit):
    """Return the merges of `learn_merges`. Fill `table`, which must be empty, and overwrite `symbols`."""
    pieces = len(letter_starts) - 1
    by_letters = _by_letters(letters, letter_starts)
    sizes = starts[1:] - starts[:-1]
    table = _with_room(table, len(symbols))
    for word in range(len(sizes)):
        for i in range(starts[word], starts[word + 1] - 1):
            _add(table, symbols[i], symbols[i + 1], word, counts[word])
    for pair in table.pairs:
        pair.aside = pair.count
    merges = np.zeros((limit, 3), np.int64)
    best = _best(table, letters, letter_starts)
    threshold = table.pairs[best].count / 10
    for number in range(limit):
        if best < 0 or (number and table.pairs[best].count < threshold):
            # The best pair may have been set aside.
            _set_aside(table, threshold)
            _take_back(table)
            best = _best(table, letters, letter_starts)
            threshold = table.pairs[best].count * number / (number + 10_000.0)
            _set_aside(table, threshold)
        if table.pairs[best].count < MIN_COUNT:
            return merges[:number]
        left, right = table.pairs[best].left, table.pairs[best].right
        letters = _grown(letters, 2 * letter_starts[pieces])
        letter_starts = _grown(letter_starts, pieces + 2)
        by_letters = _roomy(by_letters, pieces)
        joined = _joined(by_letters, letters, letter_starts, left, right, pieces)
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
    """Update the pair counts in `table` after a merge in a word that occurs `count` times. `before` and
    `after` are the word's pieces before and after it. Subtract pairs that the merge removes, except (left,
    right), and add pairs with `joined`."""
    i, last = 0, len(before) - 1
    while i < last:
        if before[i] != left or before[i + 1] != right:
            i += 1
            continue
        if i:
            _add(table, before[i - 1], left, word, -count)
        # In A B C B C the pair C B comes before the second B C and is counted there.
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
    """Add `count` occurrences of a pair in a word, or remove some if `count` is negative. Activate a new or
    inactive pair. Update its link to the word. `table` must have room."""
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
    """Return the numbers of the words that contain pair `number`, latest first. Set the occurrences in all
    links of the pair to 0."""
    words = np.zeros(16, np.int64)
    count = 0
    position = table.pairs[number].last
    while position >= 0:
        link = table.links[position]
        if link.times > 0:
            words = _grown(words, count + 1)
            words[count] = link.word
            count += 1
        link.times = 0
        position = link.before
    return words[:count]


@njit(**OPTIONS)
def _merge(row, left, right, joined):
    """Replace `left`, `right` by `joined` in the pieces `row`, from left to right. Return the new length."""
    size = i = 0
    while i < len(row):
        matches = i + 1 < len(row) and row[i] == left and row[i + 1] == right
        row[size] = joined if matches else row[i]
        size += 1
        i += 1 + matches
    return size


@njit(**OPTIONS)
def _best(table, letters, starts):
    """Return the number of the active pair with the maximum count, or -1 if none is active. Among equal
    counts, return the last in the order of the pieces' strings."""
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
    """Make active pairs with counts below `threshold` inactive. Replace `aside` by the count or, if the count
    is negative, add it to `aside`. Then set the count to 0."""
    remaining = 0
    for i in range(table.lengths[ACTIVE]):
        pair = table.pairs[table.active[i]]
        if pair.count >= threshold:
            table.active[remaining] = table.active[i]
            remaining += 1
        else:
            # A negative count is a change since the count was set aside.
            pair.aside = pair.count + (pair.aside if pair.count < 0 else 0)
            pair.count = pair.active = 0
    table.lengths[ACTIVE] = remaining


@njit(**OPTIONS)
def _take_back(table):
    """Make all pairs active again, with the counts that were set aside."""
    for number in range(table.lengths[PAIRS]):
        pair = table.pairs[number]
        pair.count, pair.active, table.active[number] = pair.aside, 1, number
    table.lengths[ACTIVE] = table.lengths[PAIRS]


@njit(**OPTIONS)
def _order(letters, starts, piece, other):
    """Compare the strings of two pieces. If `piece` is first, return a negative number. If both are equal,
    return 0, otherwise a positive number."""
    length, length_of_other = starts[piece + 1] - starts[piece], starts[other + 1] - starts[other]
    for i in range(min(length, length_of_other)):
        difference = letters[starts[piece] + i] - letters[starts[other] + i]
        if difference:
            return difference
    return length - length_of_other


@njit(**OPTIONS)
def _joined(by_letters, letters, starts, left, right, new):
    """Write the strings of `left` and `right`, joined, to `letters` as piece `new`. Update `starts`. Return
    the first piece in `by_letters` with that string. If there is none, add and return `new`."""
    position = starts[new]
    for piece in (left, right):
        for i in range(starts[piece], starts[piece + 1]):
            letters[position] = letters[i]
            position += 1
    starts[new + 1] = position
    return _piece(by_letters, letters, starts, new)


@njit(**OPTIONS)
def _by_letters(letters, starts):
    """Return a hash table of all pieces by their strings. Of pieces with equal strings, keep the first."""
    by_letters = _hash_table()
    for piece in range(len(starts) - 1):
        by_letters = _roomy(by_letters, piece)
        _piece(by_letters, letters, starts, piece)
    return by_letters


@njit(**OPTIONS)
def _piece(by_letters, letters, starts, new):
    """Return the piece in the hash table with the string of `new`. If there is none, add and return `new`."""
    key = int64(0)
    for i in range(starts[new], starts[new + 1]):
        key = (key * 1_000_003 + letters[i]) & LARGEST_KEY
    # Different strings may have the same key. Then the next key is tried.
    row = _row(by_letters, key)
    while by_letters[row, 0] >= 0:
        if _order(letters, starts, by_letters[row, 1], new) == 0:
            return by_letters[row, 1]
        key = (key + 1) & LARGEST_KEY
        row = _row(by_letters, key)
    by_letters[row] = key, new
    return new


@njit(**OPTIONS)
def _hash_table():
    """Return an empty hash table, [16, 2]: each row has a key and a value. A free row has the key -1."""
    return np.full((16, 2), -1, np.int64)


@njit(**OPTIONS)
def _row(table, key):
    """Return the index of the row of `key` in a hash table. If `key` is missing, return a free row for it."""
    mixed = key * 0x9E3779B97F4A7C1
    row = (mixed ^ (mixed >> 32)) & (len(table) - 1)
    while table[row, 0] != key and table[row, 0] >= 0:
        row = (row + 1) & (len(table) - 1)
    return row


@njit(**OPTIONS)
def _roomy(table, entries):
    """Return `table`, or a larger copy if `entries` + 1 entries would fill over half of it."""
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
    """Return `table` with room for `more` further pairs and links. Copy arrays that are too small."""
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
    """Return `array` if it has at least `size` entries, otherwise a copy of twice `size`, ending in zeros."""
    if size <= len(array):
        return array
    larger = np.zeros(2 * size, array.dtype)
    larger[: len(array)] = array
    return larger
