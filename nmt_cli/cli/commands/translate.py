"""`nmt translate`: raw text in, translations out, line by line."""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.cli.options import (
    EXISTING,
    EXISTING_FILE,
    OUT_FILE,
    STDIN_OR_FILE,
    STDOUT_OR_FILE,
    Choice,
    CommandWithSettings,
    check_direction,
    chosen,
    common,
    device_options,
    not_empty,
    own_defaults,
    printer,
    setting_option,
    warn,
    with_settings,
)
from nmt_cli.corpus import sgm
from nmt_cli.corpus.raw_files import (
    COMPRESSIONS,
    LONGEST_BYTES,
    MOST_BYTES_HELD,
    endings,
    open_bytes,
    refuse_large,
)
from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import file_written_whole, resolved
from nmt_cli.runtime.garbage import nothing_to_collect
from nmt_cli.runtime.threads import available_cores, set_own_threads
from nmt_cli.text.declared import declared_utf8
from nmt_cli.text.formats import SUFFIXES, Format, blocks_of
from nmt_cli.translation.checks.notes import Noted
from nmt_cli.translation.incoming import lines_of

if TYPE_CHECKING:
    from nmt_cli.api import Model
    from nmt_cli.cli.reports.translation_output import AttentionPage, TranslationReporter
    from nmt_cli.translation.lines import Translation
    from nmt_cli.translation.text.model_glossary import Glossary
    from nmt_cli.translation.text.ranking import Scorer

LONGEST_HELD = 1 << 26
"""The maximum number of bytes of a line on stdin. A longer line gets an empty translation."""


