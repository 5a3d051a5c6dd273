"""Greedy search: the likeliest token, one after another."""

import torch
from torch import Tensor

from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.subwords import END

CAP = 50
"""A translation ends after as many tokens as its source has, and so many more."""


@torch.inference_mode()
def greedy(model: Transformer, source_tokens: Tensor, source: Layout, banned: Tensor) -> list[list[int]]:
    """The translation of each segment as ids, without the end mark; the ids that are `banned` never occur."""
    cache = model.start(model.encode(source_tokens, source), source, siblings=1)
    tokens = torch.full((len(source.lengths),), END, device=source_tokens.device)
    done = torch.zeros_like(tokens, dtype=torch.bool)
    caps = source.starts.diff() + CAP
    if model.config.positions == "learned":
        caps = caps.clamp(max=model.config.longest)
    chosen: list[Tensor] = []
    while not done.all():
        logits = model.logits(model.step(tokens, cache, longest=len(chosen) + 1))
        logits[:, banned] = float("-inf")
        tokens = logits.argmax(-1).masked_fill(done, END)
        chosen.append(tokens)
        done |= (tokens == END) | (len(chosen) >= caps)
    rows = torch.stack(chosen, dim=1).tolist() if chosen else []
    return [row[: row.index(END)] if END in row else row for row in rows]
