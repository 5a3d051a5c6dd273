"""The cost of a model: its parameters, and the operations of a training step."""

from torch import nn

from nmt_cli.model.config import ModelConfig


def parameters(model: nn.Module) -> int:
    """Count the numbers in all parameters of a model. Shared matrices count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def training_flops(config: ModelConfig, vocabulary: int, source_tokens: int, target_tokens: int) -> float:
    """Count the floating-point operations of one training step, forward and backward.

    `vocabulary` is the number of target entries. A token costs six operations for each weight that it meets.
    Leave out products of queries, keys and values with each other, which are 1 % in translation.
    """
    d, heads = config.width, config.heads
    self_attention = d * heads * (2 * config.d_k + config.d_v) + heads * config.d_v * d  # q, k, v; output
    feed_forward = (2 + config.gated) * d * config.feed_forward
    cross_target = cross_source = d * heads * (config.d_k + config.d_v)
    encoder = config.encoder_layers * (self_attention + feed_forward)
    history = 2 * d * d if config.decoder_history == "ssru" else self_attention
    decoder = config.decoder_layers * (history + cross_target + feed_forward)
    per_source = encoder + config.decoder_layers * cross_source
    per_target = decoder + d * vocabulary
    return 6.0 * (source_tokens * per_source + target_tokens * per_target)
