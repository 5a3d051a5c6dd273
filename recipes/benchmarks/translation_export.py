"""Write the same weights in the form of each toolkit, for `translation_peers`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from nmt_cli.interop.exporters.ctranslate2 import filled
from nmt_cli.model.positions import sinusoids
from nmt_cli.model.transformer import Transformer
from recipes.benchmarks.translation_peers import (
    BANNED,
    CTRANSLATE2,
    EMBEDDING,
    END,
    LONGEST,
    POSITIONS,
    SHAPE,
    WEIGHTS,
    Shape,
    precision,
)


def export(model: Transformer, folder: Path) -> None:
    """Write the weights for all others. Raise `ValueError` if not all of them support the architecture."""
    config = model.config
    asked = (config.norm, config.activation, config.positions, config.tie, config.attention_bias)
    if (
        asked != ("post", "relu", "sinusoidal", "all", False)
        or config.encoder_window
        or config.decoder_window
    ):
        raise ValueError("the model is not built as the paper's base model is")
    sizes = (config.encoder_layers, config.decoder_layers, config.width, config.feed_forward, config.heads)
    shape = Shape(*sizes, config.norm_epsilon, len(model.target_vocabulary))
    (folder / SHAPE).write_text(json.dumps(asdict(shape)))
    torch.save(dict(_usual_names(model)), folder / WEIGHTS)
    for kind in CTRANSLATE2:
        export_ctranslate2(model, kind, folder)


def _usual_names(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors by their names in fairseq and `transformers`, which also need biases."""
    yield EMBEDDING, model.output_matrix.detach()
    yield POSITIONS, sinusoids(LONGEST, model.config.width)
    for name, value in model.named_parameters():
        if name == "output_matrix":
            continue
        stack, number, *inner, kind = name.split(".")
        parts = USUAL_NAMES[".".join(inner)]
        rows = [value.detach()] if len(parts) == 1 else value.detach().chunk(len(parts))
        for part, row in zip(parts, rows, strict=True):
            yield f"{stack}.layers.{number}.{part}.{kind}", row.clone()
            if part.endswith("_proj"):
                yield f"{stack}.layers.{number}.{part}.bias", torch.zeros(len(row))


USUAL_NAMES = {
    "attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.output": ("self_attn.out_proj",),
    "after_attention.norm": ("self_attn_layer_norm",),
    "cross.query": ("encoder_attn.q_proj",),
    "cross.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.output": ("encoder_attn.out_proj",),
    "after_cross.norm": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "after_feed_forward.norm": ("final_layer_norm",),
}


def export_ctranslate2(model: Transformer, kind: str, folder: Path) -> None:
    """Write a model whose vocabulary entries are the ids in digits."""
    spec = filled(model)
    pieces = list(map(str, range(len(model.target_vocabulary))))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[BANNED]
    spec.config.bos_token = spec.config.eos_token = spec.config.decoder_start_token = pieces[END]
    spec.validate()
    spec.optimize(quantization=precision(kind))
    (folder / kind).mkdir()
    spec.save(str(folder / kind))
