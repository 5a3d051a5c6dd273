"""Commands that read files: the files that may be damaged, and the part of the result that is compared."""

import bz2
import gzip
import json
import lzma
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from recipes.torture import forks

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
PREPROCESS = (
    "preprocess --source-lang en --target-lang de --workers 1 --quiet --set filter.decontaminate=false"
)
CPU = "--threads 1 --device cpu"
TRAIN = "--config {golden}/train.toml --device cpu --batch-tokens 300 --save-every 120 --validate-every 0"
METRICS = "--metric bleu --metric chrf --metric ter --json"
SUBWORDS = "--tokenizer bpe --vocab-size 96 --set text.words=raw"

IMPORTED = ("huggingface", "exported", "pickled", "marian", "fairseq")
"""Folders with models of other toolkits, which `recipes.torture.foreign` writes."""

Result = Callable[[Path, bytes], object]
"""Returns the result of a command from the damaged copy of its folder and the bytes on stdout."""


@dataclass(frozen=True, slots=True)
class Case:
    """A command and a folder of files that it reads."""

    name: str
    base: Path
    """The folder with undamaged files. Each mutation damages a copy of the folder."""

    command: str
    """The arguments of `nmt`. {copy} is replaced by the path of the copy."""

    result: Result
    weight: int
    """Relative frequency among the cases."""

    any_result: bool = False
    """Whether damaged files may change the result, as another text has another translation."""

    def arguments(self, copy: Path) -> list[str]:
        """Return the arguments of `nmt` for a copy of the folder."""
        return arguments(self.command, copy)


def arguments(command: str, copy: Path) -> list[str]:
    """Return the words of a command with the paths of {copy} and {golden}."""
    return [word.format(copy=copy, golden=GOLDEN) for word in command.split()]


def cases(world: Path) -> list[Case]:
    """Return all cases. `world` is the folder that `make_world` has written."""
    valid = f"{PREPROCESS} --train {{golden}}/corpus/valid"
    text = f"translate {{golden}}/model --beam 1 --input {{copy}}/in.gz {CPU}"
    model = f"translate {{copy}} --beam 1 --input {world}/three.en {CPU}"
    average = "average-checkpoints {copy} --last 1 --out {copy}/out"
    resumed = f"train {{golden}}/dataset {TRAIN} --out {{copy}} --max-steps 241"
    trained = f"train {{copy}} {TRAIN} --out {{copy}}/out --max-steps 1"
    reused = f"{valid} --reuse-tokenizer {{copy}} --out {{copy}}/out"
    replaced = f"{PREPROCESS} --train {{golden}}/corpus/train --valid {{golden}}/corpus/valid"
    replaced += f" {SUBWORDS} --overwrite --out {{copy}}"
    subwords = f"{valid} --reuse-tokenizer {{copy}}/joint.model --out {{copy}}/out"
    corpora = f"{PREPROCESS} --train {{copy}}/a --train {{copy}}/b.tsv"
    corpora += " --train {copy}/c.en.bz2:{copy}/c.de.zst"
    corpora += " --valid {copy}/d.en.sgm:{copy}/d.de.sgm --tokenizer char --out {copy}/out"
    scores = f"score --reference {{copy}}/d.de.sgm {{copy}}/hyp.xz {METRICS}"
    settings = "translate --settings --config {copy}/settings.toml"
    configured = f"train {{golden}}/dataset --config {{copy}}/train.toml {CPU} --out {{copy}}/out --settings"
    described = [*(GOLDEN / name for name in ("model", "run", "dataset")), world / "ctranslate2"]
    imported = "import {copy} --source-lang en --target-lang de --out {copy}/out"
    return [
        Case("model", GOLDEN / "model", model, printed, 6),
        Case("input", world / "text", text, nothing, 2, True),
        Case("average", GOLDEN / "run", average, weights, 4),
        Case("run", GOLDEN / "run", resumed, losses, 1),
        Case("dataset", GOLDEN / "dataset", trained, lambda copy, out: losses(copy / "out", out), 1),
        Case("reused", GOLDEN / "dataset", reused, lambda copy, out: tokens(copy / "out", out), 4),
        Case("replaced", GOLDEN / "dataset", replaced, tokens, 1),
        Case("subwords", world / "subwords", subwords, nothing, 2, True),
        Case("corpora", world / "corpora", corpora, nothing, 3, True),
        Case("scores", world / "scores", scores, nothing, 2, True),
        Case("settings", world / "settings", settings, nothing, 2, True),
        Case("train settings", world / "train settings", configured, nothing, 1, True),
        Case("report", GOLDEN / "run", "report {copy} --out {copy}/out.svg", nothing, 2, True),
        *(Case(f"info {base.name}", base, "info {copy}", nothing, 1, True) for base in described),
        *(Case(name, world / name, imported, nothing, 2, True) for name in IMPORTED),
        Case("zip", world / "zip", imported.replace("{copy} ", "{copy}/model.zip "), nothing, 1, True),
    ]


