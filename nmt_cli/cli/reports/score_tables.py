"""The output of `nmt score`.

A finding is the result of a significance test for one system and one metric.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from nmt_cli.cli.options import printer, warn
from nmt_cli.cli.reports.tables import print_table
from nmt_cli.errors import printable, printable_json
from nmt_cli.scoring.evaluate import Scores, System
from nmt_cli.scoring.lengths import Length
from nmt_cli.scoring.significance import Finding
from nmt_cli.units import counted

if TYPE_CHECKING:
    from nmt_cli.translation.pairs import PairScores  # which loads torch

SIGNIFICANT = 0.05
"""A difference with a p-value below this gets a star."""


def show(outcome: Scores, quiet: bool) -> None:
    """Print a table of scores to stdout, and warnings and notes to stderr.

    If there are scores of single lines, they are printed to stdout, separated by tabs, and the table goes to
    stderr. `quiet` leaves out notes, and a table on stderr.
    """
    _show_notes(outcome, quiet)
    by_line = any(system.sentences for system in outcome.systems)
    if by_line:
        for row in _sentence_rows(outcome):
            click.echo("\t".join(row))
    if by_line and quiet:
        return
    # The line break keeps columns narrow.
    kinds = [(score.name, score.kind.replace(": ", ":\n")) for score in outcome.systems[0].scores]
    heads = [f"{name}\n{kind}".strip() for name, kind in kinds]
    rows = [(system.name, *_cells(system, outcome.systems[0])) for system in outcome.systems]
    documents = counted(len(outcome.documents), "document")
    lines = counted(outcome.lines, "line") + (f" in {documents}" if outcome.documents else "")
    print_table(lines, ["system"], heads, rows, stderr=by_line, show_lines=_tested(outcome))
    for line in _explanations(outcome):
        click.echo(line, err=by_line)
    if outcome.lengths:
        # Corpus scores of few lines vary much, so their number is beside them.
        columns = ["lines", *heads]
        print_table("By length", ["words", "system"], columns, _length_rows(outcome), stderr=by_line)


def show_json(outcome: Scores, quiet: bool) -> None:
    """Print the scores as a JSON object to stdout. Warnings, and notes unless `quiet`, go to stderr."""
    _show_notes(outcome, quiet)
    content: dict[str, object] = {"references": outcome.references, "lines": outcome.lines}
    if outcome.documents:
        content["documents"] = outcome.documents
    content["language"] = outcome.language or None
    content["systems"] = [_system(system, outcome.lengths) for system in outcome.systems]
    click.echo(printable_json(content, indent=1))


def show_pair_scores(scores: "PairScores", as_json: bool, quiet: bool) -> None:
    """Print the log-probability of each line to stdout. The perplexity goes to stderr, unless `quiet`.

    With `as_json`, print a JSON object to stdout instead. It has the perplexity, and the tokens of each line
    with their scores.
    """
    if scores.warning:
        warn(scores.warning)
    if as_json:
        lines = [
            {
                "log_probability": line.log_probability,
                "tokens": [*line.tokens],
                "token_scores": [*line.token_scores],
            }
            for line in scores.lines
        ]
        content = {"perplexity": scores.perplexity, "word_perplexity": scores.word_perplexity, "lines": lines}
        click.echo(printable_json(content, indent=1))
        return
    for line in scores.lines:
        click.echo(f"{line.log_probability:.6f}")
    if not quiet:
        numbers = f"{scores.perplexity:,.3f} per token, {scores.word_perplexity:,.3f} per word"
        click.echo(
            f"{counted(len(scores.lines), 'line')}: perplexity {numbers}, with the ends of lines", err=True
        )


def _show_notes(outcome: Scores, quiet: bool) -> None:
    for warning in outcome.warnings:
        warn(warning)
    for note in outcome.notes:
        printer(quiet)(f"Note: {note}")


def _cells(system: System, first: System) -> Iterator[str]:
    """Yield the cell of each score of a system. If there was a test, it has the mean, the margin and the
    p-value.

    A star marks a p-value below `SIGNIFICANT`. There is none if the score is equal to that of the `first`
    system.
    """
    findings: list[Finding | None] = [*system.findings] or [None] * len(system.scores)
    for score, other, finding in zip(system.scores, first.scores, findings, strict=True):
        digits = score.digits
        cell = score.shown
        if finding:
            cell += f"\n{finding.mean:.{digits}f} ± {finding.margin:.{digits}f}"
        if finding and finding.p_value is not None:
            # Equal scores get the smallest p-value: sacrebleu counts how often chance gives a larger
            # difference.
            star = "*" if finding.p_value < SIGNIFICANT and score.value != other.value else ""
            cell += f"\np = {finding.p_value:.4f}{star}"
        yield cell


def _explanations(outcome: Scores) -> Iterator[str]:
    """Yield the lines below the table: signatures, parts of the scores of a single system, and the meaning of
    the tests."""
    first = outcome.systems[0]
    signatures = [one.signature for one in first.findings or first.scores]
    for signature, pairs in groupby(zip(first.scores, signatures, strict=True), key=itemgetter(1)):
        scores = [score for score, _ in pairs]
        yield f"{', '.join(score.label for score in scores)}: {signature}"
        if scores[0].detail and len(outcome.systems) == 1:
            yield f"  {scores[0].detail}"
    if len({score.name for score in first.scores}) < len(first.scores):
        yield "The two BLEU scores differ in kind. Compare each only with published scores of its kind."
    if _tested(outcome):
        yield "Below each score: the mean over resamples ± half the 95 % confidence interval;"
        name = printable(first.name)
        meaning = "the probability of a difference at least this large if both systems were equally good"
        yield f"p, compared with {name}: {meaning} (* below {SIGNIFICANT})."


def _length_rows(outcome: Scores) -> Iterator[list[object]]:
    """Yield a row for each range of lengths and each system."""
    for number, length in enumerate(outcome.lengths):
        name = f"{length.least} or more" if length.most is None else f"{length.least} to {length.most}"
        for system in outcome.systems:
            yield [name, system.name, length.lines, *(score.shown for score in system.lengths[number])]


def _tested(outcome: Scores) -> bool:
    """Return whether there was a significance test."""
    return any(system.findings for system in outcome.systems)


def _sentence_rows(outcome: Scores) -> Iterator[list[str]]:
    """Yield the rows of the table of lines, as texts. The first has the heads of the columns.

    A row begins with the number of the line or the id of the document, and has the scores of all systems.
    """
    columns = [scores for system in outcome.systems for scores in system.sentences]
    several = len(outcome.systems) > 1
    names = [
        f"{printable(system.name)} {scores.name}" if several else scores.name
        for system in outcome.systems
        for scores in system.sentences
    ]
    yield ["document" if outcome.documents else "line", *names]
    documents = [*map(printable, outcome.documents)]
    for number, first in enumerate(documents or [str(line + 1) for line in range(outcome.lines)]):
        yield [first, *(f"{scores.values[number]:.4f}" for scores in columns)]


def _system(system: System, lengths: Sequence[Length]) -> dict[str, object]:
    """Return the scores of a system in types of JSON, with the findings, the scores of lines and those of
    `lengths` if there are any."""
    scores: list[dict[str, object]] = [
        {
            "metric": score.metric,
            "name": score.label,
            "score": score.value,
            "signature": score.signature,
            "detail": score.detail,
        }
        for score in system.scores
    ]
    for score, finding in zip(scores, system.findings, strict=False):
        score["significance"] = asdict(finding)
    content: dict[str, object] = {"system": system.name, "scores": scores}
    if system.sentences:
        content["sentences"] = [asdict(each) for each in system.sentences]
    if lengths:
        content["by_length"] = [
            asdict(length) | {"scores": {score.label: score.value for score in own}}
            for length, own in zip(lengths, system.lengths, strict=True)
        ]
    return content
