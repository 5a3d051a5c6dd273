"""The compiled step equals the step of the plain model, with any number of helper threads."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.attention import dispatch
from nmt_cli.attention.dispatch import LONGEST_WALKED
from nmt_cli.decoding.fast.few_rows import MOST_PIECES, MOST_ROWS, FewRows
from nmt_cli.decoding.fast.packed import pack
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import flat
from nmt_cli.runtime.devices import Precision
from nmt_cli.runtime.kernels import standby, torch_private
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.kernels.torch_private import Int8Matrix, multiplies_int8
from nmt_cli.runtime.threads import restored_threads, set_own_threads

POST = ModelConfig(encoder_layers=1, decoder_layers=2, width=32, feed_forward=64, heads=4)
CONFIGS = {
    "post": POST,
    "pre": replace(POST, norm="pre"),
    "biases": replace(POST, norm="pre", attention_bias=True, output_bias=True, tie="none"),
    "odd widths": replace(POST, width=42, feed_forward=70, heads=3, key_width=10, value_width=6),
    "window": replace(POST, decoder_window=4),
    "decoder apart": replace(POST, heads=2, decoder_heads=8, decoder_feed_forward=96),
}


@pytest.fixture(params=[0, 1, 3], ids=lambda count: f"{count} helpers")
def helped(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start helper threads, more than some machines have cores."""
    standby.call(request.param)
    yield
    standby.call(0)


def packed(model: Transformer, precision: Precision = "fp32") -> Transformer:
    copy = deepcopy(model)
    pack(copy, precision)
    return copy


def compiled_and_plain(model: Transformer, precision: Precision = "fp32") -> tuple[Transformer, Transformer]:
    """Return a packed copy of `model`, and `model`, with random weights. Skip without compiled steps."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = packed(model, precision)
    if not ours.few_rows:
        pytest.skip("Numba is missing, or oneDNN lays out weights in another way on this CPU")
    return ours, model


@pytest.fixture
def readable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lay out 8-bit weights as on a processor with instructions for their products."""
    laid_out, matrix_of = [], torch_private.int8_matrix

    def int8_matrix(whole: Tensor, scale: Tensor) -> Int8Matrix:
        matrix, (outputs, inputs) = matrix_of(whole, scale), whole.shape
        wide = np.pad(whole.numpy(), ((0, -outputs % 64), (0, -inputs % 64)))
        blocks = wide.reshape(len(wide) // 64, 64, -1, 4).swapaxes(1, 2).tobytes()
        memory = np.frombuffer(blocks + (-wide.sum(1, dtype=np.int32)).tobytes(), np.uint8)
        laid_out.append(memory)
        return replace(matrix, blocks=matrix.blocks or memory.ctypes.data)

    monkeypatch.setattr(torch_private, "int8_matrix", int8_matrix)
    with restored_threads():
        set_own_threads(1)
        yield


@torch.inference_mode()
def searched(model: Transformer, slots: int, steps: int, others: Sequence[list[int]] = ()) -> Tensor:
    """Return the logits of each step for two sentences among `others`, with random hypotheses."""
    sentences = [[3, 4, 5, 0], [2, 0], *others]
    draws, logits = [torch.Generator().manual_seed(seed) for seed in range(len(sentences))], []
    cache = model.begin(*flat(sentences, torch.device("cpu")), slots)
    rows = torch.arange(len(sentences) * slots)
    for age in range(steps):
        tokens = torch.cat([torch.randint(2, 8, (slots,), generator=draw) for draw in draws])
        logits.append(model.logits(model.step(tokens, rows, cache, age + 1))[: 2 * slots])
        parents = torch.stack([torch.randint(0, slots, (slots,), generator=draw) for draw in draws])
        cache.reorder(parents, torch.ones_like(parents, dtype=torch.bool))
    return torch.stack(logits).double()


@pytest.mark.parametrize("slots", [1, 2, MOST_ROWS // 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_each_step_has_the_logits_of_the_plain_model(
    name: str, slots: int, helped: None, build: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, model = compiled_and_plain(build(CONFIGS[name]))
    taken = []
    step = FewRows.step

    def counted(*given: Any) -> Tensor:
        taken.append(len(given[1]))
        return step(*given)

    monkeypatch.setattr(FewRows, "step", counted)
    actual = searched(ours, slots, 12)
    monkeypatch.setattr(dispatch, "compiled_kernels", lambda subpackage: None)
    expected = searched(model.double(), slots, 12)
    assert taken == [2 * slots] * 12 and (actual - expected).abs().max() < 1e-4 * expected.abs().max()


@torch.inference_mode()
@pytest.mark.parametrize("name", CONFIGS)
def test_a_single_sentence_is_encoded_as_by_the_plain_model(
    name: str, helped: None, build: Callable[..., Transformer]
) -> None:
    ours, model = compiled_and_plain(build(CONFIGS[name]))
    for tokens in (1, 2, 7, MOST_PIECES, MOST_PIECES + 1):
        source = flat([[2 + position % 6 for position in range(tokens)]], torch.device("cpu"))
        expected = model.double().encode(*source)
        assert (ours.encode(*source) - expected).abs().max() < 1e-4 * expected.abs().max()


def test_an_encoder_with_a_window_is_not_compiled(build: Callable[..., Transformer]) -> None:
    ours = packed(build(replace(POST, encoder_window=4)))
    assert not ours.few_rows or not ours.few_rows.can_encode(1, 5)


@torch.inference_mode()
@pytest.mark.parametrize("slots", [1, MOST_ROWS // 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_8_bit_weights_give_few_rows_the_same_bits_as_many_rows(
    name: str, slots: int, helped: None, readable: None, build: Callable[..., Transformer]
) -> None:
    if not multiplies_int8():
        pytest.skip("this CPU has no kernels for 8 bits")
    ours, _ = compiled_and_plain(build(CONFIGS[name]), "int8")
    lengths = [1, 7, 30, MOST_PIECES, MOST_PIECES + 1, LONGEST_WALKED + 1, 4, 4, 9, 20]
    lines = [[2 + token % 6 for token in range(length)] for length in lengths]
    encoded = torch.split(ours.encode(*flat(lines, torch.device("cpu"))), lengths)
    for line, mine in zip(lines, encoded, strict=True):
        assert torch.equal(ours.encode(*flat([line], torch.device("cpu"))), mine)
    assert torch.equal(searched(ours, slots, 24), searched(ours, slots, 24, lines))


@pytest.mark.parametrize(
    "changed", [{"activation": "gelu"}, {"decoder_history": "ssru"}], ids=["another bend", "no attention"]
)
def test_other_models_have_no_compiled_step(
    changed: dict[str, Any], build: Callable[..., Transformer]
) -> None:
    assert packed(build(replace(POST, **changed))).few_rows is None


def test_weights_in_an_unexpected_layout_are_not_read(
    build: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_private, "OUTPUTS_PER_BLOCK", 32)
    assert compiled_kernels("attention") and packed(build(POST)).few_rows is None
