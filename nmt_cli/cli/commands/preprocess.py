"""`nmt preprocess`: raw parallel text in, a dataset folder out."""

from pathlib import Path
from typing import get_args

import click

from nmt_cli.cli.options import (
    COUNT,
    OUT,
    Choice,
    CommandWithSettings,
    chosen,
    common,
    setting_option,
    typed_settings,
    with_settings,
)
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.text.config import Kind

HELP = """Build a dataset from raw parallel text.

The text is cleaned, subwords are learned, and all text is encoded.

CORPUS is one of:

\b
PREFIX         two files, PREFIX.LANG for each language
SOURCE:TARGET  two files
FILE           .tsv, .jsonl, .tmx, .parquet, a WMT .sgm or .xml
FOLDER         a folder that mtdata wrote
-              tab-separated pairs on stdin

Files may be compressed. For many corpora, use [[corpus]] in --config.

A validation or test set may end in a variant, such as valid+upper. The
variants are upper, title, unended, typos, placeholders and noise.

The PATH of --reuse-tokenizer is a dataset or model folder, a SentencePiece
model, or subword-nmt codes. Write SOURCE:TARGET for two files.
"""


@click.command(
    cls=CommandWithSettings,
    help=HELP,
    settings=PreprocessConfig,
    epilog="nmt preprocess --source-lang en --target-lang de \\\n"
    "    --train train --valid valid --out dataset",
)
@click.option("--source-lang", required=True, metavar="LANG", help="Source language and ending of its files.")
@click.option("--target-lang", required=True, metavar="LANG", help="Target language and ending of its files.")
@click.option("--train", multiple=True, metavar="CORPUS", help="Training corpus. Repeatable.")
@click.option(
    "--valid", multiple=True, metavar="CORPUS", help="Validation set, named after its file. Repeatable."
)
@click.option("--test", multiple=True, metavar="CORPUS", help="Test set, named after its file. Repeatable.")
@setting_option("tokenizer.kind", "--tokenizer", type=Choice(get_args(Kind)))
@setting_option("tokenizer.joint", "--joint/--separate", default_text="joint")
@setting_option("tokenizer.vocab_size", "--vocab-size", type=int, metavar="N")
@click.option(
    "--reuse-tokenizer", metavar="PATH", help="Take the subwords from PATH instead of learning them."
)
@click.option("--workers", type=COUNT, help="Number of processes.  [default: one per core]")
@click.option("--out", required=True, type=OUT, help="Dataset folder to write.")
@click.option("--overwrite", is_flag=True, help="Replace a dataset made with other settings.")
@with_settings
@common
def preprocess(
    source_lang: str,
    target_lang: str,
    train: tuple[str, ...],
    valid: tuple[str, ...],
    test: tuple[str, ...],
    reuse_tokenizer: str | None,
    workers: int | None,
    out: Path,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Build a dataset, with progress and a report on stderr. The help is `HELP`."""
    config, settings = chosen(PreprocessConfig), typed_settings()
    # Options are refused here, because the error must name the option, and the library knows only settings.
    if reuse_tokenizer and settings.options:
        raise click.UsageError(
            f"{settings.options[0].origin} has no effect with --reuse-tokenizer. Remove it."
        )

    from nmt_cli import api
    from nmt_cli.checkpoints.foreign_kinds import refuse_foreign_model
    from nmt_cli.cli.reports.dataset_tables import show
    from nmt_cli.cli.reports.progress_bars import shown_progress

    # A folder of another toolkit has no tokenizer of ours. The error names that toolkit and the remedy.
    if reuse_tokenizer and Path(reuse_tokenizer).is_dir():
        refuse_foreign_model(Path(reuse_tokenizer))
    with shown_progress("pairs", quiet) as progress:
        outcome = api.preprocess(
            source_lang,
            target_lang,
            train,
            out,
            valid=valid,
            test=test,
            reuse_tokenizer=reuse_tokenizer,
            config=config,
            given=settings.names,
            workers=workers,
            overwrite=overwrite,
            progress=progress,
        )
    show(out, outcome, quiet)
