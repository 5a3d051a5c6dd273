"""Read and write Marian's models.

`nmt import` takes an `.npz` or `.bin` with vocabularies, and OPUS-MT's zips and folders. `nmt export` writes
an `.npz` with vocabularies and a `decoder.yml`. Both directions use the same table of names.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from nmt_cli.checkpoints.foreign_kinds import is_marian_binary
from nmt_cli.checkpoints.model_folder import LoadedModel, weights
from nmt_cli.errors import UserError
from nmt_cli.interop import conventions, marian_binary, marian_yaml, shortlists
from nmt_cli.interop.foreign import (
    POSITIONS,
    Activation,
    Foreign,
    ImportOptions,
    foreign_tokenizers,
    foreign_vocabulary,
    of_pieces,
    padded_entries,
)
from nmt_cli.interop.foreign_settings import ForeignSettings, read_spm, read_text
from nmt_cli.interop.weights import (
    BIAS,
    OUTPUT,
    SOURCE,
    TARGET,
    common_tensors,
    export_tensors,
    has_biases,
    import_tensors,
    with_attention_biases,
)
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.devices import Precision
from nmt_cli.runtime.foreign_text import read_ordinary
from nmt_cli.runtime.zips import check_whole, unpacked
from nmt_cli.text.shortlist import Shortlist
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.text.vocabulary import Vocabulary

SETTINGS = "special:model.yml"
WEIGHTS, DECODER = "model.npz", "decoder.yml"
"""Names of the files of an export, and usual names in other folders."""

DECODERS = (DECODER, "config.yml", "config.intgemm8bitalpha.yml")
"""Names of the decoder's settings. `MODEL.npz.decoder.yml` comes before them."""

ACTIVATIONS: Mapping[str, Activation] = {"swish": "swish", "relu": "relu"}
"""Our `model.activation` by Marian's name."""

BROWSER: Mapping[str, Any] = {"beam-size": 1, "normalize": 1.0, "max-length-factor": 2.0}
"""Settings with which Firefox decodes a `.bin`."""

LANGUAGES = re.compile(r"model\.([a-z]{2})([a-z]{2})\..*bin")
"""Source and target language in the name of a `.bin`."""

SHORTLIST_NOTE = "{} is left out, because it is no .s2t.bin or .s2t: nmt scores the whole vocabulary"
OPTIMIZER = ".optimizer.npz"
EPSILON = 1e-6
NEEDED = re.compile(r"[^/\\]+\.(?:npz(?<!\.optimizer\.npz)|yml|yaml|spm)")
"""Names of the files to extract from a zip."""

LAYER = re.compile(r"(encoder|decoder)_l([0-9]{1,4})_(\w+)")
"""A tensor of a layer. Layers are counted from 1."""

KINDS, NORM_KINDS = {"W": "weight", "b": "bias"}, {"scale": "weight", "bias": "bias"}
NORMS = {
    "rnn_ffn": "self_attn_layer_norm",
    "self_Wo": "self_attn_layer_norm",
    "context_Wo": "encoder_attn_layer_norm",
    "ffn_ffn": "final_layer_norm",
}
"""Norms of a layer by Marian's name. `rnn_ffn` follows an SSRU, and `self_Wo` attention."""

IN_LAYER = {
    "rnn_W": "ssru.value.weight",
    "rnn_Wf": "ssru.forget.weight",
    "rnn_bf": "ssru.forget.bias",
}
IN_LAYER |= {f"ffn_{kind}{i}": f"fc{i}.{ours}" for kind, ours in KINDS.items() for i in (1, 2)}
IN_LAYER |= {
    f"{part}_{kind}{which}": f"{module}.{'out' if which == 'o' else which}_proj.{ours}"
    for part, module in (("self", "self_attn"), ("context", "encoder_attn"))
    for kind, ours in KINDS.items()
    for which in "qkvo"
}
IN_LAYER |= {
    f"{name}_ln_{kind}": f"{module}.{ours}"
    for name, module in NORMS.items()
    for kind, ours in NORM_KINDS.items()
}
"""Common names of the tensors of a layer, by Marian's."""

OUTSIDE_LAYERS = {
    "encoder_Wemb": SOURCE,
    "decoder_Wemb": TARGET,
    "decoder_ff_logit_out_b": BIAS,
    "decoder_ff_logit_out_W": OUTPUT,
    "decoder_ff_logit_out_Wt": OUTPUT,
}
"""Common names of other tensors, by Marian's."""