def printed(copy: Path, out: bytes) -> object:
    """Return the output."""
    return out


def nothing(copy: Path, out: bytes) -> object:
    """Return None, so that all results are equal."""
    return None


def weights(copy: Path, out: bytes) -> object:
    """Return the averaged weights as bytes."""
    return (copy / "out" / "model.safetensors").read_bytes()


def losses(run: Path, out: bytes) -> object:
    """Return the last step of a run and its loss."""
    last = json.loads((run / "log.jsonl").read_bytes().splitlines()[-1])
    return last["step"], last.get("loss")


def tokens(dataset: Path, out: bytes) -> object:
    """Return the contents of the arrays and texts of a dataset."""
    return [path.read_bytes() for path in sorted(dataset.glob("*.*.*"))]


def make_world(world: Path) -> None:
    """Write the files that the commands read, except the golden ones, into the folder `world`."""
    english, german = ((GOLDEN / "corpus" / f"valid.{lang}").read_text("utf-8") for lang in ("en", "de"))
    for name in ("text", "subwords", "corpora", "scores", "settings", "train settings"):
        (world / name).mkdir(parents=True)
    (world / "text" / "in.gz").write_bytes(gzip.compress(english.encode()))
    (world / "three.en").write_text("".join(english.splitlines(keepends=True)[:3]), "utf-8")
    pairs = zip(english.splitlines(), german.splitlines(), strict=True)
    corpora = world / "corpora"
    (corpora / "a.en.gz").write_bytes(gzip.compress(english.encode()))
    (corpora / "a.de").write_text(german, "utf-8")
    (corpora / "b.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    (corpora / "c.en.bz2").write_bytes(bz2.compress(english.encode()))
    (corpora / "c.de.zst").write_bytes(zstd.compress(german.encode()))
    for lang, text in (("en", english), ("de", german)):
        kind = "src" if lang == "en" else "ref"
        segments = "".join(f'<seg id="{i}">{line}</seg>\n' for i, line in enumerate(text.splitlines(), 1))
        sgm = f'<{kind}set setid="t"><doc docid="d">\n{segments}</doc></{kind}set>\n'
        (corpora / f"d.{lang}.sgm").write_text(sgm, "utf-8")
    shutil.copy(corpora / "d.de.sgm", world / "scores" / "d.de.sgm")
    (world / "scores" / "hyp.xz").write_bytes(lzma.compress(english.encode()))
    shutil.copy(GOLDEN / "run" / "config.toml", world / "train settings" / "train.toml")
    commented = forks.succeed(["translate", "--settings"], world).out
    settings = commented.replace(b"\n#", b"\n").replace(b"\n ", b"\n# ")
    (world / "settings" / "settings.toml").write_bytes(settings)
    dataset = f"{PREPROCESS} --train {{golden}}/corpus/train --vocab-size 60 --out {{copy}}"
    forks.succeed(arguments(dataset, world / "dataset"), world)
    shutil.copy(world / "dataset" / "tokenizer" / "joint.model", world / "subwords" / "joint.model")
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        pool.submit(_make_models, world).result()


def _make_models(world: Path) -> None:
    """Write models of other toolkits. Call this in another process, since transformers starts threads."""
    from recipes.torture import foreign

    foreign.make_world(world)
