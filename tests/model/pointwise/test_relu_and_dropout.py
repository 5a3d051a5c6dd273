"""Feed-forward layers with the kernels of a GPU, compared with plain PyTorch."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layers import FeedForward, Residual
from nmt_cli.model.pointwise import relu_and_dropout
from nmt_cli.runtime.devices import autocast

pytest.importorskip("triton")

CONFIG = ModelConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=24, heads=2)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(relu_and_dropout, "usable", lambda *_: True)


@pytest.fixture
def forgetful() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def differentiated(compute: Callable[[Tensor], Tensor], layer: nn.Module, x: Tensor) -> list[Tensor]:
    with autocast(x.device, torch.bfloat16):
        out = compute(x)
    return [out.detach(), *torch.autograd.grad(out.float().sin().sum(), [x, *layer.parameters()])]


def assert_alike(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert float((a - b).abs().max()) <= tolerance * (1e-3 + float(b.abs().max()))


def test_a_feed_forward_layer_in_mixed_precision_gives_the_result_of_a_cpu(
    as_on_a_gpu: Callable[[], None], device: str
) -> None:
    torch.manual_seed(1)
    layer, x = FeedForward(CONFIG).to(device), torch.randn(2, 30, 16, device=device, requires_grad=True)
    plain = differentiated(layer, layer, x)
    as_on_a_gpu()
    assert_alike(differentiated(layer, layer, x), plain, tolerance=2e-2)
    with torch.no_grad():
        assert torch.equal(layer(x), layer(x.flatten(0, 1)).view(2, 30, 16))


class Stack(nn.Module):
    """A feed-forward layer and its residual connection, with bf16 values between layers."""

    def __init__(self) -> None:
        super().__init__()
        config = replace(CONFIG, residual_dropout=0.0)
        self.inside, self.around = FeedForward(config), Residual(config)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.around(x.to(torch.bfloat16), self.inside)
        return out


@pytest.mark.slow
@pytest.mark.usefixtures("forgetful")
@pytest.mark.filterwarnings(
    "ignore:.*script_method.* is deprecated:DeprecationWarning"
)  # PyTorch itself uses it
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_sub_layer_is_compiled_without_a_graph_break(
    as_on_a_gpu: Callable[[], None], device: str, backend: str
) -> None:
    torch.manual_seed(1)
    stack, x = Stack().to(device), torch.randn(30, 16, device=device, requires_grad=True)
    as_on_a_gpu()
    compiled = torch.compile(stack, fullgraph=True, dynamic=True, backend=backend)
    for tokens in (30, 7):
        part = x[:tokens].detach().requires_grad_()
        assert_alike(
            differentiated(compiled, stack, part), differentiated(stack, stack, part), tolerance=4e-2
        )
