"""Deterministic runs give the same bits or name the operation that cannot. Environments are stored."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.setup.deterministic import repeatable
from nmt_cli.training.tracking.environment import keep_environment
from nmt_cli.training.tracking.events import Event, Progress, Warned
from tests.training.runs import Go, warnings

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
def test_an_operation_that_varies_is_named_before_the_first_step(go: Go, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        go(DETERMINISTIC)
    assert str(caught.value).startswith("put_ gives other bits each time on cpu, and this run needs it; ")
    assert (tmp_path / "run/log.jsonl").read_bytes() == b""
    assert go(out=tmp_path / "other")[0]


def test_only_while_it_runs_does_pytorch_refuse(go: Go) -> None:
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


def test_a_search_for_the_tokens_that_fit_a_gpu_is_refused(tiny: Callable[..., TrainConfig]) -> None:
    cuda = torch.device("cuda")
    with (
        pytest.raises(UserError, match="--deterministic needs --max-tokens-per-device on a GPU"),
        repeatable(tiny(DETERMINISTIC), cuda),
    ):
        pass
    with repeatable(tiny(DETERMINISTIC, "training.max_tokens_per_device=100"), cuda):
        assert torch.are_deterministic_algorithms_enabled()
    with repeatable(tiny(), cuda):
        assert not torch.are_deterministic_algorithms_enabled()


def test_a_step_that_runs_out_of_memory_is_not_cut_in_smaller_parts(
    go: Go, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forward = Transformer.forward
    tight = [False]

    def short_of_memory(self: Transformer, source: torch.Tensor, *rest: Any) -> torch.Tensor:
        if tight[0] and len(source) > 100:
            raise RuntimeError("can't allocate memory")
        return forward(self, source, *rest)

    def from_the_second_step_on(event: Event) -> None:
        tight[0] = tight[0] or isinstance(event, Progress)

    monkeypatch.setattr(Transformer, "forward", short_of_memory)
    with pytest.raises(
        UserError, match=r"step 2 does not fit the memory of cpu, and smaller parts would give "
    ):
        go(DETERMINISTIC, "training.log_every=1", report=from_the_second_step_on)
    tight[0] = False
    assert go("training.log_every=1", report=from_the_second_step_on, out=tmp_path / "cut")[0]


def lines(run: Path) -> list[dict[str, Any]]:
    text = (run / "environment.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_versions_device_and_command_are_kept_once_while_they_stay_the_same(go: Go, tmp_path: Path) -> None:
    go("training.max_steps=2")
    go("training.max_steps=3")
    (facts,) = lines(tmp_path / "run")
    assert facts["torch"] == torch.__version__
    assert {"command", "nmt", "python", "numpy", "device", "devices", "threads"} <= facts.keys()
    assert (facts["step"], facts["devices"]) == (0, 1)
    assert facts["device"]


def test_a_change_is_kept_with_the_step_from_which_it_holds(tmp_path: Path) -> None:
    for step, torch_version in ((0, "2.12"), (5, "2.12"), (9, "2.13")):
        keep_environment(tmp_path, step, {"torch": torch_version}, lambda message: pytest.fail(str(message)))
    assert lines(tmp_path) == [{"step": 0, "torch": "2.12"}, {"step": 9, "torch": "2.13"}]


@pytest.mark.parametrize("left", [b'{"step": 0, "tor', b"\n", b"[]\n", b'{"torch": "\xff2.12"}\n'])
def test_a_damaged_line_is_counted_and_the_run_continues(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "environment.jsonl").write_bytes(left)
    message: list[Event] = []
    for _ in range(2):
        keep_environment(tmp_path, 3, {"torch": "2.13"}, message.append)
    assert message == 2 * [
        Warned(f"{tmp_path}/environment.jsonl has damaged lines (1), which stay as they are")
    ]
    before, last = (tmp_path / "environment.jsonl").read_bytes().splitlines()
    assert (before, json.loads(last)) == (left.strip(), {"step": 3, "torch": "2.13"})


def test_a_run_whose_environment_is_damaged_resumes_with_a_warning(go: Go, run: Path) -> None:
    go("training.max_steps=1")
    (run / "environment.jsonl").write_bytes(b"\xff\n")
    complete, events = go("training.max_steps=2")
    assert complete
    assert warnings(events) == [f"{run}/environment.jsonl has damaged lines (1), which stay as they are"]
