"""`torch.compile` compiles the whole model once for all batches, with the same results."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.loss.chunked_loss import cross_entropy
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.keyed_dropout import dropout
from nmt_cli.model.layers import Residual
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels.torch_private import compiled_for_all_sizes

Batch = tuple[Tensor, Tensor, Layout, Layout]

CONFIG = ModelConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=24, heads=2)

LENGTHS = [
    ([3, 6, 1, 1, 20], [4, 30, 2, 2, 2]),
    ([5, 1, 7], [3, 8, 2]),
    ([4, 6], [9, 1]),
    ([2, 2, 9, 4], [6, 5, 1, 1]),
    ([8, 8], [8, 8]),
    ([300, 2], [1, 400]),
]
"""Lengths of several pairs, some longer than 1 on each side. Other batches are compiled separately.

The sizes of the first batch differ between the sides. The compiler would treat equal sizes as one.
"""


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def assert_alike(compiled: Callable[..., Tensor], model: Transformer, batch: Batch) -> None:
    """Compare logits and gradients."""
    weights = list(model.parameters())
    actual, expected = compiled(*batch), model.logits(model(*batch))
    assert (actual - expected).abs().max() < 1e-5
    pairs = zip(*(torch.autograd.grad(out.sin().sum(), weights) for out in (actual, expected)), strict=True)
    assert all((one - other).abs().max() < 1e-5 + 1e-5 * other.abs().max() for one, other in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, positions="rotary", norm_kind="rms", activation="swish", gated=True),
        replace(CONFIG, positions="relative"),
    ],
    ids=["rotary", "relative"],
)
def test_a_compiled_model_gives_equal_results_and_is_compiled_once(
    config: ModelConfig, build: Callable[..., Transformer], batch: Callable[..., Batch]
) -> None:
    from torch._dynamo.utils import counters  # imported here, because it loads Triton

    counters.clear()
    model = build(config)
    compiled = compiled_for_all_sizes(
        lambda *inputs: model.logits(model(*inputs)), backend="aot_eager", fullgraph=True
    )
    assert_alike(compiled, model, batch(*LENGTHS[0]))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for lengths in LENGTHS[1:]:
            assert_alike(compiled, model, batch(*lengths))
    assert counters["aot_autograd"]["total"] == 1


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*script_method.* is deprecated:DeprecationWarning"
)  # PyTorch itself uses it
def test_inductor_gives_equal_results(build: Callable[..., Transformer], batch: Callable[..., Batch]) -> None:
    """Compile the loss together with the model, as compiling one graph is slow."""
    model = build(replace(CONFIG, norm="pre"))

    def both(*inputs: Any) -> tuple[Tensor, Tensor]:
        features = model(*inputs)
        loss, _ = cross_entropy(features.tanh(), model.output_matrix, inputs[1], smoothing=0.1)
        return model.logits(features), 3 * loss

    inputs = batch(*LENGTHS[0])
    with torch.no_grad():  # gradients would double the work, with the same operators
        actual = compiled_for_all_sizes(both, fullgraph=True)(*inputs)
        for ours, expected in zip(actual, both(*inputs), strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by PyTorch's compiler
def test_dropout_is_compiled_without_a_graph_break() -> None:
    layout = Layout.of([40, 60])
    compiled = torch.compile(lambda x: dropout(x, 0.3, True, layout), backend="aot_eager", fullgraph=True)
    x = torch.ones(100, 100, requires_grad=True)
    first, second = compiled(x), compiled(x)
    assert float((first == 0).double().mean()) == pytest.approx(0.3, abs=0.02)
    assert not torch.equal(first, second)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(gradient, first)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.* is deprecated:DeprecationWarning")  # PyTorch's own use
def test_compiled_dropout_never_writes_its_hashes_to_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Inductor write its code for two residual connections with dropout, forward and backward."""
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.utils import run_and_get_code

    # The code is read, not run, and the C++ compiler takes a minute.
    monkeypatch.setattr(AsyncCompile, "cpp_pybinding", lambda *_, **__: lambda *_: None)
    width, layout = 48, Layout.of([3, 6, 20])
    stack = nn.ModuleList(Residual(ModelConfig(width=width, residual_dropout=0.1)) for _ in range(2))

    def forward(x_TD: Tensor) -> Tensor:
        for residual in stack:
            x_TD = residual(x_TD, torch.sin, layout)
        return x_TD.sum()

    inputs = torch.randn(29, width, requires_grad=True)
    compiled = compiled_for_all_sizes(forward)
    # By `patch`, because monkeypatch would delete the setting at the end.
    with config.patch({"cpp.simdlen": 1}):
        _, code = run_and_get_code(lambda: torch.autograd.grad(compiled(inputs), inputs))
    columns = [int(n) for n in re.findall(r"empty_strided\w*\(\(\w+, (\d+)\)[^\n]*int32", "\n".join(code))]
    assert len(code) == 2 and "float32" in code[0]
    assert max(columns, default=0) < width // 2
