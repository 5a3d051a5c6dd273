"""What the model room needs to be told."""

from dataclasses import dataclass
from typing import Literal

from nmt_cli.errors import UserError

DROPOUTS = ("residual_dropout", "embedding_dropout", "attention_dropout", "activation_dropout")
SIZES = ("encoder_layers", "decoder_layers", "width", "feed_forward", "heads", "longest")
FROM_ZERO = ("key_width", "value_width", "encoder_window", "decoder_window")

LEARNED_POSITIONS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """One Transformer; the defaults are the base model of Attention Is All You Need."""

    encoder_layers: int = 6
    """Layers of the encoder."""

    decoder_layers: int = 6
    """Layers of the decoder."""

    width: int = 512
    """Channels of a token between the layers (d_model)."""

    feed_forward: int = 2048
    """Channels inside a feed-forward layer (d_ff)."""

    heads: int = 8
    """Heads of each attention (h)."""

    key_width: int = 0
    """Channels of a query or key in one head (d_k); 0 is width / heads."""

    value_width: int = 0
    """Channels of a value in one head (d_v); 0 is width / heads."""

    norm: Literal["post", "pre"] = "post"
    """Layer norm behind each sub-layer, as in the paper, or before it and once more at the end of a stack."""

    norm_epsilon: float = 1e-6
    """What layer norm adds to the variance."""

    activation: Literal["relu", "gelu"] = "relu"
    """Between the two halves of a feed-forward layer."""

    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Sinusoids reach any length; learned positions end at `longest`."""

    longest: int = LEARNED_POSITIONS
    """How many learned positions there are."""

    attention_bias: bool = False
    """Biases in the projections of attention; the paper has none."""

    tie: Literal["all", "decoder", "none"] = "all"
    """One matrix for both embeddings and the output projection, for the latter two, or for none of them."""

    init: Literal["xavier", "smaller"] = "xavier"
    """How matrices begin. Xavier: uniform within ±sqrt(6 / (inputs + outputs)), biases 0. Smaller: the same,
    but queries, keys and values within 0.71 of it, and feed-forward matrices and their biases within
    ±1 / sqrt(inputs). Embeddings and learned positions are normal, their deviation 1 / sqrt(width)."""

    residual_dropout: float = 0.1
    """On the output of each sub-layer, before it is added."""

    embedding_dropout: float = 0.1
    """On the sums of embeddings and positions."""

    attention_dropout: float = 0.0
    """On the attention probabilities; the paper has none."""

    activation_dropout: float = 0.0
    """Inside the feed-forward layers; the paper has none."""

    encoder_window: int = 0
    """Keys around it that a token of the source attends to (restricted self-attention); 0 is all."""

    decoder_window: int = 0
    """The same in the target, of which only what came before is seen; 0 is all."""

    def __post_init__(self) -> None:
        least = dict.fromkeys(SIZES, 1) | dict.fromkeys(FROM_ZERO, 0)
        if small := [name for name, size in least.items() if getattr(self, name) < size]:
            told = (f"{name} is {getattr(self, name)}, but is at least {least[name]}" for name in small)
            raise UserError(f"{'; '.join(told)}.")
        if not self.norm_epsilon > 0:
            raise UserError(f"norm_epsilon is {self.norm_epsilon}; it must be positive.")
        if self.positions == "sinusoidal" and self.longest != LEARNED_POSITIONS:
            raise UserError(
                "longest has no effect with sinusoidal positions; leave it out, or learn positions."
            )
        if wrong := [
            f"{name} is {getattr(self, name)}" for name in DROPOUTS if not 0 <= getattr(self, name) < 1
        ]:
            raise UserError(f"{', '.join(wrong)}, but a dropout is at least 0 and less than 1.")
        if self.width % 2:
            raise UserError(f"width is {self.width}, but positions need an even one.")
        if self.width % self.heads and not (self.key_width and self.value_width):
            raise UserError(
                f"width {self.width} can't be shared evenly among {self.heads} heads; "
                "change one of them, or set key_width and value_width."
            )

    @property
    def d_k(self) -> int:
        """Channels of a query or key in one head."""
        return self.key_width or self.width // self.heads

    @property
    def d_v(self) -> int:
        """Channels of a value in one head."""
        return self.value_width or self.width // self.heads
