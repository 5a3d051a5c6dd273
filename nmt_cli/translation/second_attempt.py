"""A second search for sentences whose translations loop or copy their source (`search.second_attempt`).

A fault is one of these two flags. The first search is as always. If each of its hypotheses of a sentence has
a fault, the sentence is searched again, with a rule that prevents the fault. The source tokens and the
probabilities of the model stay the same, so scores and alignments mean what they mean after the first search.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from nmt_cli.decoding.search.constraints import forbid_repeated_ngrams
from nmt_cli.decoding.search.hypotheses import History, Hypothesis, Rule, Sentence
from nmt_cli.text.placeholders import MASKED
from nmt_cli.translation.checks.output_checks import Flag, flags
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


class SecondAttempts:
    """The sentences of a call that are searched a second time. Any thread may call the methods."""

    def __init__(self, joiner: Joiner) -> None:
        """`joiner` has the tokenizers that turn hypotheses into texts."""
        self._joiner = joiner
        self._first: dict[int, list[Hypothesis]] = {}
        """The hypotheses of the first search, by the key of the sentence."""

    def again(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> Sentence | None:
        """Return the sentence to search instead of accepting `hypotheses`, or None to accept them.

        It is None if one of them has no fault, or after the second search.
        """
        if not hypotheses or sentence.key in self._first:
            return None
        faults = [_flags(self._joiner, sentence, one) & FAULTS for one in hypotheses]
        if not all(faults):
            return None
        self._first[sentence.key] = hypotheses
        if "looping" in faults[0]:
            rule = partial(forbid_repeated_ngrams, size=REPEATED)
            return replace(sentence, rule=partial(_both, sentence.rule, rule) if sentence.rule else rule)
        target = self._joiner.tokenizers.target
        # Addresses are copied rightly.
        ids = target.encode(target.prepare(MASKED.sub(" ", sentence.raw)))
        copied = [ids[i : i + COPIED] for i in range(len(ids) - COPIED + 1)]
        return replace(sentence, banned=[*sentence.banned, *copied])

    def better(self, sentence: Sentence, hypotheses: list[Hypothesis] | None) -> list[Hypothesis] | None:
        """Return the accepted `hypotheses`. After a second search, return those of the first one, unless the
        best of the second has only some of the flags of the best of the first."""
        if not (first := self._first.pop(sentence.key, None)):
            return hypotheses
        if not hypotheses:
            return first
        before, now = (_flags(self._joiner, sentence, found[0]) for found in (first, hypotheses))
        return [replace(one, repaired=True) for one in hypotheses] if now < before else first


def best_first(joiner: Joiner, line: Line, found: Sequence[Hypotheses | None]) -> list[Hypotheses | None]:
    """Return the hypotheses of each sentence of `line`, with the best one without a fault first, if any."""
    result: list[Hypotheses | None] = []
    for sentence, hypotheses in zip(line.sentences, found, strict=True):
        faulty = (bool(_flags(joiner, sentence, one) & FAULTS) for one in hypotheses or ())
        if (
            best := next((number for number, is_faulty in enumerate(faulty) if not is_faulty), 0)
        ) and hypotheses:
            others = [*hypotheses[:best], *hypotheses[best + 1 :]]
            hypotheses = [replace(hypotheses[best], repaired=True), *others]
        result.append(hypotheses)
    return result


def _flags(joiner: Joiner, sentence: Sentence, hypothesis: Hypothesis) -> set[Flag]:
    """Return the flags of the translation of one sentence, without "markup", since alignments may put lost
    markup back later."""
    text, lengths = joiner.text(sentence, hypothesis), (len(sentence.tokens), len(hypothesis.tokens))
    return {*flags(sentence.raw, text, *lengths, joiner.length_ratio)} - {"markup"}


def _both(first: Rule, second: Rule, log_probs_RV: Tensor, history: History, end: int) -> None:
    """Apply two rules. A function of a module, since worker processes get rules by pickling."""
    first(log_probs_RV, history, end)
    second(log_probs_RV, history, end)
