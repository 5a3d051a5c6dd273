"""The half hour on a GPU: its programs run where there is none, and its report says what was missed."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from recipes.benchmarks import lengths
from recipes.benchmarks.gpu import report, step
from recipes.benchmarks.gpu.counts import attention, counts, search

HALF_HOUR = Path(report.__file__).with_name("half_hour.sh")


def test_a_report_has_prediction_measurement_and_verdict_and_says_what_is_missing(tmp_path: Path) -> None:
    measured = {"ms_a_step": 27.5, "host_ms_a_step": 12.0, "share_of_peak": {"989": 0.4, "798": 0.5}}
    (tmp_path / "base-compiled.json").write_text(json.dumps(measured))
    (tmp_path / "check.json").write_text(json.dumps({"right": False, "off_by": {}}))
    result = CliRunner().invoke(report.main, [str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "| base, compiled: ms a step | 25 to 27 | 27.5 | <= 25 | missed |" in result.output
    assert "| base, compiled: host ms a step | 13 | 12.0 | <= 15 | met |" in result.output
    assert "| base, eager: ms a step | 30 | not measured | | |" in result.output
    assert "gives: NO" in result.output
    assert (tmp_path / "report.md").read_text() == result.output


@pytest.mark.slow
def test_steps_are_measured_on_a_cpu_too_to_try_the_program(tmp_path: Path) -> None:
    out = tmp_path / "toy.json"
    result = CliRunner().invoke(step.main, [str(out), "toy", "eager", "--tokens", "100"])
    assert result.exit_code == 0, result.output
    told = json.loads(out.read_text())
    assert told["ms_a_step"] > 0
    assert 3 < told["loss"] < 10


def test_a_step_asks_for_no_more_than_it_did() -> None:
    found = counts("toy", 200)
    operations = {name: each["operations"] for name, each in found["by name"].items()}
    assert operations["attend"] == operations["attend_backward"] == 3
    # Of each matrix, and for its two gradients; those before a ReLU add bias and bend in one.
    assert operations["mm"] + operations["addmm"] + operations["relu_linear"] == 3 * 11
    assert operations["relu_linear"] == operations["relu_backward"] == 2
    assert "threshold_backward" not in operations and operations["sum"] == 2
    # Neither are gradients put together, nor are those of parameters added one by one.
    assert "cat" not in operations
    assert operations["losses_and_gradients"] == 1
    assert operations["_foreach_copy_"] == 2  # gradients of either precision to their places
    assert not {"_foreach_add_", "add_", "zero_"} & operations.keys()
    assert operations["_to_copy"] <= 21
    assert found["operations"] <= 123
    assert found["once a step"]["operations"] <= 24  # copies in half precision, the norm, the update


def test_a_step_of_the_base_model_touches_no_more_memory_than_it_did() -> None:
    found = counts("base", 25_000)
    assert found["operations"] <= 588
    assert found["GB"] <= 58.8
    narrow = counts("base", 25_000, "bf16")
    assert narrow["operations"] <= 428
    assert narrow["GB"] <= 39.3


def test_attention_is_one_launch_a_pass_unless_segments_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "WMT_PAIRS", 50_000)
    found = attention(25_000)
    launches = {name: (each["forward"], each["backward"]) for name, each in found.items()}
    for case in ("self", "causal", "cross"):
        assert launches[f"alike-short {case}"] == launches[f"alike-middle {case}"] == (1, 1)
        assert launches[f"alike-long {case}"] == (2, 2)
        assert launches[f"random {case}"] == (3, 4)
    assert found["alike-short self"]["filled"] > 0.85
    assert found["random self"]["filled"] > 0.7


def test_a_step_of_search_asks_a_gpu_for_no_more_than_it_did() -> None:
    found = search(beam=2, steps=8)
    assert found["as on a GPU"]["operations"] <= 201 < found["as on a CPU"]["operations"]


def test_the_script_says_how_it_is_used_and_is_sound() -> None:
    told = subprocess.run(["bash", HALF_HOUR], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (2, "")
    assert "prepare /path/to/multi30k" in told.stdout
    assert subprocess.run(["bash", "-n", HALF_HOUR], check=False).returncode == 0
