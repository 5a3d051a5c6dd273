"""Export models for Bergamot, the engine in Firefox and translateLocally: a `.bin` of Marian, often int8."""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from nmt_cli.checkpoints.model_folder import LoadedModel
from nmt_cli.errors import UserError
from nmt_cli.interop import conventions, marian, marian_binary, shortlists
from nmt_cli.interop.weights import correspondences
from nmt_cli.language import without_region
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.runtime.devices import Precision

NAME = "Bergamot"
SEARCH: Mapping[str, Any] = {"beam": 1, "cap_ratio": 2.0, "cap_extra": 2, "max_length": 0}
KINDS: Mapping[Precision, tuple[str, str]] = {
    "fp32": ("model.{pair}.bin", "float32"),
    "int8": ("model.{pair}.intgemm.alphas.bin", "int8shiftAlphaAll"),
}
"""For each precision, the name of the weights, and Marian's name of the precision of matrix products."""

PRECISIONS: Sequence[Precision] = (*KINDS,)

INPUTS, ROWS = 64, 8
"""Marian's int8 products take multiples of these numbers of inputs, and of vocabulary entries."""

ENGINE = Path(__file__).with_name("bergamot_engine.py")
"""The program that translates by Bergamot itself."""

UNTIED = ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W")
"""Marian's names of an untied output matrix. Its int8 products need the second, which is transposed."""

LONGEST = 30
"""Maximum tokens of a translation of a generated sentence."""

SETTINGS = "config.intgemm8bitalpha.yml"
"""The name that translateLocally expects, in any precision."""

SETTINGS_TEXT = """relative-paths: true
models:
  - {weights}
vocabs:
  - {source}
  - {target}
beam-size: 1
normalize: 1.0
max-length-break: 128
max-length-factor: 2.0
mini-batch-words: 1024
workspace: 128
skip-cost: true
{shortlist}alignment: soft
gemm-precision: {precision}
"""

SHORTLIST_TEXT = """shortlist:
  - lex.{pair}.s2t.bin
  - false
"""
"""The second item says not to check the file."""

NO_SHORTLIST = (
    "there is no lexical shortlist: Bergamot scores the whole vocabulary, which is slower. "
    "nmt shortlist makes one"
)


def losses(model: LoadedModel) -> list[str]:
    """Return a message for each feature of the model that Bergamot does not support. [] means that it
    supports all.

    It supports what Marian does, but the ids of the vocabulary must be those of SentencePiece, since it reads
    no other vocabularies.
    """
    messages, tokenizers = marian.losses(model), model.identity.tokenizers
    if tokenizers.recipe.kind == "sentencepiece" and not marian.numbered_alike(tokenizers):
        messages.append("its vocabulary is not that of its SentencePiece model")
    return messages


def write(model: LoadedModel, folder: Path, precision: Precision) -> list[str]:
    """Write weights, vocabularies, settings, and a description for translateLocally into `folder`.

    Return a note if there is no shortlist. Raise `UserError` for int8 if a size of the model is not a
    multiple of `INPUTS`.
    """
    config, recipe = model.identity.config, model.identity.tokenizers.recipe
    source, target = (without_region(language) for language in (recipe.source_lang, recipe.target_lang))
    pair, (weights, products) = f"{source}{target}", KINDS[precision]
    if precision == "int8" and (config.width % INPUTS or config.feed_forward % INPUTS):
        raise UserError(
            f"--precision int8 for {NAME} needs multiples of {INPUTS} for model.width and model.feed_forward "
            f"(got {config.width} and {config.feed_forward}). Use --precision fp32."
        )
    names = [f"{side}vocab.{pair}.spm" for side in ("src", "trg")]
    files, rows = marian.write_vocabularies(model.identity.tokenizers, folder, f"vocab.{pair}.spm", names)
    items: dict[str, Any] = marian.arrays(model, rows, ROWS)
    if UNTIED[0] in items:
        items[UNTIED[1]] = numpy.ascontiguousarray(items.pop(UNTIED[0]).T)
    if precision == "int8":
        # Biases and norms are matrices of one row, and stay fp32.
        matrices = {name: item for name, item in items.items() if item.ndim == 2 and len(item) > 1}
        items |= {name: marian_binary.rounded(item) for name, item in matrices.items()} | _scales(model)
    weights = weights.format(pair=pair)
    marian_binary.write(folder / weights, items)
    shortlist = ""
    if model.shortlist:
        (folder / f"lex.{pair}.s2t.bin").write_bytes(shortlists.marian_file(model.shortlist, rows))
        shortlist = SHORTLIST_TEXT.format(pair=pair)
    settings = SETTINGS_TEXT.format(
        weights=weights, source=files[0], target=files[1], shortlist=shortlist, precision=products
    )
    (folder / SETTINGS).write_text(settings, encoding="utf-8")
    name = f"{recipe.source_lang}-{recipe.target_lang}"
    described = {"modelName": name, "shortName": name, "type": "nmt", "version": 1, "API": 1}
    described |= {"src": recipe.source_lang, "trg": recipe.target_lang}
    (folder / "model_info.json").write_text(json.dumps(described, indent=1), encoding="utf-8")
    return [] if model.shortlist else [NO_SHORTLIST]