OFF = (
    "transformer-train-position-embeddings",
    "transformer-no-projection",
    "transformer-pool",
    "ulr",
    "right-left",
)
OFF_IF_RECURRENT = ("layer-normalization", "transformer-rnn-projection")
"""Settings that nmt does not support, always or for a decoder without self-attention. Marian writes more
settings, most of which change nothing here."""


def read(path: Path, options: ImportOptions) -> Foreign:
    """Return the model in a folder, a zip, an `.npz` or a `.bin`. Raise `UserError` if nmt cannot express
    it."""
    if path.suffix != ".zip" or path.is_dir():
        return _read(path, options)
    with unpacked(path, NEEDED) as folder:
        return _read(folder, options)


def _read(path: Path, options: ImportOptions) -> Foreign:
    """Return the model in an `.npz` or `.bin`, or in a folder with one of them.

    Its vocabularies must be beside it, and the settings of the decoder may be. Raise `UserError` if nmt
    cannot express the model.
    """
    file = _weights(path)
    binary = file.suffix == ".bin"
    arrays, settings = _loaded(file)
    tensors = _unshared(common_tensors(arrays, _usual_names, str(file)), settings)
    config = _config(settings, tensors, options)
    candidates = (file.with_name(f"{file.name}.{DECODER}"), *map(file.with_name, DECODERS))
    # Settings beside the file, if there are any, replace these.
    decoder: dict[str, Any] = dict(BROWSER) if binary else {}
    if found := next(filter(Path.is_file, candidates), None):
        decoder |= marian_yaml.settings(read_ordinary(found).decode(errors="replace"), str(found))
    named = LANGUAGES.fullmatch(file.name)
    languages = options.languages(named[1] if named else "", named[2] if named else "", file)
    files = _vocabulary_files(file.parent, decoder)
    rows = {"source": len(tensors.get(SOURCE, tensors[OUTPUT])), "target": len(tensors[OUTPUT])}
    sides: dict[Side, Vocabulary] = {side: _vocabulary(files[side], rows[side]) for side in SIDES}
    spms: dict[Side, bytes] = {}
    for side, listed in files.items():  # a .yml has no rules to segment text
        spms[side] = read_spm(listed if listed.suffix == ".spm" else file.with_name(f"{side}.spm"))
    tokenizers = foreign_tokenizers(of_pieces(languages), spms, sides)
    imported = import_tensors(tensors, str(file), config, tokenizers)
    lexicons, numbers = _lexicons(file, decoder)
    shortlist = _shortlist(lexicons, numbers, tokenizers)
    return Foreign(
        "Marian",
        config,
        tokenizers,
        imported,
        _search(decoder),
        notes=[SHORTLIST_NOTE.format(one.name) for one in lexicons if not shortlist],
        shortlist=shortlist,
    )


def _lexicons(file: Path, decoder: Mapping[str, Any]) -> tuple[Sequence[Path], Sequence[Any]]:
    """Return the files beside the weights `file` that may be the shortlist, and what follows its name in the
    settings `decoder`. A file that the settings name is the only one, since others may be of another
    direction. If they name none, only a `.bin` has a shortlist, since it comes from a package."""
    listed = decoder.get("shortlist")
    name, *numbers = listed if isinstance(listed, list) and listed else [""]
    named = file.parent / Path(str(name)).name
    if named.is_file():
        return [named], numbers
    return sorted(file.parent.glob("lex.*")) if file.suffix == ".bin" else [], numbers


def _shortlist(lexicons: Sequence[Path], numbers: Sequence[Any], tokenizers: Tokenizers) -> Shortlist | None:
    """Return the shortlist in one of the files, or None. A binary one comes first, since Bergamot uses it.

    `numbers` begins with the counts and the threshold for a file of text, if there are any.
    """
    if binary := next(filter(shortlists.is_marian_shortlist, lexicons), None):
        return shortlists.read_marian(binary, tokenizers)
    text = next((file for file in lexicons if file.suffix == ".s2t"), None)
    limits = [one for one in numbers if type(one) in (int, float) and abs(one) < 1e9]
    return shortlists.read_marian_text(text, tokenizers, *limits[:3]) if text else None


