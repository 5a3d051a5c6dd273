"""Deterministic runs give the same bits, or name the operation that cannot."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.model.transformer import Transformer
from nmt_cli.training.setup.checks import deterministic_size
from nmt_cli.training.setup.deterministic import repeatable
from nmt_cli.training.tracking.events import Event, Progress
from tests.checks import refusal
from tests.training.runs import Complaint, Go, NewRun

DETERMINISTIC = "training.deterministic=true"


@pytest.fixture
def with_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add an operation to the model that PyTorch lists as not deterministic."""
    forward = Transformer.forward

    def putting(self: Transformer, *arguments: Any) -> torch.Tensor:
        torch.zeros(3).put_(torch.tensor([0]), torch.tensor([1.0]))
        return forward(self, *arguments)

    monkeypatch.setattr(Transformer, "forward", putting)


@pytest.mark.usefixtures("with_put")
def test_an_operation_that_varies_is_named_before_the_first_step(
    go: Go, run: Path, tmp_path: Path, complaint: Complaint
) -> None:
    problem = "put_ gives other bits each time on cpu, and this run needs it. "
    assert complaint(DETERMINISTIC).startswith(problem)
    assert (run / "log.jsonl").read_bytes() == b""
    assert go(out=tmp_path / "other")[0]


def test_pytorch_refuses_varying_operations_only_during_the_run(go: Go) -> None:
    seen = []

    def look(event: Event) -> None:
        if isinstance(event, Progress):
            seen.append(torch.are_deterministic_algorithms_enabled())

    go(DETERMINISTIC, report=look)
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


def test_deterministic_runs_have_equal_bits(go: Go, tmp_path: Path) -> None:
    dropping = ("model.residual_dropout=0.2", "model.attention_dropout=0.2", "optimizer.ema=0.9")
    for name in ("a", "b"):
        go(DETERMINISTIC, *dropping, out=tmp_path / name)
    for file in ("model.safetensors", "ema.safetensors", "optimizer.safetensors"):
        a, b = ((tmp_path / name / "last" / file).read_bytes() for name in ("a", "b"))
        assert a == b


def test_a_search_for_the_tokens_that_fit_a_gpu_is_refused(new_run: NewRun) -> None:
    message = refusal(deterministic_size, new_run(DETERMINISTIC, device="cuda"))
    assert message.startswith("--deterministic needs --max-tokens-per-device on a GPU")
    limit = "training.max_tokens_per_device=100"
    deterministic_size(new_run(DETERMINISTIC, limit, device="cuda"))
    deterministic_size(new_run(device="cuda"))
    with repeatable(new_run(DETERMINISTIC, limit, device="cuda")):
        assert torch.are_deterministic_algorithms_enabled()
    with repeatable(new_run(device="cuda")):
        assert not torch.are_deterministic_algorithms_enabled()


def test_a_step_that_runs_out_of_memory_is_halved(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Transformer.forward
    tight = [False]

    def short_of_memory(self: Transformer, source: torch.Tensor, *rest: Any) -> torch.Tensor:
        if tight[0] and len(source) > 100:
            raise RuntimeError("can't allocate memory")
        return forward(self, source, *rest)

    def from_the_second_step_on(event: Event) -> None:
        tight[0] = tight[0] or isinstance(event, Progress)

    monkeypatch.setattr(Transformer, "forward", short_of_memory)
    assert go(DETERMINISTIC, "training.log_every=1", report=from_the_second_step_on)[0]
