"""What other toolkits make of exported models: translations line by line, scores, and what comes back.

python -m recipes.benchmarks.interop_exports --work FOLDER [--steps 600] [--lines 200]

The quickstart's model, and others like it of other kinds, trained in FOLDER unless they are there, each for
so many steps. Lines are of the quickstart's test set; all search with a beam of 4, and ours as the other
toolkit does: in each cell is how many translations are equal, and what BLEU theirs have more. Who is not
installed is left out: pip install transformers ctranslate2 pymarian, and for Argos Translate pip install
--no-deps argostranslate stanza emoji and pip install spacy minisbd.
"""

import argparse
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor

from nmt_cli.api import SearchConfig, TranslateConfig, load
from nmt_cli.checkpoints.model_folder import read_model, weights
from nmt_cli.interop.exporting import export, losses, search_alike, translate
from nmt_cli.interop.foreign import Wanted, write
from nmt_cli.interop.importing import read
from nmt_cli.interop.marian_out import WEIGHTS
from nmt_cli.ragged import Layout
from nmt_cli.scoring.metrics import score

RECIPES = Path(__file__).resolve().parents[1]
ARGOS = RECIPES / "benchmarks" / "argos_translate.py"

VARIANTS: Mapping[str, tuple[str, Sequence[str]]] = {
    "post-norm, joint": ("joint", ()),
    "pre-norm, joint": ("joint", ("model.norm=pre",)),
    "post-norm, separate": ("separate", ("model.tie=decoder",)),
    "pre-norm, separate": ("separate", ("model.norm=pre", "model.tie=decoder")),
    "starts from zeros": ("joint", ("model.start=zeros",)),
    "Marian's positions": ("joint", ("model.start=zeros", "model.positions=marian")),
}
"""By name: whose vocabulary, and what is set besides."""

DATASETS = {"joint": (), "separate": ("--separate", "--vocab-size", "1000")}

PACKAGES = {
    "huggingface": "transformers",
    "ctranslate2": "ctranslate2",
    "argos": "argostranslate",
    "marian": "pymarian",
}
"""Whose they are, to be imported."""

NOTHING = "\u2013"

MARIAN = """
import sys
from pymarian import Translator

weights, *vocabularies = sys.argv[1:]
translator = Translator(
    models=weights, vocabs=vocabularies, beam_size=4, normalize=0.0, n_best=True, cpu_threads=1,
    no_spm_decode=True, max_length=100, max_length_factor=3, quiet=True, quiet_translation=True, mini_batch=1,
)
found = translator.translate(sys.stdin.read().splitlines())
print(found if isinstance(found, str) else "\\n".join(found))
"""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--lines", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    prepare(given.work, given.steps)
    source, reference = (
        list(islice((given.work / "corpus" / f"test.{lang}").read_text("utf-8").splitlines(), given.lines))
        for lang in ("en", "de")
    )
    titles: list[str] = []
    for name in VARIANTS:
        cells = dict(Exported(given.work, name, source, reference).cells())
        if not titles:
            titles = list(cells)
            print(f"| model | {' | '.join(titles)} |\n|{'---|' * (len(titles) + 1)}")
        print(f"| {name} | {' | '.join(cells[title] for title in titles)} |", flush=True)


def prepare(work: Path, steps: int) -> None:
    """Make corpus, datasets and models that are not there yet."""
    corpus, quickstart = work / "corpus", RECIPES / "quickstart"
    if not corpus.exists():
        _run(quickstart / "generate.py", "--out", corpus)
    for name, options in DATASETS.items():
        if not (work / name).exists():
            prefixes = [part for kind in ("train", "valid", "test") for part in (f"--{kind}", corpus / kind)]
            told = ("--config", quickstart / "preprocess.toml", "--source-lang", "en", "--target-lang", "de")
            _run("-m", "nmt_cli", "preprocess", *told, *prefixes, *options, "--out", work / name)
    for name, (dataset, settings) in VARIANTS.items():
        place, training = _model(work, name), work / f"training-{_plain(name)}"
        if not place.exists():
            chosen = [part for one in (*settings, f"training.max_steps={steps}") for part in ("--set", one)]
            config = quickstart / "train.toml"
            _run("-m", "nmt_cli", "train", work / dataset, "--config", config, *chosen, "--out", training)
            _run("-m", "nmt_cli", "average-checkpoints", training, "--last", "3", "--out", place)


def _model(work: Path, name: str) -> Path:
    return work / f"model-{_plain(name)}"


def _plain(name: str) -> str:
    """For a path: Marian takes apart what has blanks or quotes."""
    return re.sub(r"\W+", "-", name).lower()


def _run(*arguments: object) -> None:
    subprocess.run([sys.executable, *map(str, arguments)], check=True, stdout=sys.stderr)


