"""Read and write model folders of Hugging Face's `transformers`.

`nmt import` takes Marian (as in OPUS-MT), M2M100, Pegasus and, by `t5.py`, T5. Exports load without our code:
post-norm models become Marian models, and pre-norm models Pegasus models. Both need a padding entry, which we
append to the vocabulary. Pegasus has one matrix for both sides, so a pre-norm model must have one, too.
`nmt.json` and `nmt-tokenizer/` keep our settings and tokenisers, so that `nmt import` restores the model.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.checkpoints.model_folder import LoadedModel, shareable, weights
from nmt_cli.checkpoints.verified_files import read_tensors, write_tensors
from nmt_cli.config import section_of
from nmt_cli.errors import UserError
from nmt_cli.interop import conventions, fairseq, m2m100, t5
from nmt_cli.interop.conventions import SPMS
from nmt_cli.interop.foreign import (
    ACTIVATIONS,
    POSITIONS,
    Activation,
    Foreign,
    ImportOptions,
    foreign_tokenizers,
    foreign_vocabulary,
    of_pieces,
    padded_entries,
)
from nmt_cli.interop.foreign_settings import (
    ForeignSettings,
    read_ids,
    read_json,
    read_settings,
    read_settings_if_any,
    read_spm,
)
from nmt_cli.interop.weights import (
    BIAS,
    OUTPUT,
    SOURCE,
    TARGET,
    common_tensors,
    export_tensors,
    has_biases,
    import_tensors,
    to_halves,
    with_attention_biases,
)
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import sinusoids
from nmt_cli.named_values import REQUIRED
from nmt_cli.runtime.devices import Precision
from nmt_cli.runtime.pickled import read_pickled
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers
from nmt_cli.text.vocabulary import Vocabulary

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
PARTS = "model-*-of-*.safetensors"
OURS, OUR_TOKENIZER = "nmt.json", "nmt-tokenizer"
"""Files that are only in folders that nmt exported."""

VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"

EPSILON = 1e-5
"""Layer norm epsilon of these classes."""

NORMS: Mapping[str, Literal["post", "pre"]] = {"marian": "post", "pegasus": "pre", m2m100.KIND: "pre"}
NAMES = {"marian": "Hugging Face Marian", "pegasus": "Hugging Face Pegasus", m2m100.KIND: "M2M100 or NLLB"}
POSITIONS_NOTE = (
    "positions are those of transformers. If Marian trained the model, as for OPUS-MT, --positions marian "
    "restores the positions of training"
)
OPTIONS_NOTE = f"{OURS} and {OUR_TOKENIZER} were not used, because of --source-lang or another option"


def read(folder: Path, options: ImportOptions) -> Foreign:
    """Return the model in a folder of `transformers`.

    With empty `options`, an export of our own gets back its settings and tokenisers. Raise `UserError` for
    models that nmt does not support, such as two vocabularies in one matrix.
    """
    settings = read_settings(folder / CONFIG)
    kind = settings.text("model_type")
    if kind in t5.KINDS:
        foreign = t5.read(folder, settings, _tensors(folder), options)
        return replace(foreign, search=_search(folder, settings))
    if kind not in NORMS:
        kinds = ", ".join([*NORMS, *t5.KINDS])
        raise UserError(f"{folder}: model_type is {kind}, but nmt import supports only {kinds}.")
    tensors = common_tensors(_tensors(folder), usual_names, str(folder))
    if kind == "pegasus" and _separate(folder):
        raise UserError(f"{folder} has two vocabularies in one matrix, which nmt import does not support.")
    own = (folder / OURS).is_file() or (folder / OUR_TOKENIZER).is_dir()
    if own and options == ImportOptions():
        return _read_own_export(folder, NAMES[kind], tensors)
    config = _config(settings, tensors, options)
    if kind == m2m100.KIND:
        config = replace(config, positions="marian", first_position=fairseq.FIRST)
        tokenizers = m2m100.tokenizers(folder, settings, len(tensors[OUTPUT]), options)
        notes, longest = [m2m100.NOTE.format(len(tokenizers.recipe.symbols))], 1024
    else:
        sides, described = _vocabularies(folder, settings, tensors), read_settings_if_any(folder / TOKENIZER)
        if sides["target"].start is None and options.positions == "marian":
            _remove_padding(tensors, sides)
        pair = described.text("source_lang", ""), described.text("target_lang", "")
        models = {side: read_spm(folder / name) for side, name in SPMS.items()}
        tokenizers = foreign_tokenizers(of_pieces(options.languages(*pair, folder)), models, sides)
        notes, longest = [POSITIONS_NOTE] if config.positions == "sinusoidal" else [], 512
    notes += [OPTIONS_NOTE] if own else []
    imported = import_tensors(tensors, str(folder), config, tokenizers)
    longest = settings.integer("max_position_embeddings", longest)
    return Foreign(NAMES[kind], config, tokenizers, imported, _search(folder, settings), longest, notes)


def _read_own_export(folder: Path, kind: str, tensors: dict[str, Tensor]) -> Foreign:
    """Return a model that nmt exported, with its own settings and tokenisers.

    kind: the name of the toolkit, shown to people.
    tensors: the weights by common names. Their padding rows are removed here.

    Raise `UserError` for damaged settings.
    """
    settings = read_json(folder / OURS)
    try:
        config, trained_on = section_of(ModelConfig, settings["model"]), shareable(settings["trained_on"])
        search = dict(settings.get("search", {}))  # older exports have none
    except (LookupError, TypeError, ValueError, UserError) as error:
        raise UserError(f"{folder / OURS} is damaged ({error}). Copy it again, or remove it.") from error
    tokenizers = load_tokenizers(folder / OUR_TOKENIZER)
    source, target = (len(side.vocabulary) for side in (tokenizers.source, tokenizers.target))
    for name, rows in ((SOURCE, source), (TARGET, target), (OUTPUT, target), (BIAS, target)):
        if name in tensors:
            tensors[name] = tensors[name][:rows]  # drop the padding rows
    if BIAS in tensors and not tensors[BIAS].any():
        del tensors[BIAS]
    biases = config.attention_bias or has_biases(tensors)
    config = replace(config, attention_bias=biases, output_bias=config.output_bias or BIAS in tensors)
    imported = import_tensors(tensors, str(folder), config, tokenizers)
    return Foreign(kind, config, tokenizers, imported, search, trained_on=trained_on)


def _tensors(folder: Path) -> Mapping[str, Tensor]:
    """Return the tensors in `folder` by name.

    They are in one or several files of safetensors, or else in the pickled file. Raise `UserError` if all
    are missing, or one is damaged.
    """
    if (folder / WEIGHTS).is_file():
        return read_tensors(folder / WEIGHTS)
    if parts := sorted(folder.glob(PARTS)):
        return {name: tensor for part in parts for name, tensor in read_tensors(part).items()}
    if not (folder / PICKLED).is_file():
        raise UserError(f"{folder} has neither {WEIGHTS} nor {PICKLED}. Download the whole folder.")
    values = read_pickled(folder / PICKLED)
    if not isinstance(values, Mapping) or not all(isinstance(value, Tensor) for value in values.values()):
        raise UserError(f"{folder / PICKLED} has no named tensors. Download it again.")
    return values


def usual_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under their common names, without tables of positions.

    A shared matrix serves as missing embeddings, and the target embedding as a missing output projection.
    """
    names = [name for name in tensors if "embed_positions" not in name]
    tensors_by_name = {name.removeprefix("model."): tensors[name] for name in names}
    shared = tensors_by_name.pop("shared.weight", None)
    if shared is not None:
        tensors_by_name = {SOURCE: shared, TARGET: shared} | tensors_by_name
    if TARGET in tensors_by_name:
        tensors_by_name[OUTPUT] = tensors_by_name[TARGET]
    for ours, theirs in ((OUTPUT, "lm_head.weight"), (BIAS, "final_logits_bias")):
        if theirs in tensors_by_name:
            tensors_by_name[ours] = tensors_by_name.pop(theirs)
    if BIAS in tensors_by_name:
        # transformers stores it as a matrix of one row.
        tensors_by_name[BIAS] = tensors_by_name[BIAS].flatten()
    return tensors_by_name


