"""The moving average of the weights: its values, its use in validation, and how it resumes."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.model_folder import Identity, read_model
from nmt_cli.data.dataset import Dataset
from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.training.config import ValidationConfig
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.tracking.events import Validated
from nmt_cli.training.validation.metrics import Judge
from tests.training.runs import Go

CPU = torch.device("cpu")
AVERAGING = ("optimizer.ema=0.9", "training.max_steps=6", "schedule.warmup=3")


def of(folder: Path, name: str = "ema") -> dict[str, torch.Tensor]:
    return load_file(folder / f"{name}.safetensors")


def test_it_is_the_weights_with_less_and_less_of_the_older_ones(identity: Identity) -> None:
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


def test_the_model_has_its_own_weights_back_bit_by_bit_even_after_an_error(identity: Identity) -> None:
    model = identity.build()
    ema = Ema(model, decay=0.9)
    for parameter in model.parameters():
        parameter.data.normal_()
    own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with pytest.raises(ZeroDivisionError), ema.in_place():
        assert all(torch.equal(p, ema.tensors[name]) for name, p in model.named_parameters())
        1 / 0  # noqa: B018
    assert all(torch.equal(p, own[name]) for name, p in model.named_parameters())


def test_a_checkpoint_has_it_beside_the_weights_and_training_is_as_without(go: Go, tmp_path: Path) -> None:
    go(*AVERAGING, out=tmp_path / "with")
    go(*AVERAGING[1:], out=tmp_path / "without")
    plain, averaging = (checkpoints(tmp_path / name)[6] for name in ("without", "with"))
    assert not (plain / "ema.safetensors").exists()
    assert (plain / "model.safetensors").read_bytes() == (averaging / "model.safetensors").read_bytes()
    weights, mean = of(averaging, "model"), of(averaging)
    assert mean.keys() == weights.keys()
    assert {name: tensor.shape for name, tensor in mean.items()} == {n: t.shape for n, t in weights.items()}
    assert not any(torch.equal(mean[name], weights[name]) for name in mean)


def test_the_average_is_restored(go: Go, tmp_path: Path) -> None:
    go(*AVERAGING, out=tmp_path / "whole")
    go(*AVERAGING, "training.max_steps=2", out=tmp_path / "parts")
    go(*AVERAGING, out=tmp_path / "parts")
    whole, parts = (of(checkpoints(tmp_path / name)[6]) for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_run_may_begin_to_average_on_its_way(go: Go, run: Path) -> None:
    quick = "schedule.warmup=3"
    go("training.max_steps=2", quick)
    start = of(checkpoints(run)[2], "model")
    go("training.max_steps=3", "optimizer.ema=0.9", quick)
    weights, mean = of(checkpoints(run)[3], "model"), of(checkpoints(run)[3])
    share = 1 - 4 / 13
    assert max(float((weights[name] - start[name]).abs().max()) for name in mean) > 1e-2
    for name in mean:
        expected = torch.lerp(start[name], weights[name], share)
        torch.testing.assert_close(mean[name], expected, rtol=1e-6, atol=1e-7)


def judged(dataset: Dataset, identity: Identity, folder: Path, name: str) -> float:
    """Return the NLL of the first validation set with the weights in a file."""
    model = identity.build()
    for key, parameter in model.named_parameters():
        parameter.data.copy_(of(folder, name)[key])
    group = Group(Process(), CPU, timeout=0.0)
    judge = Judge(
        dataset,
        identity.tokenizers,
        ValidationConfig(),
        TranslateConfig(),
        group,
        MixedPrecision("fp32", CPU),
    )
    return judge.judge(model, judge.sets[0]).nll


@pytest.mark.slow
@pytest.mark.parametrize(("ema", "decoded"), [(0.9, "ema"), (0.0, "weights")])
def test_validation_uses_the_average_and_reports_that(
    go: Go, run: Path, dataset: Dataset, identity: Identity, ema: float, decoded: str
) -> None:
    _, events = go(*AVERAGING, f"optimizer.ema={ema}", "validation.every_steps=6")
    (event,) = (event for event in events if isinstance(event, Validated))
    assert event.decoded == decoded
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["decoded"] for line in log if "valid" in line] == [decoded]
    file = {"ema": "ema", "weights": "model"}[decoded]
    assert event.judgements[0].nll == judged(dataset, identity, checkpoints(run)[6], file)


def test_the_model_that_is_read_from_a_run_is_the_one_that_was_judged(go: Go, run: Path) -> None:
    go(*AVERAGING)
    folder = checkpoints(run)[6]
    read = dict(read_model(folder).transformer.named_parameters())
    assert all(torch.equal(read[name], tensor) for name, tensor in of(folder).items())


@pytest.mark.parametrize("ema", ["-0.1", "1.0"])
def test_an_invalid_decay_is_refused(go: Go, ema: str) -> None:
    with pytest.raises(UserError, match=r"ema must be at least 0 and less than 1 \(got"):
        go(f"optimizer.ema={ema}")
