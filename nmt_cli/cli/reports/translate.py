"""What `nmt translate` prints: lines on stdout, and on stderr how it goes and what is odd."""

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import click

from nmt_cli.api import Model
from nmt_cli.corpus.source_text import Form
from nmt_cli.decoding.attention_maps import alignment
from nmt_cli.errors import printable_json
from nmt_cli.translation.attention_page import write_attention_page
from nmt_cli.translation.checks.input_checks import OddInput
from nmt_cli.translation.checks.notes import Noted
from nmt_cli.translation.checks.output_checks import Degenerate
from nmt_cli.translation.text.word_links import pharaoh
from nmt_cli.translation.translator import Candidate, Translation

if TYPE_CHECKING:
    from nmt_cli.cli.reports.translate_bar import LinesBar

MOST_ON_PAGE = 100
"""Lines; each takes tens of kilobytes."""


def as_text(translation: Translation, n_best: int, form: Form, links: Sequence[str] | None = None) -> bytes:
    """The translation in its form; several as lines of an n-best list, with line numbers from 0.

    With `links`, the alignments of the candidates, each is a last column.
    """
    texts = [one.text for one in translation.candidates]
    last = ["" if links is None else f" ||| {each}" for each in links or [""] * len(texts)]
    none = "" if links is None else " ||| "
    if n_best == 1:
        text = translation.text + (last[0] if last else none)
        return form.line(translation.line.number, translation.line.raw, text)
    # As in the n-best lists of Moses, which others' tools read.
    number = translation.line.number - 1
    lines = [
        f"{number} ||| {one.text} ||| logprob= {one.log_probability:.6f} ||| {one.score:.6f}{more}\n"
        for one, more in zip(translation.candidates, last, strict=True)
    ]
    return "".join(lines or [f"{number} |||  ||| logprob= 0 ||| 0{none}\n"]).encode()


def as_json(translation: Translation, aligned: Sequence[int] | None) -> bytes:
    """One object a line."""
    found: dict[str, Any] = {
        "line": translation.line.number,
        "hypotheses": [_described(one) for one in translation.candidates],
        "flags": [*translation.flags],
        "too_long": translation.line.too_long,
        "failed": translation.failed,
    }
    if aligned is not None:
        found["alignment"] = [*aligned]
    return f"{printable_json(found)}\n".encode()


def _described(candidate: Candidate) -> Mapping[str, Any]:
    return {
        "text": candidate.text,
        "score": candidate.score,
        "log_probability": candidate.log_probability,
        "tokens": [*candidate.tokens],
        "token_scores": [round(score, 6) for score in candidate.token_scores],
    }


class AttentionPage:
    """Where the model looks: for the alignments of a line, and for a page of the first lines."""

    def __init__(self, file: BinaryIO | None, model: Model) -> None:
        """Without a `file` there is no page."""
        self._file, self._tokenizers, self._model = file, model.tokenizers, model.transformers[0]
        self._wanted = model.config.output.alignments
        self._pairs: list[tuple[str, list[int], list[int]]] = []
        self._left_out = 0

    def aligned(self, translation: Translation) -> list[int] | None:
        """The alignment of the best translation, if the settings ask for it."""
        if not self._wanted:
            return None
        parts = translation.candidates[0].parts if translation.candidates else ()
        sources = [sentence.tokens for sentence in translation.line.sentences[: len(parts)]]
        return alignment(self._model, sources, [part.tokens for part in parts])

    def links(self, translation: Translation) -> list[str] | None:
        """The words of each candidate that belong to words of the source, if the settings ask for it."""
        if not self._wanted:
            return None
        found = []
        for candidate in translation.candidates:
            targets = [part.tokens for part in candidate.parts]
            sources = [sentence.tokens for sentence in translation.line.sentences[: len(targets)]]
            aligned = alignment(self._model, sources, targets)
            found.append(pharaoh(self._tokenizers, sources, targets, aligned))
        return found

    def add(self, translation: Translation) -> None:
        """Keep a line for the page."""
        if not self._file or not translation.candidates:
            return
        if len(self._pairs) >= MOST_ON_PAGE:
            self._left_out += 1
            return
        parts = translation.candidates[0].parts
        for sentence, part in zip(translation.line.sentences, parts, strict=True):
            self._pairs.append((translation.line.raw, [*sentence.tokens], [*part.tokens]))

    def write(self) -> None:
        """Write the page, if there shall be one."""
        if not self._file:
            return
        write_attention_page(self._file, self._model, self._tokenizers, self._pairs)
        if self._left_out:
            click.echo(f"The page of --attention shows the first {MOST_ON_PAGE} lines only.", err=True)


