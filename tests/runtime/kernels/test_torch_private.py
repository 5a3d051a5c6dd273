"""Private functions of PyTorch work as expected."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import nmt_cli
from nmt_cli.runtime.kernels import torch_private
from nmt_cli.runtime.kernels.torch_private import (
    copy_all,
    lerp_all,
    multiplies_bf16,
    no_kernels_chosen_by_speed,
    products_by_onednn,
    put_parameter,
    softmax_backward,
    step_unless,
    update_loss_scale,
)

PACKAGE = Path(nmt_cli.__file__).parent
DOTTED, PRIVATE = re.compile(r"[\w.]+"), re.compile("_[^_]|ops$")


@pytest.mark.parametrize("largest", [False, True])
def test_a_loss_scale_is_halved_by_bad_steps_and_doubled_after_good_ones(largest: bool) -> None:
    first = 2.0**127 if largest else 8.0
    scale, good_steps = torch.tensor(first), torch.zeros((), dtype=torch.int32)
    actual = []
    for bad in (0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0):
        update_loss_scale(scale, good_steps, torch.tensor(bad), 3)
        actual.append((scale.item() / first, good_steps.item()))
    doubled = 1.0 if largest else 2.0  # an infinite scale is not accepted
    one, two = (doubled / 2, doubled / 4)
    then = [(two, 1), (two, 2), (doubled / 2, 0), (doubled / 2, 1)]
    assert actual == [(1.0, 1), (1.0, 2), (doubled, 0), (one, 0), (one, 1), (two, 0), *then]


def adam(values: Tensor, kind: type[torch.optim.Adam], *, fused: bool) -> torch.optim.Adam:
    return kind([torch.nn.Parameter(values.clone())], lr=0.01, betas=(0.9, 0.98), fused=fused)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_fused_step_equals_plain_adam_and_a_bad_step_changes_nothing(
    kind: type[torch.optim.Adam], scaled: bool
) -> None:
    torch.manual_seed(1)
    values = torch.randn(50)
    ours, exact = adam(values, kind, fused=True), adam(values.double(), kind, fused=False)
    parameter, plain = (optimizer.param_groups[0]["params"][0] for optimizer in (ours, exact))
    for bad in (0.0, 0.0, 1.0, 0.0):
        gradient = torch.randn(50)
        before = parameter.detach().clone()
        parameter.grad = torch.full((50,), torch.inf) if bad else gradient * (1024 if scaled else 1)
        step_unless(ours, torch.tensor(bad), torch.tensor(1024.0) if scaled else None)
        if bad:
            assert torch.equal(parameter, before)
            continue
        plain.grad = gradient.double()
        exact.step()
        assert (parameter - plain).abs().max() < 1e-5
    assert ours.state[parameter]["step"] == 3


def test_copied_values_are_rounded_to_the_dtype_of_the_target() -> None:
    values = [torch.tensor([1.0, 1 / 3]), torch.tensor(2.0)]
    targets = [torch.zeros(2, dtype=torch.bfloat16), torch.zeros((), dtype=torch.bfloat16)]
    copy_all(targets, values)
    assert all(torch.equal(target, value.bfloat16()) for target, value in zip(targets, values, strict=True))


def test_a_layer_uses_the_parameter_that_replaced_its_own() -> None:
    layer = torch.nn.Linear(2, 2, bias=False)
    mine = torch.nn.Parameter(torch.eye(2))
    put_parameter(layer, "weight", mine)
    assert layer.weight is mine and list(layer.parameters()) == [mine]
    assert torch.equal(layer(torch.tensor([3.0, 4.0])), torch.tensor([3.0, 4.0]))


def test_means_move_by_a_share_of_the_difference() -> None:
    torch.manual_seed(1)
    means, values = ([torch.randn(3, 4), torch.randn(5)] for _ in range(2))
    expected = [
        mean.double() + 0.3 * (value.double() - mean) for mean, value in zip(means, values, strict=True)
    ]
    originals = list(means)
    lerp_all(means, values, 0.3)
    for mean, same, exact in zip(means, originals, expected, strict=True):
        assert mean is same
        assert (mean - exact).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_a_softmax_equals_autograd(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, d_out = torch.randn(3, 5, 7, dtype=dtype, requires_grad=True), torch.randn(3, 5, 7, dtype=dtype)
    (exact,) = torch.autograd.grad(x.double().softmax(-1), x, d_out.double())
    actual = softmax_backward(d_out, x.detach().softmax(-1))
    assert actual.dtype == dtype
    assert (actual - exact).abs().max() < (1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.slow
def test_the_gradient_of_a_softmax_is_compiled_without_a_graph_break() -> None:
    out, d_out = torch.randn(3, 7).softmax(-1), torch.randn(3, 7)
    traced = torch.compile(softmax_backward, backend="eager", fullgraph=True)
    assert torch.equal(traced(d_out, out), softmax_backward(d_out, out))


def test_kernels_are_not_chosen_by_speed_within_the_block() -> None:
    from torch._inductor import config

    before = config.deterministic
    with pytest.raises(ValueError, match="no luck"), no_kernels_chosen_by_speed():
        assert config.deterministic
        raise ValueError("no luck")
    assert config.deterministic is before


def test_products_by_onednn_are_exact() -> None:
    left, right = torch.randn(300, 512), torch.randn(512, 200)
    exact = left.double() @ right.double()
    with products_by_onednn():
        error = (left @ right - exact).abs().max()
    assert error < 1e-5 * exact.abs().max()


@pytest.mark.parametrize(
    ("able", "exact", "inside"),
    [
        ({"avx512_bf16": True}, True, "bf16"),
        ({"avx512_bf16": True, "amx_bf16": True}, True, "none"),
        ({"avx512_bf16": True}, False, "none"),
        ({}, True, "none"),
    ],
    ids=["able", "rounds by AMX", "actual to round", "unable"],
)
def test_onednn_computes_products_only_if_it_rounds_no_factor(
    monkeypatch: pytest.MonkeyPatch, able: dict[str, bool], exact: bool, inside: str
) -> None:
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    # the switch may make this processor round, whatever its capabilities are
    monkeypatch.setattr(torch_private, "_products_are_exact", lambda: exact)
    with pytest.raises(ValueError, match="no luck"), products_by_onednn():
        assert matmul.fp32_precision == inside
        raise ValueError("no luck")
    assert matmul.fp32_precision == "none"


@pytest.mark.parametrize(
    ("able", "faster"),
    [
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, True),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, False),
        ({"cpu_name": "AMD EPYC 9654 96-Core Processor", "avx512_bf16": True}, True),
        ({"cpu_name": "AMD EPYC 7763 64-Core Processor", "avx512_bf16": False}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
@pytest.mark.parametrize("multiplies", [True, False])
def test_amx_and_avx512_of_amd_train_faster_in_bf16_unless_onednn_leaves_them_out(
    monkeypatch: pytest.MonkeyPatch, able: dict[str, object], faster: bool, multiplies: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    monkeypatch.setattr(torch_private, "multiplies_bf16", lambda: multiplies)
    assert torch_private.trains_faster_in_bf16() is (faster and multiplies)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounded_factors_are_detected(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    multiply = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda *pair: multiply(*(x.to(dtype) for x in pair)).float()
    )
    assert torch_private._products_are_exact() == (dtype == torch.float32)


def test_the_users_choice_of_product_library_has_precedence() -> None:
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    matmul.fp32_precision = "tf32"
    try:
        with products_by_onednn():
            assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = "none"


def test_a_pytorch_without_onednn_has_only_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not multiplies_bf16()


def private_uses(source: str) -> Iterator[str]:
    """Yield the private names and operators of PyTorch that a source text uses."""
    # the operators that the kernels register themselves are not PyTorch's
    for node in ast.walk(ast.parse(source.replace("torch.ops.nmt.", "own."))):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        for name in names:
            first, *parts = name.split(".") if DOTTED.fullmatch(name) else [""]
            if first == "torch" and any(PRIVATE.match(part) for part in parts):
                yield name


def test_private_names_of_pytorch_are_used_in_one_file() -> None:
    users = {path.name for path in PACKAGE.rglob("*.py") if list(private_uses(path.read_text("utf-8")))}
    assert users == {"torch_private.py"}


GROWTH = """
import torch
from nmt_cli.runtime.kernels import torch_private

torch.set_num_threads(1)
torch_private.keep_few_kernels()

def held():
    with open("/proc/self/smaps_rollup") as status:
        return int(status.read().partition("\\nAnonymous:")[2].split()[0]) / 1024

compute, x = torch.nn.Linear(16, 16), torch.ones(1100, 16)
torch.set_grad_enabled(False)
for rows in range(1, 300):
    compute(x[:rows])
before = held()
for rows in range(300, 1100):
    compute(x[:rows])
print(held() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks for memory as Linux tells it")
def test_many_numbers_of_rows_use_limited_memory() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in torch_private.KERNELS_KEPT}
    done = subprocess.run([sys.executable, "-c", GROWTH], env=environment, capture_output=True, text=True)
    assert float(done.stdout) < 60, done.stderr


def test_the_users_limit_of_kernels_has_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    torch_private.keep_few_kernels()
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    assert int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) <= 256
