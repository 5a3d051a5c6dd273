"""A self-contained HTML page with the attention weights of all heads of all layers."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, BinaryIO

import torch
from torch import Tensor

from nmt_cli.decoding.attention_maps import attention_maps
from nmt_cli.html.compose import compose
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.tokenizers import Tokenizers

SCRIPTS = ("drawing.js", "pieces.js", "detail.js", "save.js", "page.js")
"""The scripts in `page/`, in the order in which the page runs them."""

FULL = 255
"""The byte that represents a weight of 1 in the page."""


def write_attention_page(
    file: BinaryIO,
    model: Transformer,
    tokenizers: Tokenizers,
    pairs: Sequence[tuple[str, list[int], list[int]]],
) -> None:
    """Write an HTML page to `file` with the attention weights of `model` for each of `pairs`.

    A pair is the raw source text, its token ids, and the token ids of the translation, without end tokens.
    With S and T tokens, it takes layers x heads x (S² + T² + S x T) x 4/3 bytes.
    """
    languages = [tokenizers.recipe.source_lang, tokenizers.recipe.target_lang]
    data = {"languages": languages, "pairs": [_pair(model, tokenizers, *pair) for pair in pairs]}
    parts = files("nmt_cli.translation") / "page"
    file.write(compose("Attention", parts, SCRIPTS, data, layout="tool").encode())


def _pair(
    model: Transformer, tokenizers: Tokenizers, text: str, source: list[int], target: list[int]
) -> dict[str, Any]:
    """Return JSON data for `page/page.js`: raw source `text`, tokens, alignment, and weights for the ids."""
    (maps,) = attention_maps(model, [(source, target)])
    entries = [side.vocabulary.entries for side in (tokenizers.source, tokenizers.target)]
    return {
        "text": text,
        "source": [entries[0][i] for i in maps.source],
        "target": [entries[1][i] for i in maps.target],
        "ended": maps.ended,
        "alignment": maps.alignment(),
        "maps": {kind: _encoded(getattr(maps, kind)) for kind in ("encoder", "decoder", "cross")},
    }


def _encoded(weights_LHTS: Tensor) -> dict[str, Any]:
    """Return the shape of the weights, and the weights in base64. Each weight is a byte from 0 to `FULL`."""
    steps = (weights_LHTS.float() * FULL).round().to(torch.uint8)
    return {"shape": list(steps.shape), "weights": base64.b64encode(steps.numpy().tobytes()).decode()}
