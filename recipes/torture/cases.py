"""Commands that read files, each with a folder of files to damage and a function that returns the result."""

import bz2
import gzip
import json
import lzma
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recipes.torture import forks
from recipes.torture.strangers import make_strangers

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GOLDEN = Path(__file__).resolve().parent.parent.parent / "tests" / "golden"
MADE = "preprocess --source-lang en --target-lang de --workers 1 --quiet"
CPU = "--threads 1 --device cpu"
TRAINED = "--config {golden}/train.toml --device cpu --batch-tokens 300 --save-every 120 --validate-every 0"
METRICS = "--metric bleu --metric chrf --metric ter --json"
SUBWORDS = "--tokenizer bpe --vocab-size 96 --set text.words=raw"

STRANGERS = ("huggingface", "pickled", "marian", "fairseq")
"""Folders of other toolkits' models that `nmt import` reads."""

Result = Callable[[Path, bytes], object]


@dataclass(frozen=True, slots=True)
class Case:
    """A command and a folder of files that it reads."""

    name: str
    base: Path
    """The folder to copy. The copy is damaged."""

    command: str
    """The arguments of `nmt`, in which {at} is the copy."""

    result: Result
    """Returns the result, given the path of the copy and the output."""

    weight: int
    """Relative frequency."""

    any_result: bool = False
    """Whether damaged files may change the result, as another text has another translation."""

    def arguments(self, at: Path) -> list[str]:
        """Return the arguments of `nmt` for a copy of the folder at `at`."""
        return arguments(self.command, at)


def arguments(command: str, at: Path) -> list[str]:
    """Return the words of a command, with its paths filled in."""
    return [word.format(at=at, golden=GOLDEN) for word in command.split()]


def cases(world: Path) -> list[Case]:
    """Return all cases. `world` is the folder from `make_world`."""
    valid = f"{MADE} --train {{golden}}/corpus/valid"
    text = f"translate {{golden}}/model --beam 1 --input {{at}}/in.gz {CPU}"
    model = f"translate {{at}} --beam 1 --input {world}/three.en {CPU}"
    average = "average-checkpoints {at} --last 1 --out {at}/out"
    resumed = f"train {{golden}}/dataset {TRAINED} --out {{at}} --max-steps 241"
    trained = f"train {{at}} {TRAINED} --out {{at}}/out --max-steps 1"
    anew = f"{MADE} --train {{golden}}/corpus/train --valid {{golden}}/corpus/valid {SUBWORDS} --overwrite"
    corpora = f"{MADE} --train {{at}}/a --train {{at}}/b.tsv --train {{at}}/c.en.bz2:{{at}}/c.de.zst"
    corpora += " --valid {at}/d.en.sgm:{at}/d.de.sgm"
    scores = f"score --reference {{at}}/d.de.sgm {{at}}/hyp.xz {METRICS}"
    configured = f"train {{golden}}/dataset --config {{at}}/train.toml {CPU} --out {{at}}/out --settings"
    told = [*(GOLDEN / name for name in ("model", "run", "dataset")), world / "ctranslate2"]
    imported = "import {at} --source-lang en --target-lang de --out {at}/out"
    return [
        Case("model", GOLDEN / "model", model, printed, 6),
        Case("input", world / "text", text, nothing, 2, True),
        Case("average", GOLDEN / "run", average, weights, 4),
        Case("run", GOLDEN / "run", resumed, losses, 1),
        Case("dataset", GOLDEN / "dataset", trained, lambda at, out: losses(at / "out", out), 1),
        Case(
            *("reused", GOLDEN / "dataset", f"{valid} --reuse-tokenizer {{at}} --out {{at}}/out"),
            *(lambda at, out: tokens(at / "out", out), 4),
        ),
        Case("made anew", GOLDEN / "dataset", f"{anew} --out {{at}}", tokens, 1),
        Case(
            *(
                "subwords",
                world / "subwords",
                f"{valid} --reuse-tokenizer {{at}}/joint.model --out {{at}}/out",
            ),
            *(nothing, 2, True),
        ),
        Case(
            *("corpora", world / "corpora", f"{corpora} --tokenizer char --out {{at}}/out"),
            *(nothing, 3, True),
        ),
        Case("scores", world / "scores", scores, nothing, 2, True),
        Case(
            *("settings", world / "settings", "translate --settings --config {at}/settings.toml"),
            *(nothing, 2, True),
        ),
        Case("train settings", world / "train settings", configured, nothing, 1, True),
        Case("report", GOLDEN / "run", "report {at} --out {at}/out.html", nothing, 2, True),
        *(Case(f"info {base.name}", base, "info {at}", nothing, 1, True) for base in told),
        Case("info text", world / "text", "info {at}/in.gz", nothing, 1, True),
        *(Case(name, world / name, imported, nothing, 2, True) for name in STRANGERS),
        Case("zip", world / "zip", imported.replace("{at} ", "{at}/model.zip "), nothing, 1, True),
    ]


