"""A run on a CPU keeps its precision when it resumes, whatever "auto" would give by then."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmt_cli.checkpoints.finding import CONFIG, WEIGHTS, checkpoints
from nmt_cli.checkpoints.run_folder import OPTIMIZER, STATE, read_state
from nmt_cli.checkpoints.verified_files import write_description
from nmt_cli.runtime.kernels import torch_private
from tests.training.runs import Go, notes

AUTO = "training.precision=auto"


def precisions(run: Path) -> list[str]:
    """Return the precision in each line of the record of the environment."""
    lines = (run / "environment.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["precision"] for line in lines]


def change_state(run: Path, without: Sequence[str] = (), **changes: object) -> None:
    """Change entries of the newest checkpoint's `state.json`."""
    newest = [*checkpoints(run).values()][-1]
    state = {name: value for name, value in (read_state(newest) | changes).items() if name not in without}
    write_description(newest, STATE, state, covers=[OPTIMIZER, CONFIG])


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list whose last item says whether bf16 is faster than fp32."""
    answers = [False]
    monkeypatch.setattr(torch_private, "trains_faster_in_bf16", lambda: answers[-1])
    return answers


@pytest.mark.parametrize("first", [True, False])
def test_a_resumed_run_keeps_its_precision_until_it_is_set(
    go: Go, run: Path, faster: list[bool], first: bool
) -> None:
    before, other = ("bf16", "fp32") if first else ("fp32", "bf16")
    faster.append(first)
    go(AUTO, "training.max_steps=1")
    faster.append(not first)
    go(AUTO, "training.max_steps=2")
    _, events = go(AUTO, "training.max_steps=3", "training.log_every=7")
    changes = [text for text in notes(events) if text.startswith("changed: ")]
    assert changes == [
        "changed: training.max_steps: 2 -> 3",
        "changed: training.log_every: 100 -> 7",
    ]
    assert {*precisions(run)} == {before}
    assert 'precision = "auto"' in (run / "config.toml").read_text("utf-8")
    go(f"training.precision={other}", "training.max_steps=4")
    assert precisions(run)[-1] == other


@pytest.mark.parametrize(("first", "kept"), [("auto", "fp32"), ("bf16", "bf16"), ("fp32", "fp32")])
def test_a_run_of_an_older_version_keeps_what_its_settings_meant(
    go: Go, run: Path, faster: list[bool], first: str, kept: str
) -> None:
    go(f"training.precision={first}", "training.max_steps=1")
    change_state(run, without=("precision", "device"))
    faster.append(kept == "fp32")
    go(AUTO, "training.max_steps=2")
    assert precisions(run)[-1] == kept


@pytest.mark.parametrize("change", [{"device": "cuda"}, {"precision": "fp8"}, {"precision": [None]}], ids=str)
def test_a_precision_of_a_gpu_or_an_unknown_one_is_not_kept(
    go: Go, run: Path, faster: list[bool], change: dict[str, object]
) -> None:
    go(AUTO, "training.max_steps=1")
    change_state(run, (), **change)
    faster.append(True)
    go(AUTO, "training.max_steps=2")
    assert precisions(run)[-1] == "bf16"


def test_a_new_run_with_bf16_repeats_bit_by_bit(
    go: Go, run: Path, faster: list[bool], tmp_path: Path
) -> None:
    faster.append(True)
    for out in (run, tmp_path / "again"):
        go(AUTO, "training.deterministic=true", "training.max_steps=2", out=out)
    ours, again = ((checkpoints(out)[2] / WEIGHTS).read_bytes() for out in (run, tmp_path / "again"))
    assert ours == again and precisions(run) == ["bf16"]
