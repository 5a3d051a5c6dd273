"""What `nmt score` does: reads systems and references, and scores every system in every metric."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.language import without_region
from nmt_cli.scoring import brackets, significance, texts
from nmt_cli.scoring.config import AnyMetric, ScoreConfig, SignificanceConfig, Test
from nmt_cli.scoring.metrics import TOKENIZER_OF, Lines, Measure, Score, SentenceScores
from nmt_cli.scoring.paper import LANGUAGES

DEFAULT: tuple[AnyMetric, ...] = ("bleu", "paper-bleu", "chrf")
LOOKS_TOKENIZED = 100
"""A text with so many lines that end in a full stop by itself looks tokenised; sacrebleu has the same
limit."""

MOST_WORDS_OF_TER = 5000
"""Of a line: looking for shifts takes minutes for a thousand words that differ, and grows with the square."""

NEEDED = {"bleu": "bleu is not computed", "significance": "there is no --significance"}
"""For each section with settings, the message if its settings have no effect."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What `nmt score` is asked to compare, and how."""

    references: Sequence[Path]
    hypotheses: Sequence[Path]
    """`-` is stdin."""

    target_lang: str
    """If empty, the language that the names of the references end in, if they do."""

    metrics: Sequence[AnyMetric]
    """If empty, BLEU, chrF, and BLEU by the paper's protocol where the language is known; or brackets, where
    the references end in .trees."""

    sentences: bool
    significance: Test | None
    config: ScoreConfig
    given: frozenset[str]
    """Names of the settings that the user gave; one that has no effect is an error."""