def _config(settings: ForeignSettings, tensors: Mapping[str, Tensor], options: ImportOptions) -> ModelConfig:
    """Return the architecture, with biases if `tensors`, by common names, contain any. Raise `UserError` for
    an unsupported setting."""
    settings.demand("scale_embedding", True)
    shared = settings.flag("share_encoder_decoder_embeddings", True)
    tied = settings.flag("tie_word_embeddings", True)
    inner, heads = settings.integer("encoder_ffn_dim"), settings.integer("encoder_attention_heads")
    return ModelConfig(
        encoder_layers=settings.integer("encoder_layers"),
        decoder_layers=settings.integer("decoder_layers"),
        width=settings.integer("d_model"),
        feed_forward=inner,
        decoder_feed_forward=settings.integer_if_other("decoder_ffn_dim", inner),
        heads=heads,
        decoder_heads=settings.integer_if_other("decoder_attention_heads", heads),
        norm=NORMS[settings.text("model_type")],
        norm_epsilon=EPSILON,
        activation=settings.choice("activation_function", ACTIVATIONS, "gelu"),
        positions=POSITIONS[options.positions or "huggingface"],
        attention_bias=has_biases(tensors),
        output_bias=BIAS in tensors,
        tie=("all" if shared else "decoder") if tied else "none",
        residual_dropout=settings.number("dropout", 0.1),
        attention_dropout=settings.number("attention_dropout", 0.0),
        activation_dropout=settings.number("activation_dropout", 0.0),
    )


