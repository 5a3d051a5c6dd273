"""The output of `nmt translate`: translations on stdout, progress and warnings on stderr.

A candidate is one of several translations of a line, and a part is the translation of one of its sentences.
"""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import click

from nmt_cli.api import Model
from nmt_cli.cli.options import warn
from nmt_cli.decoding.attention_maps import alignment
from nmt_cli.errors import printable_json
from nmt_cli.translation.attention_page import write_attention_page
from nmt_cli.translation.checks.input_checks import OddInput
from nmt_cli.translation.checks.notes import Noted
from nmt_cli.translation.checks.output_checks import Degenerate
from nmt_cli.translation.lines import Candidate, Translation
from nmt_cli.translation.pairs import word_links
from nmt_cli.units import counted, duration

if TYPE_CHECKING:
    from rich.progress import Progress

MAX_LINES_ON_PAGE = 100
"""The maximum number of lines on a page of attention. Each adds tens of kilobytes."""


def as_text(translation: Translation, n_best: int, links: Sequence[str] | None = None) -> bytes:
    """Return a translated line as it is printed.

    With `n_best` = 1, this is the text. Otherwise, each candidate is a line "number ||| text ||| logprob= ...
    ||| score", with the number of the input line from 0. The score is that of reranking if there was one.
    Without candidates, the text is empty.

    `links` has the word alignment of each candidate, for one more column, or is None.
    """
    texts = [candidate.text for candidate in translation.candidates]
    columns = ["" if links is None else f" ||| {link}" for link in links or [""] * len(texts)]
    empty = "" if links is None else " ||| "
    if n_best == 1:
        return f"{translation.text}{columns[0] if columns else empty}\n".encode()
    # From 0, as in Moses and Marian.
    number = translation.line.number - 1
    lines = [
        f"{number} ||| {candidate.text} ||| logprob= {candidate.log_probability:.6f} "
        f"||| {candidate.score if candidate.rank_score is None else candidate.rank_score:.6f}{column}\n"
        for candidate, column in zip(translation.candidates, columns, strict=True)
    ]
    return "".join(lines or [f"{number} |||  ||| logprob= 0 ||| 0{empty}\n"]).encode()


def as_json(translation: Translation, aligned: Sequence[int] | None) -> bytes:
    """Return a translated line as a JSON object. `aligned` is the alignment of its tokens, or None to leave
    it out."""
    content: dict[str, Any] = {
        "line": translation.line.number,
        "hypotheses": [_hypothesis(candidate) for candidate in translation.candidates],
        "confidence": round(translation.confidence, 4),
        "flags": [*translation.flags],
        "repaired": translation.repaired,
        "too_long": translation.line.too_long,
        "failed": translation.failed,
    }
    if aligned is not None:
        content["alignment"] = [*aligned]
    return f"{printable_json(content)}\n".encode()


