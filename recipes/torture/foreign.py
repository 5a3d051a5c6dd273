"""Damages other toolkits' files, one at a time, and looks at what `nmt import` makes of them, in one process.

python -m recipes.torture.foreign                  1,000 mutations of each kind of file
python -m recipes.torture.foreign --only 711       one mutation of each kind

Right are a model or one line of error; wrong are any other exception, and what takes long.

Table of 2026-11-23, 1,000 mutations of each file:

| file | refused in a line | a model all the same | wrong |
|---|---|---|---|
| huggingface config.json | 900 | 100 | 0 |
| huggingface vocab.json | 933 | 67 | 0 |
| huggingface source.spm | 891 | 109 | 0 |
| huggingface model.safetensors | 860 | 140 | 0 |
| pickled pytorch_model.bin | 865 | 135 | 0 |
| m2m100 vocab.json | 707 | 293 | 0 |
| nllb config.json | 894 | 106 | 0 |
| marian model.npz | 999 | 1 | 0 |
| marian vocab.yml | 758 | 242 | 0 |
| marian decoder.yml | 308 | 692 | 0 |
| fairseq checkpoint_best.pt | 854 | 146 | 0 |
| fairseq dict.en.txt | 825 | 175 | 0 |
"""

import shutil
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random

import click
import torch

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.errors import UserError
from nmt_cli.interop.exporting import export
from nmt_cli.interop.foreign import Wanted, write
from nmt_cli.interop.importing import read
from recipes.torture.mutations import KINDS

SECONDS = 10
"""Such small models take none."""

FILES: Mapping[str, tuple[str, ...]] = {
    "huggingface": (
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "vocab.json",
        "source.spm",
        "model.safetensors",
    ),
    "pickled": ("pytorch_model.bin",),
    "m2m100": ("vocab.json", "special_tokens_map.json", "sentencepiece.bpe.model"),
    "nllb": ("tokenizer.json", "config.json"),
    "marian": ("model.npz", "vocab.yml", "decoder.yml"),
    "fairseq": ("checkpoint_best.pt", "dict.en.txt", "sentencepiece.bpe.model"),
}
WANTED = {"m2m100": Wanted("en", "fr"), "nllb": Wanted("eng_Latn", "fra_Latn")}


def make_world(world: Path) -> None:
    """A folder of each toolkit; its models are those of the tests."""
    from tests.interop.conftest import m2m100_folder, marian_folder
    from tests.interop.test_fairseq import fairseqs_tensors, folder_of, m2m100, settings

    marian_folder(world / "huggingface")
    marian_folder(world / "pickled", pickled=True)
    for kind in ("m2m100", "nllb"):
        m2m100_folder(world / kind, kind)
    write(read(str(world / "huggingface"), Wanted(positions="marian")), world / "ours")
    export(read_model(world / "ours"), "marian", world / "marian")
    shutil.rmtree(world / "ours")
    content = {"cfg": {"model": Namespace(**settings()), "task": {}}, "model": fairseqs_tensors(m2m100(93))}
    folder_of(world / "fairseq", content, zipped=True)


def damaged(folder: Path, file: str, number: int) -> str:
    """What came of a mutation of one file, which is mended then: "model", "refused", or what is wrong."""
    random = Random(f"{folder.name} {file} {number}")
    whole, path = (folder / file).read_bytes(), folder / file
    random.choice(list(KINDS.values()))(path, random)
    began = time.monotonic()
    try:
        read(str(folder), WANTED.get(folder.name, Wanted("en", "de")))
        came = "model"
    except (UserError, OSError) as error:
        came = "refused" if "\n" not in str(error) else f"more than a line: {error}"
    except Exception as error:  # that is what is looked for
        came = f"{type(error).__name__}: {error}"[:150]
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.write_bytes(whole)
    return came if time.monotonic() - began < SECONDS else "took too long"


@click.command()
@click.option("--mutations", default=1000, help="How often each file is damaged.")
@click.option("--only", type=int, help="The number of one mutation, to see it again.")
@click.option("--file", "names", multiple=True, help="Damage these files; all if none is named.")
def main(mutations: int, only: int | None, names: tuple[str, ...]) -> None:
    """Print a table of what came of so many faults; exit with 1 where any is wrong."""
    torch.set_num_threads(1)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="nmt-foreign-") as made:
        make_world(Path(made))
        print("| file | refused in a line | a model all the same | wrong |\n|---|---|---|---|", flush=True)
        for kind, files in FILES.items():
            for file in [file for file in files if not names or file in names]:
                numbers = range(mutations) if only is None else [only]
                found = [damaged(Path(made) / kind, file, number) for number in numbers]
                counts = Counter(found)
                others = {what: n for what, n in counts.items() if what not in ("model", "refused")}
                wrong += sum(others.values())
                line = (counts["refused"], counts["model"], sum(others.values()))
                print(f"| {kind} {file} | {' | '.join(f'{n:,}' for n in line)} |", flush=True)
                for what in others:
                    click.echo(f"{kind} {file} {found.index(what)}: {what}", err=True)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
