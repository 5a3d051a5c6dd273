"""`nmt translate`: raw text in, translations out, a line for a line."""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.cli.options import EXISTING_FOLDER, CommandWithSettings, bounded, chosen, common, with_settings
from nmt_cli.corpus import sgm
from nmt_cli.corpus.files import LONGEST_BYTES, open_bytes, refuse_large
from nmt_cli.corpus.source_text import TEST_SETS, Form, Lines, first_columns, form_of, kind_of
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.runtime.atomic import file_written_whole, resolved
from nmt_cli.runtime.garbage import nothing_to_collect
from nmt_cli.runtime.threads import set_own_threads
from nmt_cli.translation.checks.notes import Noted
from nmt_cli.translation.incoming import lines_of

if TYPE_CHECKING:
    from nmt_cli.api import Model
    from nmt_cli.cli.reports.translate import AttentionPage, Reporter
    from nmt_cli.translation.translator import Translation

LONGEST_HELD = 1 << 26
"""Bytes of a line on stdin, which is translated whatever its length if the memory holds it."""

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    cls=CommandWithSettings, settings=TranslateConfig, epilog="nmt translate run --beam 5 <test.en >test.de"
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL ...", type=EXISTING_FOLDER)
@click.option("--beam", type=bounded(SearchConfig, "beam"), help="Beam size. 1 is greedy search.")
@click.option("--length-penalty", type=float, help="The more, the longer; 0 for none.")
@click.option(
    "--n-best",
    type=bounded(SearchConfig, "n_best"),
    help='Translations of each line, as "line ||| text ||| scores ||| score".',
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "bf16", "int8"]),
    help="Numbers to compute with.  [default: fp16 on a GPU, fp32 elsewhere]",
)
@click.option("--threads", type=click.IntRange(min=1), help="Processors to use.  [default: all]")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="What to run on.")
@click.option("--devices", type=click.IntRange(min=1), default=1, help="GPUs that share the work.")
@click.option(
    "--input",
    "source",
    type=FILE,
    help="Text, .tsv, WMT .sgm or .xml to translate, in place of stdin.",
)
@click.option("--output", "target", type=FILE, help="Where to write, in place of stdout; .gz packs it.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="json: an object a line."
)
@click.option(
    "--attention",
    "page",
    type=FILE,
    help="HTML page to write: where each head of each layer of the first MODEL looks.",
)
@with_settings
@common
def translate(
    models: tuple[Path, ...],
    beam: int | None,
    length_penalty: float | None,
    n_best: int | None,
    precision: str | None,
    threads: int | None,
    device: str,
    devices: int,
    source: Path | None,
    target: Path | None,
    form: str,
    page: Path | None,
    file: Path | None,
    assignments: tuple[str, ...],
    quiet: bool,
) -> None:
    """Translate stdin line for line with MODEL, a model, checkpoint or run folder; several are an ensemble.

    A line is translated as soon as it is there. A WMT test set becomes a system's output, and of a .tsv the
    first column is translated. The exit code is 1 if a line does not fit into memory.
    """
    flags = {"search.beam": beam, "search.length_penalty": length_penalty, "search.n_best": n_best}
    _refuse_same(page, target)
    where: dict[str, Any] = {"device": device, "devices": devices, "precision": precision, "threads": threads}
    with nothing_to_collect():
        config = _chosen(models, file, assignments, flags, quiet)
        _load_pytorch(models, device)
        from nmt_cli.api import load
        from nmt_cli.cli.reports.translate import AttentionPage, Reporter

        loaded = load(*models, config=config, **where)
    with ExitStack() as pages, loaded as model, ExitStack() as stack:
        set_own_threads(1)  # what this thread computes, alignments, shall not slow the workers down
        shown = pages.enter_context(file_written_whole(page)) if page else None
        attention, skipped = AttentionPage(shown, model), Noted()
        outgoing = stack.enter_context(file_written_whole(target)) if target else sys.stdout.buffer
        lines, segments = _lines(source, model.languages[0], config, stack, skipped)
        report = stack.enter_context(Reporter(quiet, prompt=not source and sys.stdin.isatty()))
        translations = _translations(model, lines, report, _nothing if target else outgoing.flush)
        # These put more on a line than a test set or a column has room for.
        plain = form == "json" or config.search.n_best > 1 or config.output.alignments
        written = Lines() if plain else form_of(source, target, segments, model.languages, _warn)
        done = stack.enter_context(closing(translations))
        _write(outgoing, done, written, None if form == "json" else config.search.n_best, attention)
        stack.close()  # the translations are safe by now, whatever becomes of the page
        attention.write()
        if report.failed.count or skipped.count:
            sys.exit(1)