def _weights(path: Path) -> Path:
    """Return the file with the weights: `path` itself, or the only one in the folder `path`.

    A `.bin` counts only if there is no `.npz`. Files with the state of an optimiser never count. Raise
    `UserError` if there is no file, or more than one.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    arrays = [file for file in files if file.suffix == ".npz" and not file.name.endswith(OPTIMIZER)]
    arrays = arrays or [*filter(is_marian_binary, files)]
    if len(arrays) == 1:
        return arrays[0]
    listed = ", ".join(file.name for file in arrays) or "no .npz or .bin of a model"
    raise UserError(f"{path} has {listed}. Name the one to import.")


def _loaded(file: Path) -> tuple[dict[str, Tensor], ForeignSettings]:
    """Return the tensors of an `.npz` or `.bin` by Marian's names, and its settings. Raise `UserError` if the
    file is damaged or not of Marian."""
    try:
        if file.suffix == ".bin":
            arrays: dict[str, Any] = dict(marian_binary.read(file))
        else:
            check_whole(file)
            # Pickled objects in an .npz could run any code.
            with numpy.load(file, allow_pickle=False) as stored:
                arrays = dict(stored)
        text = bytes(arrays.pop(SETTINGS).astype(numpy.uint8)).rstrip(b"\0").decode()
        numbers = {
            # PyTorch takes only the byte order of this machine.
            name: torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
            for name, array in arrays.items()
            if not name.startswith("special:")
        }
    except UserError:
        raise
    except Exception as error:  # the bytes are arbitrary, so the error may be of any kind
        raise UserError(f"{file} is damaged or not a model of Marian ({str(error)[:80]!r}).") from error
    return numbers, ForeignSettings(marian_yaml.settings(text, f"{file}: {SETTINGS}"), str(file))


def _usual_names(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their common names, which `weights.py` explains.

    Marian's matrices are transposed, except embeddings and `_Wt`. Biases and tensors of norms are one row,
    and become vectors. A shared embedding serves both sides. If the output projection is missing, it is the
    target embedding.
    """
    tensors_by_name: dict[str, Tensor] = {}
    for name, array in arrays.items():
        new = OUTSIDE_LAYERS.get(name, name)
        if (match := LAYER.fullmatch(name)) and match[3] in IN_LAYER:
            new = f"{match[1]}.layers.{int(match[2]) - 1}.{IN_LAYER[match[3]]}"
        plain = new in (SOURCE, TARGET) or name.endswith("_Wt")
        matrix = new.endswith("weight") and "norm" not in new
        tensors_by_name[new] = (array if plain else array.T) if matrix else array.flatten()
    if tensors_by_name.pop("Wemb", None) is not None:
        tensors_by_name |= {SOURCE: arrays["Wemb"], TARGET: arrays["Wemb"]}
    if TARGET in tensors_by_name:
        tensors_by_name.setdefault(OUTPUT, tensors_by_name[TARGET])
    return tensors_by_name


def _unshared(tensors: dict[str, Tensor], settings: ForeignSettings) -> dict[str, Tensor]:
    """Return `tensors`, by common names, with tensors of their own for each decoder layer. `settings` say
    which layers share the weights of another one."""
    origins = settings.list_of("transformer-tied-layers", int)  # counted from 1
    if not origins:
        return tensors
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith("decoder.layers.")}
    for number, origin in enumerate(origins):
        shared, copy = f"decoder.layers.{origin - 1}.", f"decoder.layers.{number}."
        names = [name for name in tensors if name.startswith(shared)]
        own |= {name.replace(shared, copy): tensors[name] for name in names}
    return own


def _config(settings: ForeignSettings, tensors: Mapping[str, Tensor], options: ImportOptions) -> ModelConfig:
    """Return the architecture of a model.

    It has biases if `tensors`, by common names, contain any. Raise `UserError` for an unsupported setting,
    or a missing output matrix.
    """
    recurrent = settings.text("transformer-decoder-autoreg", "self-attention") == "rnn"
    for name in (*OFF, *OFF_IF_RECURRENT) if recurrent else OFF:
        settings.demand(name, False)
    if recurrent:
        settings.demand("dec-cell", "ssru")
    settings.demand("type", "transformer")
    settings.demand("transformer-decoder-autoreg", "self-attention", "rnn")
    settings.demand("transformer-ffn-depth", 2)
    settings.demand("lemma-dim-emb", 0)
    # Marian's pre-norm normalises the queries of self-attention, but not its keys and values.
    settings.demand("transformer-preprocess", "", "d")
    settings.demand("transformer-postprocess", "dan", "an")
    settings.demand("transformer-postprocess-top", "", "d")
    settings.demand("transformer-postprocess-emb", "d", "")
    feed_forward = settings.integer("transformer-dim-ffn")
    settings.demand("transformer-decoder-dim-ffn", 0, feed_forward)
    all_tied = settings.flag("tied-embeddings-all", False)
    tied = all_tied or settings.flag("tied-embeddings", False)
    if tensors[OUTPUT].numel() and not tied and tensors[OUTPUT] is tensors.get(TARGET):
        raise UserError(f"{settings.where} has no output matrix, so it is damaged.")
    return ModelConfig(
        encoder_layers=settings.integer("enc-depth"),
        decoder_layers=settings.integer("dec-depth"),
        width=settings.integer("dim-emb"),
        feed_forward=feed_forward,
        heads=settings.integer("transformer-heads"),
        norm_epsilon=EPSILON,
        activation=settings.choice("transformer-ffn-activation", ACTIVATIONS, "swish"),
        positions=POSITIONS[options.positions or "marian"],
        decoder_history="ssru" if recurrent else "attention",
        attention_bias=has_biases(tensors),
        output_bias=BIAS in tensors,
        tie="all" if all_tied else "decoder" if tied else "none",
    )