class Reporter:
    """Tells on stderr how far it is, what to know about a line, and at the end what to look at."""

    def __init__(self, quiet: bool, *, prompt: bool) -> None:
        self._quiet, self._prompt = quiet, prompt
        self._odd: OddInput | None = None
        self._degenerate, self._too_long, self._prefixes = Degenerate(), Noted(), Noted()
        self.failed = Noted()
        """Lines that did not fit into memory."""

        self._lines, self._since, self._restarts = 0, time.monotonic(), 0
        self._masked = self._kept = 0
        self._bar = _bar() if not quiet and not prompt and sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.__exit__(kind, error, trace)
        if kind is None:
            self._end()

    def begin(self, odd: OddInput) -> None:
        """The models are loaded."""
        self._odd, self._since = odd, time.monotonic()
        if self._prompt and not self._quiet:
            click.echo("Type a sentence to have it translated; Ctrl-D ends.", err=True)

    def line(self, translation: Translation) -> None:
        """A line is done."""
        line = translation.line
        self._lines += 1
        self._degenerate.add(line.number, translation.flags)
        masked, kept = translation.placeholders
        self._masked, self._kept = self._masked + masked, self._kept + kept
        ids = line.sentences[0].tokens if line.sentences else ()
        if self._odd and (warning := self._odd.warning(line.number, line.raw, ids)):
            self._warn(warning)
        if line.too_long:
            self._too_long.add(line.number)
            if self._too_long.count == 1:
                self._warn(f"line {line.number:,} has {line.pieces:,} pieces, too many to translate at once.")
        if line.prefix_unknown:
            self._prefixes.add(line.number)
        if translation.failed:
            self.failed.add(line.number)
            self._error(f"line {line.number:,} ({line.pieces:,} pieces) does not fit into memory.")
        if self._bar:
            self._bar.show(self._lines, self._lines / max(time.monotonic() - self._since, 1e-9))

    def restarts(self, count: int) -> None:
        """So many worker processes died by now, and others took their place."""
        if count > self._restarts == 0:
            self._warn(
                "a process that translates died, and its lines are translated again. If it happens often, "
                "memory may be short: take fewer --threads."
            )
        self._restarts = count

    def _end(self) -> None:
        for warning in self._degenerate.report():
            self._warn(warning)
        if self._too_long.count:
            self._warn(f"{self._too_long}: too long, and treated as input.too_long says.")
        if self._prefixes.count:
            self._warn(f"{self._prefixes}: the model's vocabulary lacks some of the given beginning.")
        if self._odd and (replaced := self._odd.report()):
            self._warn(replaced)
        if count := self.failed.count:
            self._error(
                f"{count:,} of {self._lines:,} lines did not fit into memory, and have empty translations: "
                f"{self.failed}. Take a smaller --beam, or shorter lines."
            )
        if self._lines and not (self._quiet or self._prompt):
            seconds = time.monotonic() - self._since
            rate = self._lines / max(seconds, 1e-9)
            click.echo(f"{self._lines:,} lines in {seconds:,.1f} s, {rate:,.1f} a second", err=True)
            if self._masked:
                click.echo(f"{self._kept:,} of {self._masked:,} placeholders are in their places", err=True)

    @staticmethod
    def _error(text: str) -> None:
        click.echo(f"Error: {text}", err=True)

    @staticmethod
    def _warn(text: str) -> None:
        click.echo(f"Warning: {text}", err=True)


def _bar() -> "LinesBar":
    from nmt_cli.cli.reports.translate_bar import LinesBar  # what it is drawn with takes its time to load

    return LinesBar()
