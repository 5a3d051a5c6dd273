"""Reading of systems and references, and the scores of all systems in all metrics.

A system is a program whose output is scored. It has one text of hypotheses. All systems have the same
references.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from nmt_cli.errors import UserError
from nmt_cli.language import iso_code
from nmt_cli.scoring import significance, texts
from nmt_cli.scoring.config import Metric, ScoreConfig, Test
from nmt_cli.scoring.lengths import Length, by_length
from nmt_cli.scoring.measures import TOKENIZER_OF, Lines, Measure, Score, SentenceScores, bleu_tokenizer
from nmt_cli.scoring.paper import LANGUAGES
from nmt_cli.scoring.scorers import Scorer, ScorerMeasure

Stated = TypeVar("Stated", Score, significance.Finding, SentenceScores)

DEFAULT: tuple[Metric, ...] = ("bleu", "paper-bleu", "chrf")
MANY_LINES = 100
"""A text looks tokenised if this number of lines end in a space and a full stop, as sacrebleu judges it. It
looks not tokenised if this number of lines end in a full stop without a space."""

LONG_WORDS = 15
"""If words, separated by spaces, have more characters on average, the language of a text does not use
spaces."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A request to score systems."""

    references: Sequence[Path]
    hypotheses: Sequence[Path]
    """The output of each system. `-` means stdin."""

    target_lang: str
    """The target language. If empty, the endings of the references decide."""

    metrics: Sequence[Metric]
    """If empty, and there are no scorers, BLEU and chrF are computed. If the language is known, so is BLEU by
    the paper's protocol."""

    sentences: bool
    significance: Test | None
    config: ScoreConfig
    given: frozenset[str]
    """The names of the settings that the user gave. If one of them has no effect, that is an error."""

    scorers: Sequence[Scorer] = ()
    source: Path | None = None
    """The source text, for scorers."""

    by_length: bool = False
    """True to score short and long lines apart, too."""


@dataclass(frozen=True, slots=True)
class System:
    """The scores of one system."""

    name: str
    scores: list[Score]
    findings: list[significance.Finding]
    """The result of the significance test for each of `scores`. Empty without a test."""

    sentences: list[SentenceScores]
    lengths: list[list[Score]]
    """For each of `Scores.lengths`, the score of its lines in each metric. Empty unless requested."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of all systems, with notes and warnings to print."""

    references: list[str]
    lines: int
    language: str
    systems: list[System]
    notes: list[str]
    warnings: list[str]
    documents: list[str]
    """The ids of the documents that were scored. Empty if lines were scored."""

    lengths: list[Length]
    """The lengths of lines that were scored apart. Empty unless requested."""


def evaluate(evaluation: Evaluation, documents_file: Path | None = None) -> Scores:
    """Read all texts, and score each system in each metric.

    With `documents_file`, which has the id of each line's document, documents are scored instead of lines.
    Raise `UserError` if stdin is given twice, texts have different lengths, an option has no effect, or the
    language does not allow a metric.
    """
    sources = [evaluation.source] if evaluation.source else []
    ids = [documents_file] if documents_file else []
    texts.refuse_second_stdin([*evaluation.references, *evaluation.hypotheses, *sources, *ids])
    languages = LANGUAGES | set(TOKENIZER_OF)
    language = iso_code(evaluation.target_lang) or texts.language_of(evaluation.references, languages)
    metrics, notes = _metrics(evaluation, language)
    _refuse_what_has_no_effect(evaluation, metrics)
    # Settings are checked before reading, which may take long or wait for stdin.
    references = [texts.read_reference(path, evaluation.target_lang) for path in evaluation.references]
    systems = [texts.read_hypotheses(path) for path in evaluation.hypotheses]
    source = [texts.read_source(path) for path in sources]
    documents = [texts.read_documents(path) for path in ids]
    for other in (*source, *references, *documents):
        for system in systems:
            texts.refuse_unequal(system, other)
    warnings = [
        *_damage([*source, *references, *systems]),
        *_script_warnings(evaluation.config, metrics, language, references),
        *_tokenization_warnings(evaluation.config, metrics, references, systems),
    ]
    lines, outputs = [reference.lines for reference in references], [system.lines for system in systems]
    document_of = [*documents[0].lines] if documents else []
    # In the order of first lines, as in `texts.joined`.
    names = list(dict.fromkeys(document_of))
    whole, results = (
        [texts.joined(text, document_of) for text in each] if names else each for each in (lines, outputs)
    )
    measures = [(Measure(metric, whole, evaluation.config, language), results) for metric in metrics]
    source_lines = source[0].lines if source else None
    measures += [
        (ScorerMeasure(scorer, source_lines, lines, outputs, document_of), outputs)
        for scorer in evaluation.scorers
    ]
    suffix = f"|docs:{len(names)}" if names else ""
    groups = by_length((lines or [source[0].lines])[0]) if evaluation.by_length else []
    return Scores(
        [reference.name for reference in references],
        len(outputs[0]),
        language,
        _systems(evaluation, measures, [system.name for system in systems], suffix, groups),
        notes,
        warnings,
        names,
        [length for length, _ in groups],
    )


