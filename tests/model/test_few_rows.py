"""A step that one compiled function takes is the step of the plain model, whoever helps."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.attention import dispatch
from nmt_cli.attention.cached import kernels
from nmt_cli.machine import standby
from nmt_cli.machine.devices import Precision
from nmt_cli.machine.torch_private import multiplies_int8
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.few_rows import MOST_PIECES, MOST_ROWS, FewRows
from nmt_cli.model.packed import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import flat

POST = ModelConfig(encoder_layers=1, decoder_layers=2, width=32, feed_forward=64, heads=4)
CONFIGS = {
    "post": POST,
    "pre": replace(POST, norm="pre"),
    "biases": replace(POST, norm="pre", attention_bias=True, output_bias=True, tie="none"),
    "odd widths": replace(POST, width=42, feed_forward=70, heads=3, key_width=10, value_width=6),
    "window": replace(POST, decoder_window=4),
}


@pytest.fixture(params=[0, 1, 3], ids=lambda count: f"{count} helpers")
def helped(request: pytest.FixtureRequest) -> Iterator[None]:
    """A few threads come to help, more than some machines have cores."""
    standby.call(request.param)
    yield
    standby.call(0)


def packed(model: Transformer, precision: Precision = "fp32") -> Transformer:
    copy = deepcopy(model)
    pack(copy, precision)
    return copy


@torch.inference_mode()
def searched(model: Transformer, places: int, steps: int) -> Tensor:
    """The logits of each step of a search whose hypotheses are chosen by lot."""
    draw, found = torch.Generator().manual_seed(1), []
    cache = model.begin(*flat([[3, 4, 5, 0], [2, 0]], torch.device("cpu")), places)
    rows = torch.arange(2 * places)
    for age in range(steps):
        tokens = torch.randint(2, 8, (2 * places,), generator=draw)
        found.append(model.logits(model.step(tokens, rows, cache, age + 1)))
        parents = torch.randint(0, places, (2, places), generator=draw)
        cache.follow(parents, torch.ones_like(parents, dtype=torch.bool))
    return torch.stack(found).double()


@pytest.mark.parametrize("places", [1, 2, MOST_ROWS // 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_each_step_has_the_logits_of_the_plain_model(
    name: str,
    places: int,
    helped: None,
    build: Callable[..., Transformer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build(CONFIGS[name])
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = packed(model)
    if not ours.few_rows:
        pytest.skip("oneDNN lays out weights in another way on this CPU")
    taken = []
    step = FewRows.step

    def counted(*given: Any) -> Tensor:
        taken.append(len(given[1]))
        return step(*given)

    monkeypatch.setattr(FewRows, "step", counted)
    found = searched(ours, places, 12)
    monkeypatch.setattr(dispatch, "kernels", lambda: None)
    wanted = searched(model.double(), places, 12)
    assert taken == [2 * places] * 12 and (found - wanted).abs().max() < 1e-4 * wanted.abs().max()


@torch.inference_mode()
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_line_that_is_alone_is_encoded_as_the_plain_model_does_it(
    name: str, precision: Precision, helped: None, build: Callable[..., Transformer]
) -> None:
    if precision == "int8" and not multiplies_int8():
        pytest.skip("this CPU has no kernels for 8 bits")
    model = build(CONFIGS[name])
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours, plain = packed(model, precision), packed(model, precision)
    if not ours.few_rows:
        pytest.skip("oneDNN lays out weights in another way on this CPU")
    plain.few_rows = None
    for tokens in (1, 2, 7, MOST_PIECES, MOST_PIECES + 1):
        source = flat([[2 + place % 6 for place in range(tokens)]], torch.device("cpu"))
        if precision == "fp32":
            wanted = model.double().encode(*source)
            assert (ours.encode(*source) - wanted).abs().max() < 1e-4 * wanted.abs().max()
        else:
            wanted = plain.encode(*source)
            assert (ours.encode(*source) - wanted).abs().mean() < 1e-2 * wanted.abs().max()


def test_who_sees_but_a_window_of_the_source_is_encoded_as_ever(build: Callable[..., Transformer]) -> None:
    ours = packed(build(replace(POST, encoder_window=4)))
    assert not ours.few_rows or not ours.few_rows.encodes(1, 5)


@pytest.mark.parametrize("places", [1, MOST_ROWS // 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_of_8_bits_make_the_same_of_few_rows_as_of_many(
    name: str, places: int, helped: None, build: Callable[..., Transformer]
) -> None:
    if not multiplies_int8():
        pytest.skip("this CPU has no kernels for 8 bits")
    model = build(CONFIGS[name])
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours, plain = packed(model, "int8"), packed(model, "int8")
    if not ours.few_rows:
        pytest.skip("oneDNN lays out weights in another way on this CPU")
    decoded = torch.randn(2 * places, CONFIGS[name].width)
    plain.few_rows = None
    assert torch.equal(ours.logits(decoded), plain.logits(decoded))  # whole numbers are multiplied
    # Elsewhere sums are taken in another order, and what is rounded to 8 bits then may go the other way.
    found, wanted = (searched(each, places, 12) for each in (ours, plain))
    assert (found - wanted).abs().mean() < 2e-3 * wanted.abs().max()


@pytest.mark.parametrize(
    "changed", [{"activation": "gelu"}, {"decoder_history": "ssru"}], ids=["another bend", "no attention"]
)
def test_other_decoders_do_without(changed: dict[str, Any], build: Callable[..., Transformer]) -> None:
    assert packed(build(replace(POST, **changed))).few_rows is None


def test_a_layout_that_is_not_the_known_one_is_not_read(
    build: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nmt_cli.machine import torch_private

    monkeypatch.setattr(torch_private, "BLOCK", 32)
    assert kernels() and packed(build(POST)).few_rows is None
