"""`nmt preprocess`: raw parallel text in, a dataset folder out."""

from pathlib import Path
from typing import get_args

import click

from nmt_cli import config as settings
from nmt_cli.cli.options import FOLDER, CommandWithSettings, chosen, common, with_settings
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.text.config import Kind, TokenizerConfig


def _shard(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int]:
    """Such as 3/16."""
    if value is None:
        return (1, 1)
    number, slash, machines = value.partition("/")
    if not (slash and number.isdecimal() and machines.isdecimal() and 1 <= int(number) <= int(machines)):
        raise click.BadParameter(f"{value} is not N/M, such as 3/16, with N from 1 to M.")
    return int(number), int(machines)


@click.command(
    cls=CommandWithSettings,
    settings=PreprocessConfig,
    epilog="nmt preprocess --source-lang en --target-lang de --train train --valid valid --out dataset",
)
@click.option(
    "--source-lang", required=True, metavar="LANG", help="Source language, and ending of its files."
)
@click.option(
    "--target-lang", required=True, metavar="LANG", help="Target language, and ending of its files."
)
@click.option("--train", multiple=True, metavar="CORPUS", help="Training text; repeatable.")
@click.option(
    "--valid",
    multiple=True,
    metavar="CORPUS",
    help="Validation set, named after its file; repeatable. CORPUS+upper is its variant: upper, lower, "
    "title, unended, typos, copies or placeholders.",
)
@click.option("--test", multiple=True, metavar="CORPUS", help="Test set, likewise.")
@click.option(
    "--tokenizer",
    type=click.Choice(get_args(Kind)),
    help=f"The subword model.  [default: {TokenizerConfig().kind}]",
)
@click.option(
    "--joint/--separate", default=None, help="One vocabulary for both languages, or two.  [default: joint]"
)
@click.option(
    "--vocab-size",
    type=int,
    help=f"Entries of each vocabulary, all told.  [default: {TokenizerConfig().vocab_size}]",
)
@click.option(
    "--reuse-tokenizer",
    metavar="PATH",
    help="Take the subwords from a dataset or model folder, subword-nmt codes, a SentencePiece model, or a "
    "list of words such as fairseq's dict.txt (SOURCE:TARGET for two files).",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes at work.  [default: all cores]")
@click.option(
    "--shard",
    metavar="N/M",
    callback=_shard,
    help="Only machine N's share of M; the same without --shard then merges all.",
)
@click.option("--out", required=True, type=FOLDER, help="Dataset folder to make.")
@click.option("--overwrite", is_flag=True, help="Replace a dataset that was made otherwise.")
@with_settings
@common
def preprocess(
    source_lang: str,
    target_lang: str,
    train: tuple[str, ...],
    valid: tuple[str, ...],
    test: tuple[str, ...],
    tokenizer: str | None,
    joint: bool | None,
    vocab_size: int | None,
    reuse_tokenizer: str | None,
    workers: int | None,
    shard: tuple[int, int],
    out: Path,
    overwrite: bool,
    file: Path | None,
    assignments: tuple[str, ...],
    quiet: bool,
) -> None:
    """Make a dataset folder of raw parallel text: clean, learn subwords, encode.

    CORPUS is PREFIX for PREFIX.LANG of both languages, SOURCE:TARGET for two files, or one file or folder
    with both: .tsv, .jsonl, .tmx, .parquet, a Moses .zip, a WMT .sgm or .xml, .trees, what datasets or mtdata
    wrote, or - for tab-separated pairs on stdin; packed or not. Many are named by [[corpus]] in the settings.
    """
    flags = {"tokenizer.kind": tokenizer, "tokenizer.joint": joint, "tokenizer.vocab_size": vocab_size}
    config = chosen(PreprocessConfig, file, assignments, flags)
    if reuse_tokenizer and (useless := [name for name, value in flags.items() if value is not None]):
        raise click.UsageError(f"--reuse-tokenizer decides {useless[0]}; leave that flag out.")

    from nmt_cli import api
    from nmt_cli.checkpoints.foreign import refuse_foreign_model
    from nmt_cli.cli.reports.preprocess import show
    from nmt_cli.cli.reports.progress import shown_progress

    if reuse_tokenizer and Path(reuse_tokenizer).is_dir():
        refuse_foreign_model(Path(reuse_tokenizer))
    with shown_progress("pairs", quiet) as progress:
        outcome = api.preprocess(
            *(source_lang, target_lang, train, out),
            valid=valid,
            test=test,
            reuse_tokenizer=reuse_tokenizer,
            config=config,
            given=settings.given_names(file, assignments, flags),
            workers=workers,
            overwrite=overwrite,
            progress=progress,
            shard=shard,
        )
    show(out, outcome, quiet)
