"""Hugging Face's Marian with the same weights gives the same logits and translations."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from nmt_cli.checkpoints.model_folder import weights
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.interop.huggingface import usual_names
from nmt_cli.interop.weights import common_tensors, import_tensors
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary
from tests.searching import SEARCHES, translate_ids

if TYPE_CHECKING:
    from transformers import MarianMTModel

PAD, VOCABULARY, WIDTH = 40, 41, 32
KNOWN = Vocabulary(("",) * VOCABULARY, end=0, start=PAD, unknown=1, never=(PAD,))


def marian(**settings: Any) -> "MarianMTModel":
    """Return a random model whose weights, gains and biases are large enough to matter."""
    from transformers import MarianConfig, MarianMTModel

    shape = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "d_model": WIDTH, "max_position_embeddings": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    ids = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "decoder_start_token_id": PAD, "eos_token_id": 0}
    options: dict[str, Any] = {**shape, **heads, **ids, "scale_embedding": True, "forced_eos_token_id": None}
    torch.manual_seed(11)
    model = MarianMTModel(MarianConfig(**options, **settings))
    model.train(False)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "embed_positions" not in name:
            nn.init.normal_(parameter, mean=float("layer_norm.weight" in name), std=0.2)
    assert not model.final_logits_bias.any()
    return model


def copied(theirs: "MarianMTModel", config: ModelConfig, vocabulary: Vocabulary = KNOWN) -> Transformer:
    """Return our model with their weights, as an import would have it."""
    model = Transformer(config, vocabulary, vocabulary, joint=config.tie == "all").eval()
    tensors = common_tensors(theirs.state_dict(), usual_names, "Marian")
    side: Any = SimpleNamespace(vocabulary=vocabulary)
    tokenizers: Any = SimpleNamespace(source=side, target=side)
    imported = import_tensors(tensors, "Marian", config, tokenizers)
    assert imported.keys() == weights(model).keys()
    model.load_state_dict(imported, strict=False)  # it has names for each use of a shared matrix
    return model


def marians_logits(
    model: "MarianMTModel", source_S: Tensor, target_T: Tensor, source: Layout, target: Layout
) -> Tensor:
    sources, targets = (
        pad_sequence([ids[part] for part in layout.slices()], batch_first=True, padding_value=PAD)
        for ids, layout in ((source_S, source), (target_T, target))
    )
    inputs = F.pad(targets, (1, 0), value=model.config.decoder_start_token_id)[:, :-1]
    mask = torch.arange(sources.shape[1]) < source.lengths[:, None]
    logits_BTV = model(input_ids=sources, attention_mask=mask.long(), decoder_input_ids=inputs).logits
    return torch.cat([row[:n] for row, n in zip(logits_BTV, target.lengths.tolist(), strict=True)])


def model_config(theirs: "MarianMTModel") -> ModelConfig:
    config, (encoder, decoder) = theirs.config, (theirs.model.encoder, theirs.model.decoder)
    output = theirs.lm_head.weight
    all_tied, decoder_tied = encoder.embed_tokens.weight is output, decoder.embed_tokens.weight is output
    return ModelConfig(
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=config.d_model,
        feed_forward=config.encoder_ffn_dim,
        heads=config.encoder_attention_heads,
        activation="gelu" if config.activation_function == "gelu" else "relu",
        tie="all" if all_tied else "decoder" if decoder_tied else "none",
        norm_epsilon=1e-5,
        attention_bias=True,
    )


@pytest.mark.parametrize(
    ("layers", "activation", "ties", "tie"),
    [
        ((2, 2), "relu", {}, "all"),
        ((2, 2), "gelu", {}, "all"),
        ((4, 1), "relu", {"share_encoder_decoder_embeddings": False}, "decoder"),
        ((1, 3), "gelu", {"tie_word_embeddings": False}, "none"),
    ],
    ids=["relu", "gelu", "deep encoder, tied in the decoder", "deep decoder, untied"],
)
@pytest.mark.parametrize(
    ("sources", "targets"),
    [([5], [7]), ([1, 9, 4, 30], [12, 1, 31, 3]), ([8] * 6, [2, 3, 5, 7, 11, 13])],
    ids=["one pair", "short and long", "one length in the source"],
)
def test_marian_gives_the_same_logits_with_the_same_weights(
    layers: tuple[int, int],
    activation: str,
    ties: dict[str, bool],
    tie: str,
    sources: list[int],
    targets: list[int],
    batch: Callable[..., tuple[Tensor, Tensor, Layout, Layout]],
) -> None:
    encoder, decoder = layers
    theirs = marian(encoder_layers=encoder, decoder_layers=decoder, activation_function=activation, **ties)
    config = model_config(theirs)
    assert config.tie == tie
    with torch.no_grad():
        model = copied(theirs, config)
        pairs = batch(sources, targets)
        expected = marians_logits(theirs, *pairs)
        actual = model.logits(model(*pairs))
    assert (actual - expected).abs().max() <= 1e-4
    assert expected.std() > 0.5


def test_marians_output_bias_is_in_the_logits_and_in_the_features_of_the_loss(
    batch: Callable[..., tuple[Tensor, Tensor, Layout, Layout]],
) -> None:
    theirs = marian(encoder_layers=1, decoder_layers=1)
    pairs = batch([5, 2], [7, 3])
    with torch.no_grad():
        theirs.final_logits_bias.normal_(std=2.0)
        model = copied(theirs, replace(model_config(theirs), output_bias=True))
        decoded = model(*pairs)
        features, matrix = model.projected(decoded)
        expected = marians_logits(theirs, *pairs)
    for actual in (model.logits(decoded), features @ matrix.T):
        assert (actual - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("said_by", ["vocabulary", "setting"])
def test_a_start_of_zeros_equals_marians_padding_with_a_zero_vector(
    said_by: str, batch: Callable[..., tuple[Tensor, Tensor, Layout, Layout]]
) -> None:
    theirs = marian(encoder_layers=1, decoder_layers=2)
    pairs = batch([5, 2], [7, 3])
    with torch.no_grad():
        theirs.model.shared.weight[PAD] = 0.0
        if said_by == "vocabulary":
            model = copied(theirs, model_config(theirs), replace(KNOWN, start=None))
        else:
            model = copied(theirs, replace(model_config(theirs), start="zeros"))
        model.target_embedding.matrix[PAD] = 9.0  # it must not be used
        expected = marians_logits(theirs, *pairs)[:, :PAD]
        actual = model.logits(model(*pairs))[:, :PAD]
    assert (actual - expected).abs().max() <= 1e-4


@torch.no_grad()
@pytest.mark.parametrize("start", [PAD, 7, 0, None])
def test_steps_equal_the_forward_pass_for_any_start_token(start: int | None) -> None:
    theirs = marian(encoder_layers=1, decoder_layers=2)
    model = copied(theirs, model_config(theirs), replace(KNOWN, end=3, start=start))
    source, target = (torch.tensor(ids) for ids in ([5, 9, 3], [7, 12, 30, 3]))
    forward = model(source, target, Layout.of([3]), Layout.of([4]))
    cache = model.begin(source, Layout.of([3]), 1)
    row = torch.tensor([0])
    steps = [model.step(token[None], row, cache, 4) for token in torch.tensor([11, 7, 12, 30])]
    torch.testing.assert_close(torch.cat(steps), forward, rtol=1e-5, atol=1e-5)


def generated(
    theirs: "MarianMTModel", source: list[int], beam: int, penalty: float
) -> tuple[list[int], float] | None:
    """Return the translation by `transformers` and its score, by rules that both implementations have.

    Scores are sums of log-probabilities divided by length^penalty. The search continues while a live
    hypothesis can still win. At the maximum length, `transformers` accepts hypotheses without an end token,
    and ours does not. Then the result is None.
    """
    untyped: Any = theirs  # `generate` does not accept its own types
    out = untyped.generate(
        input_ids=torch.tensor([[*source, 0]]),
        attention_mask=torch.ones(1, len(source) + 1, dtype=torch.int64),
        decoder_start_token_id=0,
        num_beams=beam,
        do_sample=False,
        length_penalty=penalty,
        early_stopping="never" if beam > 1 else False,
        max_new_tokens=30,
        suppress_tokens=[PAD],
        output_scores=True,
        return_dict_in_generate=True,
    )
    tokens = out.sequences[0].tolist()[1:]
    score = float(out.sequences_scores[0]) if beam > 1 else 0.0
    return (tokens[: tokens.index(0)], score) if 0 in tokens else None


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.3])
def test_transformers_finds_the_same_translations_with_the_same_weights(
    search: str, beam: int, penalty: float
) -> None:
    theirs = marian(encoder_layers=2, decoder_layers=2, tie_word_embeddings=False)
    with torch.no_grad():
        always = theirs.model.decoder.layers[-1].final_layer_norm.bias
        theirs.model.decoder.embed_tokens.weight *= 0.3
        theirs.lm_head.weight *= 1.5
        theirs.lm_head.weight[0] += 6.0 * always / always.dot(always)  # so that sentences end
        model = copied(theirs, model_config(theirs), replace(KNOWN, start=0))
    generator = torch.Generator().manual_seed(5)
    sources = [torch.randint(1, PAD, (n,), generator=generator).tolist() for n in (1, 2, 4, 7, 9, 12) * 2]
    config = SearchConfig(
        beam=beam, length_rule="power", length_penalty=penalty, cap_ratio=0.0, cap_extra=29, unknown=True
    )
    different = set()
    found = translate_ids([model], sources, config, SEARCHES[search])
    for source, actual in zip(sources, found, strict=True):
        expected = generated(theirs, source, beam, penalty)
        if expected is None:
            continue
        tokens, score = expected
        assert list(actual[0].tokens) == tokens
        if beam > 1:
            assert actual[0].score == pytest.approx(score, abs=1e-4)
        different.add(tuple(tokens))
    assert len(different) > 1
