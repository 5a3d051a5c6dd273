"""Terms that a translation must contain, and their share of the beam.

Hypotheses form groups by their progress in the terms. The beam takes the best of each group first, then the
second best, and so on (Post & Vilar 2018). A hypothesis with an unlikely term thus competes only with others
that have the term, and the best position wins. Scores do not change.

Token ids are the code points of a text, because Python searches texts fastest.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import regex
import torch
from torch import Tensor

from nmt_cli.decoding.next_token.dispatch import top
from nmt_cli.text.glossary import IN_WORD

SPACE, JOINER = "\u2581", "@@"
"""The start of a SentencePiece token after a space, and the end of a BPE token inside a word."""

WORD_CHARACTER = regex.compile(IN_WORD, regex.V1)


@dataclass(frozen=True, slots=True)
class TermsWanted:
    """The terms that a translation must contain."""

    terms: tuple[tuple[str, ...], ...]
    """The forms of each term. A translation contains at least one of them. A form is a text of token ids."""

    joins: bool = False
    """Whether only tokens that end with "@@" join the next token. Otherwise tokens without a space do."""

    @property
    def sizes(self) -> list[int]:
        """Number of tokens of the longest form of each term."""
        return [max(map(len, forms)) for forms in self.terms]

    @property
    def least_tokens(self) -> int:
        """Number of tokens that suffice for all terms. One more token may have to end a word before them."""
        return sum(self.sizes) + 1


class Progress(NamedTuple):
    """What a hypothesis has of the terms."""

    group: int
    """Twice the number of complete terms, plus 1 if the hypothesis ends inside a form."""

    begun: int
    """Number of tokens at the end that begin a form."""

    missing: int
    """Number of terms that are not complete."""

    needed: int
    """Number of tokens that suffice to complete all terms, if no two share tokens."""

    at_risk: int
    """Number of tokens that suffice after any other token, which may interrupt or join the newest form."""

    following: frozenset[str]
    """The next tokens that start or continue forms of missing terms."""


class Candidate(NamedTuple):
    """A continuation of a row."""

    rank: float
    """Its total. Inside a form, the total after the form's first token: the rest has to follow anyway, and
    starting the form at another position would not avoid it."""

    group: int
    row: int
    token: int
    log_prob: float


class Row(NamedTuple):
    """A hypothesis of a sentence with terms."""

    number: int
    """Index in the rows of the step."""

    path: str
    """Its tokens."""

    total: float
    totals: Sequence[float]
    """The total after each token."""

    room: int
    """Number of tokens that may still come before the end mark, without those reserved for placeholders."""

    absent: frozenset[str]
    """Placeholders that the hypothesis still needs."""


class TermSentence(NamedTuple):
    """A sentence with terms, and its live hypotheses."""

    wanted: TermsWanted
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class TermsRule:
    """The sentences with terms in a step."""

    sentences: Sequence[TermSentence]
    entries: Sequence[str]
    """The vocabulary."""

    slots: int
    """Maximum number of hypotheses of a sentence."""

    def choose(self, log_probs_RV: Tensor, end: int) -> None:
        """Set to -inf all continuations of sentences with terms that the beam does not take.

        A hypothesis ends only with all terms. If the remaining room is just enough for missing terms, nothing
        else is allowed. A row to which other rules leave only the end mark may end.
        """
        rows = [row for sentence in self.sentences for row in sentence.rows]
        numbers = torch.tensor([row.number for row in rows], device=log_probs_RV.device)
        own_RV = log_probs_RV[numbers]
        values, tokens = (x.tolist() for x in top(own_RV, min(self.slots + 1, own_RV.shape[1])))
        states = [
            progress(row.path, sentence.wanted, self.entries)
            for sentence in self.sentences
            for row in sentence.rows
        ]
        # The end mark is always a candidate: all likely tokens may join a form that has just been completed.
        ahead = [[*map(ord, state.following), end] for state in states]
        cells = [(row.number, token) for row, own in zip(rows, ahead, strict=True) for token in own]
        starts = iter(log_probs_RV[_indices(cells, log_probs_RV)].tolist())
        likeliest = (zip(*pair, strict=True) for pair in zip(values, tokens, strict=True))
        each, chosen = zip(states, ahead, likeliest, strict=True), list[Candidate]()
        for sentence in self.sentences:
            candidates = list[Candidate]()
            for row, (state, own, others) in zip(sentence.rows, each, strict=False):
                forced = [(next(starts), token) for token in own]
                candidates += self._candidates(sentence.wanted, row, state, (*forced, *others), end)
            chosen += shared_out(candidates, self.slots)
        log_probs_RV[numbers] = -torch.inf
        values_C = torch.tensor([one.log_prob for one in chosen], dtype=log_probs_RV.dtype)
        at = _indices([(one.row, one.token) for one in chosen], log_probs_RV)
        log_probs_RV[at] = values_C.to(log_probs_RV.device)

    def _candidates(
        self,
        wanted: TermsWanted,
        row: Row,
        state: Progress,
        continuations: Iterable[tuple[float, int]],
        end: int,
    ) -> list[Candidate]:
        """Return the allowed ones of a row's `continuations`, pairs of a log-probability and a token. If none
        is allowed, return all, without the end mark if possible."""
        room = row.room - 1
        tight = room < state.at_risk
        found = dict[int, Candidate]()
        ruled_out = list[Candidate]()
        for log_prob, token in continuations:
            after, allowed = state, log_prob > -torch.inf
            if token in found or not allowed:
                continue
            if token == end:
                allowed = not state.missing
            elif tight or chr(token) in state.following:
                after = progress(row.path + chr(token), wanted, self.entries)
                reserved = max(wanted.sizes) if chr(token) in row.absent else 0
                allowed = not tight or after.needed <= room + reserved
            inside = token != end and chr(token) in state.following and after.begun > 1
            rank = row.totals[len(row.path) + 1 - after.begun] if inside else row.total + log_prob
            candidate = Candidate(rank, after.group, row.number, token, log_prob)
            if allowed:
                found[token] = candidate
            else:
                ruled_out.append(candidate)
        return [*found.values()] or [one for one in ruled_out if one.token != end] or ruled_out


def progress(path: str, wanted: TermsWanted, entries: Sequence[str]) -> Progress:
    """Return what the tokens `path` have of the terms. `entries` is the vocabulary."""
    sizes = wanted.sizes
    complete, needed, at_risk, saved, begun = 0, 0, 1, -1, 0
    following = set[str]()
    for forms, size in zip(wanted.terms, sizes, strict=True):
        if places := [place for form in forms for place in _places(form, path, wanted.joins, entries)]:
            complete += 1
            at_risk += size * all(place == len(path) for place in places)
            continue
        needed += size
        at_risk += size
        for form in forms:
            for length in _begun(form, path, wanted.joins, entries):
                following.add(form[length])
                saved, begun = max(saved, size - len(form) + length), max(begun, length)
    missing = len(wanted.terms) - complete
    group, needed = 2 * complete + (begun > 0), needed - saved if missing else 0
    return Progress(group, begun, missing, needed, at_risk, frozenset(following))


def _indices(cells: Sequence[tuple[int, int]], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows and the columns of `cells`, on the device of `like`."""
    rows, columns = torch.tensor(cells, dtype=torch.int64).view(-1, 2).T.to(like.device)
    return rows, columns


