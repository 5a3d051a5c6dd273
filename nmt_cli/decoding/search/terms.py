"""Terms that a translation must contain, and their share of the beam.

Hypotheses form groups by their progress in the terms. The beam takes the best of each group first, then the
second best, and so on (Post & Vilar 2018). A hypothesis with an unlikely term thus competes only with others
that have the term, and the best position wins. Scores do not change.

Token ids are the code points of a text, because Python searches texts fastest.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
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

    total: float
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
        likeliest = {
            row.number: list(zip(*pair, strict=True)) for row, *pair in zip(rows, values, tokens, strict=True)
        }
        chosen = list[Candidate]()
        for sentence in self.sentences:
            candidates = list[Candidate]()
            for row in sentence.rows:
                candidates += self._candidates(sentence, row, likeliest[row.number], log_probs_RV, end)
            chosen += shared_out(candidates, self.slots)
        log_probs_RV[numbers] = -torch.inf
        values_C = torch.tensor([one.log_prob for one in chosen], dtype=log_probs_RV.dtype)
        at = torch.tensor([(one.row, one.token) for one in chosen], dtype=torch.int64).view(-1, 2)
        at_2C = at.T.to(log_probs_RV.device)
        log_probs_RV.index_put_((at_2C[0], at_2C[1]), values_C.to(log_probs_RV.device))

    def _candidates(
        self,
        sentence: TermSentence,
        row: Row,
        likeliest: Sequence[tuple[float, int]],
        log_probs_RV: Tensor,
        end: int,
    ) -> list[Candidate]:
        """Return the likeliest continuations of a row, and those that start or continue a form."""
        state = progress(row.path, sentence.wanted, self.entries)
        room = row.room - 1
        tight = room < state.at_risk
        forms = [ord(token) for token in state.following]
        forced = zip(log_probs_RV[row.number, forms].tolist(), forms, strict=True) if forms else ()
        others = [pair for pair in likeliest if chr(pair[1]) not in state.following]
        found = list[Candidate]()
        for log_prob, token in (*forced, *others):
            after = state
            if token == end:
                if state.missing:
                    continue
            elif tight or chr(token) in state.following:
                after = progress(row.path + chr(token), sentence.wanted, self.entries)
                reserved = max(sentence.wanted.sizes) if chr(token) in row.absent else 0
                if tight and after.needed > room + reserved:
                    continue
            if log_prob > -torch.inf:
                found.append(Candidate(row.total + log_prob, after.group, row.number, token, log_prob))
        if not found:
            found = [Candidate(row.total + p, 0, row.number, t, p) for p, t in others if p > -torch.inf]
        return found


def progress(path: str, wanted: TermsWanted, entries: Sequence[str]) -> Progress:
    """Return what the tokens `path` have of the terms. `entries` is the vocabulary."""
    sizes = wanted.sizes
    complete, needed, at_risk, saved, begun = 0, 0, 1, -1, False
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
                saved, begun = max(saved, size - len(form) + length), begun or length > 0
    missing = len(wanted.terms) - complete
    group, needed = 2 * complete + begun, needed - saved if missing else 0
    return Progress(group, missing, needed, at_risk, frozenset(following))


def shared_out(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """Return up to `count` candidates: the best of each group, then the second best, and so on."""
    groups = defaultdict[int, int](int)
    ranked = list[tuple[int, float, Candidate]]()
    for one in sorted(candidates, reverse=True):
        ranked.append((groups[one.group], -one.total, one))
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
