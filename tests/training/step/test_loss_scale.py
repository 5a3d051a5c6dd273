"""The loss scale of fp16 is halved, doubled and restored."""

import pytest
import torch

from nmt_cli.training.step import trainer as step_module
from nmt_cli.training.step.trainer import LossScale, MixedPrecision

CPU = torch.device("cpu")


def test_the_loss_scale_halves_at_a_bad_step_and_doubles_after_many_good_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_module, "GROWTH_STEPS", 3)
    scale = LossScale(MixedPrecision("fp16", CPU))
    seen = []
    for bad in (0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1):
        scale.update(torch.tensor(float(bad)))
        seen.append(scale.scale.item() / step_module.FIRST_SCALE)
    assert seen == [1, 1, 2, 2, 2, 1, 1, 1, 2, 1, 0.5]


def test_the_loss_scale_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "GROWTH_STEPS", 3)
    before, after = (LossScale(MixedPrecision("fp16", CPU)) for _ in range(2))
    for bad in (1.0, 0.0, 0.0):
        before.update(torch.tensor(bad))
    after.restore({name: tensor.clone() for name, tensor in before.tensors().items()})
    for scale in (before, after):
        scale.update(torch.zeros(()))
    assert before.scale.item() == after.scale.item() == step_module.FIRST_SCALE


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_without_fp16_there_is_no_loss_scale(precision: str) -> None:
    scale = LossScale(MixedPrecision(precision, CPU))
    scale.restore({"loss_scale": torch.tensor(8.0), "loss_scale.good_steps": torch.tensor(1)})
    scale.update(torch.ones(()))
    assert (scale.scale.item(), scale.tensors()) == (1.0, {})
