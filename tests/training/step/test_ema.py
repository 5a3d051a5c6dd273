"""The moving average of the weights: its values, its use in validation, and how it resumes."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.model_folder import Identity, load_weights, read_model, weights
from nmt_cli.data.dataset import Dataset
from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.training.config import ValidationConfig
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.tracking.events import Validated
from nmt_cli.training.validation.judge import Judge
from tests.checks import differing
from tests.training.runs import Complaint, Go, lines_of, tensors_of

CPU = torch.device("cpu")
AVERAGING = ("optimizer.ema=0.9", "training.max_steps=6", "schedule.warmup=3")


def test_the_average_equals_its_definition_in_float64(identity: Identity) -> None:
    model = identity.build().double()
    ema, parameters = Ema(model, decay=0.3), dict(model.named_parameters())
    exact = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for step in range(1, 6):
        for parameter in parameters.values():
            parameter.data.normal_()
        ema.update(step)
        decay = min(0.3, (1 + step) / (10 + step))
        exact = {name: decay * exact[name] + (1 - decay) * parameters[name].detach() for name in exact}
    for name, mean in ema.tensors.items():
        torch.testing.assert_close(mean, exact[name], rtol=1e-12, atol=1e-12)


def test_the_weights_are_restored_bit_by_bit_even_after_an_error(identity: Identity) -> None:
    model = identity.build()
    ema = Ema(model, decay=0.9)
    for parameter in model.parameters():
        parameter.data.normal_()
    own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with pytest.raises(ZeroDivisionError), ema.in_place():
        assert not differing(weights(model), ema.tensors)
        1 / 0  # noqa: B018
    assert not differing(weights(model), own)


def test_a_checkpoint_stores_the_average_and_training_does_not_change(go: Go, tmp_path: Path) -> None:
    go(*AVERAGING, out=tmp_path / "with")
    go(*AVERAGING[1:], out=tmp_path / "without")
    assert not (tmp_path / "without/last/ema.safetensors").exists()
    own, mean = tensors_of(tmp_path / "with"), tensors_of(tmp_path / "with", "ema")
    assert not differing(own, tensors_of(tmp_path / "without"))
    assert {name: tensor.shape for name, tensor in mean.items()} == {n: t.shape for n, t in own.items()}
    assert differing(mean, own) == own.keys()


def test_a_resumed_run_can_start_to_average(go: Go, run: Path) -> None:
    quick = "schedule.warmup=3"
    go("training.max_steps=2", quick)
    start = tensors_of(run)
    go("training.max_steps=3", "optimizer.ema=0.9", quick)
    end, mean = tensors_of(run), tensors_of(run, "ema")
    assert max(float((end[name] - start[name]).abs().max()) for name in mean) > 1e-2
    for name in mean:
        expected = torch.lerp(start[name], end[name], 1 - 4 / 13)
        torch.testing.assert_close(mean[name], expected, rtol=1e-6, atol=1e-7)


def judged(dataset: Dataset, identity: Identity, tensors: Mapping[str, torch.Tensor]) -> float:
    """Return the NLL of the first validation set with the weights `tensors`."""
    model = identity.build()
    load_weights(model, tensors, Path())
    settings = ValidationConfig(), TranslateConfig(), Group(Process(), CPU, timeout=0.0)
    judge = Judge(dataset, identity.tokenizers, *settings, MixedPrecision("fp32", CPU))
    return judge.judge(model, judge.dataset.valid_sets[0]).nll


@pytest.mark.slow
@pytest.mark.parametrize(("ema", "decoded"), [(0.9, "ema"), (0.0, "weights")])
def test_validation_uses_the_average_and_reports_that(
    go: Go, run: Path, dataset: Dataset, identity: Identity, ema: float, decoded: str
) -> None:
    _, events = go(*AVERAGING, f"optimizer.ema={ema}", "validation.every_steps=6")
    (event,) = (event for event in events if isinstance(event, Validated))
    assert event.decoded == decoded
    assert [line["decoded"] for line in lines_of(run) if "valid" in line] == [decoded]
    file = {"ema": "ema", "weights": "model"}[decoded]
    # Training multiplies by oneDNN, which rounds differently. With seed 2, losses differ by 1e-7.
    expected = pytest.approx(judged(dataset, identity, tensors_of(run, file)), rel=1e-6)
    assert event.judgements[0].nll == expected
    assert file == "model" or judged(dataset, identity, tensors_of(run)) != expected


def test_the_model_of_a_run_is_the_average_that_was_validated(go: Go, run: Path) -> None:
    go(*AVERAGING)
    assert not differing(weights(read_model(run / "last").transformer), tensors_of(run, "ema"))


@pytest.mark.parametrize("ema", ["-0.1", "1.0"])
def test_an_invalid_decay_is_refused(complaint: Complaint, ema: str) -> None:
    assert "ema must be at least 0 and less than 1 (got" in complaint(f"optimizer.ema={ema}")
