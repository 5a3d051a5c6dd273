"""Export Marian models: an `.npz` with vocabularies and a `decoder.yml`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nmt_cli.checkpoints.model_folder import Model, weights
from nmt_cli.interop.exporters import exported
from nmt_cli.interop.importers import marian_yaml
from nmt_cli.interop.importers.marian import ACTIVATIONS, IN_LAYER, OUTSIDE_LAYERS, SETTINGS
from nmt_cli.interop.weights import BIAS, OUTPUT, SOURCE, TARGET, export_tensors, with_attention_biases
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizers import Tokenizers

NAME, SEARCH = "Marian", exported.OVER_LENGTHS
PRECISIONS: Sequence[Precision] = ("fp32",)

WEIGHTS, DECODER = "model.npz", "decoder.yml"
JOINT, SIDES = "vocab.spm", ("vocab.source.spm", "vocab.target.spm")
BACK = {ours: name for name, ours in (IN_LAYER | OUTSIDE_LAYERS).items()}
"""Marian's names of tensors, by common names. Those of a layer are without the layer."""

COMMON_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+)")

DECODER_TEXT = """relative-paths: true
models:
  - {weights}
vocabs:
  - {source}
  - {target}
beam-size: 4
normalize: 1
max-length-factor: 3
"""

UNUSED = (
    "bert-train-type-embeddings: true, bert-type-vocab-size: 2, dec-cell-base-depth: 2, "
    "dec-cell-high-depth: 1, dim-rnn: 1024, enc-cell: gru, enc-cell-depth: 1, enc-type: bidirectional, "
    "factors-combine: sum, factors-dim-emb: 0, input-types: [], layer-normalization: false, "
    'lemma-dependency: "", lemma-dim-emb: 0, right-left: false, skip: false, '
    "transformer-aan-activation: swish, transformer-aan-depth: 2, transformer-aan-nogate: false, "
    "transformer-depth-scaling: false, "
    "transformer-dim-aan: 2048, transformer-ffn-depth: 2, transformer-guided-alignment-layer: last, "
    "transformer-no-projection: false, transformer-pool: false, transformer-postprocess-emb: d, "
    "transformer-tied-layers: [], transformer-train-position-embeddings: false, type: transformer, "
    "ulr: false, ulr-dim-emb: 0, ulr-trainable-transformation: false, version: v1.12.0 65bf82ff"
)
"""Settings that Marian requires, although they have no effect on these models."""


def losses(model: Model) -> list[str]:
    """Return a message for each feature of the model that Marian lacks, or []. Check settings by
    `model_losses`. Require "marian" positions from 0, post-norm and a supported activation and `tie`. Refuse
    a start token. Marian's pre-norm differs: it normalises the queries of self-attention, but not its keys
    and values."""
    config = model.identity.config
    messages = exported.model_losses(
        config,
        positions="marian",
        first_position=0,
        norm="post",
        decoder_history=("attention", "ssru"),
        activation=tuple(ACTIVATIONS.values()),
        tie=("all", "decoder", "none"),
    )
    if config.start == "mark" and model.transformer.start is not None:
        messages.append("model.start is mark")
    for name in ("heads", "feed_forward"):
        if (value := getattr(config.of_decoder, name)) != getattr(config, name):
            messages.append(f"model.decoder_{name} is {value}")
    return messages


def write(model: Model, folder: Path, precision: str) -> list[str]:
    """Write weights, vocabularies and `decoder.yml`. Leave out matrix rows without a vocabulary entry."""
    files, rows = write_vocabularies(model.identity.tokenizers, folder, JOINT, SIDES)
    numpy.savez(folder / WEIGHTS, **arrays(model, rows))  # type: ignore[arg-type]  # they are all arrays
    decoder = DECODER_TEXT.format(weights=WEIGHTS, source=files[0], target=files[1])
    (folder / DECODER).write_text(decoder, encoding="utf-8")
    return []


def arrays(model: Model, rows: Sequence[int], multiple: int = 1) -> dict[str, NDArray[Any]]:
    """Return the weights and settings by Marian's names. `rows` are the vocabulary sizes, source first: leave
    out further rows of matrices. Then add rows of zeros up to a multiple of `multiple`, with a bias that
    excludes them from search."""
    config = model.identity.config
    common = with_attention_biases(export_tensors(weights(model.transformer), config))
    common.setdefault(BIAS, common[OUTPUT].new_zeros(len(common[OUTPUT])))
    for name, size in ((SOURCE, rows[0]), (TARGET, rows[1]), (OUTPUT, rows[1]), (BIAS, rows[1])):
        used, value = common[name][:size], exported.EXCLUDED_BIAS if name == BIAS else 0.0
        common[name] = functional.pad(used, (*[0] * (2 * used.dim() - 1), -size % multiple), value=value)
    # Marian reads arrays in row-major order only.
    named = {name: numpy.ascontiguousarray(tensor.numpy()) for name, tensor in _named(common, config)}
    settings = _settings(config, [len(common[SOURCE]), len(common[TARGET])]).encode() + b"\0"
    return named | {SETTINGS: numpy.frombuffer(settings, dtype=numpy.int8)}