def _load_pytorch(models: Sequence[Path], device: str) -> None:
    """Import PyTorch. Raise `UserError` for a wrong path at once, not after seconds of loading."""
    from nmt_cli.runtime.torch_start import load_for_cpu

    for folder in models:
        find_model(folder)
    if device != "cuda":
        load_for_cpu()


def _chosen(
    models: Sequence[Path],
    file: Path | None,
    assignments: Sequence[str],
    flags: Mapping[str, object],
    quiet: bool,
) -> TranslateConfig:
    """The settings, of which an imported model brings some along; those that are given count more."""
    config = chosen(TranslateConfig, file, assignments, flags)
    from nmt_cli.checkpoints.finding import own_search

    # With sampling they have no effect, which would be an error that nobody here made.
    beam = () if config.search.has_beam else ("beam",)
    unused = (*beam, "stop_early") if config.search.sample else ()
    own = {f"search.{name}": value for name, value in own_search(models[0]).items() if name not in unused}
    if own and not quiet:
        told = ", ".join(f"{name}={value}" for name, value in own.items())
        click.echo(f"{models[0]} comes with settings of its own: {told}", err=True)
    # Read once more, since what is given wins over what the model brings, and not the other way round.
    return chosen(TranslateConfig, file, assignments, flags, defaults=own) if own else config


def _write(
    outgoing: BinaryIO,
    translations: Iterable["Translation"],
    form: Form,
    n_best: int | None,
    attention: "AttentionPage",
) -> None:
    """Write each as it comes, as JSON where `n_best` is None."""
    from nmt_cli.cli.reports.translate import as_json, as_text

    outgoing.write(form.begin)
    for translation in translations:
        attention.add(translation)
        if n_best is None:
            outgoing.write(as_json(translation, attention.aligned(translation)))
        else:
            outgoing.write(as_text(translation, n_best, form, attention.links(translation)))
    outgoing.write(form.end)
    outgoing.flush()


def _refuse_same(page: Path | None, target: Path | None) -> None:
    if page and target and resolved(page) == resolved(target):
        raise click.UsageError(f"--attention and --output are both {page}; name two files.")


def _lines(
    source: Path | None, lang: str, config: TranslateConfig, stack: ExitStack, skipped: Noted
) -> tuple[Iterable[bytes], Sequence[sgm.Segment]]:
    """Return the lines to translate and the segments of a test set. Lines left out go to `skipped`."""
    kind = kind_of(source)
    if source and kind in TEST_SETS:
        segments = sgm.segments(source, "source", lang)
        return [segment.text for segment in segments], segments
    if source and kind == "tsv" and not config.input.prefix:
        return first_columns(source), ()
    if source:
        stream = stack.enter_context(open_bytes(source))
        return lines_of(
            _reader(stream), lambda number: refuse_large(LONGEST_BYTES + 1, f"{source} line {number:,}")
        ), ()
    return lines_of(_reader(None), partial(_skip, skipped), LONGEST_HELD), ()


def _skip(skipped: Noted, number: int) -> None:
    """Report and note a line of stdin that is too long to hold. The lines after it are translated."""
    skipped.add(number)
    limit = f"is longer than {LONGEST_HELD:,} bytes, the limit on stdin"
    click.echo(f"Error: line {number:,} {limit}; an empty line replaces its translation.", err=True)


def _reader(file: BinaryIO | None) -> Callable[[int], bytes]:
    """Reads what is there, from stdin if there is no file."""
    if file:
        return file.read1  # type: ignore[attr-defined, no-any-return]  # all binary files have it
    # A thread that waits in Python's own stdin holds a lock that Python needs to exit.
    return partial(os.read, sys.stdin.fileno())


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)


def _nothing() -> None:
    """Files are seen only at the end, and those that are packed get larger by every flush."""


def _translations(
    model: "Model", raw_lines: Iterable[bytes], report: "Reporter", flush: Callable[[], None]
) -> Generator["Translation"]:
    """The translation of each line, when it has been reported."""
    from nmt_cli.translation.checks.input_checks import OddInput

    tokenizers = model.tokenizers
    odd = OddInput(tokenizers.recipe.kind, tokenizers.source.vocabulary, model.languages[0])
    lines = (odd.text(number, raw) for number, raw in enumerate(raw_lines, start=1))
    report.begin(odd)
    for translation in model.translations(lines, before_waiting=flush):
        report.line(translation)
        report.restarts(model.restarts)
        yield translation