def _vocabularies(
    folder: Path, settings: ForeignSettings, tensors: Mapping[str, Tensor]
) -> dict[Side, Vocabulary]:
    """Return the vocabulary of each side, as large as its embedding in `tensors`.

    If the embedding at the decoder's start id is zero, the target has no start token: the model begins with
    zeros. Raise `UserError` for an invalid file or id.
    """
    rows, separate = len(tensors[OUTPUT]), _separate(folder)
    ids = read_ids(folder / (TARGET_VOCABULARY if separate else VOCABULARY), rows)
    first, embeddings = settings.integer("decoder_start_token_id"), tensors.get(TARGET, tensors[OUTPUT])
    if not 0 <= first < len(embeddings):
        raise UserError(
            f"{settings.where}: decoder_start_token_id is {first}, but there are {rows:,} entries."
        )
    start = first if embeddings[first].any() else None
    end = settings.integer("eos_token_id", ids.get("</s>", REQUIRED))
    never = [settings.integer("pad_token_id")] if "pad_token_id" in settings else []
    target = _vocabulary(folder, ids, rows, end=end, start=start, never=never)
    if not separate:
        return dict.fromkeys(SIDES, target)
    rows = len(tensors[SOURCE])
    ids = read_ids(folder / VOCABULARY, rows)
    never = [ids["<pad>"]] if "<pad>" in ids else []
    source = _vocabulary(folder, ids, rows, end=ids.get("</s>", -1), never=never)
    return {"source": source, "target": target}


def _separate(folder: Path) -> bool:
    return read_settings_if_any(folder / TOKENIZER).flag("separate_vocabs", False)


def _vocabulary(folder: Path, ids: Mapping[str, int], rows: int, **tokens: Any) -> Vocabulary:
    """Return a vocabulary of `rows` entries. Ids without a piece in `ids` are empty.

    `tokens` are the last arguments of `foreign_vocabulary`. Raise `UserError` if there is no `<unk>`.
    """
    if "<unk>" not in ids:
        raise UserError(f"{folder}: the vocabulary has no <unk>, so nmt does not support this model.")
    pieces = {i: piece for piece, i in ids.items()}
    entries = [pieces.get(i, "") for i in range(rows)]
    return foreign_vocabulary(padded_entries(entries, rows, folder), unknown=ids["<unk>"], **tokens)


def _remove_padding(tensors: dict[str, Tensor], sides: dict[Side, Vocabulary]) -> None:
    """Remove the last entry of a side, and its rows in `tensors`, if it is padding. The converter of
    transformers appends it, and Marian's model had none."""
    tables: dict[Side, set[str]] = {"source": {SOURCE}, "target": {TARGET, OUTPUT, BIAS}}
    for side, names in tables.items():
        entries, never = sides[side].entries, sides[side].never
        if never[-1:] == (len(entries) - 1,):
            tensors |= {name: tensors[name][:-1] for name in names & tensors.keys()}
            sides[side] = replace(sides[side], entries=entries[:-1], never=never[:-1])


