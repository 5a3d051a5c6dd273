"""Packed models compute the same as before, within the precision."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nmt_cli.checkpoints.files import read_tensors
from nmt_cli.checkpoints.model_folder import weights
from nmt_cli.decoding.fast import int8, packed
from nmt_cli.decoding.fast.packed import Packed, pack
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.runtime.devices import Precision, translating_precisions
from nmt_cli.runtime.kernels.torch_private import adds_products_in_32_bits
from tests.model.models import model_of

Batch = tuple[Tensor, Tensor, Layout, Layout]

POST = ModelConfig(encoder_layers=2, decoder_layers=2, width=32, feed_forward=64, heads=4)
CONFIGS = {
    "post": POST,
    "pre, biases": replace(POST, norm="pre", activation="gelu", attention_bias=True),
    "ssru": replace(POST, decoder_history="ssru"),
    "nothing tied": replace(POST, tie="none", positions="learned", longest=320),
}
CPU = torch.device("cpu")
LEVELS = 127 if adds_products_in_32_bits() else 63


def needs(precision: Precision) -> None:
    if precision not in translating_precisions(CPU):
        pytest.skip(f"this CPU has no {precision}")


def packed_as(model: Transformer, precision: Precision) -> Transformer:
    """Return a packed copy."""
    copy = deepcopy(model)
    pack(copy, precision)
    return copy


@torch.inference_mode()
def logits(model: Transformer, batch: Batch) -> Tensor:
    """Return the logits of a batch by a full forward pass."""
    return model.logits(model(*batch)).double()


@torch.inference_mode()
def stepped(model: Transformer, batch: Batch) -> Tensor:
    """Return [steps x sentences, V]: the logits of the first three target tokens, one step each."""
    source_S, inputs_T, source, target = batch
    cache = model.begin(source_S, source, 1)
    slots = torch.arange(len(source.lengths))
    steps = [
        model.logits(model.step(inputs_T[target.starts[:-1] + age], slots, cache, age + 1))
        for age in range(3)
    ]
    return torch.cat(steps).double()


@pytest.mark.parametrize("run", [logits, stepped], ids=["whole", "step by step"])
@pytest.mark.parametrize("sentences", [1, 3, 60])
@pytest.mark.parametrize("name", CONFIGS)
def test_fp32_gives_the_logits_of_the_plain_model(
    name: str,
    sentences: int,
    run: Callable[[Transformer, Batch], Tensor],
    build: Callable[..., Transformer],
    batch: Callable[..., Batch],
) -> None:
    model, some = build(CONFIGS[name]), batch([7] * sentences, [5] * sentences)
    assert (run(packed_as(model, "fp32"), some) - run(model, some)).abs().max() < 1e-4


@pytest.mark.parametrize("run", [logits, stepped], ids=["whole", "step by step"])
@pytest.mark.parametrize("name", CONFIGS)
def test_bf16_errs_at_most_twice_as_much_as_plain_pytorch(
    name: str,
    run: Callable[[Transformer, Batch], Tensor],
    build: Callable[..., Transformer],
    batch: Callable[..., Batch],
) -> None:
    needs("bf16")
    model, some = build(CONFIGS[name]), batch([7, 3, 9], [5, 4, 3])
    exact = run(deepcopy(model).double(), some)
    plain = run(deepcopy(model).bfloat16(), some)
    ours = run(packed_as(model, "bf16"), some)
    assert 0 < (ours - exact).abs().max() <= 2 * (plain - exact).abs().max()


def linear_of(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(4)
    return nn.Linear(inputs, outputs, bias=bias)


def stands_in_for(linear: nn.Linear, precision: Precision) -> Packed:
    """Return the packed replacement of a linear layer."""
    model = model_of(replace(POST, encoder_layers=1, decoder_layers=1), 8)
    model.add_module("another", linear)
    pack(model, precision)
    replacement = model.another
    assert isinstance(replacement, Packed)
    return replacement


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 300])
@pytest.mark.parametrize("outliers", [1.0, 100.0])
def test_int8_errs_by_no_more_than_rounding_does(rows: int, outliers: float, bias: bool) -> None:
    """Check that errors stay below half a step of each weight's scale plus half a step of the row's."""
    needs("int8")
    linear = linear_of(96, 40, bias=bias)
    x = torch.randn(rows, 96)
    x[0, 0] *= outliers
    weight = linear.weight.detach().double()
    weight_step = weight.abs().amax(1, keepdim=True) / 127
    input_step = x.double().abs().amax(1, keepdim=True) / LEVELS
    with torch.inference_mode():
        error = (stands_in_for(linear, "int8")(x).double() - linear.double()(x.double())).abs()
    of_weights = (x.abs().double() @ torch.ones(96, 40, dtype=torch.float64)) * weight_step.T / 2
    of_inputs = (weight.abs() + weight_step / 2).sum(1) * input_step / 2
    assert error.max() > 0
    assert (error <= of_weights + of_inputs + 1e-5).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("numba", [True, False])
def test_int8_results_of_a_row_do_not_depend_on_other_rows(
    numba: bool, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check bits of rows among others, also for large values, zeros, and values that are not finite."""
    needs("int8")
    if not numba:
        monkeypatch.setattr(int8, "compiled_kernels", lambda room: None)
    compute = stands_in_for(linear_of(96, 40, bias=bias), "int8")
    x = torch.randn(300, 96) * torch.logspace(-45, 30, 300)[:, None]
    x[7], x[8, 3], x[9, 4] = 0, torch.nan, torch.inf
    with torch.inference_mode():
        whole = compute(x)
        whole[9] = torch.nan  # infinities and nan
        for rows in (slice(0, 1), slice(5, 13), slice(9, 10), slice(100, 164), slice(120, 260)):
            actual = compute(x[rows])
            actual[~actual.isfinite()] = torch.nan
            torch.testing.assert_close(actual, whole[rows], rtol=0, atol=0, equal_nan=True)
    assert whole[[8, 9]].isnan().any(1).all() and whole[10:].isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_several_threads_may_use_it_at_once(
    precision: Precision, build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    needs(precision)
    model = packed_as(build(POST), precision)
    batches = [batch([7] * count, [5] * count, seed=count) for count in range(1, 9)]
    alone = [logits(model, some) for some in batches]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda i: logits(model, batches[i % 8]), range(40)))
    assert all(torch.equal(actual, alone[i % 8]) for i, actual in enumerate(together))