@dataclass(frozen=True, slots=True)
class System:
    """One system's scores."""

    name: str
    scores: list[Score]
    findings: list[significance.Finding]
    """One for each of `scores`; empty if no test was asked for."""

    sentences: list[SentenceScores]


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of all systems, and what is to be said about them."""

    references: list[str]
    lines: int
    language: str
    systems: list[System]
    places: list[texts.Place]
    """Where each line stands in a WMT test set; else empty."""

    notes: list[str]
    warnings: list[str]


def evaluate(evaluation: Evaluation) -> Scores:
    """Read everything, then score every system in every metric."""
    _refuse_repeats(evaluation)
    known = LANGUAGES | set(TOKENIZER_OF)
    language = without_region(evaluation.target_lang) or texts.language_of(evaluation.references, known)
    metrics, notes = _metrics(evaluation, language)
    _refuse_what_has_no_effect(evaluation, metrics)
    # Only now that all settings make sense: reading may take long, or wait for stdin.
    references = [texts.read_reference(path, evaluation.target_lang) for path in evaluation.references]
    systems = [texts.read_hypotheses(path) for path in evaluation.hypotheses]
    for reference in references:
        for system in systems:
            texts.refuse_unequal(system, reference)
    if "ter" in metrics:
        _refuse_too_long_for_ter([*references, *systems])
    warnings = list(_warnings(evaluation, metrics, references, systems))
    lines = [reference.lines for reference in references]
    if metrics == ["brackets"]:
        found, repairs = _parsers(evaluation, references[0], systems)
        warnings += repairs
    else:
        wanted = [metric for metric in metrics if metric != "brackets"]
        found = _systems(
            evaluation, [Measure(metric, lines, evaluation.config, language) for metric in wanted], systems
        )
    return Scores(
        [reference.name for reference in references],
        len(lines[0]),
        language,
        found,
        next((text.places for text in (*references, *systems) if text.places), []),
        notes,
        warnings,
    )


def _parsers(
    evaluation: Evaluation, reference: texts.Text, systems: Sequence[texts.Text]
) -> tuple[list[System], list[str]]:
    """The scores of systems that parse, and a warning for each that made malformed trees."""
    parsed, warnings = [], []
    gold = brackets.read_references(reference.lines, reference.name)
    for system in systems:
        compared = brackets.compare(system.lines, gold)
        sentences = [compared.sentences()] if evaluation.sentences else []
        parsed.append(System(system.name, compared.scores(), [], sentences))
        if compared.flaws:
            number, flaw = next(iter(compared.flaws.items()))
            warnings.append(
                f"{system.name}: {len(compared.flaws):,} of {len(system.lines):,} lines are no tree of "
                f"their sentence; they were repaired, and count (line {number:,}: {flaw})."
            )
    return parsed, warnings


def _systems(
    evaluation: Evaluation, measures: Sequence[Measure], systems: Sequence[texts.Text]
) -> list[System]:
    found = [_scored(evaluation, measure, [system.lines for system in systems]) for measure in measures]
    # The paper's protocol is for whole texts: multi-bleu gives sentences without a match of four words 0.
    by_line = [measure for measure in measures if evaluation.sentences and measure.metric != "paper-bleu"]
    return [
        System(
            system.name,
            [scores[number] for scores, _ in found],
            [findings[number] for _, findings in found if findings],
            [measure.sentences(system.lines) for measure in by_line],
        )
        for number, system in enumerate(systems)
    ]


def _scored(
    evaluation: Evaluation, measure: Measure, systems: Sequence[Lines]
) -> tuple[list[Score], list[significance.Finding]]:
    """The score of each system, and the finding if there is a test, which is the one to need each line's
    counts."""
    counts = measure.counts(systems)
    if not evaluation.significance:
        return measure.scores_of(counts), []
    kept = list(counts)
    samples = evaluation.config.significance.samples
    return measure.scores_of(kept), significance.compare(measure, kept, evaluation.significance, samples)


def _metrics(evaluation: Evaluation, language: str) -> tuple[list[AnyMetric], list[str]]:
    """The metrics to compute, and a note if one that is computed by default had to be left out."""
    by_default: tuple[AnyMetric, ...] = ("brackets",) if texts.are_trees(evaluation.references) else DEFAULT
    metrics = list(dict.fromkeys(evaluation.metrics or by_default))
    if "paper-bleu" not in metrics or language in LANGUAGES:
        return metrics, []
    reason = (
        f"the Moses tokeniser can't split {language} into words"
        if language
        else "it needs the target language; give --target-lang, or references that end in it (ref.de)"
    )
    if evaluation.metrics:
        raise UserError(f"paper-bleu can't be computed: {reason}.")
    metrics.remove("paper-bleu")
    return metrics, [f"BLEU by the paper's protocol is left out: {reason}."]


def _refuse_repeats(evaluation: Evaluation) -> None:
    texts.refuse_second_stdin([*evaluation.references, *evaluation.hypotheses])
    for given in (evaluation.references, evaluation.hypotheses):
        for path in given:
            if given.count(path) > 1:
                raise UserError(f"{path} is given twice; give each text once.")


def _refuse_what_has_no_effect(evaluation: Evaluation, metrics: Sequence[AnyMetric]) -> None:
    used = {"bleu": "bleu" in metrics, "significance": bool(evaluation.significance)}
    removed = {f"significance.{name}" for name in SignificanceConfig.gone}
    sections = {name: name.partition(".")[0] for name in sorted(evaluation.given - removed)}
    problems = [
        f"{name} has no effect: {NEEDED[section]}; leave it out, or ask for that"
        for name, section in sections.items()
        if not used.get(section, True)
    ]
    if "brackets" in metrics:
        problems += _problems_with_trees(evaluation, metrics)
    elif evaluation.significance and len(evaluation.hypotheses) < 2:
        problems.append("--significance compares systems with the first one; give at least two")
    if evaluation.sentences and set(metrics) == {"paper-bleu"}:
        problems.append("--sentences has no effect: the paper's protocol scores whole texts only")
    # The language chooses a tokeniser where the user has not.
    for_bleu = "bleu" in metrics and evaluation.config.bleu.tokenizer == "auto"
    if evaluation.target_lang and not for_bleu and "paper-bleu" not in metrics:
        problems.append("--target-lang has no effect on these metrics; leave it out")
    if problems:
        raise UserError(f"{'; '.join(problems)}.")


def _refuse_too_long_for_ter(read: Sequence[texts.Text]) -> None:
    for text in read:
        for number, line in enumerate(text.lines, start=1):
            # The length in characters is known at once, and no line has more words than characters.
            if len(line) > MOST_WORDS_OF_TER and (words := len(line.split())) > MOST_WORDS_OF_TER:
                raise UserError(
                    f"{text.name} line {number:,} has {words:,} words, and TER of more than "
                    f"{MOST_WORDS_OF_TER:,} may take days; part it on both sides, or leave out --metric ter."
                )


def _problems_with_trees(evaluation: Evaluation, metrics: Sequence[AnyMetric]) -> Iterator[str]:
    if len(metrics) > 1:
        yield "brackets compares trees, and the other metrics text; ask for one kind at a time"
    if len(evaluation.references) > 1:
        yield "brackets compares with one reference; give the others in runs of their own"
    if evaluation.significance:
        yield "--significance knows no brackets; leave it out"


def _warnings(
    evaluation: Evaluation,
    metrics: Sequence[AnyMetric],
    references: Sequence[texts.Text],
    systems: Sequence[texts.Text],
) -> Iterator[str]:
    for text in (*references, *systems):
        if text.invalid:
            yield (
                f"{text.name}: {text.invalid:,} of {len(text.lines):,} lines are not UTF-8; their bad bytes "
                "were replaced by U+FFFD."
            )
        if returns := [number for number, line in enumerate(text.lines, start=1) if "\r" in line]:
            yield (
                f"{text.name}: {len(returns):,} lines have a carriage return inside (the first is line "
                f"{returns[0]:,}); sacrebleu's own command would end a line there, and count otherwise."
            )
    if "paper-bleu" not in metrics and ("bleu" not in metrics or evaluation.config.bleu.tokenizer == "none"):
        return
    for text in systems:
        tokenized = sum(line.endswith(" .") for line in text.lines)
        if tokenized >= LOOKS_TOKENIZED:
            yield (
                f"{text.name} looks tokenised ({tokenized:,} lines end in a full stop by itself); BLEU wants "
                "running text on both sides."
            )