def _search(decoder: Mapping[str, Any]) -> dict[str, Any]:
    """Return our search settings for Marian's settings `decoder`. Missing settings get Marian's defaults."""
    settings = ForeignSettings(decoder, "decoder.yml")
    normalize = decoder.get("normalize", 0.0)
    penalty = 1.0 if normalize is True else 0.0 if normalize is False else settings.number("normalize", 0.0)
    factor = settings.number("max-length-factor", 3.0)
    return {
        "beam": settings.integer("beam-size", 12),
        "length_rule": "power",
        "length_penalty": penalty,
        "cap_ratio": factor,
        "cap_extra": round(factor),  # Marian also counts the end token of the source
    }


def _vocabulary_files(folder: Path, decoder: Mapping[str, Any]) -> dict[Side, Path]:
    """Return the vocabulary file of each side in `folder`. A single file serves both sides.

    The settings `decoder` of the decoder may name them. Otherwise these names are tried in order:
    `*vocab*.yml`, `*vocab*.spm` and `*.spm`. Raise `UserError` if there is no file, or if there are more than
    two.
    """
    file_names = decoder.get("vocabs")
    files = [folder / str(name) for name in file_names] if isinstance(file_names, list) else []
    inside = Path(os.path.realpath(folder))  # unlike resolve, it accepts circular links
    # First is_file(), because realpath() fails for names that no file can have, such as with a NUL.
    files = [path for path in files if path.is_file() and Path(os.path.realpath(path)).parent == inside]
    files = files or sorted(folder.glob("*vocab*.yml")) or sorted(folder.glob("*vocab*.spm"))
    files = files or sorted(folder.glob("*.spm"))
    if not files:
        raise UserError(f"{folder} has no vocabulary. Copy its .spm or .yml file, such as vocab.spm, there.")
    if len(files) > 2:
        listed = ", ".join(path.name for path in files)
        raise UserError(f"{folder} has {listed}. Keep one, or one for each side.")
    if files[0].suffix == ".spm" and len(files) == 2:  # the source model is named src or source
        files.sort(key=lambda path: not re.search(r"src|source", path.name))
    return dict(zip(SIDES, (files[0], files[-1]), strict=True))


def _vocabulary(file: Path, rows: int) -> Vocabulary:
    """Return the first `rows` entries of a vocabulary file, without a start token. Raise `UserError` for no
    </s> or <unk>."""
    if file.suffix == ".spm":
        ids = {piece: i for i, piece in enumerate(Pieces(read_spm(file)).written)}
    else:
        ids = marian_yaml.vocabulary(read_text(file), str(file))
    marks = {
        name: i for piece, i in ids.items() for name in ("</s>", "<unk>") if piece.lstrip("\u2581") == name
    }
    if len(marks) < 2:
        raise UserError(f"{file} has no </s> or no <unk>, so it is not a vocabulary of Marian.")
    entries = [""] * rows
    for piece, i in ids.items():
        if i < rows:
            entries[i] = piece.lstrip("\u2581") if i in marks.values() else piece
    return foreign_vocabulary(padded_entries(entries, rows, file), end=marks["</s>"], unknown=marks["<unk>"])


# Export

NAME, SEARCH = "Marian", conventions.OVER_LENGTHS
PRECISIONS: Sequence[Precision] = ("fp32",)

JOINT, SEPARATE = "vocab.spm", ("vocab.source.spm", "vocab.target.spm")
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