def printed(at: Path, out: bytes) -> object:
    """Return the output."""
    return out


def nothing(at: Path, out: bytes) -> object:
    """Return None: the result does not matter."""
    return None


def weights(at: Path, out: bytes) -> object:
    """Return the weights of an average."""
    return (at / "out" / "model.safetensors").read_bytes()


def losses(at: Path, out: bytes) -> object:
    """Return the last step of a run and its loss."""
    last = json.loads((at / "log.jsonl").read_bytes().splitlines()[-1])
    return last["step"], last.get("loss")


def tokens(at: Path, out: bytes) -> object:
    """Return the arrays and texts of a dataset."""
    return [path.read_bytes() for path in sorted(at.glob("*.*.*"))]


def make_world(world: Path) -> None:
    """Write the files of those commands that do not use golden ones."""
    english, german = ((GOLDEN / "corpus" / f"valid.{lang}").read_text("utf-8") for lang in ("en", "de"))
    for name in ("text", "subwords", "corpora", "scores", "settings", "train settings"):
        (world / name).mkdir(parents=True)
    (world / "text" / "in.gz").write_bytes(gzip.compress(english.encode()))
    (world / "three.en").write_text("".join(english.splitlines(keepends=True)[:3]), "utf-8")
    pairs = zip(english.splitlines(), german.splitlines(), strict=True)
    corpora = world / "corpora"
    (corpora / "a.en.gz").write_bytes(gzip.compress(english.encode()))
    (corpora / "a.de").write_text(german, "utf-8")
    (corpora / "b.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs), "utf-8")
    (corpora / "c.en.bz2").write_bytes(bz2.compress(english.encode()))
    (corpora / "c.de.zst").write_bytes(zstd.compress(german.encode()))
    for lang, text in (("en", english), ("de", german)):
        kind = "src" if lang == "en" else "ref"
        segments = "".join(f'<seg id="{i}">{line}</seg>\n' for i, line in enumerate(text.splitlines(), 1))
        sgm = f'<{kind}set setid="t"><doc docid="d">\n{segments}</doc></{kind}set>\n'
        (corpora / f"d.{lang}.sgm").write_text(sgm, "utf-8")
    shutil.copy(corpora / "d.de.sgm", world / "scores" / "d.de.sgm")
    (world / "scores" / "hyp.xz").write_bytes(lzma.compress(english.encode()))
    ended = forks.run(["translate", "--settings"], world, 60)
    shutil.copy(GOLDEN / "run" / "config.toml", world / "train settings" / "train.toml")
    (world / "settings" / "settings.toml").write_bytes(
        ended.out.replace(b"\n#", b"\n").replace(b"\n ", b"\n# ")
    )
    learnt = f"{MADE} --train {{golden}}/corpus/train --vocab-size 60 --out {{at}}"
    forks.run(arguments(learnt, world / "learnt"), world, 60)
    make_strangers(world, world / "learnt", GOLDEN / "train.toml")
    shutil.copy(world / "learnt" / "tokenizer" / "joint.model", world / "subwords" / "joint.model")
