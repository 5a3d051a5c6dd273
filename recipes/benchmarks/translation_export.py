"""The same weights as each toolkit wants them, for `translation_peers`."""

import importlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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
    """Write the weights for all others into `folder`; `ValueError` for a model that not all of them have."""
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
        _export_ctranslate2(model, shape, kind, folder)


def _usual_names(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """The tensors as fairseq and `transformers` call them, who also want biases everywhere."""
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


def _export_ctranslate2(model: Transformer, shape: Shape, kind: str, folder: Path) -> None:
    """Write a model whose pieces are the ids in digits."""
    layers = (shape.encoder_layers, shape.decoder_layers)
    spec = importlib.import_module("ctranslate2.specs").TransformerSpec.from_config(
        layers, shape.heads, pre_norm=False
    )
    given = {name: value.detach().numpy() for name, value in model.named_parameters()}
    matrix = model.output_matrix.detach().numpy()
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = (
        matrix
    )
    for stack, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        stack.position_encodings.encodings = sinusoids(LONGEST, shape.width).numpy()
        for number, layer in enumerate(stack.layer):
            for to, place in _ctranslate2_places(layer):
                weight, bias = (given.get(f"{name}.{number}.{place}.{kind}") for kind in ("weight", "bias"))
                if place.endswith("norm"):
                    to.gamma, to.beta = weight, bias
                else:
                    to.weight = weight
                    to.bias = bias if bias is not None else to.bias
    pieces = list(map(str, range(shape.vocabulary)))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.layer_norm_epsilon = shape.epsilon
    spec.config.unk_token = pieces[BANNED]
    spec.config.bos_token = spec.config.eos_token = spec.config.decoder_start_token = pieces[END]
    spec.validate()
    spec.optimize(quantization=precision(kind))
    (folder / kind).mkdir()
    spec.save(str(folder / kind))


def _ctranslate2_places(layer: Any) -> Iterator[tuple[Any, str]]:
    own = layer.self_attention
    yield from zip(own.linear, ("attention.query_key_value", "attention.output"), strict=True)
    yield own.layer_norm, "after_attention.norm"
    if hasattr(layer, "attention"):
        yield from zip(
            layer.attention.linear, ("cross.query", "cross.key_value", "cross.output"), strict=True
        )
        yield layer.attention.layer_norm, "after_cross.norm"
    yield layer.ffn.linear_0, "feed_forward.inner"
    yield layer.ffn.linear_1, "feed_forward.outer"
    yield layer.ffn.layer_norm, "after_feed_forward.norm"