@click.command(
    cls=CommandWithSettings, settings=TranslateConfig, epilog="nmt translate run --beam 5 <test.en >out.de"
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL ...", type=EXISTING)
@setting_option("search.beam", "--beam", type=int, metavar="N")
@setting_option("search.length_penalty", "--length-penalty", type=float, metavar="X")
@setting_option("search.n_best", "--n-best", type=int, metavar="N")
@click.option("--source-lang", callback=not_empty, help="Source language of a model of several.")
@click.option("--target-lang", callback=not_empty, help="Target language of a model of several.")
@device_options
@click.option(
    "--input",
    "source",
    type=STDIN_OR_FILE,
    help="File to read. Its formats are listed above.  [default: stdin, -]",
)
@click.option(
    "--output",
    "target",
    type=STDOUT_OR_FILE,
    help="File to write. .gz compresses it.  [default: stdout, -]",
)
@click.option(
    "--format",
    "form",
    type=Choice(["text", "json"]),
    default="text",
    help="json writes an object per line.  [default: text]",
)
@click.option("--glossary", type=EXISTING_FILE, help="Terms to use: source, tab, target and other forms.")
@click.option("--rerank", metavar="SCORER", help="Rank by a COMETKiwi folder or a command.")
@click.option("--metric-model", type=EXISTING, metavar="FOLDER", help="COMET model of search.mbr=comet.")
@click.option(
    "--attention", "page", type=OUT_FILE, help="HTML page to write with the attention of all heads."
)
@with_settings
@common
def translate(
    models: tuple[Path, ...],
    source_lang: str | None,
    target_lang: str | None,
    precision: str | None,
    threads: int | None,
    device: str,
    devices: int,
    source: Path | None,
    target: Path | None,
    form: str,
    glossary: Path | None,
    rerank: str | None,
    metric_model: Path | None,
    page: Path | None,
    quiet: bool,
) -> None:
    """Translate text line by line, or a document.

    MODEL is a model, checkpoint or run folder. Several are an ensemble.

    In .html, .xml, .xliff, .po, .srt and .vtt files, only text is translated.
    Of a WMT test set it is each segment, of a .tsv file the first column. With
    --n-best, lines are "line number ||| text ||| logprob= ... ||| score".

    The exit code is 1 if a line needs too much memory, or over 64 MiB on stdin.
    """
    where: dict[str, Any] = {"device": device, "devices": devices, "precision": precision, "threads": threads}
    # The collector would go through half a million objects of PyTorch again and again, for 0.2 s.
    with nothing_to_collect():
        config = _chosen(models, quiet)
        check_direction(models[0], source_lang, target_lang, quiet)
        # Before the model is loaded, which takes seconds: a wrong input should be reported at once.
        document = _document(source, target, form, page, config)
        from nmt_cli.api import load
        from nmt_cli.cli.reports.translation_output import AttentionPage, TranslationReporter

        scorer = _scorer(config, metric_model, rerank, device)
        loaded = load(*models, config=config, scorer=scorer, **where)
    with ExitStack() as pages, loaded as model, ExitStack() as stack:
        if source_lang or target_lang:
            model = model.direction(target_lang, source_lang)
        skipped, terms = Noted(), model.glossary(glossary) if glossary else None
        # Without a scorer, only alignments are computed here, which must not slow the workers down.
        set_own_threads(threads or available_cores() if scorer else 1)
        attention = AttentionPage(pages.enter_context(file_written_whole(page)) if page else None, model)
        outgoing = stack.enter_context(file_written_whole(target)) if target else sys.stdout.buffer
        report = stack.enter_context(
            TranslationReporter(model, quiet, prompt=not source and sys.stdin.isatty())
        )
        if document:
            outgoing.write(model.translate_document(*document, report=report.line, glossary=terms).encode())
        else:
            raw_lines = _lines(source, model.languages[0], config, stack, skipped)
            translations = _translations(model, raw_lines, report, terms, None if target else outgoing.flush)
            _write(outgoing, translations, None if form == "json" else config.search.n_best, attention)
        # This completes the output file, even if the page fails.
        stack.close()
        attention.write()
        if report.failed.count or skipped.count:
            sys.exit(1)


def _document(
    source: Path | None, target: Path | None, form: str, page: Path | None, config: TranslateConfig
) -> tuple[str, Format] | None:
    """Return the text and the format of a document, or None if the input is lines.

    - `source`, `target`: the input and output files, or None.
    - `form`: the output format, "text" or "json".
    - `page`: the file for --attention, or None.

    Raise `UsageError` for options that do not fit the input, and for one file for two outputs.
    """
    if page and target and resolved(page) == resolved(target):
        raise click.UsageError(f"--attention and --output are both {page}. Use two files.")
    document = _read_document(source) if source else None
    unused = {
        # --n-best and output.alignments were once ignored for documents without a message.
        "--format json": form == "json",
        "--attention": bool(page),
        "--n-best": config.search.n_best > 1,
        "output.alignments": config.output.alignments,
        "input.prefix": config.input.prefix,
    }
    if document and (option := next((name for name in unused if unused[name]), None)):
        raise click.UsageError(f"{option} needs lines of text, but {source} is a document. Leave it out.")
    # Scorers of WMT take plain text since 2021.
    if target and sgm.is_test_set(target) and not document:
        raise click.UsageError(f"--output {target}: the output is lines of text. Name a .txt file.")
    # Plain text under such a name is refused by zstd, xz and bzip2.
    if target and target.suffix in COMPRESSIONS and target.suffix != ".gz":
        raise click.UsageError(f"--output {target}: only .gz files are compressed. Use .gz.")
    return document


def _read_document(source: Path) -> tuple[str, Format] | None:
    """Return the text and the format of a document, such as HTML, by the ending of its name.

    Return None for any other file, which is translated line by line, and for a WMT test set.

    Raise `UserError` if the document is too large, damaged or not UTF-8.
    """
    formats = [SUFFIXES[ending] for ending in endings(source) if ending in SUFFIXES]
    if not formats:
        return None
    with open_bytes(source) as stream:
        content = stream.read(MOST_BYTES_HELD + 1)
    refuse_large(len(content), str(source), MOST_BYTES_HELD)
    # Any other .xml file is a document. A file of <manual><segment> was once refused as a broken test set.
    if sgm.is_test_set(source) and sgm.holds_test_set(content):
        return None
    try:
        text, declared = declared_utf8(content.decode(), formats[0])
        blocks_of(text, formats[0])
    except UnicodeDecodeError as error:
        raise UserError(f"{source} is not UTF-8 (byte {error.start + 1:,}). Convert it.") from error
    except UserError as error:
        raise UserError(f"{source}: {error.message}") from error
    if declared:
        warn(f"{source} declares {declared}. The translation is UTF-8, and declares it.")
    return text, formats[0]


def _chosen(models: Sequence[Path], quiet: bool) -> TranslateConfig:
    """Return the settings. Those of the first model replace defaults, but not settings that the user typed.

    Raise `UserError` for a folder without a model, before PyTorch is imported.
    """
    own = own_defaults(models[0]) if models else {}  # none for --settings
    config = chosen(TranslateConfig, defaults=own)
    # Here, because a wrong path should not wait for PyTorch.
    for folder in models:
        find_model(folder)
    if own:
        values = ", ".join(f"{name}={value}" for name, value in own.items())
        printer(quiet)(f"{models[0]} has its own settings: {values}")
    return config


def _scorer(
    config: TranslateConfig, metric_model: Path | None, rerank: str | None, device: str
) -> "Scorer | None":
    """Return the scorer that chooses among translations, or None.

    - `metric_model`: the COMET model for search.mbr=comet, or None.
    - `rerank`: the folder of a COMET model, or a command, or None.

    Raise `UsageError` for options that do not fit together, and `UserError` for a folder without a model.
    """
    if bool(metric_model) != config.search.mbr.startswith("comet"):
        raise click.UsageError("--metric-model FOLDER and search.mbr=comet work only together.")
    if rerank and config.search.mbr != "off":
        raise click.UsageError("--rerank and search.mbr both choose among translations. Use one of them.")
    if metric_model or (rerank and Path(rerank).is_dir()):
        from nmt_cli.scoring.neural.comet import Comet

        return Comet(metric_model or Path(str(rerank)), device)
    if rerank is None:
        return None
    if len(rerank.split()) < 2 and not which(rerank):
        raise UserError(f"--rerank {rerank} is neither a folder nor a command. Check the path.")
    from nmt_cli.scoring.command import CommandScorer

    return CommandScorer(rerank, option="--rerank")


def _write(
    outgoing: BinaryIO,
    translations: Generator["Translation"],
    n_best: int | None,
    attention: "AttentionPage",
) -> None:
    """Write translations in order, and add them to the page of attention. At the end, close `translations`.

    `n_best` is the number of candidates per line, or None to write JSON.
    """
    from nmt_cli.cli.reports.translation_output import as_json, as_text

    with closing(translations):
        for translation in translations:
            attention.add(translation)
            if n_best is None:
                outgoing.write(as_json(translation, attention.aligned(translation)))
            else:
                outgoing.write(as_text(translation, n_best, attention.links(translation)))
    outgoing.flush()


def _lines(
    source: Path | None, lang: str, config: TranslateConfig, stack: ExitStack, skipped: Noted
) -> Iterable[bytes]:
    """Return the lines to translate, from a file or, if `source` is None, from stdin.

    - `lang`: the source language, which selects the segments of a WMT test set.
    - `stack`: closes the file.
    - `skipped`: gets the numbers of lines on stdin that are too long.

    Of a .tsv file, it is the first column, unless `input.prefix` is set. Raise `UserError` for a line in a
    file that is too long.
    """

    def skip(number: int) -> None:
        skipped.add(number)
        limit = f"is longer than {LONGEST_HELD:,} bytes, the limit on stdin"
        click.echo(f"Error: line {number:,} {limit}. An empty line replaces its translation.", err=True)

    if not source:
        return lines_of(_reader(None), skip, LONGEST_HELD)
    if sgm.is_test_set(source):
        return [segment.text for segment in sgm.segments(source, "source", lang)]
    stream = stack.enter_context(open_bytes(source))
    lines = lines_of(
        _reader(stream), lambda number: refuse_large(LONGEST_BYTES + 1, f"{source} line {number:,}")
    )
    columns = ".tsv" in endings(source) and not config.input.prefix
    return (line.partition(b"\t")[0] for line in lines) if columns else lines


def _reader(file: BinaryIO | None) -> Callable[[int], bytes]:
    """Return a function that reads up to N bytes from `file`, or from stdin if it is None."""
    if file:
        return file.read1  # type: ignore[attr-defined, no-any-return]  # all binary files have it
    # A thread that waits in `sys.stdin` holds a lock that Python needs to exit.
    return partial(os.read, sys.stdin.fileno())


def _translations(
    model: "Model",
    raw_lines: Iterable[bytes],
    report: "TranslationReporter",
    glossary: "Glossary | None",
    flush: Callable[[], None] | None,
) -> Generator["Translation"]:
    """Yield the translation of each line, in order, after adding it to `report`.

    `flush` is called when the next translation is not finished yet. It is None for a file, because flushing
    would make a compressed file larger.
    """
    lines = (report.odd.text(number, raw) for number, raw in enumerate(raw_lines, start=1))
    for translation in model.translations(lines, before_waiting=flush or (lambda: None), glossary=glossary):
        report.line(translation)
        yield translation
