"""What `nmt score` prints."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmt_cli.errors import printable, printable_json
from nmt_cli.scoring.evaluate import Scores, System
from nmt_cli.scoring.metrics import Score
from nmt_cli.scoring.significance import Finding

if TYPE_CHECKING:
    from nmt_cli.translation.given_pairs import Forced  # which loads torch

PIPED_WIDTH = 160
"""Tables are not squeezed into 80 columns where no terminal asks for it."""

SIGNIFICANT = 0.05


def show(outcome: Scores, quiet: bool) -> None:
    """Print to stdout the table of scores, or the sentences' scores where there are any.

    The table then goes to stderr, unless `quiet`; warnings always do.
    """
    _say(outcome, quiet)
    by_line = any(system.sentences for system in outcome.systems)
    if by_line:
        for row in _sentence_rows(outcome):
            click.echo("\t".join(row))
    if by_line and quiet:
        return
    terminal = sys.stderr.isatty() if by_line else sys.stdout.isatty()
    console = Console(stderr=by_line, width=None if terminal else PIPED_WIDTH, highlight=False)
    console.print(_table(outcome))
    for line in _explanations(outcome):
        click.echo(line, err=by_line)


def show_json(outcome: Scores, quiet: bool) -> None:
    """Print one JSON object to stdout, warnings and notes to stderr."""
    _say(outcome, quiet)
    content = {
        "references": outcome.references,
        "lines": outcome.lines,
        "language": outcome.language or None,
        "systems": [_system(system) for system in outcome.systems],
    }
    if outcome.places:
        content["segments"] = [{"document": doc, "segment": seg} for doc, seg in outcome.places]
    click.echo(printable_json(content, indent=1))


def show_forced(forced: "Forced", as_json: bool, quiet: bool) -> None:
    """Print a log-probability a line to stdout and the perplexities to stderr, or all of it as JSON.

    Warnings always go to stderr.
    """
    for warning in forced.warnings:
        click.echo(f"Warning: {printable(warning)}", err=True)
    if as_json:
        lines = [
            {
                "log_probability": line.log_probability,
                "tokens": [*line.tokens],
                "token_scores": [*line.token_scores],
            }
            for line in forced.lines
        ]
        whole = {"perplexity": forced.perplexity, "word_perplexity": forced.word_perplexity, "lines": lines}
        click.echo(printable_json(whole, indent=1))
        return
    for line in forced.lines:
        click.echo(f"{line.log_probability:.6f}")
    if not quiet:
        words = f"perplexity {forced.perplexity:,.3f} of a piece, {forced.word_perplexity:,.3f} of a word"
        click.echo(f"{len(forced.lines):,} lines: {words}; ends of lines are counted", err=True)


def _say(outcome: Scores, quiet: bool) -> None:
    for warning in outcome.warnings:
        click.echo(f"Warning: {printable(warning)}", err=True)
    if not quiet:
        for note in outcome.notes:
            click.echo(f"Note: {printable(note)}", err=True)


def _table(outcome: Scores) -> Table:
    table = Table(title=f"{outcome.lines:,} lines", title_justify="left", show_lines=_tested(outcome))
    table.add_column("system", overflow="fold")
    for score in outcome.systems[0].scores:
        kind = score.kind.replace(": ", ":\n")
        table.add_column(f"{score.name}\n{kind}".strip(), justify="right")
    for system in outcome.systems:
        table.add_row(Text(printable(system.name)), *_cells(system, outcome.systems[0]))
    return table


def _cells(system: System, first: System) -> Iterator[str]:
    findings: list[Finding | None] = [*system.findings] or [None] * len(system.scores)
    for score, other, finding in zip(system.scores, first.scores, findings, strict=True):
        cell = f"{score.value:.2f}"
        if finding:
            cell += f"\n{finding.mean:.2f} ± {finding.margin:.2f}"
        if finding and finding.p_value is not None:
            # Two systems with one score get the least p there is: sacrebleu asks how often chance gives more.
            star = "*" if finding.p_value < SIGNIFICANT and score.value != other.value else ""
            cell += f"\np = {finding.p_value:.4f}{star}"
        yield cell


def _explanations(outcome: Scores) -> Iterator[str]:
    first = outcome.systems[0]
    signatures = [one.signature for one in first.findings or first.scores]
    for signature, some in groupby(zip(first.scores, signatures, strict=True), key=itemgetter(1)):
        scores = [score for score, _ in some]
        yield f"{', '.join(score.label for score in scores)}: {signature}"
        if scores[0].detail and len(outcome.systems) == 1:
            yield f"  {scores[0].detail}"
    if len({score.name for score in first.scores}) < len(first.scores):
        yield "The two BLEU are of different kinds: compare each with published numbers of its own kind only."
    if any(score.name == "TER" for score in first.scores):
        yield "TER counts edits: less is better."
    if _tested(outcome):
        yield "Below each score: the mean over resamples, ± half of the interval that holds 95 % of them;"
        name = printable(first.name)
        yield f"p: how likely chance alone makes such a difference to {name} (* below {SIGNIFICANT})."


def _tested(outcome: Scores) -> bool:
    return any(system.findings for system in outcome.systems)


def _sentence_rows(outcome: Scores) -> Iterator[list[str]]:
    columns = [scores for system in outcome.systems for scores in system.sentences]
    several = len(outcome.systems) > 1
    place = ["document", "segment"] if outcome.places else []
    names = [
        f"{printable(system.name)} {scores.name}" if several else scores.name
        for system in outcome.systems
        for scores in system.sentences
    ]
    yield ["line", *place, *names]
    for number in range(outcome.lines):
        where = map(printable, outcome.places[number] if outcome.places else ())
        yield [str(number + 1), *where, *(f"{scores.values[number]:.4f}" for scores in columns)]


def _system(system: System) -> dict[str, object]:
    content: dict[str, object] = {
        "system": system.name,
        "scores": [
            _score(score, system.findings[number] if system.findings else None)
            for number, score in enumerate(system.scores)
        ],
    }
    if system.sentences:
        content["sentences"] = [asdict(scores) for scores in system.sentences]
    return content


def _score(score: Score, finding: Finding | None) -> dict[str, object]:
    content: dict[str, object] = {
        "metric": score.metric,
        "name": score.label,
        "score": score.value,
        "signature": score.signature,
        "detail": score.detail,
    }
    return content | ({"significance": asdict(finding)} if finding else {})
