"""The cost of a model: its parameters, and the operations of a training step."""

from torch import nn

from nmt_cli.model.config import ModelConfig


def parameters(model: nn.Module) -> int:
    """Count the numbers in all parameters of a model. Shared matrices count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def training_flops(config: ModelConfig, vocabulary: int, source_tokens: int, target_tokens: int) -> float:
    """Count the floating-point operations of one training step, forward and backward.

    vocabulary: the number of target entries.

    A token costs six operations for each weight that it meets. Products of queries, keys and values with each
    other are left out, since they are 1 % in translation.
    """
    encoder, decoder, d = config, config.of_decoder, config.width
    cross = d * decoder.heads * (decoder.d_k + decoder.d_v)  # of a target or source token
    history = 2 * d * d if config.decoder_history == "ssru" else _self_attention(decoder)
    per_encoder_layer = _self_attention(encoder) + _feed_forward(encoder)
    per_decoder_layer = history + cross + _feed_forward(decoder)
    per_source = config.encoder_layers * per_encoder_layer + config.decoder_layers * cross
    per_target = config.decoder_layers * per_decoder_layer + d * vocabulary
    return 6.0 * (source_tokens * per_source + target_tokens * per_target)


def _self_attention(config: ModelConfig) -> int:
    """Return the number of weights in the queries, keys, values and output of one self-attention."""
    return 2 * config.width * config.heads * (config.d_k + config.d_v)


def _feed_forward(config: ModelConfig) -> int:
    """Return the number of weights in the matrices of one feed-forward layer."""
    return (2 + config.gated) * config.width * config.feed_forward
