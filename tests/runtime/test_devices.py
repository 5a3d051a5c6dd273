"""Devices are chosen as requested, on machines with any number of GPUs."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt_cli.errors import Caution, UserError
from nmt_cli.runtime import devices
from nmt_cli.runtime.devices import (
    autocast,
    current,
    device_of_rank,
    first_devices,
    gpu_name,
    processor_name,
    start_of_workers,
    synchronize,
    training_precisions,
    translating_precisions,
    usable_devices,
    usual_training_precision,
    usual_translating_precision,
)
from nmt_cli.runtime.kernels import torch_private
from nmt_cli.runtime.memory import has_own_memory, peak_memory, release_unused
from nmt_cli.setting_values import shown

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
NO_GPU = "this machine has no GPU that PyTorch can use. Use --device cpu."


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[torch.device]]:
    """Return a function that simulates a number of GPUs, and returns a list of the GPUs made current."""

    def gpus(
        count: int,
        *,
        bf16: bool = True,
        emulated: bool = True,
        capability: tuple[int, int] = (9, 0),
        built: str = "",
    ) -> list[torch.device]:
        made_current: list[torch.device] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", made_current.append)
        monkeypatch.setattr(torch.cuda, "get_arch_list", built.split)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100")
        monkeypatch.setattr(torch, "__version__", "2.11.0")
        monkeypatch.setattr(os, "environ", {})
        supported = lambda including_emulation=True: bf16 or (emulated and including_emulation)  # noqa: E731
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        return made_current

    return gpus


@pytest.mark.parametrize(
    ("kind", "gpu_count", "expected"),
    [
        ("auto", 0, ["cpu"]),
        ("cpu", 0, ["cpu"]),
        ("cpu", 2, ["cpu"]),
        ("auto", 2, ["cuda:0", "cuda:1"]),
        ("cuda", 1, ["cuda:0"]),
    ],
)
def test_devices_of_the_requested_kind_are_listed(
    gpus: Callable[..., object], kind: str, gpu_count: int, expected: list[str]
) -> None:
    gpus(gpu_count)
    assert [str(device) for device in usable_devices(kind)] == expected
    assert [str(device) for device in first_devices(kind, 1)] == expected[:1]


GOT = "--device must be auto, cpu, cuda or cuda:N (got {})."


@pytest.mark.parametrize("kind", ["cpu", "cpu:0", CPU], ids=repr)
def test_the_cpu_is_named_as_for_pytorch(gpus: Callable[..., object], kind: str | torch.device) -> None:
    gpus(2)
    assert usable_devices(kind) == first_devices(kind, 1) == [device_of_rank(kind, 1)] == [CPU]


@pytest.mark.parametrize("kind", ["cuda:1", torch.device("cuda:1")], ids=repr)
def test_a_numbered_gpu_is_that_gpu(gpus: Callable[..., object], kind: str | torch.device) -> None:
    made_current = gpus(3)
    second = torch.device("cuda", 1)
    assert usable_devices(kind) == first_devices(kind, 1) == [second]
    assert [device_of_rank(kind, 0)] == made_current == [second]


@pytest.mark.parametrize("kind", ["gpu", "banana", "CPU", "mps", "cuda:", "cuda:x", "", "a" * 200, None, 1.5])
def test_any_other_device_is_refused(gpus: Callable[..., object], kind: Any) -> None:
    for count in (0, 2):
        gpus(count)
        for take in (
            usable_devices,
            lambda kind: first_devices(kind, 1),
            lambda kind: device_of_rank(kind, 0),
        ):
            with pytest.raises(UserError) as caught:
                take(kind)
            assert caught.value.args == (GOT.format(shown(kind)),)


@pytest.mark.parametrize(
    ("gpu_count", "take", "message"),
    [
        (0, lambda: usable_devices("cuda:0"), NO_GPU),
        (2, lambda: usable_devices("cuda:2"), "this machine has no cuda:2. Use --device cuda:0 or cuda:1."),
        (
            2,
            lambda: first_devices("cuda:1", 2),
            "--device cuda:1 is one GPU. With --devices 2, use --device cuda.",
        ),
        (
            2,
            lambda: device_of_rank("cuda:0", 1),
            "--device cuda:0 is one GPU, but each process needs its own. Use --device cuda.",
        ),
    ],
)
def test_a_numbered_gpu_that_is_missing_or_needed_twice_is_an_error(
    gpus: Callable[..., object], gpu_count: int, take: Callable[[], object], message: str
) -> None:
    gpus(gpu_count)
    with pytest.raises(UserError) as caught:
        take()
    assert caught.value.args == (message,)


WHEEL = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
LINE = (
    "PyTorch 2.11.0 has no code for Tesla V100 (compute capability {}). Install one that has: pip install {}"
)
OLDER = "torch --index-url https://download.pytorch.org/whl/cu126"


@pytest.mark.parametrize(
    ("capability", "built", "remedy"),
    [
        ((7, 0), WHEEL, OLDER),
        ((6, 1), f"{WHEEL} compute_120", OLDER),
        ((7, 5), WHEEL, ""),
        ((8, 9), WHEEL, ""),
        ((10, 3), WHEEL, ""),
        ((11, 0), WHEEL, "--upgrade torch"),
        ((12, 1), "sm_90 sm_120a", "--upgrade torch"),
        ((12, 1), "sm_90 compute_90", ""),
        ((9, 0), "sm_90a", ""),
        ((9, 4), "gfx90a gfx942", ""),
    ],
)
def test_auto_takes_the_cpu_if_pytorch_has_no_code_for_the_gpu(
    gpus: Callable[..., object], capability: tuple[int, int], built: str, remedy: str
) -> None:
    gpus(1, capability=capability, built=built)
    devices._warn_once.cache_clear()
    if not remedy:
        assert usable_devices("auto") == usable_devices("cuda") == [GPU]
        return
    line = LINE.format(".".join(map(str, capability)), remedy)
    with pytest.warns(Caution) as caught:
        assert usable_devices("auto") == usable_devices("auto") == [CPU]
    assert [str(each.message) for each in caught] == [f"{line}. The CPU is used"]
    with pytest.raises(UserError) as refused:
        usable_devices("cuda")
    assert refused.value.args == (f"{line}. Use --device cpu.",)


def test_memory_segments_grow_unless_the_user_configures_the_allocator(gpus: Callable[..., object]) -> None:
    for count, kind, before, after in (
        (1, "auto", {}, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        (1, "auto", {"PYTORCH_ALLOC_CONF": "backend:native"}, {"PYTORCH_ALLOC_CONF": "backend:native"}),
        (1, "cuda", {"PYTORCH_CUDA_ALLOC_CONF": ""}, {"PYTORCH_CUDA_ALLOC_CONF": ""}),
        (1, "cpu", {}, {}),
        (0, "auto", {}, {}),
    ):
        gpus(count)
        os.environ.update(before)
        usable_devices(kind)
        assert os.environ == after


@pytest.mark.parametrize(
    ("kind", "gpu_count", "count", "message"),
    [
        ("cuda", 0, 1, NO_GPU),
        ("cuda", 0, 3, NO_GPU),
        ("cuda", 2, 3, "--devices must be at most 2, the number of GPUs (got 3)."),
        ("auto", 2, 3, "--devices must be at most 2, the number of GPUs (got 3)."),
        ("auto", 0, 2, "--devices 2 needs 2 GPUs. On a CPU, use --threads instead."),
        ("cpu", 4, 2, "--devices 2 needs 2 GPUs. On a CPU, use --threads instead."),
    ],
)
def test_too_many_devices_are_an_error_with_a_remedy(
    gpus: Callable[..., object], kind: str, gpu_count: int, count: int, message: str
) -> None:
    gpus(gpu_count)
    with pytest.raises(UserError) as caught:
        first_devices(kind, count)
    assert caught.value.args == (message,)


def test_each_process_has_its_own_gpu_and_all_share_the_cpu(gpus: Callable[..., list[torch.device]]) -> None:
    made_current = gpus(2)
    assert [device_of_rank("auto", rank) for rank in range(2)] == made_current == usable_devices("cuda")
    assert [device_of_rank("cpu", rank) for rank in range(5)] == [CPU] * 5
    assert len(made_current) == 2


def test_a_process_that_sees_one_gpu_takes_it(gpus: Callable[..., list[torch.device]]) -> None:
    made_current = gpus(1)
    assert [device_of_rank("auto", rank) for rank in range(3)] == made_current == [GPU] * 3


@pytest.mark.parametrize(
    ("gpu_count", "message"),
    [
        (0, NO_GPU),
        (
            2,
            "process 3 on this machine needs its own GPU, but there are 2. Use --device cpu, or fewer "
            "--devices.",
        ),
    ],
)
def test_a_process_without_a_gpu_is_an_error(
    gpus: Callable[..., object], gpu_count: int, message: str
) -> None:
    gpus(gpu_count)
    with pytest.raises(UserError) as caught:
        device_of_rank("cuda", 2)
    assert caught.value.args == (message,)


def test_a_gpu_trains_only_with_its_own_formats_and_translates_also_with_emulated_ones(
    gpus: Callable[..., object],
) -> None:
    gpus(1, bf16=True)
    assert training_precisions(GPU) == ["fp32", "tf32", "fp16", "bf16"]
    assert usual_training_precision(GPU) == "bf16"
    gpus(1, bf16=False)
    assert (training_precisions(GPU), usual_training_precision(GPU)) == (["fp32", "fp16"], "fp16")
    assert translating_precisions(GPU) == ["fp32", "fp16", "bf16"]
    gpus(1, bf16=False, emulated=False)
    assert translating_precisions(GPU) == ["fp32", "fp16"]
    assert usual_translating_precision(GPU) == "fp16"


@pytest.mark.parametrize("bf16", [True, False])
@pytest.mark.parametrize("numba", [True, False])
def test_a_cpu_translates_in_fp32_and_the_formats_of_its_kernels(
    monkeypatch: pytest.MonkeyPatch, bf16: bool, numba: bool
) -> None:
    monkeypatch.setattr(torch_private, "multiplies_bf16", lambda: bf16)
    monkeypatch.setattr(devices, "find_spec", lambda name: name if numba else None)
    assert translating_precisions(CPU) == ["fp32", *["bf16"] * bf16, *["int8"] * numba]
    assert usual_translating_precision(CPU) == "fp32"


@pytest.mark.parametrize(("faster", "usual"), [(True, "bf16"), (False, "fp32")])
def test_a_cpu_trains_in_bf16_if_that_is_faster(
    monkeypatch: pytest.MonkeyPatch, faster: bool, usual: str
) -> None:
    monkeypatch.setattr(torch_private, "trains_faster_in_bf16", lambda: faster)
    assert (training_precisions(CPU), usual_training_precision(CPU)) == (["fp32", "bf16"], usual)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_have_the_dtype_of_autocast(dtype: torch.dtype) -> None:
    x = torch.ones(2, 2)
    with autocast(CPU, dtype):
        assert (x @ x).dtype == dtype
    assert (x @ x).dtype == torch.float32


def test_a_cpu_has_a_name_and_shares_the_hosts_memory() -> None:
    assert gpu_name(CPU) is None
    assert processor_name()
    assert not has_own_memory(CPU)
    assert peak_memory(CPU) > 10_000_000
    with current(CPU):
        synchronize(CPU)
        release_unused(CPU)


@pytest.mark.parametrize(("platform", "expected"), [("linux", "fork"), ("darwin", None)])
def test_workers_of_gpus_are_spawned_and_those_of_a_cpu_are_forks_on_linux(
    monkeypatch: pytest.MonkeyPatch, platform: str, expected: str | None
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    assert start_of_workers(CPU) == expected
    assert start_of_workers(GPU) == "spawn"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_has_a_name_and_its_own_memory() -> None:
    x = torch.ones(1 << 20, device=GPU)
    with current(GPU):
        synchronize(GPU)
    assert gpu_name(GPU)
    assert has_own_memory(GPU)
    assert peak_memory(GPU) >= x.nbytes
    reserved = torch.cuda.memory_reserved(GPU)
    del x
    release_unused(GPU)
    assert torch.cuda.memory_reserved(GPU) < reserved