def shared_out(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """Return up to `count` candidates: the best of each group, then the second best, and so on."""
    groups = defaultdict[int, int](int)
    ranked = list[tuple[int, float, Candidate]]()
    for one in sorted(candidates, reverse=True):
        ranked.append((groups[one.group], -one.rank, one))
        groups[one.group] += 1
    return [one for _, _, one in sorted(ranked)[:count]]


def _places(form: str, path: str, joins: bool, entries: Sequence[str]) -> Iterator[int]:
    """Yield the end of each occurrence of `form` in `path` as whole words."""
    start = path.find(form)
    while start >= 0:
        end = start + len(form)
        if not _glued(path, start, joins, entries) and not _glued(path, end, joins, entries):
            yield end
        start = path.find(form, start + 1)


def _begun(form: str, path: str, joins: bool, entries: Sequence[str]) -> Iterator[int]:
    """Yield the number of tokens of each beginning of `form` at the end of `path`, 0 included."""
    for length in range(min(len(form) - 1, len(path)), -1, -1):
        start = len(path) - length
        if path.endswith(form[:length]) and not _glued(path + form[length], start, joins, entries):
            yield length


def _glued(path: str, place: int, joins: bool, entries: Sequence[str]) -> bool:
    """Return whether the tokens before and after `place` are parts of one word."""
    if not 0 < place < len(path):
        return False
    before, after = entries[ord(path[place - 1])], entries[ord(path[place])]
    if joins:
        return before.endswith(JOINER)
    return (
        bool(WORD_CHARACTER.fullmatch(before[-1:]) and WORD_CHARACTER.fullmatch(after[:1]))
        and after[:1] != SPACE
    )
