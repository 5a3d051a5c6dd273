"""`nmt demo`: the whole pipeline on a generated corpus."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click

from nmt_cli import demo as grammar
from nmt_cli.cli.options import OUT, Command, common
from nmt_cli.errors import EXIT_CODES, UserError

SETTINGS = Path(grammar.__file__).parent
SHOWN = 4
"""The number of translations that are printed at the end."""


@click.command(cls=Command, epilog="nmt demo --out demo")
@click.option("--out", default=Path("demo"), type=OUT, show_default=True, help="Folder for all files.")
@common
def demo(out: Path, quiet: bool) -> None:
    """Train a small English-German system in minutes.

    The demo generates a corpus, then runs nmt preprocess, train,
    average-checkpoints, translate and score. It prints each command. It takes
    one to four minutes on two cores and downloads nothing. Run the same
    command again to resume an interrupted demo.
    """
    from nmt_cli.demo.corpus import SIZES, corpus, write

    (out / "corpus").mkdir(parents=True, exist_ok=True)
    sets = {split: corpus(split, size, seed=1) for split, size in SIZES.items()}
    # Not replaced, because `--out .` would overwrite a corpus of the user.
    write(sets, out / "corpus", replace=False)
    for words in commands(out):
        if not quiet:
            click.echo(f"\n$ {shlex.join(['nmt', *words])}", err=True)
        _run([*words, "--quiet"] if quiet else words)
    _show(out)
    click.echo(
        f"Training curves: {out / 'training' / 'report.html'}\nTry the model: nmt translate {out / 'model'}"
    )


def commands(out: Path) -> list[list[str]]:
    """Return the commands preprocess, train, average-checkpoints, translate and score, as lists of words
    without "nmt". All files are in `out`."""
    sets = [word for split in ("train", "valid", "test") for word in (f"--{split}", f"{out}/corpus/{split}")]
    preprocess = ["preprocess", "--source-lang", "en", "--target-lang", "de", *sets]
    preprocess += ["--config", f"{SETTINGS}/preprocess.toml", "--out", f"{out}/dataset"]
    translate = ["translate", f"{out}/model", "--input", f"{out}/corpus/test.en"]
    translate += ["--output", f"{out}/translations.de"]
    return [
        preprocess,
        ["train", f"{out}/dataset", "--config", f"{SETTINGS}/train.toml", "--out", f"{out}/training"],
        ["average-checkpoints", f"{out}/training", "--last", "3", "--out", f"{out}/model"],
        translate,
        ["score", "--reference", f"{out}/corpus/test.de", f"{out}/translations.de"],
    ]


def _run(words: list[str]) -> None:
    """Run nmt with `words` as a process. Raise `UserError` unless it exits with 0.

    After Ctrl-C, let it end, and exit with its code if it has reported the interrupt. After any other
    exception, end it.
    """
    # Not `nmt`, which need not be on the PATH.
    with subprocess.Popen([sys.executable, "-m", "nmt_cli", *words]) as process:
        try:
            code = process.wait()
        # A terminal interrupts this process and the command. Only the command reports it, or "interrupted"
        # appeared twice.
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)  # if only this process got it
            if process.wait() == EXIT_CODES[signal.SIGINT]:
                sys.exit(process.returncode)
            raise
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        raise UserError(f"nmt {words[0]} failed with exit code {code}. See its message above.")


def _show(out: Path) -> None:
    """Print the first test sentences, each followed by its translation."""
    files = (out / "corpus" / "test.en", out / "translations.de")
    columns = (path.read_text(encoding="utf-8").splitlines()[:SHOWN] for path in files)
    for source, translation in zip(*columns, strict=True):
        click.echo(f"\n{source}\n{translation}")
    click.echo()