def _systems(
    evaluation: Evaluation,
    measures: Sequence[tuple[Measure, Sequence[Lines]]],
    names: Sequence[str],
    suffix: str,
    groups: Sequence[tuple[Length, Sequence[int]]],
) -> list[System]:
    """Return the scores of each system and, if requested, results of a significance test and scores of single
    lines.

    - `measures`: each metric, with the lines or documents of all systems.
    - `names`: the names of the systems.
    - `suffix`: added to each signature.
    - `groups`: the lengths to score apart, each with the numbers of its lines.

    BLEU by the paper's protocol has no scores of lines.
    """
    scored: list[tuple[list[Score], list[significance.Finding]]] = []
    apart: list[list[list[Score]]] = []  # by metric, group and system
    for measure, lines in measures:
        if evaluation.significance or groups:
            # The test resamples lines, so their counts are kept, and each line is counted only once.
            counts = list(measure.counts(lines))
            test = evaluation.significance
            findings = significance.compare(measure, counts, test) if test else []
            scored.append((measure.scores_of(counts), findings))
            apart.append([measure.scores_of(counts[n] for n in own) for _, own in groups])
        else:
            scored.append((measure.scores(lines), []))
    # multi-bleu is for whole texts. Sentences without a match of four words would score 0.
    by_line = [one for one in measures if evaluation.sentences and one[0].metric != "paper-bleu"]

    def stated(result: Stated) -> Stated:
        return replace(result, signature=result.signature + suffix)

    return [
        System(
            name,
            [stated(scores[number]) for scores, _ in scored],
            [stated(findings[number]) for _, findings in scored if findings],
            [stated(measure.sentences(lines[number])) for measure, lines in by_line],
            [[by_group[group][number] for by_group in apart] for group in range(len(groups))],
        )
        for number, name in enumerate(names)
    ]


def _metrics(evaluation: Evaluation, language: str) -> tuple[list[Metric], list[str]]:
    """Return the metrics to compute, each once, and notes for the user.

    If the language is unknown, or Moses cannot split it into words, paper-bleu is impossible. A note says so
    if it was a default. Raise `UserError` if the user requested it.
    """
    metrics = list(dict.fromkeys(evaluation.metrics or (() if evaluation.scorers else DEFAULT)))
    if "paper-bleu" not in metrics or language in LANGUAGES:
        return metrics, []
    reason = (
        f"the Moses tokeniser can't split {language} into words"
        if language
        else "it needs the target language. Give --target-lang, or references that end in it (ref.de)"
    )
    if evaluation.metrics:
        raise UserError(f"paper-bleu can't be computed: {reason}.")
    metrics.remove("paper-bleu")
    return metrics, [f"BLEU by the paper's protocol is left out: {reason}."]