@pytest.mark.parametrize(
    ("requested", "supported", "choice"),
    [
        ("fp16", ["fp32"], "fp32"),
        ("fp16", ["fp32", "bf16", "int8"], "fp32 or bf16 or int8"),
        ("int8", ["fp32", "bf16"], "fp32 or bf16"),
    ],
)
def test_an_unsupported_precision_is_an_error_that_names_the_supported_ones(
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[..., Transformer],
    requested: Precision,
    supported: list[Precision],
    choice: str,
) -> None:
    monkeypatch.setattr(packed, "translating_precisions", lambda device: supported)
    with pytest.raises(UserError) as caught:
        pack(build(POST), requested)
    assert str(caught.value) == f"this CPU can't compute in {requested}. Choose precision {choice}."


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_gpu_translates_in_half_precision_as_exactly_as_plain_pytorch(
    precision: Precision, cuda: str, build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    model = build(POST)
    some = batch([7, 3, 9], [5, 4, 3])
    moved: Batch = (some[0].to(cuda), some[1].to(cuda), some[2].to(cuda), some[3].to(cuda))
    exact = logits(deepcopy(model).double(), some)
    half = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    plain = logits(deepcopy(model).to(half), some)
    ours = logits(packed_as(model.to(cuda), precision), moved).cpu()
    assert (ours - exact).abs().max() <= 2 * (plain - exact).abs().max()


def test_int8_does_not_depend_on_the_number_of_packing_threads(
    build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    needs("int8")
    model, some = build(POST), batch([7] * 60, [5] * 60)
    in_four = deepcopy(model)
    pack(in_four, "int8", threads=4)
    for run in (logits, stepped):  # many rows and few rows use different kernels
        assert torch.equal(run(in_four, some), run(packed_as(model, "int8"), some))


def test_int8_caches_keys_and_values_as_bfloat16_if_the_processor_has_it() -> None:
    needs("int8")
    needs("bf16")
    model = model_of(replace(POST, encoder_layers=1, decoder_layers=1), 8)
    pack(model, "int8")
    source = Layout.of([3])
    with torch.inference_mode():
        cache = model.begin(torch.tensor([4, 5, 6]), source, 2)
    layer = cache.layers[0]
    kept = (layer.own_keys, layer.own_values, layer.source_keys, layer.source_values)
    assert all(tensor.dtype == torch.bfloat16 for tensor in kept)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="nobody tells what is mapped")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_file_of_the_weights_is_not_in_memory_after_packing(
    precision: Precision, build: Callable[..., Transformer], tmp_path: Path
) -> None:
    needs(precision)
    model, path = build(CONFIGS["pre, biases"]), tmp_path / "weights.safetensors"
    save_file({name: value.detach() for name, value in weights(model).items()}, path)
    mapped = read_tensors(path)
    for name, parameter in weights(model).items():
        parameter.data = mapped[name]
    del mapped
    assert path.name in Path("/proc/self/maps").read_text()
    pack(model, precision)
    assert path.name not in Path("/proc/self/maps").read_text()
