"""An HTML page, complete in one file, that shows the attention weights of every head of every layer."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, BinaryIO

import torch
from torch import Tensor

from nmt_cli.decoding.attention_maps import attention_maps
from nmt_cli.html.compose import compose
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

SCRIPTS = ("drawing.js", "pieces.js", "detail.js", "page.js")
"""The page's scripts, in `page/`, in the order in which they are run."""

FULL = 255
"""The byte that stands for a weight of 1 in the page."""


def write_attention_page(
    file: BinaryIO,
    model: Transformer,
    tokenizers: Tokenizers,
    pairs: Sequence[tuple[str, list[int], list[int]]],
) -> None:
    """Write the page of these pairs: the source as it was given, its ids and the target's, without end marks.

    The page needs no network. It holds layers x heads x (S² + T² + S x T) bytes a pair, and a third more as
    they are written in base64.
    """
    shown = [_pair(model, tokenizers, *pair) for pair in pairs]
    languages = [tokenizers.recipe.source_lang, tokenizers.recipe.target_lang]
    data = {"languages": languages, "pairs": shown}
    parts = files("nmt_cli.translation") / "page"
    file.write(compose("Attention", parts, SCRIPTS, data, layout="tool").encode())


def _pair(
    model: Transformer, tokenizers: Tokenizers, text: str, source: list[int], target: list[int]
) -> dict[str, Any]:
    """What the page knows of a pair; `page/page.js` reads it."""
    (maps,) = attention_maps(model, [(source, target)])
    return {
        "text": text,
        "source": _pieces(tokenizers.source, maps.source),
        "target": _pieces(tokenizers.target, maps.target),
        "ended": maps.ended,
        "alignment": maps.alignment(),
        "maps": {kind: _spelt(getattr(maps, kind)) for kind in ("encoder", "decoder", "cross")},
    }


def _pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    entries = tokenizer.vocabulary.entries
    return [entries[i] for i in ids]


def _spelt(weights_LHTS: Tensor) -> dict[str, Any]:
    """The shape, and the weights as a byte each, in base64, which is smaller than numbers in JSON."""
    steps = (weights_LHTS.float() * FULL).round().to(torch.uint8)
    return {"shape": list(steps.shape), "weights": base64.b64encode(steps.numpy().tobytes()).decode()}
