"""What a model costs: parameters, operations, and what the paper calls its training cost."""

from torch import nn

from nmt_cli.model.config import ModelConfig

P100 = 9.5e12
"""Floating-point operations a second that the paper reckons with for one of its devices."""

PAPER_RUNS = {"base": (12.0, 8), "big": (84.0, 8)}
"""Hours and devices that the paper's two models took, from which its Table 2 has their cost."""


def parameters(model: nn.Module) -> int:
    """How many numbers the model learns; a matrix that serves twice counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def training_flops(config: ModelConfig, vocabulary: int, source_tokens: int, target_tokens: int) -> float:
    """Operations of the matrix products of one step, forward and backward.

    Two for each weight a token meets, and twice as many again backward. The products of queries, keys and
    values with each other, which depend on the lengths of the sentences, are left out: 1 % in translation.
    """
    d, heads = config.width, config.heads
    own = d * heads * (2 * config.d_k + config.d_v) + heads * config.d_v * d  # q, k, v; output
    feed_forward = 2 * d * config.feed_forward
    cross_target, cross_source = d * heads * (config.d_k + config.d_v), d * heads * (config.d_k + config.d_v)
    encoder = config.encoder_layers * (own + feed_forward)
    history = 2 * d * d if config.decoder_history == "ssru" else own
    decoder = config.decoder_layers * (history + cross_target + feed_forward)
    per_source = encoder + config.decoder_layers * cross_source
    per_target = decoder + d * vocabulary
    return 6.0 * (source_tokens * per_source + target_tokens * per_target)


def paper_cost(hours: float, devices: int, device_flops: float = P100) -> float:
    """The paper's "training cost": time x devices x what a device could do, not what the model needs."""
    return hours * 3600 * devices * device_flops