def losses(model: LoadedModel) -> list[str]:
    """Return a message for each feature of the model that Marian does not support. [] means that it supports
    all.

    Marian's pre-norm is not ours: in self-attention it normalises the queries, but not the keys and values.
    So only post-norm is supported. A model with a start token is not, because Marian's decoder begins with
    zeros.
    """
    config = model.identity.config
    messages = conventions.model_losses(
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


def write(model: LoadedModel, folder: Path, precision: str) -> list[str]:
    """Write weights, vocabularies and `decoder.yml`. Leave out matrix rows without a vocabulary entry."""
    files, rows = write_vocabularies(model.identity.tokenizers, folder, JOINT, SEPARATE)
    numpy.savez(folder / WEIGHTS, **arrays(model, rows))  # type: ignore[arg-type]  # they are all arrays
    decoder = DECODER_TEXT.format(weights=WEIGHTS, source=files[0], target=files[1])
    (folder / DECODER).write_text(decoder, encoding="utf-8")
    return []


def arrays(model: LoadedModel, rows: Sequence[int], multiple: int = 1) -> dict[str, NDArray[Any]]:
    """Return the weights and settings of a model by Marian's names.

    rows: the sizes of the vocabularies, source first. Further rows of matrices are left out.
    multiple: rows of zeros are added up to a multiple of this. A bias excludes them from search.
    """
    config = model.identity.config
    common = with_attention_biases(export_tensors(weights(model.transformer), config))
    common.setdefault(BIAS, common[OUTPUT].new_zeros(len(common[OUTPUT])))
    for name, size in ((SOURCE, rows[0]), (TARGET, rows[1]), (OUTPUT, rows[1]), (BIAS, rows[1])):
        used, value = common[name][:size], conventions.EXCLUDED_BIAS if name == BIAS else 0.0
        common[name] = functional.pad(used, (*[0] * (2 * used.dim() - 1), -size % multiple), value=value)
    # Marian reads arrays in row-major order only.
    named = {name: numpy.ascontiguousarray(tensor.numpy()) for name, tensor in _named(common, config)}
    settings = _settings(config, [len(common[SOURCE]), len(common[TARGET])]).encode() + b"\0"
    return named | {SETTINGS: numpy.frombuffer(settings, dtype=numpy.int8)}


def write_vocabularies(
    tokenizers: Tokenizers, folder: Path, joint: str, names: Sequence[str]
) -> tuple[list[str], list[int]]:
    """Write the vocabularies of both sides into `folder`, as Marian reads them.

    Return the names of the two files for `decoder.yml` and the two sizes, source first.

    - If both sides have the ids of SentencePiece, the files are SentencePiece models: `joint`, or the two
      `names`.
    - Otherwise they are YAML: `vocab.yml`, or `vocab.source.yml` and `vocab.target.yml`. The SentencePiece
      models, with which users cut texts into pieces, are written beside them.

    Two sides with a joint vocabulary share one file, whose name is then returned twice.
    """
    sides, recipe = (tokenizers.source, tokenizers.target), tokenizers.recipe
    if numbered_alike(tokenizers):
        files = [joint, joint] if recipe.joint else [*names]
        for file, side in zip(files, sides, strict=True):
            (folder / file).write_bytes(conventions.sentencepiece_with_rules(side, recipe))
        return files, [len(Pieces(side.subwords.files()["model"]).written) for side in sides]
    conventions.write_sentencepiece(tokenizers, folder)
    files = ["vocab.yml", "vocab.yml"] if recipe.joint else ["vocab.source.yml", "vocab.target.yml"]
    for file, side in zip(files, sides, strict=True):
        entries = enumerate(conventions.named_entries(side.vocabulary))
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
    """Yield (name, tensor) for each of the tensors `common` in Marian's names and layout.

    Matrices are transposed, except embeddings and the output matrix. Vectors become one row. A tied matrix
    appears once.
    """
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
    """Return each line's translation by the export in `folder`, computed by Marian with a beam of 4.

    The vocabulary must not be YAML. Raise `UserError` if Marian's package is not installed.
    """
    files = [JOINT, JOINT] if (folder / JOINT).is_file() else SEPARATE
    with TemporaryDirectory() as folder_without_spaces:
        root = Path(folder_without_spaces) / "model"  # Marian splits paths at spaces
        root.symlink_to(folder.resolve())
        search: dict[str, Any] = {"beam_size": 4, "normalize": 1.0, "max_length_factor": 3}
        translator = conventions.package("pymarian", "--check").Translator(
            models=str(root / WEIGHTS),
            vocabs=[str(root / file) for file in files],
            cpu_threads=1,
            quiet=True,
            quiet_translation=True,
            **search,
        )
        texts = translator.translate(lines)
    return texts.split("\n") if isinstance(texts, str) else list(texts)
