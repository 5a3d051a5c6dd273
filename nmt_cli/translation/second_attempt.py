"""A second search for sentences whose translations loop or copy their source (`search.second_attempt`).

A fault is one of these two flags. The first search is as always. If its best hypothesis of a sentence has a
fault, and no other one is better, the sentence is searched again, with a rule that prevents the fault. The
source tokens and the probabilities of the model stay the same, so scores and alignments mean what they mean
after the first search. A hypothesis is better if it has no fault, and only some of the flags of the best.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import regex
from torch import Tensor

from nmt_cli.decoding.search.constraints import forbid_repeated_ngrams
from nmt_cli.decoding.search.hypotheses import History, Hypothesis, Rule, Sentence
from nmt_cli.text.placeholders import MASKED
from nmt_cli.translation.checks.output_checks import MARKUP, Flag, flags
from nmt_cli.translation.joiner import Joiner
from nmt_cli.translation.lines import Line

Hypotheses = Sequence[Hypothesis]

FAULTS: frozenset[Flag] = frozenset(("looping", "copied"))

REPEATED = 4
"""The size of n-grams that the second search for a loop writes only once. Of 87 loops of a student, none was
left with 2 to 4, three with 5 and six with 6. The model finds its texts with 4 likelier than those with 3."""

COPIED = 2
"""The size of n-grams of the source that the second search for a copy does not write. With 2, none of 7
copies was left, and they had BLEU 16.4 instead of 2.6. With 3, words of the source were left in between, BLEU
14.1. A final full stop, or none, repaired half of the copies of one text and none of another."""

NUMBER = regex.compile(r"\p{N}+(?:[^\s\p{L}\p{N}]\p{N}+)*")
"""A number, with separators inside."""


class SecondAttempts:
    """The sentences of a call that are searched a second time. Any thread may call the methods."""

    def __init__(self, joiner: Joiner) -> None:
        """`joiner` has the tokenizers that turn hypotheses into texts."""
        self._joiner = joiner
        self._first: dict[int, list[Hypothesis]] = {}
        """The hypotheses of the first search, by the key of the sentence."""

    def again(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> Sentence | None:
        """Return the sentence to search instead of accepting `hypotheses`, or None to accept them.

        It is None if the best has no fault, if another one is better, or after the second search.
        """
        if not hypotheses or sentence.key in self._first:
            return None
        first = _flags(self._joiner, sentence, hypotheses[0])
        if not first & FAULTS or _preferred(_flags(self._joiner, sentence, one) for one in hypotheses):
            return None
        self._first[sentence.key] = hypotheses
        if "looping" in first:
            rule = partial(forbid_repeated_ngrams, size=REPEATED)
            return replace(sentence, rule=partial(_both, sentence.rule, rule) if sentence.rule else rule)
        return replace(sentence, banned=[*sentence.banned, *self._copied(sentence)])

    def _copied(self, sentence: Sentence) -> list[list[int]]:
        """Return the n-grams of the source that the second search for a copy does not write."""
        target = self._joiner.tokenizers.target
        text = sentence.raw
        for rightly_copied in (MARKUP, MASKED, NUMBER):
            text = rightly_copied.sub(" ", text)
        # A translation may begin with the first token of its source after the language code.
        ids = [i for i in target.encode(target.prepare(text)) if i not in target.codes]
        required = {one for term in sentence.terms for form in term for one in _ngrams(form)}
        return [[*one] for one in _ngrams(ids) if one not in required]

    def better(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> list[Hypothesis] | None:
        """Return the accepted `hypotheses`. After a second search, return those of the first one, unless the
        preferred one of the second has only some of the flags of the best of the first."""
        if not (first := self._first.pop(sentence.key, None)):
            return hypotheses
        if not hypotheses:
            return first
        before = _flags(self._joiner, sentence, first[0])
        found = [_flags(self._joiner, sentence, one) for one in hypotheses]
        is_better = found[_preferred(found)] < before
        return [replace(one, repaired=True) for one in hypotheses] if is_better else first


def best_first(
    joiner: Joiner, line: Line, found: Sequence[Hypotheses | None], n_best: int
) -> list[Hypotheses | None]:
    """Return up to `n_best` hypotheses of each sentence of `line`. If the first has a fault, a better one, if
    any, comes before it."""
    result: list[Hypotheses | None] = []
    for sentence, hypotheses in zip(line.sentences, found, strict=True):
        if hypotheses and (best := _preferred(_flags(joiner, sentence, one) for one in hypotheses)):
            others = [*hypotheses[:best], *hypotheses[best + 1 :]]
            hypotheses = [replace(hypotheses[best], repaired=True), *others]
        result.append(hypotheses and hypotheses[:n_best])
    return result


def _preferred(found: Iterable[set[Flag]]) -> int:
    """Return the index of the first hypothesis that is better than the first of all, given the flags of each.
    Return 0 if none is better, or if the first of all has no fault."""
    # One by one, because nearly all sentences need the flags of the first alone.
    others = iter(found)
    first = next(others)
    if not first & FAULTS:
        return 0
    # An empty hypothesis has no fault, but it would lose the sentence.
    return next((number for number, one in enumerate(others, start=1) if not one & FAULTS and one < first), 0)


def _flags(joiner: Joiner, sentence: Sentence, hypothesis: Hypothesis) -> set[Flag]:
    """Return the flags of the translation of one sentence, without "markup" if alignments put all lost
    markup back later."""
    text, lengths = joiner.text(sentence, hypothesis), (len(sentence.tokens), len(hypothesis.tokens))
    found = {*flags(sentence.raw, text, *lengths, joiner.length_ratio)}
    if "markup" in found and not joiner.tokenizers.recipe.placeholders:
        # They put back no tags, and nothing that a model with symbols for placeholders lost.
        source, text = (MASKED.sub("", one) for one in (sentence.raw, text))
        found -= {"markup"} - {*flags(source, text, *lengths)}
    return found


def _ngrams(ids: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(ids[i : i + COPIED]) for i in range(len(ids) - COPIED + 1)]


def _both(first: Rule, second: Rule, log_probs_RV: Tensor, history: History, end: int) -> None:
    """Apply two rules. A function of a module, since worker processes get rules by pickling."""
    first(log_probs_RV, history, end)
    second(log_probs_RV, history, end)
