"""The public function of the loss: invalid and unusual inputs, and compilation."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt_cli.loss import plain_loss
from nmt_cli.loss.chunked_loss import cross_entropy

Batch = tuple[Tensor, Tensor, Tensor]


@pytest.mark.parametrize(
    ("features", "weights", "targets", "smoothing", "expected"),
    [
        ((3, 4), (5, 6), (3,), 0.1, r"features \(3, 4\) do not fit weights \(5, 6\)"),
        ((4,), (5, 4), (4,), 0.1, r"features \(4,\) do not fit"),
        ((3, 4), (4,), (3,), 0.1, r"do not fit weights \(4,\)"),
        ((3, 4), (5, 4), (2,), 0.1, r"3 tokens, but targets of shape \(2,\)"),
        ((3, 4), (5, 4), (3, 1), 0.1, r"3 tokens, but targets of shape \(3, 1\)"),
        ((3, 4), (5, 4), (3,), 1.0, r"smoothing is 1.0, not in \[0, 1\)"),
        ((3, 4), (5, 4), (3,), -0.1, r"smoothing is -0.1, not in \[0, 1\)"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    features: tuple[int, ...],
    weights: tuple[int, ...],
    targets: tuple[int, ...],
    smoothing: float,
    expected: str,
) -> None:
    with pytest.raises(ValueError, match=expected):
        cross_entropy(
            torch.zeros(features), torch.zeros(weights), torch.zeros(targets).long(), smoothing=smoothing
        )


@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_targets_may_be_integers_of_any_kind(kind: torch.dtype, random_batch: Callable[..., Batch]) -> None:
    x, weight, targets = random_batch(5, 7, 4, torch.float64)
    expected = plain_loss.cross_entropy(x, weight, targets, smoothing=0.1)
    torch.testing.assert_close(cross_entropy(x, weight, targets.to(kind), smoothing=0.1), expected)


@pytest.mark.parametrize("target", [-2, 7])
def test_a_target_outside_of_the_vocabulary_is_an_error(
    target: int, random_batch: Callable[..., Batch]
) -> None:
    x, weight, targets = random_batch(5, 7, 4, torch.float32)
    targets[3] = target
    with pytest.raises(RuntimeError, match="out of bounds"):
        cross_entropy(x, weight, targets, smoothing=0.1)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # PyTorch's compiler uses it
def test_the_loss_is_compiled_without_a_graph_break(
    random_batch: Callable[..., Batch], differentiated: Callable[..., list[Tensor]]
) -> None:
    def step(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
        def losses(x: Tensor, weight: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
            smoothed, nll = function(x.tanh(), weight, targets, smoothing=0.1, grad_scale=scale)
            return smoothed * scale, nll

        return losses

    compiled = torch.compile(step(cross_entropy), fullgraph=True, dynamic=True, backend="aot_eager")
    scale = torch.tensor(3.0)
    for tokens in (5, 9):
        batch = random_batch(tokens, 7, 4, torch.float64, 4)
        expected = differentiated(step(plain_loss.cross_entropy), *batch, scale=scale)
        actual = differentiated(compiled, *batch, scale=scale)
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