def _scales(model: LoadedModel) -> dict[str, Any]:
    """Return a scale for the activations that each matrix multiplies, under Marian's name of the scale.

    The scale is 127 / (mean + 1.1 x standard deviation). Both are those of the largest activations in
    generated sentences.
    """
    config, tokenizers = model.identity.config, model.identity.tokenizers
    # Generated sentences are enough: scales from real text gave the same BLEU.
    tops = _largest_inputs(model)
    output = {"all": "Wemb", "decoder": "decoder_Wemb", "none": UNTIED[1]}[config.tie]
    items = {output: tops[""], "none": tops[""]}  # Marian's name with a lexical shortlist is "none"
    for one in correspondences(config, len(tokenizers.source.vocabulary), len(tokenizers.target.vocabulary)):
        if (module := one.ours.removesuffix(".weight")) in tops:
            items |= {marian.marian_name(name, config): tops[module] for name in one.theirs}
    top = {name: numpy.mean(values) + 1.1 * numpy.std(values) for name, values in items.items()}
    scales = {name: marian_binary.LARGEST / (top[name] or 1.0) for name in items}
    return {f"{name}{marian_binary.SCALE}": numpy.array([scales[name]], numpy.float32) for name in items}


@torch.no_grad()
def _largest_inputs(model: LoadedModel) -> dict[str, list[float]]:
    """Return the largest absolute inputs of each linear module of the layers, by name: one for each of some
    generated sentences with greedy translations. The name of the output projection is ""."""
    transformer, source = model.transformer, model.identity.tokenizers.source
    sources = [source.vocabulary.ended(source.encode(text)) for text in conventions.made_up(source)]
    targets = _greedy(transformer, sources)
    tops: dict[str, list[float]] = {}

    def recorder(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, inputs: tops.setdefault(name, []).append(float(inputs[0].abs().max()))

    linear = {name: module for name, module in transformer.named_modules() if isinstance(module, nn.Linear)}
    with ExitStack() as hooks:
        for name, module in linear.items():
            hooks.enter_context(module.register_forward_pre_hook(recorder(name)))
        for pair in zip(sources, targets, strict=True):
            layouts = [Layout.of([len(ids)]) for ids in pair]
            decoded = transformer(*map(torch.tensor, pair), *layouts)
            tops.setdefault("", []).append(float(decoded.abs().max()))
    return tops


def _greedy(transformer: Transformer, sources: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the greedy translation of each source with its end token, cut after `LONGEST` tokens."""
    source, layout = torch.tensor([*chain(*sources)]), Layout.of([len(ids) for ids in sources])
    end, rows = transformer.target_vocabulary.end, torch.arange(len(sources))
    cache = transformer.begin(source, layout, slots=1)
    tokens = [torch.full((len(sources),), end)]  # the first input is a vector of zeros, for any token
    for _ in range(LONGEST):
        decoded = transformer.step(tokens[-1], rows, cache, LONGEST)
        tokens.append(transformer.logits(decoded).argmax(1))
    # The end tokens of the first input come last, so that every row has one.
    targets = torch.stack([*tokens[1:], tokens[0]], 1).tolist()
    return [[*ids[: ids.index(end)], end] for ids in targets]


def engine() -> Path:
    """Return the Python that has the package of Bergamot: the one beside the command `bergamot`. Raise
    `UserError` if there is none."""
    if found := shutil.which("bergamot"):
        return Path(found).with_name("python")
    raise UserError(
        f"--check needs {NAME}, and its command bergamot is not in PATH. Its package is for Python 3.10 or "
        "older: python3.10 -m venv berg, berg/bin/pip install --no-deps bergamot==0.4.5, "
        "PATH=$PATH:berg/bin."
    )


def translate(folder: Path, lines: list[str], at_once: int = 1) -> list[str]:
    """Return each line's translation by Bergamot itself, with the export in `folder`. Bergamot gets `at_once`
    lines at a time. More are faster, but its limit of length is that of a batch. Raise `UserError` if it
    fails."""
    # Isolated, since the folder of the program has a module of the name bergamot too: this one.
    command = [str(engine()), "-I", str(ENGINE), str(folder / SETTINGS), str(at_once)]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8")
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"{NAME} ended with exit status {done.returncode}: {reason}")
    return done.stdout.split("\n")[:-1]