def _search(folder: Path, settings: ForeignSettings) -> dict[str, Any]:
    """Return the search settings of `generate`, from `generation_config.json` or else `settings`. Raise
    `UserError` if the settings forbid repeated n-grams."""
    generation = read_settings(folder / GENERATION) if (folder / GENERATION).is_file() else settings
    for name in ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"):
        generation.demand(name, 0)
    longest = generation.integer("max_length", settings.integer("max_position_embeddings", 512))
    search = {
        "beam": generation.integer("num_beams", 1),
        "length_rule": "power",
        "length_penalty": generation.number("length_penalty", 1.0),
        "cap_ratio": 0.0,
        "cap_extra": longest - 2,  # without the start and end tokens
        "unknown": True,
    }
    if generation.equals("early_stopping", True):
        search["stop_early"] = True
    if generation.equals("early_stopping", "never"):
        search["reach"] = 1000.0
    return search


# Export

NAME, SEARCH = "transformers", conventions.OVER_LENGTHS
PRECISIONS: Sequence[Precision] = ("fp32", "fp16")

CLASSES = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}
ACTIVATION_NAMES: Mapping[Activation, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "swish": "swish",
}
"""The name of each `model.activation` in transformers."""

TIES = ("all", "decoder", "none")
"""Supported values of `model.tie`."""

LONGEST = 1024
"""Maximum number of positions."""

UNSUITABLE = "Do not convert this folder with CTranslate2's converter. Use nmt export --format ctranslate2."
PRE_NORM = f"{UNSUITABLE} The converter cannot read pre-norm models in this form."
START = f"{UNSUITABLE} The converter does not start translations with the end token, as this model does."

README = """# A translation model for transformers, as {name}

    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")
    batch = tokenizer(["A sentence."], return_tensors="pt", padding=True)
    print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))

Written by `nmt export`. `nmt import` restores the original model.

- `generate` adds the end token at `max_length` at no cost. nmt counts its probability.
- Layer norm adds 1e-5 to the variance in these classes. nmt trained this model with {epsilon:g}.
{notes}"""


MANY_CLASS = "M2M100ForConditionalGeneration"
MANY_README = """# A translation model for transformers, as {name}

    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")
    batch = tokenizer(["A sentence."], return_tensors="pt", padding=True)
    start = tokenizer.convert_tokens_to_ids("{start}")
    ids = model.generate(**batch, forced_bos_token_id=start)
    print(tokenizer.batch_decode(ids, skip_special_tokens=True))

Written by `nmt export`. Languages: {languages}. Set `tokenizer.src_lang` to that of the source.
"""


def losses(model: LoadedModel) -> list[str]:
    """Return a message for each feature of the model that `transformers` does not support. [] means that it
    supports all.

    Positions must be "sinusoidal" and begin at 0. In a pre-norm model, one matrix must serve as both
    embeddings and the output projection, as in Pegasus.
    """
    config = model.identity.config
    if of_many_languages(model):
        messages = conventions.model_losses(
            config,
            positions="marian",
            first_position=fairseq.FIRST,
            activation=tuple(ACTIVATION_NAMES),
            norm="pre",
            tie="all",
            output_bias=False,
        )
        return messages + m2m100.losses(model.identity.tokenizers)
    messages = conventions.model_losses(
        config,
        positions="sinusoidal",
        first_position=0,
        activation=tuple(ACTIVATION_NAMES),
        norm=tuple(CLASSES),
        tie=TIES,
    )
    if config.norm == "pre" and config.tie in TIES and config.tie != "all":
        messages.append(f"model.tie is {config.tie} in a pre-norm model")
    return messages


def of_many_languages(model: LoadedModel) -> bool:
    """Return whether translations begin with the symbol of their language, as in M2M100 and NLLB."""
    return model.identity.tokenizers.recipe.own_languages.target_symbols == "target"