class Exported:
    """A model of ours in the others' forms, and what they make of it."""

    def __init__(self, work: Path, name: str, source: list[str], reference: list[str]) -> None:
        """`name` is one of `VARIANTS`."""
        self._folder, self._out = _model(work, name), work / f"exported-{_plain(name)}"
        self._source, self._reference = source, reference
        self._model = read_model(self._folder)
        shutil.rmtree(self._out, ignore_errors=True)

    def cells(self) -> Iterator[tuple[str, str]]:
        """The title of each column, and what belongs there."""
        yield "BLEU", f"{self._bleu(self._ours('huggingface')):.2f}"
        yield "transformers", self._equal("huggingface")
        yield "imported again", self._imported_again()
        yield "CTranslate2 fp32", self._equal("ctranslate2")
        yield "CTranslate2 int8", self._equal("ctranslate2", "int8")
        yield "transformers, then CTranslate2's converter", self._converted()
        yield "Argos Translate", self._by_argos()
        yield "Marian's scores", self._scored_by_marian()

    def _ours(self, form: str) -> list[str]:
        search = SearchConfig(max_length=60, **search_alike(form))
        with load(self._folder, device="cpu", threads=1, config=TranslateConfig(search=search)) as model:
            return list(model.translate(self._source))

    def _bleu(self, lines: Sequence[str]) -> float:
        return score(list(lines), [self._reference], ["bleu"])[0].value

    def _written(self, form: str, precision: Any = "fp32") -> Path | None:
        """The export; None where the other toolkit can't do what the model does, or is not there."""
        if losses(self._model, form) or not importlib.util.find_spec(PACKAGES[form]):
            return None
        out = self._out / f"{form}-{precision}"
        if not out.exists():
            export(self._model, form, out, precision)
        return out

    def _equal(self, form: str, precision: str = "fp32") -> str:
        out = self._written(form, precision)
        return self._compared(form, translate(form, out, self._source)) if out else NOTHING

    def _compared(self, form: str, theirs: list[str]) -> str:
        """How many lines are equal, and what BLEU theirs have more than ours."""
        ours = self._ours(form)
        equal = sum(one == other for one, other in zip(ours, theirs, strict=True))
        return f"{equal} of {len(ours)}, {self._bleu(theirs) - self._bleu(ours):+.2f} BLEU"

    def _imported_again(self) -> str:
        if not (out := self._written("huggingface")):
            return NOTHING
        write(read(str(out), Wanted()), self._out / "back")
        back = read_model(self._out / "back")
        before, after = weights(self._model.transformer), weights(back.transformer)
        same = before.keys() == after.keys() and all(
            torch.equal(before[name], after[name]) for name in before
        )
        fingerprints = (one.identity.tokenizers.fingerprint for one in (self._model, back))
        same &= len({*fingerprints}) == 1 and self._model.identity.config == back.identity.config
        return "bit for bit" if same else "DIFFERENT"

    def _converted(self) -> str:
        """What CTranslate2 makes of what its own converter makes of the folder for transformers."""
        out = self._written("huggingface")
        if not out or not importlib.util.find_spec("ctranslate2"):
            return NOTHING
        package, made = importlib.import_module("ctranslate2"), self._out / "converted"
        try:
            package.converters.TransformersConverter(str(out)).convert(str(made))
        except (AttributeError, ValueError):
            return "breaks off"
        source, target = (
            SentencePieceProcessor(model_file=str(out / name)) for name in ("source.spm", "target.spm")
        )
        pieces = [[*source.encode(line, out_type=str), "</s>"] for line in self._source]
        translator = package.Translator(str(made), device="cpu", intra_threads=1)
        found = translator.translate_batch(pieces, beam_size=4, disable_unk=True, max_decoding_length=60)
        return self._compared("ctranslate2", [target.decode(each.hypotheses[0]) for each in found])

    def _by_argos(self) -> str:
        if not (out := self._written("argos")):
            return NOTHING
        command = [sys.executable, str(ARGOS), *map(str, out.iterdir())]
        text = "\n".join(self._source)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return self._compared("argos", done.stdout.splitlines())

    def _scored_by_marian(self) -> str:
        """The largest difference between Marian's score of a hypothesis of its own, and ours of the same."""
        if not (out := self._written("marian")):
            return NOTHING
        # In a process of its own, which Marian ends where it does not like a file.
        command = [sys.executable, "-c", MARIAN, str(out / WEIGHTS), *[str(out / "vocab.spm")] * 2]
        text = "\n".join(self._source)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        target = self._model.identity.tokenizers.target.vocabulary
        ids = {entry: i for i, entry in enumerate(target.entries)}
        largest, count = 0.0, 0
        for line in filter(str.strip, done.stdout.splitlines()):
            number, pieces, _, found = line.split(" ||| ")
            hypothesis = [*(ids[piece] for piece in pieces.split()), target.end]
            largest = max(largest, abs(self._score(int(number), hypothesis) - float(found)))
            count += 1
        return f"{largest:.1e} off at most, of {count} hypotheses"

    def _score(self, number: int, hypothesis: list[int]) -> float:
        side = self._model.identity.tokenizers.source
        source = side.vocabulary.ended(side.encode(side.prepare(self._source[number])))
        layouts = Layout.of([len(source)]), Layout.of([len(hypothesis)])
        with torch.no_grad():
            both = torch.tensor(source), torch.tensor(hypothesis)
            logits = self._model.transformer.logits(self._model.transformer(*both, *layouts))
        return float(logits.log_softmax(1).gather(1, both[1][:, None]).sum())


if __name__ == "__main__":
    main()
