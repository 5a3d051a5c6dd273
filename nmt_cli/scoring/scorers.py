"""Scores by a scorer, in the form of a metric of sacrebleu.

A scorer is a model such as COMET or a command of the user. It gives each line a number. The score of a text
is the mean over its lines, so reports and significance tests can treat it as any other metric.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Protocol

from nmt_cli.scoring.measures import Counts, Lines, Measure, SentenceScores

Texts = Sequence[str]


class Scorer(Protocol):
    """Scores translations one by one. `name` is that of the metric. `kind` is the name of the model, or
    ""."""

    name: str
    kind: str

    def signature(self, references: int) -> str:
        """Return the settings that are needed to reproduce a score against this number of references."""

    def score(self, sources: Texts | None, hypotheses: Texts, references: Texts | None) -> list[float]:
        """Return a finite score for each hypothesis. A text that is not given is None. Raise `UserError` if
        the scorer needs it."""


class ScorerMeasure(Measure):
    """A metric whose scores come from a scorer.

    The score of a system is the mean over its lines. With documents, it is the mean over documents of the
    means over their lines.
    """

    digits = 4

    def __init__(
        self,
        scorer: Scorer,
        source: Lines | None,
        references: Sequence[Lines],
        systems: Sequence[Lines],
        documents: Texts = (),
    ) -> None:
        """Score all lines of all systems.

        - `references`: at most one text.
        - `documents`: the id of each line's document. If empty, lines are scored.
        """
        self.metric, self._scorer, self._systems = scorer.name.lower(), scorer, systems
        self._protocol, self._references, self.counter = None, references, _Mean(scorer.name)
        # Line by line, so that a source and its translations are scored together.
        hypotheses = [line for lines in zip(*systems, strict=True) for line in lines]
        sources, reference = (
            None if text is None else [line for line in text for _ in systems]
            for text in (source, references[0] if references else None)
        )
        values = scorer.score(sources, hypotheses, reference)
        self._values = [values[number :: len(systems)] for number in range(len(systems))]
        if documents:
            self._values = [_means(own, documents) for own in self._values]

    def counts(self, systems: Sequence[Lines]) -> Iterator[tuple[Counts, ...]]:
        """Yield for each line or document the score of each system, and 1, so that sums of counts give a
        mean. `systems` must be those of the constructor."""
        return zip(*([[value, 1.0] for value in own] for own in self._values), strict=True)

    def sentences(self, hypotheses: Lines) -> SentenceScores:
        """Return the score of each line or document of a system. `hypotheses` must be one of those of the
        constructor."""
        number = next(number for number, system in enumerate(self._systems) if system is hypotheses)
        return SentenceScores(self.metric, self._scorer.name, self.signature(), self._values[number])

    def signature(self, signature: object = None) -> str:
        """Return the signature of the scorer. If `signature` is that of a significance test, add its samples
        and seed."""
        tests = [part for part in str(signature).split("|") if part.startswith(("bs:", "ar:", "seed:"))]
        return "|".join([self._scorer.signature(len(self._references)), *tests])

    def _kind(self) -> str:
        return self._scorer.kind


def _means(values: Sequence[float], documents: Texts) -> list[float]:
    """Return the mean of the values of each document. Documents are ordered by their first lines."""
    by_document = dict[str, list[float]]()
    for document, value in zip(documents, values, strict=True):
        by_document.setdefault(document, []).append(value)
    return [*map(fmean, by_document.values())]


class _Mean:
    """The mean of scores, as an object with the methods that sacrebleu's significance tests call."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _compute_score_from_stats(self, total: Sequence[float]) -> Any:
        from sacrebleu.metrics.base import Score

        return Score(self._name, total[0] / total[1])

    def _aggregate_and_compute(self, counts: Sequence[Sequence[float]]) -> Any:
        return self._compute_score_from_stats([sum(column) for column in zip(*counts, strict=True)])

    def get_signature(self) -> Any:
        from sacrebleu.metrics.base import Signature

        return Signature({"num_refs": 1})