def write(model: LoadedModel, folder: Path, precision: str) -> list[str]:
    """Write weights, settings, tokenisers and a README into `folder`. Return notes for the user.

    Tokenisers are also written in our own form. There is a note if CTranslate2's converter cannot read the
    model.
    """
    if of_many_languages(model):
        return _write_many_languages(model, folder, precision)
    config, tokenizers = model.identity.config, model.identity.tokenizers
    kind, name = CLASSES[config.norm]
    target, start = tokenizers.target.vocabulary, model.transformer.start
    padding = len(target)
    tensors = _their_tensors(weights(model.transformer), config)
    if precision == "fp16":
        tensors = {name: tensor.half() for name, tensor in tensors.items()}
    write_tensors(folder / WEIGHTS, tensors)
    special_ids = {
        "pad_token_id": padding,
        "eos_token_id": target.end,
        "forced_eos_token_id": target.end,
        "decoder_start_token_id": padding if start is None else start,
        "bos_token_id": None,
    }
    classes = {"architectures": [name], "model_type": kind}
    sizes = {"vocab_size": len(tokenizers.source.vocabulary) + 1, "decoder_vocab_size": padding + 1}
    # `generate` forbids sequences of ids, so each id is a list.
    excluded = [[i] for i in (*target.never, target.unknown, padding)]
    own = model.description.get("search", {})
    # "never" searches until no hypothesis can become better, as our search does.
    search = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": "never", "max_length": 512}
    ours = {"model": asdict(config), "trained_on": dict(model.identity.trained_on), "search": own}
    for file, content in {
        CONFIG: classes | _described(config) | special_ids | sizes,
        GENERATION: special_ids | search | _generation(own) | {"bad_words_ids": excluded},
        OURS: ours,
        **_text_files(tokenizers),
    }.items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / file).write_text(f"{text}\n", encoding="utf-8")
    conventions.write_sentencepiece(tokenizers, folder)
    tokenizers.save(folder / OUR_TOKENIZER)
    notes = [PRE_NORM] if config.norm == "pre" else [START] if start is not None else []
    (folder / "README.md").write_text(
        README.format(name=name, epsilon=config.norm_epsilon, notes="".join(f"- {note}\n" for note in notes))
    )
    return notes


def _write_many_languages(model: LoadedModel, folder: Path, precision: str) -> list[str]:
    """Write an M2M100 model with NLLB's tokeniser into `folder`. Return no notes."""
    config, tokenizers = model.identity.config, model.identity.tokenizers
    ids = m2m100.exported_ids(tokenizers)
    common = with_attention_biases(export_tensors(weights(model.transformer), config))
    matrix = common[OUTPUT]
    rows = torch.stack([matrix.new_zeros(config.width) if i is None else matrix[i] for i in ids])
    shared = {SOURCE, TARGET, OUTPUT}
    tensors = {f"model.{name}": tensor for name, tensor in common.items() if name not in shared}
    tensors["model.shared.weight"] = rows
    write_tensors(
        folder / WEIGHTS,
        {name: tensor.half() if precision == "fp16" else tensor for name, tensor in tensors.items()},
    )
    special_ids = {
        "pad_token_id": fairseq.PADDING,
        "eos_token_id": fairseq.END,
        "decoder_start_token_id": fairseq.END,
        "bos_token_id": fairseq.START,
    }
    classes = {"architectures": [MANY_CLASS], "model_type": m2m100.KIND, "vocab_size": len(ids)}
    own = model.description.get("search", {})
    start = tokenizers.recipe.begin("target")
    forced = {"forced_bos_token_id": ids.index(tokenizers.target.numbering.symbols[start])} if start else {}
    # Entries without a meaning have rows of zeros, and so a probability.
    never = [[i] for i, one in enumerate(ids) if one is None or one in tokenizers.target.vocabulary.never]
    search = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": "never", "max_length": 512}
    excluded = {"bad_words_ids": [*never, [fairseq.UNKNOWN]]}
    for file, content in {
        CONFIG: classes | _described(config) | special_ids,
        GENERATION: special_ids | search | _generation(own) | forced | excluded,
        TOKENIZER: m2m100.tokenizer_settings(tokenizers),
    }.items():
        (folder / file).write_text(f"{json.dumps(content, indent=1, ensure_ascii=False)}\n", encoding="utf-8")
    (folder / m2m100.SPM).write_bytes(
        conventions.sentencepiece_with_rules(tokenizers.source, tokenizers.recipe)
    )
    languages = ", ".join(tokenizers.recipe.symbols)
    text = MANY_README.format(name=MANY_CLASS, languages=languages, start=tokenizers.recipe.symbols[-1])
    (folder / "README.md").write_text(text, encoding="utf-8")
    return []