def write_vocabularies(
    tokenizers: Tokenizers, folder: Path, joint: str, names: Sequence[str]
) -> tuple[list[str], list[int]]:
    """Write each side's vocabulary into `folder`. Return the file names and the sizes, source first. Write
    SentencePiece models if SentencePiece's ids equal ours. Otherwise write YAML files, with the SentencePiece
    models beside the YAML files. A joint vocabulary is one file, `joint`, named twice."""
    sides, recipe = (tokenizers.source, tokenizers.target), tokenizers.recipe
    if numbered_alike(tokenizers):
        files = [joint, joint] if recipe.joint else [*names]
        for file, side in zip(files, sides, strict=True):
            (folder / file).write_bytes(exported.sentencepiece_with_rules(side, recipe))
        return files, [len(Pieces(side.subwords.files()["model"]).written) for side in sides]
    exported.write_sentencepiece(tokenizers, folder)
    files = ["vocab.yml", "vocab.yml"] if recipe.joint else ["vocab.source.yml", "vocab.target.yml"]
    for file, side in zip(files, sides, strict=True):
        entries = enumerate(exported.named_entries(side.vocabulary))
        lines = "".join(f"{marian_yaml.quoted(entry)}: {i}\n" for i, entry in entries)
        (folder / file).write_text(lines, encoding="utf-8")
    return files, [len(side.vocabulary) for side in sides]


def numbered_alike(tokenizers: Tokenizers) -> bool:
    """Return whether each piece and special token has the same id in our vocabularies as in SentencePiece."""
    for side in (tokenizers.source, tokenizers.target):
        written = dict(enumerate(Pieces(side.subwords.files()["model"]).written))
        special_tokens = {side.vocabulary.end: "</s>", side.vocabulary.unknown: "<unk>"}
        if any(written.get(i, "").lstrip("\u2581") != token for i, token in special_tokens.items()):
            return False
        if any(i != piece for i, piece in side.numbering.pieces.items()):
            return False
    return True


def marian_name(name: str, config: ModelConfig) -> str:
    """Return Marian's name of a tensor in a layer, by the common name `name`."""
    match = COMMON_LAYER.fullmatch(name)
    assert match is not None
    history = "rnn_ffn" if match[1] == "decoder" and config.decoder_history == "ssru" else "self_Wo"
    return f"{match[1]}_l{int(match[2]) + 1}_{BACK[match[3]].replace('self_Wo_ln', f'{history}_ln')}"


def _named(common: Mapping[str, Tensor], config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) for each tensor of `common` in Marian's names and layout. Transpose matrices,
    except embeddings and the output matrix. Make vectors one row. Yield tied matrices once."""
    for name, tensor in common.items():
        laid_out = tensor.T if tensor.dim() == 2 else tensor[None]
        if COMMON_LAYER.fullmatch(name):
            yield marian_name(name, config), laid_out
    yield "decoder_ff_logit_out_b", common[BIAS][None]
    if config.tie == "all":
        yield "Wemb", common[OUTPUT]
        return
    yield "encoder_Wemb", common[SOURCE]
    yield "decoder_Wemb", common[TARGET]
    if config.tie == "none":
        yield "decoder_ff_logit_out_Wt", common[OUTPUT]


def _settings(config: ModelConfig, rows: list[int]) -> str:
    """Return the settings that Marian stores in a model, as YAML. `rows` has the vocabulary sizes, source
    first."""
    tied, all_tied = (str(config.tie == tie).lower() for tie in ("decoder", "all"))
    recurrent = config.decoder_history == "ssru"
    lines = [
        *UNUSED.replace(" []", "\n  []").split(", "),
        f"enc-depth: {config.encoder_layers}",
        f"dec-depth: {config.decoder_layers}",
        f"dec-cell: {'ssru' if recurrent else 'gru'}",
        f"dim-emb: {config.width}",
        f"dim-vocabs:\n  - {rows[0]}\n  - {rows[1]}",
        f"tied-embeddings: {tied}",
        f"tied-embeddings-all: {all_tied}",
        "tied-embeddings-src: false",
        f"transformer-decoder-autoreg: {'rnn' if recurrent else 'self-attention'}",
        f"transformer-dim-ffn: {config.feed_forward}",
        f"transformer-ffn-activation: {config.activation}",
        f"transformer-heads: {config.heads}",
        'transformer-preprocess: ""',
        "transformer-postprocess: dan",
        'transformer-postprocess-top: ""',
    ]
    return "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.split(":")[0]))


def translate(folder: Path, lines: list[str]) -> list[str]:
    """Return each line's translation by the export in `folder`, with a beam of 4. The vocabulary must not be
    YAML. Raise `UserError` if Marian's package is not installed."""
    files = [JOINT, JOINT] if (folder / JOINT).is_file() else SIDES
    with TemporaryDirectory() as folder_without_spaces:
        root = Path(folder_without_spaces) / "model"  # Marian splits paths at spaces
        root.symlink_to(folder.resolve())
        search: dict[str, Any] = {"beam_size": 4, "normalize": 1.0, "max_length_factor": 3}
        translator = exported.package("pymarian", "--check").Translator(
            models=str(root / WEIGHTS),
            vocabs=[str(root / file) for file in files],
            cpu_threads=1,
            quiet=True,
            quiet_translation=True,
            **search,
        )
        texts = translator.translate(lines)
    return texts.split("\n") if isinstance(texts, str) else list(texts)
