"""The settings of a model: its shape, its variants, and the dropout used in training."""

from dataclasses import dataclass, replace
from typing import Literal

from nmt_cli.config import Kind, Section, changed, check, setting, settings_of_kind
from nmt_cli.errors import UserError
from nmt_cli.setting_values import Bounds

EFFECTIVE_WIDTHS = {"key_width": "d_k", "value_width": "d_v"}
"""For each width that may be left open, the property with the width that the model has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig(Section):
    """One Transformer. The defaults are the base model of "Attention Is All You Need"."""

    section = "model"

    encoder_layers: int = setting(6, Bounds(least=1, most=1000), kind="shape", everyday=True)
    """Number of encoder layers."""

    decoder_layers: int = setting(6, Bounds(least=1, most=1000), kind="shape", everyday=True)
    """Number of decoder layers."""

    width: int = setting(512, Bounds(least=1, most=16_384), kind="shape", everyday=True)
    """Channels of a token between layers (d_model)."""

    feed_forward: int = setting(2048, Bounds(least=1, most=262_144), kind="shape")
    """Channels inside a feed-forward layer (d_ff)."""

    heads: int = setting(8, Bounds(least=1, most=1024), kind="use")
    """Heads of each attention (h)."""

    decoder_heads: int = setting(0, Bounds(least=0, most=1024), kind="use")
    """Heads of each attention in the decoder, also to the source. 0 is `heads`."""

    decoder_feed_forward: int = setting(0, Bounds(least=0, most=262_144), kind="shape")
    """Channels inside the decoder's feed-forward layers. 0 is `feed_forward`."""

    key_width: int = setting(0, Bounds(least=0, most=16_384), kind="use")
    """Channels of a query or key per head (d_k). 0 is width / heads."""

    value_width: int = setting(0, Bounds(least=0, most=16_384), kind="use")
    """Channels of a value per head (d_v). 0 is width / heads."""

    norm: Literal["post", "pre"] = setting("post", kind="use")
    """Layer norm after each sub-layer (post) or before it (pre). The paper has post. Pre-norm adds one norm
    at the end of each stack."""

    norm_kind: Literal["layer", "rms"] = setting("layer", kind="shape")
    """Layer norm, or RMSNorm. RMSNorm (Zhang and Sennrich 2019) has neither mean nor bias."""

    norm_epsilon: float = setting(1e-6, Bounds(above=0, most=1), kind="use")
    """Number that layer norm adds to the variance. RMSNorm adds it to the mean square."""

    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = setting("relu", kind="use")
    """Activation function in feed-forward layers. Swish (SiLU) is x times its sigmoid. `gelu_tanh` is the
    approximation of gelu in T5."""

    gated: bool = setting(False, kind="shape")
    """Multiply the activation by a second projection. With swish this is SwiGLU, with gelu GeGLU (Shazeer
    2020)."""

    feed_forward_bias: bool = setting(True, kind="shape")
    """Biases in feed-forward layers."""

    decoder_history: Literal["attention", "ssru"] = setting("attention", kind="shape")
    """How a target token uses the tokens before it. Attention, or an SSRU (Kim et al. 2019): a gated sum that
    is cheaper in decoding. Marian's student models have it."""

    positions: Literal["sinusoidal", "marian", "learned", "rotary", "relative"] = setting(
        "sinusoidal", kind="use"
    )
    """Kind of positional encoding. Sinusoids reach any length. In the paper, pair i has the frequency
    10000^(-2i / width). In Marian, fairseq and Tensor2Tensor ("marian") it is 10000^(-i / (width / 2 - 1)).
    Learned positions end at `longest`. The last two act in self-attention, not in the embedding. "rotary"
    turns channels i and i + d_k / 2 of queries and keys together (Su et al. 2021). "relative" adds a learned
    bias to scores, by head and distance, as T5 does."""

    first_position: int = setting(0, Bounds(least=0, most=2), kind="use")
    """Number of the first sinusoidal position. fairseq and M2M100 begin at 2."""

    longest: int = setting(
        1024, Bounds(least=2, most=1_000_000), kind="shape", needs="model.positions=learned"
    )
    """Number of learned positions."""

    scale_embeddings: bool = setting(True, kind="use")
    """Multiply embeddings by sqrt(width). The paper does, but T5 and rotary models of eole do not."""

    start: Literal["mark", "zeros"] = setting("mark", kind="use")
    """Decoder input before the first token. "mark" is the start token of the vocabulary. "zeros" is a vector
    of zeros, as in Marian and in models that CTranslate2 converts from transformers."""

    attention_bias: bool = setting(False, kind="shape")
    """Biases in the projections of attention. The paper has none."""

    tie: Literal["all", "decoder", "embeddings", "none"] = setting("all", kind="shape")
    """Sharing of the embedding and output matrices. "all": one matrix for both embeddings and the output
    projection. "decoder": one for the target embedding and the output. "embeddings": one for both embeddings.
    "none": three."""

    init: Literal["xavier", "smaller", "depth-scaled"] = setting("xavier", kind="training only")
    """Initial values of the matrices. Xavier: uniform within ±sqrt(6 / (inputs + outputs)), biases 0.
    Smaller: the same, but queries, keys and values within 0.71 of it, and feed-forward matrices and their
    biases within ±1 / sqrt(inputs). Depth-scaled: as smaller, with smaller outputs of sub-layers, for deep
    stacks and Muon. The last matrix of attention and feed-forward layers, and the value matrix of an SSRU,
    with their biases, are divided by sqrt(n). As in GPT-2, n is the number of sub-layers in the stack: 2 x
    encoder_layers or 3 x decoder_layers. Embeddings and learned positions are always normal with the standard
    deviation 1 / sqrt(width)."""

    output_bias: bool = setting(False, kind="shape")
    """A bias for each vocabulary entry in the output projection. The paper has none."""

    residual_dropout: float = setting(0.1, Bounds(least=0, below=1), kind="training only", everyday=True)
    """Dropout on outputs of sub-layers, and on embeddings. It is applied to the output of each sub-layer
    before the residual sum, and to the sums of embeddings and positions."""

    attention_dropout: float = setting(0.0, Bounds(least=0, below=1), kind="training only")
    """Dropout on attention probabilities. The paper has none."""

    activation_dropout: float = setting(0.0, Bounds(least=0, below=1), kind="training only")
    """Dropout inside feed-forward layers. The paper has none."""

    window: int = setting(0, Bounds(least=0, most=1_000_000), kind="use")
    """Number of keys around a token that it attends to. 0 is all. This is the restricted self-attention of
    the paper, whose size is r, in both stacks. Later target tokens are never visible."""

    def __post_init__(self) -> None:
        check(self)
        _check_shape(self)

    @property
    def limit(self) -> int:
        """Maximum tokens of a sentence on either side, with its end token. 0 is no limit."""
        return self.longest if self.positions == "learned" else 0

    @property
    def of_decoder(self) -> "ModelConfig":
        """The settings of the decoder's layers: those of the model, with the decoder's heads and channels."""
        if not (self.decoder_heads or self.decoder_feed_forward):
            return self
        heads, inner = self.decoder_heads or self.heads, self.decoder_feed_forward or self.feed_forward
        return replace(self, heads=heads, feed_forward=inner, decoder_heads=0, decoder_feed_forward=0)

    @property
    def d_k(self) -> int:
        """Channels of a query or key in one head."""
        return self.key_width or self.width // self.heads

    @property
    def d_v(self) -> int:
        """Channels of a value in one head."""
        return self.value_width or self.width // self.heads