def _refuse_what_has_no_effect(evaluation: Evaluation, metrics: Sequence[Metric]) -> None:
    """Raise one `UserError` that lists all options without effect, or with a missing partner. `metrics` are
    those to compute."""
    problems = [
        f"{name} has no effect: bleu is not computed. Leave it out, or request that."
        for name in sorted(evaluation.given)
        if name.startswith("bleu.") and "bleu" not in metrics
    ]
    if evaluation.significance and len(evaluation.hypotheses) < 2:
        problems.append("--significance compares systems with the first one. Give at least two.")
    if evaluation.scorers and len(evaluation.references) > 1:
        problems.append("--metric comet and --scorer compare with one reference. Give --reference once.")
    if metrics and not evaluation.references:
        problems.append(f"--metric {metrics[0]} needs references. Give --reference.")
    if evaluation.sentences and not evaluation.scorers and set(metrics) == {"paper-bleu"}:
        problems.append("--sentences has no effect: the paper's protocol scores whole texts only.")
    # All together, so that the user can correct them in one go.
    if problems:
        raise UserError(*problems)


def _damage(given: Sequence[texts.Text]) -> Iterator[str]:
    """Yield a warning for each text that has only empty lines, or lines that are not UTF-8."""
    for text in given:
        if not any(text.lines):
            yield f"{text.name}: all {len(text.lines):,} lines are empty."
        if text.invalid:
            yield (
                f"{text.name}: {text.invalid:,} of {len(text.lines):,} lines are not UTF-8. Their bad bytes "
                "were replaced by U+FFFD."
            )


def _script_warnings(
    config: ScoreConfig, metrics: Sequence[Metric], language: str, references: Sequence[texts.Text]
) -> Iterator[str]:
    """Yield a warning if BLEU splits words at spaces, but the text has hardly any.

    It is judged by the language if sacrebleu has a tokeniser for it, otherwise by the length of words in each
    reference.
    """
    tokenizer = bleu_tokenizer(config, language)
    if "bleu" not in metrics or tokenizer not in ("13a", "intl"):
        return
    if own := TOKENIZER_OF.get(language):
        yield (
            f"BLEU of {language} with bleu.tokenizer={tokenizer} can't be compared with other scores. Use "
            f"{own}, which is the default."
        )
        return
    for text in references:
        words = sum(len(line.split()) for line in text.lines)
        if sum(map(len, text.lines)) > LONG_WORDS * words:
            yield (
                f"{text.name} has hardly any spaces, at which BLEU splits it ({tokenizer}). Give "
                "--target-lang for Chinese or Japanese, or --set bleu.tokenizer=flores200."
            )


def _tokenization_warnings(
    config: ScoreConfig,
    metrics: Sequence[Metric],
    references: Sequence[texts.Text],
    systems: Sequence[texts.Text],
) -> Iterator[str]:
    """Yield a warning for each text that looks tokenised although BLEU expects that it is not, or the other
    way around.

    Without BLEU, yield one warning if some texts look tokenised and others do not.
    """
    apart, attached = (
        {
            text.name: f"{count:,} lines"
            for text in (*references, *systems)
            if (count := sum(line.endswith(".") and line.endswith(" .") is spaced for line in text.lines))
            >= MANY_LINES
        }
        for spaced in (True, False)
    )
    # Both count n-grams of words, which they find themselves.
    if "paper-bleu" in metrics or ("bleu" in metrics and config.bleu.tokenizer != "none"):
        for text in systems:
            if text.name in apart:
                yield (
                    f"{text.name} looks tokenised ({apart[text.name]} end in a space and a full stop); BLEU "
                    "needs text that is not tokenised, on both sides."
                )
    elif "bleu" in metrics:
        for name, lines in attached.items():
            yield (
                f"{name} does not look tokenised ({lines} end in a full stop without a space), so "
                "bleu.tokenizer=none counts full stops as parts of words. Leave it out."
            )
    elif apart and attached:
        yield (
            f"{next(iter(apart))} looks tokenised, but {next(iter(attached))} does not, so scores can't be "
            "compared. Detokenise all texts."
        )
