"""Trials pass for right kernels of all presets, and show what is wrong with others."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.config import preset_names, preset_path, read
from nmt_cli.model import kernel_trials
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.kernel_trials import TRIALS, Use, disagreement
from nmt_cli.training.config import TrainConfig

pytest.importorskip("triton")
from nmt_cli.attention import gpu_attention
from nmt_cli.loss import gpu_row_losses as loss

# The loss computes with the padding of rows, which is arbitrary, and NumPy warns in Triton's interpreter.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TINY = ModelConfig(width=32, heads=2, feed_forward=40, attention_dropout=0.1)
ATTEND = gpu_attention.attend_projected


def problems(family: str, use: Use) -> list[str]:
    return [disagreement(*computed, use.dtype) for computed in TRIALS[family](use, DEVICE)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_right_kernels_pass_with_the_widths_of_every_preset(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_trials, "LENGTHS", (17, 100, 130))  # a small tile, a large one, blocks
    for width in {read(TrainConfig, preset_path(name)).model.d_k for name in preset_names()}:
        model = ModelConfig(width=width, heads=1, feed_forward=40)
        assert problems("attention", Use(model, dtype, 300, 0.1)) == ["", ""]


@pytest.mark.parametrize("family", TRIALS)
def test_right_kernels_pass_in_training_and_in_translation(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_trials, "LENGTHS", (1, 5, 20))
    for smoothing in (0.1, 0.0, None):
        found = problems(family, Use(TINY, torch.float16, 100, smoothing))
        assert found and not any(found)


def _one_percent_more(projections: Sequence[Tensor], heads: Any, *batch: Any) -> Tensor:
    """Attend, with gradients of the keys that are 1 % too large."""
    size = heads.number * heads.keys
    for x in projections:
        columns = torch.arange(x.shape[1], device=x.device)
        keys = (columns >= size) & (columns < 2 * size) if len(projections) == 1 else columns < size
        if x.requires_grad and (len(projections) == 1 or x is projections[1]):
            x.register_hook(lambda grad, keys=keys: torch.where(keys, 1.01 * grad, grad))  # type: ignore[no-untyped-call]
    return ATTEND(projections, heads, *batch)


def _with_nan(*arguments: Any) -> Tensor:
    return ATTEND(*arguments).index_fill(0, torch.tensor([3], device=DEVICE), torch.nan)


def _varying(*arguments: Any) -> Tensor:
    out = ATTEND(*arguments)
    return out * (1 + 1e-3 * torch.rand_like(out))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("attend", "problem"),
    [
        (_one_percent_more, "its gradient of keys is wrong"),
        (_with_nan, "its output is not finite"),
        (_varying, "its output differs between two runs"),
    ],
)
def test_wrong_attention_is_noticed(
    attend: Callable[..., Tensor], problem: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_trials, "LENGTHS", (1, 5, 20))
    monkeypatch.setattr(gpu_attention, "attend_projected", attend)
    assert problems("attention", Use(TINY, dtype, 100, 0.1)) == [problem, problem]


def test_a_wrong_row_of_the_loss_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = loss.rows

    def wrong(logits: Tensor, targets: Tensor, losses: Tensor, *rest: Any) -> None:
        rows(logits, targets, losses, *rest)
        losses[0, 5] *= 1.2

    monkeypatch.setattr(loss, "rows", wrong)
    found = problems("loss", Use(TINY, torch.float32, 100, 0.1))
    assert found == ["its loss is wrong", "its sum of losses is wrong"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_one_percent_is_noticed_in_every_result_of_every_kernel(dtype: torch.dtype) -> None:
    """Let PyTorch's own results stand in for a kernel's, which are as exact."""
    use = Use(TINY, dtype, 500, 0.1)
    for plain in (each[1] for family in TRIALS for each in TRIALS[family](use, DEVICE)):
        assert disagreement(plain, plain, dtype) == ""
        for name in plain(dtype):

            def wrong(
                dtype: torch.dtype, name: str = name, plain: kernel_trials.Compute = plain
            ) -> kernel_trials.Results:
                return {key: x * 1.01 if key == name else x for key, x in plain(dtype).items()}

            assert disagreement(wrong, plain, dtype) == f"its {name} is wrong"
