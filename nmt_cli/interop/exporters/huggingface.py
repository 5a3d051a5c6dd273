"""Export folders that Hugging Face's `transformers` loads without our code.

Post-norm models become Marian models, and pre-norm models Pegasus models. Both need a padding entry, which we
append to the vocabulary. Pegasus has one matrix for both sides, so a pre-norm model must have one, too.
`nmt.json` and `nmt-tokenizer/` keep our settings and tokenisers, so that `nmt import` restores the model.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.checkpoints.files import write_tensors
from nmt_cli.checkpoints.model_folder import Model, weights
from nmt_cli.interop.exporters import exported
from nmt_cli.interop.foreign import Activation
from nmt_cli.interop.importers import huggingface as importer
from nmt_cli.interop.weights import (
    BIAS,
    OUTPUT,
    SOURCE,
    TARGET,
    export_tensors,
    to_halves,
    with_attention_biases,
)
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import sinusoids
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.tokenizers import Tokenizers

NAME, SEARCH = "transformers", exported.OVER_LENGTHS
PRECISIONS: Sequence[Precision] = ("fp32", "fp16")

CLASSES = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}
ACTIVATIONS: Mapping[Activation, str] = {
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


def losses(model: Model) -> list[str]:
    """Return a message for each feature of the model that `transformers` lacks, or []. Check settings by
    `model_losses`. Require "sinusoidal" positions from 0, and a supported activation, norm and `tie`."""
    config = model.identity.config
    messages = exported.model_losses(
        config,
        positions="sinusoidal",
        first_position=0,
        activation=tuple(ACTIVATIONS),
        norm=tuple(CLASSES),
        tie=TIES,
    )
    if config.norm == "pre" and config.tie in TIES and config.tie != "all":
        messages.append(f"model.tie is {config.tie} in a pre-norm model")
    return messages


def write(model: Model, folder: Path, precision: str) -> list[str]:
    """Write weights, settings, tokenisers (also in our own form) and a README into `folder`. Return a note if
    CTranslate2's converter cannot read the model, else []."""
    config, tokenizers = model.identity.config, model.identity.tokenizers
    kind, name = CLASSES[config.norm]
    target, start = tokenizers.target.vocabulary, model.transformer.start
    padding = len(target)
    tensors = _tensors(weights(model.transformer), config)
    if precision == "fp16":
        tensors = {name: tensor.half() for name, tensor in tensors.items()}
    write_tensors(folder / importer.WEIGHTS, tensors)
    special_ids = {
        "pad_token_id": padding,
        "eos_token_id": target.end,
        "forced_eos_token_id": target.end,
        "decoder_start_token_id": padding if start is None else start,
        "bos_token_id": None,
    }
    classes = {"architectures": [name], "model_type": kind}
    sizes = {"vocab_size": len(tokenizers.source.vocabulary) + 1, "decoder_vocab_size": padding + 1}
    excluded = [[i] for i in (*target.never, target.unknown, padding)]
    own = model.description.get("search", {})
    search = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": "never", "max_length": 512}
    ours = {"model": asdict(config), "trained_on": dict(model.identity.trained_on), "search": own}
    for file, content in {
        importer.CONFIG: classes | _described(config) | special_ids | sizes,
        importer.GENERATION: special_ids | search | _generation(own) | {"bad_words_ids": excluded},
        importer.OURS: ours,
        **_text_files(tokenizers),
    }.items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / file).write_text(f"{text}\n", encoding="utf-8")
    exported.write_sentencepiece(tokenizers, folder)
    tokenizers.save(folder / importer.OUR_TOKENIZER)
    notes = [PRE_NORM] if config.norm == "pre" else [START] if start is not None else []
    (folder / "README.md").write_text(
        README.format(name=name, epsilon=config.norm_epsilon, notes="".join(f"- {note}\n" for note in notes))
    )
    return notes


def _generation(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `generate` for those of the `own` search settings of a model that it has."""
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
    sides = {importer.VOCABULARY: tokenizers.source}
    if not recipe.joint:
        sides[importer.TARGET_VOCABULARY] = tokenizers.target
    files: dict[str, Any] = {importer.TOKENIZER: settings}
    for name, side in sides.items():
        entries = [*exported.named_entries(side.vocabulary), "<pad>"]
        files[name] = {entry: i for i, entry in enumerate(entries)}
    return files


def _tensors(ours: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Return tensors by transformers' names, with a padding row, and position tables if pre-norm. Tied
    matrices appear once. Padding gets the bias `EXCLUDED_BIAS`."""
    common = with_attention_biases(export_tensors(ours, config))
    source, target, output = (common.pop(name) for name in (SOURCE, TARGET, OUTPUT))
    bias = common.pop(BIAS, torch.zeros(len(output)))
    source, target, output = (F.pad(matrix, (0, 0, 0, 1)) for matrix in (source, target, output))
    tensors_by_name = {f"model.{name}": tensor for name, tensor in common.items()}
    tensors_by_name["final_logits_bias"] = F.pad(bias, (0, 1), value=exported.EXCLUDED_BIAS)[None]
    if config.norm == "pre":  # Pegasus can compute these, but warns if they are missing
        table = to_halves(sinusoids(LONGEST, config.width))
        tensors_by_name |= {
            f"model.{stack}.embed_positions.weight": table.clone() for stack in ("encoder", "decoder")
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
        "activation_function": ACTIVATIONS[config.activation],
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
    """Return each line's translation by the export in `folder`, with a beam of 4 and at most
    `LONGEST_CHECKED` tokens. Raise
    `UserError` if `transformers` is not installed."""
    transformers = exported.package("transformers", "--check")
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    search = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": "never"}
    out = model.generate(**batch, **search, max_length=exported.LONGEST_CHECKED + 2)  # start and end
    texts: list[str] = tokenizer.batch_decode(out, skip_special_tokens=True)
    return texts
