"""Models with random weights whose translations end."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.checkpoints.model_folder import Identity, weights, write_model
from nmt_cli.interop.conventions import EXCLUDED_BIAS
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.tokenizers import Tokenizers

LONGEST = 100
"""Maximum source tokens. Random models have learnt no limit."""

STEEPNESS, FARTHEST = 6.0, 4
"""The growth of the end token's logit with each position, up to this distance from the end."""

RIDGE = 1.0

FAINT = 0.25
"""Factor of the vectors of target tokens, so that their positions matter more."""


def write_random(folder: Path, config: ModelConfig, tokenizers: Tokenizers, lines: Sequence[str]) -> None:
    """Write a model with random weights into `folder`, whose translations are about as long as the mean of
    `lines`. No matrices are tied, because the end token needs a row of its own in the output matrix."""
    identity = Identity(replace(config, tie="none", output_bias=True), tokenizers, {"longest": LONGEST})
    torch.manual_seed(1)
    model = identity.build().eval()
    with torch.no_grad():
        model.target_embedding.matrix.mul_(FAINT)
    sources = [tokenizers.source.vocabulary.ended(tokenizers.source.encode(line)) for line in lines]
    fit_end(model, sources, round(statistics.mean(map(len, sources))))
    folder.mkdir()
    write_model(folder, identity, weights(model), {})


@torch.no_grad()
def fit_end(model: Transformer, sources: Sequence[Sequence[int]], length: int) -> None:
    """Make the end token the likeliest after `length` - 1 others. Fit its row of the output matrix and its
    bias, so that its logit grows with the position and reaches the largest of the others there."""
    vocabulary = model.target_vocabulary
    assert model.output_bias is not None
    model.output_bias[[*vocabulary.never, vocabulary.end]] = EXCLUDED_BIAS
    decoded_TBD, others_TB = _greedy(model, sources, 2 * length)
    distance_T = (torch.arange(2 * length) - (length - 1)).clamp(-FARTHEST, FARTHEST)
    wanted_TB = others_TB + STEEPNESS * distance_T[:, None]
    inputs_NE = F.pad(decoded_TBD, (0, 1), value=1.0).flatten(0, 1).double()
    squares_EE = inputs_NE.T @ inputs_NE + RIDGE * torch.eye(inputs_NE.shape[1], dtype=torch.double)
    fitted_E = torch.linalg.solve(squares_EE, inputs_NE.T @ wanted_TB.flatten().double()).float()
    model.output_matrix[vocabulary.end] = fitted_E[:-1]
    model.output_bias[vocabulary.end] = fitted_E[-1]


def _greedy(model: Transformer, sources: Sequence[Sequence[int]], length: int) -> tuple[Tensor, Tensor]:
    """Return the decoder's states of greedy translations and their largest logits."""
    source, layout = torch.tensor([*chain(*sources)]), Layout.of([len(ids) for ids in sources])
    rows = torch.arange(len(sources))
    cache = model.begin(source, layout, slots=1)
    token = torch.full((len(sources),), model.target_vocabulary.end)  # of zeros, whatever its vector
    states, largest = [], []
    for _ in range(length):
        states.append(model.step(token, rows, cache, length))
        logits, token = model.logits(states[-1]).max(1)
        largest.append(logits)
    return torch.stack(states), torch.stack(largest)
