"""Damage files of other toolkits, one at a time, and check the outcome of `nmt import`, in one process.

python -m recipes.torture.foreign                  1,000 mutations of each kind of file
python -m recipes.torture.foreign --only 711       one mutation of each kind
make torture                                       200 of each kind

A model with bit-identical weights or one line of error is right. Any other exception, other weights or more
than 10 s of CPU time are wrong. A flipped bit may pass in model.safetensors, which has no checksum.

2026-11-25, seed 1, 1,000 mutations of each file: none wrong, 429 MB of memory, 271 s of CPU time.

| file | refused in one line | imported | wrong |
|---|---|---|---|
| huggingface config.json | 899 | 101 | 0 |
| huggingface generation_config.json | 461 | 539 | 0 |
| huggingface tokenizer_config.json | 511 | 489 | 0 |
| huggingface vocab.json | 935 | 65 | 0 |
| huggingface source.spm | 878 | 122 | 0 |
| huggingface model.safetensors | 855 | 145 | 0 |
| pickled pytorch_model.bin | 992 | 8 | 0 |
| m2m100 vocab.json | 690 | 310 | 0 |
| m2m100 special_tokens_map.json | 924 | 76 | 0 |
| m2m100 sentencepiece.bpe.model | 901 | 99 | 0 |
| nllb tokenizer.json | 495 | 505 | 0 |
| nllb config.json | 898 | 102 | 0 |
| marian model.npz | 994 | 6 | 0 |
| marian vocab.yml | 709 | 291 | 0 |
| marian decoder.yml | 326 | 674 | 0 |
| marian source.spm | 875 | 125 | 0 |
| zip model.zip | 856 | 144 | 0 |
| fairseq checkpoint_best.pt | 993 | 7 | 0 |
| fairseq dict.en.txt | 805 | 195 | 0 |
| fairseq sentencepiece.bpe.model | 896 | 104 | 0 |
| all | 15,893 | 4,107 | 0 |
"""

import resource
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
from nmt_cli.interop.foreign import Foreign, ImportOptions, PositionRule, write
from nmt_cli.interop.importing import read
from recipes.torture.forks import MEMORY_LIMIT
from recipes.torture.mutations import KINDS

SECONDS = 10
"""Maximum CPU time of an import in seconds. Models this small need far less."""

WITHOUT_CHECKSUM = "model.safetensors"
"""The only damaged file that may give other weights."""

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
    "marian": ("model.npz", "vocab.yml", "decoder.yml", "source.spm"),
    "zip": ("model.zip",),
    "fairseq": ("checkpoint_best.pt", "dict.en.txt", "sentencepiece.bpe.model"),
}
"""The files to damage, by the folder that has them."""

OPTIONS = {"m2m100": ImportOptions("en", "fr"), "nllb": ImportOptions("eng_Latn", "fra_Latn")}
EXPORTED: tuple[tuple[str, str, PositionRule | None], ...] = (
    ("marian", "marian", "marian"),
    ("huggingface", "exported", None),
    ("ctranslate2", "ctranslate2", None),
)
"""The toolkit, the folder and the position encoding of each model that nmt exports."""


def make_world(world: Path) -> None:
    """Write a folder with a small random model for each toolkit, as the tests of `nmt import` do.

    The folders `exported` and `ctranslate2` have models that nmt has exported.
    """
    from tests.interop.conftest import m2m100_folder, marian_folder
    from tests.interop.test_fairseq import fairseqs_tensors, folder_of, m2m100, settings

    marian_folder(world / "huggingface")
    marian_folder(world / "pickled", pickled=True)
    for kind in ("m2m100", "nllb"):
        m2m100_folder(world / kind, kind)
    for toolkit, name, positions in EXPORTED:
        write(read(str(world / "huggingface"), ImportOptions(positions=positions)), world / "ours")
        export(read_model(world / "ours"), toolkit, world / name)
        shutil.rmtree(world / "ours")
    (world / "zip").mkdir()
    shutil.make_archive(str(world / "zip" / "model"), "zip", world / "marian")
    content = {"cfg": {"model": Namespace(**settings()), "task": {}}, "model": fairseqs_tensors(m2m100())}
    folder_of(world / "fairseq", content, zipped=True)


def imported(folder: Path) -> Foreign:
    """Import the model in a folder that `make_world` has written."""
    path = folder / "model.zip" if folder.name == "zip" else folder
    return read(str(path), OPTIONS.get(folder.name, ImportOptions("en", "de")))


def damaged(folder: Path, file: str, number: int, seed: int, expected: Foreign) -> str:
    """Damage one file of `folder`, import the model, and restore the file. Return "model", "refused", or a
    description of a wrong outcome. `seed` and `number` select the damage."""
    random = Random(f"{seed} {folder.name} {file} {number}")
    path = folder / file
    content = path.read_bytes()
    random.choice(list(KINDS.values()))(path, random)
    began = time.process_time()
    try:
        tensors = imported(folder).tensors
        common = tensors.keys() & expected.tensors.keys()  # the settings determine the tied ones
        same = common and all(torch.equal(tensors[name], expected.tensors[name]) for name in common)
        outcome = "model" if same or file == WITHOUT_CHECKSUM else "other weights without a message"
    except (UserError, OSError) as error:
        outcome = "refused" if "\n" not in str(error) else f"more than a line: {error}"
    except Exception as error:  # the wrong outcome that this program looks for
        outcome = f"{type(error).__name__}: {error}"[:150]
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    return outcome if time.process_time() - began < SECONDS else "took too long"


@click.command()
@click.option("--mutations", default=1000, type=click.IntRange(1), help="Number of mutations of each file.")
@click.option("--seed", default=1)
@click.option("--only", type=int, help="Number of one mutation to reproduce.")
@click.option("--file", "names", multiple=True, help="Damage only these files.")
def main(mutations: int, seed: int, only: int | None, names: tuple[str, ...]) -> None:
    """Print a table of the outcomes. Exit with 1 if any is wrong, or if no file has one of the names."""
    torch.set_num_threads(1)
    for kind_of_limit, limit in MEMORY_LIMIT.items():
        resource.setrlimit(kind_of_limit, (limit, limit))
    tried = wrong = 0
    with tempfile.TemporaryDirectory(prefix="nmt-foreign-") as world:
        make_world(Path(world))
        print("| file | refused in one line | imported | wrong |\n|---|---|---|---|", flush=True)
        for kind, files in FILES.items():
            expected = imported(Path(world) / kind)
            for file in [file for file in files if not names or file in names]:
                numbers = range(mutations) if only is None else [only]
                outcomes = [damaged(Path(world) / kind, file, number, seed, expected) for number in numbers]
                counts = Counter(outcomes)
                faults = {outcome: n for outcome, n in counts.items() if outcome not in ("model", "refused")}
                tried += len(outcomes)
                wrong += sum(faults.values())
                line = (counts["refused"], counts["model"], sum(faults.values()))
                print(f"| {kind} {file} | {' | '.join(f'{n:,}' for n in line)} |", flush=True)
                for fault in faults:
                    click.echo(f"{kind} {file} {outcomes.index(fault)}: {fault}", err=True)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"\n{megabytes:,} MB maximum memory, {time.process_time():.0f} s of CPU time")
    raise SystemExit(wrong > 0 or not tried)


if __name__ == "__main__":
    main()