def _check_shape(config: ModelConfig) -> None:
    """Raise `UserError` for settings of widths, heads and positions that do not suit each other."""
    if config.width % 2:
        raise UserError(f"width is {config.width}, but it must be even.")
    for name in ("heads", "decoder_heads"):
        heads = getattr(config, name) or config.heads
        if config.width % heads and not (config.key_width and config.value_width):
            raise UserError(
                f"width is {config.width}, which is not a multiple of the {heads} {name}. "
                "Change one of them, or set key_width and value_width."
            )
    _check_positions(config)
    _check_positions(config.of_decoder)


def _check_positions(config: ModelConfig) -> None:
    """Raise `UserError` for settings that have no effect with, or do not suit, `config.positions`."""
    kind = config.positions
    if kind != "learned" and changed(config, "longest"):
        raise UserError(f"longest has no effect with {kind} positions. Set positions to learned.")
    if kind not in ("sinusoidal", "marian") and config.first_position:
        raise UserError(f"first_position has no effect with {kind} positions. Leave it out.")
    if kind == "marian" and config.width < 4:
        raise UserError(f"width is {config.width}, but positions=marian needs at least 4.")
    if kind == "rotary" and config.d_k % 2:
        raise UserError(f"a head has {config.d_k} key channels (key_width), but rotary positions need pairs.")
    if kind == "relative" and config.window:
        raise UserError("window must be 0 with relative positions.")


def shape_in_words(config: ModelConfig) -> str:
    """Return a description such as "6+6 layers, 512 wide, 8+4 heads, feed-forward 2048, norm post". A plus
    separates encoder and decoder. Only the layers always have one."""
    first, second = ((stack.heads, stack.feed_forward) for stack in (config, config.of_decoder))
    heads, inner = (f"{a}" if a == b else f"{a}+{b}" for a, b in zip(first, second, strict=True))
    layers = f"{config.encoder_layers}+{config.decoder_layers} layers"
    return f"{layers}, {config.width} wide, {heads} heads, feed-forward {inner}, norm {config.norm}"


def disagreements(config: ModelConfig, other: ModelConfig, *kinds: Kind) -> list[str]:
    """Return the names of the settings of `kinds` that differ between two models.

    Widths of heads are compared as `d_k` and `d_v`. A setting of the decoder that is 0 means the number of
    the whole model, so both are equal.
    """
    names = [name for kind in kinds for name in settings_of_kind(ModelConfig, kind)]
    names = [EFFECTIVE_WIDTHS.get(name, name) for name in names]
    first, second = config.of_decoder, other.of_decoder
    equal = {f"decoder_{n}" for n in ("heads", "feed_forward") if getattr(first, n) == getattr(second, n)}
    return [name for name in names if name not in equal and getattr(config, name) != getattr(other, name)]
