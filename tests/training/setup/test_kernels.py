"""Kernels that fail on the GPU of a run are replaced, with one warning. Triton's interpreter stands in."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.attention import attention
from nmt_cli.model import kernel_trials, kernel_verdicts
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.kernels import families
from nmt_cli.training.setup import build
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.tracking.events import Event
from tests.checks import refusal
from tests.training.runs import Go, NewRun, lines_of, warnings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported
pytest.importorskip("triton")
from triton.runtime.errors import OutOfResources

from nmt_cli.attention import gpu_attention

Attend = Callable[..., Tensor]
ATTEND = gpu_attention.attend_projected
WARNING = "on cpu, PyTorch's own operations are used, which is slower, for attention ({})"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run attention's kernels on a CPU, try them with few tokens, and return the empty folder of verdicts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(families, "has_kernels", lambda _: True)
    monkeypatch.setattr(kernel_verdicts, "has_kernels", lambda _: True)
    monkeypatch.setattr(kernel_verdicts, "FAMILIES", ("attention",))
    monkeypatch.setattr(families, "refused", {"loss", "pointwise"})  # slow in the interpreter
    monkeypatch.setattr(kernel_trials, "LENGTHS", (1, 5, 20))
    return tmp_path / "cache" / "nmt"


def one_percent_more(projections: Sequence[Tensor], heads: Any, *batch: Any) -> Tensor:
    """Attend, with gradients that are 1 % too large."""
    out = ATTEND(projections, heads, *batch)
    if out.requires_grad:
        out.register_hook(lambda gradient: 1.01 * gradient)  # type: ignore[no-untyped-call]
    return out


def with_nan(*arguments: Any) -> Tensor:
    return ATTEND(*arguments).index_fill(0, torch.tensor([3]), torch.nan)


def varying(*arguments: Any) -> Tensor:
    out = ATTEND(*arguments)
    return out * (1 + 1e-3 * torch.rand_like(out))


def failing(error: Exception) -> Attend:
    def attend(*_: Any) -> Tensor:
        raise error

    return attend


FAULTS: Mapping[str, tuple[Attend, str]] = {
    "1 %": (one_percent_more, "its gradient of queries is wrong"),
    "NaN": (with_nan, "its output is not finite"),
    "varies": (varying, "its output differs between two runs"),
    "resources": (failing(OutOfResources(131072, 65536, "shared memory")), "OutOfResources: out of resource"),
    "no compiler": (failing(RuntimeError("Failed to find C compiler.")), "RuntimeError: Failed to find C"),
    "no Triton": (failing(ImportError("No module named triton")), "ImportError: No module named triton"),
}


@pytest.fixture
def losses(go: Go, tmp_path: Path) -> Callable[..., tuple[list[float], list[str]]]:
    """Return a function that trains three steps, and returns their losses and the warnings of the run."""

    def losses(name: str, *assignments: str) -> tuple[list[float], list[str]]:
        out = tmp_path / name
        _, events = go("training.max_steps=3", "training.compile=off", *assignments, out=out)
        return [line["loss"] for line in lines_of(out) if "loss" in line], warnings(events)

    return losses


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_warned_about_once_and_training_uses_padded_attention(
    fault: str,
    cache: Path,
    losses: Callable[..., tuple[list[float], list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(build, "failures", lambda *_: {})
        patch.setattr(attention, "implementation", lambda *_: "padded")
        expected, _ = losses("padded")
    attend, reason = FAULTS[fault]
    monkeypatch.setattr(gpu_attention, "attend_projected", attend)
    actual, texts = losses("faulty")
    assert len(actual) == 3 and actual == expected
    assert len(texts) == 1 and texts[0].startswith(WARNING.format(reason)[:-1])
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["attention"].startswith(reason)
    monkeypatch.setattr(kernel_verdicts, "TRIALS", {})
    assert losses("again") == (expected, texts)
    assert families.refused == {"loss", "pointwise"}


def test_right_kernels_are_used_without_a_warning(
    losses: Callable[..., tuple[list[float], list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(*arguments: Any) -> Tensor:
        calls.append(1)
        return ATTEND(*arguments)

    monkeypatch.setattr(gpu_attention, "attend_projected", counted)
    small = "batch.tokens=50", "training.max_steps=1"  # the interpreter is slow
    actual, texts = losses("fused", *small)
    assert texts == [] and len(calls) > 8 + 3
    used = len(calls)
    monkeypatch.setenv("NMT_KERNELS", "plain")
    plain, texts = losses("plain", *small)
    assert texts == [] and plain == pytest.approx(actual, rel=1e-5) and len(calls) == used


def test_a_lack_of_memory_passes_through(cache: Path, go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gpu_attention, "attend_projected", failing(torch.OutOfMemoryError("CUDA out of memory."))
    )
    with pytest.raises(torch.OutOfMemoryError):
        go()
    assert not cache.exists()


def test_a_deterministic_run_tries_kernels_in_the_usual_mode(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []
    noted: list[bool] = []

    def attend(*_: Any) -> Tensor:
        modes.append(torch.are_deterministic_algorithms_enabled())
        raise RuntimeError("it fails")

    monkeypatch.setattr(gpu_attention, "attend_projected", attend)
    go(
        "training.deterministic=true",
        "training.max_steps=1",
        report=lambda _: noted.append(torch.are_deterministic_algorithms_enabled()),
    )
    assert modes == [False] and noted and all(noted) and not torch.are_deterministic_algorithms_enabled()


def test_a_kernel_that_kills_the_device_ends_the_run_and_is_avoided_by_the_next(
    cache: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_attention, "attend_projected", failing(RuntimeError("illegal memory access")))
    monkeypatch.setattr(kernel_verdicts, "synchronize", failing(RuntimeError("illegal memory access")))
    monkeypatch.setattr(kernel_verdicts, "gpu_name", lambda _: "T4")
    assert refusal(go) == (
        "the attention kernel made T4 fail (RuntimeError: illegal memory access). Start again: PyTorch's own "
        "operations will be used instead."
    )
    _, events = go("training.max_steps=1")
    assert ["T4" in text and "attention (RuntimeError" in text for text in warnings(events)] == [True]


def test_all_ranks_refuse_what_any_rank_refuses(new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "refused", set())
    monkeypatch.setattr(build, "failures", lambda *_: {"loss": "its loss is wrong"})
    monkeypatch.setattr(Group, "gather", lambda _, own: [own, {"attention": "it fails"}])
    events: list[Event] = []
    with build.chosen_kernels(new_run(readers=[events.append])):
        assert families.refused == {"attention", "loss"}
    (text,) = warnings(events)
    assert "loss (its loss is wrong)" in text and "attention (it fails)" in text
    assert not families.refused


TRITON, OLD = "Triton is missing: pip install triton", "Triton needs compute capability 7.0 or more"
COMPILER = "a C compiler is missing: apt install gcc python3-dev"
CORES = "Triton uses tensor cores from compute capability 8.0 on"
ALL = ("attention", "torch.compile")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("find_spec", find_spec, {}),
        ("find_spec", lambda _: None, dict.fromkeys(ALL, TRITON)),
        ("_compiler", lambda: None, dict.fromkeys(ALL, COMPILER)),
        ("compute_capability", lambda _: (6, 1), dict.fromkeys(ALL, OLD)),
        ("compute_capability", lambda _: (7, 5), {"attention": CORES}),
        ("compute_capability", lambda _: (8, 0), {}),
    ],
)
def test_what_cannot_work_is_refused_without_a_trial(
    name: str, value: object, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_verdicts, name, value)
    use = kernel_trials.Use(ModelConfig(), torch.float16, 100, 0.1)
    assert kernel_verdicts.impossible(use, torch.device("cpu")) == expected


@pytest.mark.parametrize(("width", "refused"), [(520, True), (12, True), (512, False)])
def test_heads_that_no_kernel_takes_are_refused_without_a_trial(width: int, refused: bool) -> None:
    use = kernel_trials.Use(ModelConfig(key_width=width, value_width=8), torch.float16, 100, 0.1)
    reasons = kernel_verdicts.impossible(use, torch.device("cpu"))
    assert [f"heads have {width} and 8 channels" in text for text in reasons.values()] == [True] * refused


def test_heads_of_the_decoder_alone_may_be_refused() -> None:
    use = kernel_trials.Use(ModelConfig(decoder_heads=128), torch.float16, 100, 0.1)
    assert "heads have 4 and 4 channels" in kernel_verdicts.impossible(use, torch.device("cpu"))["attention"]


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b"[1]", b'"text"', b"\xff"])
def test_a_damaged_verdict_is_ignored(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    assert kernel_verdicts._read(path) == {}
    path.write_bytes(damage)
    assert kernel_verdicts._read(path) == {}


def test_verdicts_need_no_writable_cache(go: Go, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_verdicts, "user_cache", lambda: "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_attention, "attend_projected", failing(RuntimeError("it fails")))
    _, events = go("training.max_steps=1")
    assert len(warnings(events)) == 1 and not (tmp_path / "nmt").exists()