def _hypothesis(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate in types of JSON. It has a score of reranking if there was one."""
    content: dict[str, Any] = {"text": candidate.text, "score": candidate.score}
    if candidate.rank_score is not None:
        content["rank_score"] = candidate.rank_score
    content["log_probability"] = candidate.log_probability
    content["tokens"] = [*candidate.tokens]
    content["token_scores"] = [round(score, 6) for score in candidate.token_scores]
    return content


class AttentionPage:
    """Computes alignments of words if the settings request them, and collects the lines for the page of
    --attention."""

    def __init__(self, file: BinaryIO | None, model: Model) -> None:
        """`file` is the page to write, or None for no page. Alignments are those of the first model of an
        ensemble."""
        self._file, self._tokenizers, self._model = file, model.tokenizers, model.transformers[0]
        self._with_alignments = model.config.output.alignments
        self._pairs: list[tuple[str, list[int], list[int]]] = []
        self._left_out = 0

    def aligned(self, translation: Translation) -> list[int] | None:
        """Return the index of a source token for each target token of the best candidate.

        Return None if the settings do not request alignments, and [] if there is no candidate.
        """
        if not self._with_alignments:
            return None
        best = translation.candidates[:1]
        return alignment(self._model, *_tokens(translation, best[0])) if best else []

    def links(self, translation: Translation) -> list[str] | None:
        """Return the word alignment of each candidate, such as "0-0 1-2", or None if the settings do not
        request alignments."""
        if not self._with_alignments:
            return None
        return [
            word_links(
                self._tokenizers, translation.line, one, alignment(self._model, *_tokens(translation, one))
            )
            for one in translation.candidates
        ]

    def add(self, translation: Translation) -> None:
        """Add a translated line to the page. Beyond `MAX_LINES_ON_PAGE`, lines are only counted."""
        if not self._file or not translation.candidates:
            return
        if len(self._pairs) >= MAX_LINES_ON_PAGE:
            self._left_out += 1
            return
        parts = translation.candidates[0].parts
        for sentence, part in zip(translation.line.sentences, parts, strict=True):
            self._pairs.append((translation.line.raw, [*sentence.tokens], [*part.tokens]))

    def write(self) -> None:
        """Write the page, and print a message if lines were left out. Do nothing if there is no page."""
        if not self._file:
            return
        write_attention_page(self._file, self._model, self._tokenizers, self._pairs)
        if self._left_out:
            click.echo(f"The page of --attention shows only the first {MAX_LINES_ON_PAGE} lines.", err=True)


def _tokens(
    translation: Translation, candidate: Candidate
) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """Return the source tokens and the target tokens of a candidate, each as one sequence per part."""
    sources = [sentence.tokens for sentence in translation.line.sentences[: len(candidate.parts)]]
    return sources, [part.tokens for part in candidate.parts]


class TranslationReporter:
    """Prints progress, warnings about lines, and a summary to stderr. Use it in a `with` block."""

    def __init__(self, model: Model, quiet: bool, *, prompt: bool) -> None:
        """Prepare the report.

        - `model`: the model that translates.
        - `quiet`: print only warnings and errors.
        - `prompt`: ask for input first, because a person types it. Then there is no bar.
        """
        self._model, self._quiet, self._prompt = model, quiet, prompt
        tokenizers = model.tokenizers
        recipe = tokenizers.recipe
        escapes = recipe.text.words == "moses_escaped"
        self.odd = OddInput(recipe.kind, tokenizers.source.vocabulary, escapes=escapes)
        """The check for input that does not suit the model."""

        self._degenerate, self._too_long, self._prefixes = Degenerate(model.config), Noted(), Noted()
        self.failed = Noted()
        """The lines that did not fit into memory."""

        self._lines, self._since, self._restarted = 0, time.monotonic(), False
        self._bar: Progress | None = None
        if not quiet and not prompt and sys.stderr.isatty():
            from nmt_cli.cli.reports.progress_bars import bars  # takes time to load

            self._bar = bars()

    def __enter__(self) -> Self:
        """Show the bar or the prompt."""
        if self._bar:
            self._bar.start()
            self._bar.add_task("translating", total=None)
        elif self._prompt and not self._quiet:
            click.echo("Type a sentence and press Enter to translate it. Ctrl-D ends.", err=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar. Print the summary, unless the block has raised an error."""
        if self._bar:
            self._bar.stop()
        if kind is None:
            self._end()

    def line(self, translation: Translation) -> None:
        """Count a translated line and its problems, and update the bar.

        An error is printed if the line did not fit into memory. Odd input, and a worker that died, cause one
        warning each.
        """
        line = translation.line
        self._lines += 1
        self._degenerate.add(line.number, translation.flags, translation.repaired)
        ids = line.sentences[0].tokens if line.sentences else ()
        if warning := self.odd.warning(line.number, line.raw, ids):
            warn(warning)
        # Only counted. The summary names all such lines, so a message for each would repeat it.
        if line.too_long:
            self._too_long.add(line.number)
        if line.prefix_unknown:
            self._prefixes.add(line.number)
        if translation.failed:
            self.failed.add(line.number)
            self._error(f"line {line.number:,} ({line.pieces:,} tokens) does not fit into memory.")
        if self._model.restarts and not self._restarted:
            self._restarted = True
            warn(
                "a worker process died, and its lines are translated again. If this happens often, "
                "memory may be short. Use fewer --threads."
            )
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=self._lines)

    def _end(self) -> None:
        """Print the warnings about all lines, and the number of lines, the time and the rate. With `quiet` or
        a prompt, print only the warnings."""
        for warning in self._degenerate.report():
            warn(warning)
        if self._too_long.count:
            warn(f"{self._too_long}: too long, translated in parts.")
        if self._prefixes.count:
            warn(f"{self._prefixes}: the vocabulary lacks part of the given prefix.")
        if replaced := self.odd.report():
            warn(replaced)
        if count := self.failed.count:
            self._error(
                f"{count:,} of {self._lines:,} lines did not fit into memory and have empty translations: "
                f"{self.failed}. Use a smaller --beam or shorter lines."
            )
        if self._lines and not (self._quiet or self._prompt):
            seconds = time.monotonic() - self._since
            rate = self._lines / max(seconds, 1e-9)
            click.echo(
                f"{counted(self._lines, 'line')} in {duration(seconds)}, {rate:,.1f} lines/s", err=True
            )

    @staticmethod
    def _error(text: str) -> None:
        click.echo(f"Error: {text}", err=True)