def _generation(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `generate` that mean the same as `own`, the search settings that the model came
    with. Those without a counterpart are left out."""
    settings: dict[str, Any] = {}
    if "beam" in own:
        settings["num_beams"] = own["beam"]
    if own.get("length_rule") == "power" and "length_penalty" in own:
        settings["length_penalty"] = own["length_penalty"]
        settings["early_stopping"] = own.get("stop_early") or ("never" if "reach" in own else False)
    if own.get("cap_ratio") == 0 and "cap_extra" in own:
        settings["max_length"] = own["cap_extra"] + 2  # the start and end tokens
    return settings


def _text_files(tokenizers: Tokenizers) -> dict[str, Any]:
    """Return the contents of vocabularies and tokeniser settings by file name."""
    recipe = tokenizers.recipe
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": recipe.source_lang,
        "target_lang": recipe.target_lang,
        "separate_vocabs": not recipe.joint,
        "model_max_length": 512,
    }
    sides = {VOCABULARY: tokenizers.source}
    if not recipe.joint:
        sides[TARGET_VOCABULARY] = tokenizers.target
    files: dict[str, Any] = {TOKENIZER: settings}
    for name, side in sides.items():
        entries = [*conventions.named_entries(side.vocabulary), "<pad>"]
        files[name] = {entry: i for i, entry in enumerate(entries)}
    return files


def _their_tensors(ours: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return our tensors by transformers' names, with a row for padding, which has the bias `EXCLUDED_BIAS`.

    Tied matrices appear once. A pre-norm model also gets tables of positions.
    """
    common = with_attention_biases(export_tensors(ours, config))
    source, target, output = (common.pop(name) for name in (SOURCE, TARGET, OUTPUT))
    bias = common.pop(BIAS, torch.zeros(len(output)))
    source, target, output = (F.pad(matrix, (0, 0, 0, 1)) for matrix in (source, target, output))
    tensors_by_name = {f"model.{name}": tensor for name, tensor in common.items()}
    tensors_by_name["final_logits_bias"] = F.pad(bias, (0, 1), value=conventions.EXCLUDED_BIAS)[None]
    if config.norm == "pre":  # Pegasus can compute these, but warns if they are missing
        table = to_halves(sinusoids(LONGEST, config.width))
        tensors_by_name |= {
            # safetensors refuses tensors that share memory.
            f"model.{stack}.embed_positions.weight": table.clone()
            for stack in ("encoder", "decoder")
        }
    if config.tie == "all":
        return tensors_by_name | {"model.shared.weight": output}
    tensors_by_name |= {f"model.{SOURCE}": source, f"model.{TARGET}": target}
    return tensors_by_name if config.tie == "decoder" else tensors_by_name | {"lm_head.weight": output}


def _described(config: ModelConfig) -> dict[str, Any]:
    """Return the settings of `config.json` for `config`, without classes, token ids and vocabulary sizes."""
    return {
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.of_decoder.heads,
        "encoder_ffn_dim": config.feed_forward,
        "decoder_ffn_dim": config.of_decoder.feed_forward,
        "d_model": config.width,
        "activation_function": ACTIVATION_NAMES[config.activation],
        "dropout": config.residual_dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tie == "all",
        "tie_word_embeddings": config.tie != "none",
        "max_position_embeddings": LONGEST,
        "is_encoder_decoder": True,
        "torch_dtype": "float32",
    }


def translate(folder: Path, lines: list[str]) -> list[str]:
    """Return each line's translation by the export in `folder`, computed by `transformers`.

    It has a beam of 4 and at most `LONGEST_CHECKED` tokens. Raise `UserError` if `transformers` is not
    installed.
    """
    transformers = conventions.package("transformers", "--check")
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    search = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": "never"}
    out = model.generate(**batch, **search, max_length=conventions.LONGEST_CHECKED + 2)  # start and end
    texts: list[str] = tokenizer.batch_decode(out, skip_special_tokens=True)
    return texts
