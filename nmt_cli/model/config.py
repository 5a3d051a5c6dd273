"""What the model room needs to be told."""

from dataclasses import dataclass
from typing import Literal

from nmt_cli.config import Kind, changed, check, setting, settings_of_kind
from nmt_cli.errors import UserError

MEANT = {"key_width": "d_k", "value_width": "d_v"}
"""What tells the width where a setting may leave it open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """One Transformer; the defaults are the base model of Attention Is All You Need."""

    encoder_layers: int = setting(6, least=1, most=1000, kind="shape", everyday=True)
    """Layers of the encoder."""

    decoder_layers: int = setting(6, least=1, most=1000, kind="shape", everyday=True)
    """Layers of the decoder."""

    width: int = setting(512, least=1, most=16_384, kind="shape", everyday=True)
    """Channels of a token between the layers (d_model)."""

    feed_forward: int = setting(2048, least=1, most=262_144, kind="shape")
    """Channels inside a feed-forward layer (d_ff)."""

    heads: int = setting(8, least=1, most=1024, kind="use")
    """Heads of each attention (h)."""

    key_width: int = setting(0, least=0, most=16_384, kind="use")
    """Channels of a query or key in one head (d_k); 0 is width / heads."""

    value_width: int = setting(0, least=0, most=16_384, kind="use")
    """Channels of a value in one head (d_v); 0 is width / heads."""

    norm: Literal["post", "pre"] = setting("post", kind="use")
    """Layer norm behind each sub-layer, as in the paper, or before it and once more at the end of a stack."""

    norm_epsilon: float = setting(1e-6, above=0, most=1, kind="use")
    """What layer norm adds to the variance."""

    activation: Literal["relu", "gelu", "swish"] = setting("relu", kind="use")
    """Between the two halves of a feed-forward layer; swish is x times its sigmoid."""

    decoder_history: Literal["attention", "ssru"] = setting("attention", kind="shape")
    """How a target token learns what was before it: by attention, or from a gated sum of it (an SSRU, Kim et
    al. 2019), which costs less in decoding; Marian's students have it."""

    positions: Literal["sinusoidal", "marian", "learned"] = setting("sinusoidal", kind="use")
    """Sinusoids reach any length. The paper's pair i turns at 10000^(-2i / width); that of Marian, fairseq,
    Tensor2Tensor at 10000^(-i / (width / 2 - 1)) ("marian"). Learned positions end at `longest`."""

    first_position: int = setting(0, least=0, most=2, kind="use")
    """Where sinusoids begin to count; fairseq's and M2M100's sentences begin at 2."""

    longest: int = setting(1024, least=2, most=1_000_000, kind="shape", needs="model.positions=learned")
    """How many learned positions there are."""

    start: Literal["mark", "zeros"] = setting("mark", kind="use")
    """What the decoder is given before the first token: the vocabulary's start mark, or a vector of zeros, as
    Marian and what CTranslate2 converts from transformers have it."""

    attention_bias: bool = setting(False, kind="shape")
    """Biases in the projections of attention; the paper has none."""

    tie: Literal["all", "decoder", "none"] = setting("all", kind="shape")
    """One matrix for both embeddings and the output projection, for the latter two, or for none of them."""

    init: Literal["xavier", "smaller"] = setting("xavier", kind="training only")
    """How matrices begin. Xavier: uniform within ±sqrt(6 / (inputs + outputs)), biases 0. Smaller: the same,
    but queries, keys and values within 0.71 of it, and feed-forward matrices and their biases within
    ±1 / sqrt(inputs). Embeddings and learned positions are normal, their deviation 1 / sqrt(width)."""

    output_bias: bool = setting(False, kind="shape")
    """A bias for each entry of the vocabulary in the output projection; the paper has none."""

    residual_dropout: float = setting(0.1, least=0, below=1, kind="training only", everyday=True)
    """On the output of each sub-layer, before it is added."""

    embedding_dropout: float = setting(0.1, least=0, below=1, kind="training only")
    """On the sums of embeddings and positions."""

    attention_dropout: float = setting(0.0, least=0, below=1, kind="training only")
    """On the attention probabilities; the paper has none."""

    activation_dropout: float = setting(0.0, least=0, below=1, kind="training only")
    """Inside the feed-forward layers; the paper has none."""

    residual_stream: Literal["fp32", "bf16"] = setting("fp32", kind="training only")
    """Numbers that go from layer to layer in training with training.precision=bf16; layer norms, and the sums
    that they are given, are fp32 with either."""

    encoder_window: int = setting(0, least=0, most=1_000_000, kind="use")
    """Keys around it that a token of the source attends to (restricted self-attention); 0 is all."""

    decoder_window: int = setting(0, least=0, most=1_000_000, kind="use")
    """The same in the target, of which only what came before is seen; 0 is all."""

    def __post_init__(self) -> None:
        check(self)
        if self.positions != "learned" and changed(self, "longest"):
            raise UserError("longest has no effect with sinusoidal positions; set positions to learned.")
        if self.positions == "learned" and self.first_position:
            raise UserError("first_position has no effect with learned positions; leave it out.")
        if self.decoder_history == "ssru" and self.decoder_window:
            raise UserError("decoder_window has no effect on an SSRU; leave it out.")
        if self.positions == "marian" and self.width < 4:
            raise UserError(f"width is {self.width}, but Marian's positions need at least 4.")
        if self.width % 2:
            raise UserError(f"width is {self.width}, but positions need an even one.")
        if self.width % self.heads and not (self.key_width and self.value_width):
            raise UserError(
                f"width {self.width} can't be shared evenly among {self.heads} heads; "
                "change one of them, or set key_width and value_width."
            )

    @property
    def limit(self) -> int:
        """The most tokens that a sentence may have on either side, end mark counted; 0 for no limit."""
        return self.longest if self.positions == "learned" else 0

    @property
    def d_k(self) -> int:
        """Channels of a query or key in one head."""
        return self.key_width or self.width // self.heads

    @property
    def d_v(self) -> int:
        """Channels of a value in one head."""
        return self.value_width or self.width // self.heads


def disagreements(one: ModelConfig, other: ModelConfig, *kinds: Kind) -> list[str]:
    """What of such kinds differs between the two, by name; a width of 0 is the one that it stands for."""
    names = [MEANT.get(name, name) for kind in kinds for name in settings_of_kind(ModelConfig, kind)]
    return [name for name in names if getattr(one, name) != getattr(other, name)]
