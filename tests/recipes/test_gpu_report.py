"""The benchmark of half an hour on a GPU: its report, its counts of operations, and its script."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from recipes.benchmarks import lengths
from recipes.benchmarks.gpu import report, step
from recipes.benchmarks.gpu.counts import attention, counts, search

HALF_HOUR = Path(report.__file__).with_name("half_hour.sh")


def test_the_report_has_predictions_measurements_and_missing_values(tmp_path: Path) -> None:
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
def test_steps_are_measured_on_a_cpu_too(tmp_path: Path) -> None:
    out = tmp_path / "toy.json"
    result = CliRunner().invoke(step.main, [str(out), "toy", "eager", "--tokens", "100"])
    assert result.exit_code == 0, result.output
    measured = json.loads(out.read_text())
    assert measured["ms_a_step"] > 0
    assert 3 < measured["loss"] < 10


def test_a_training_step_has_no_more_operations_than_recorded() -> None:
    step_counts = counts("toy", 200)
    operations = {name: count["operations"] for name, count in step_counts["by name"].items()}
    assert operations["attend"] == operations["attend_backward"] == 3
    # One product for each matrix and two for its gradients. Before a ReLU, one kernel adds bias and ReLU.
    assert operations["mm"] + operations["addmm"] + operations["relu_linear"] == 3 * 11
    assert operations["relu_linear"] == operations["relu_backward"] == 2
    assert "threshold_backward" not in operations and operations["sum"] == 2
    # Gradients are neither concatenated nor added one by one.
    assert "cat" not in operations
    assert operations["losses_and_gradients"] == 1
    assert operations["_foreach_copy_"] == 2  # gradients of both precisions into their buffers
    assert not {"_foreach_add_", "add_", "zero_"} & operations.keys()
    assert operations["_to_copy"] <= 21
    assert step_counts["operations"] <= 123
    assert step_counts["once a step"]["operations"] <= 24  # copies in half precision, the norm, the update


def test_a_step_of_the_base_model_reads_and_writes_no_more_memory_than_recorded() -> None:
    step_counts = counts("base", 25_000)
    assert step_counts["operations"] <= 588
    assert step_counts["GB"] <= 58.8


def test_attention_is_one_launch_per_pass_unless_segments_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "WMT_PAIRS", 50_000)
    cases = attention(25_000)
    launches = {name: (case["forward"], case["backward"]) for name, case in cases.items()}
    for kind in ("self", "causal", "cross"):
        assert launches[f"alike-short {kind}"] == launches[f"alike-middle {kind}"] == (1, 1)
        assert launches[f"alike-long {kind}"] == (2, 2)
        assert launches[f"random {kind}"] == (3, 4)
    assert cases["alike-short self"]["filled"] > 0.85
    assert cases["random self"]["filled"] > 0.7


def test_a_search_step_has_no_more_operations_than_recorded() -> None:
    step_counts = search(beam=2, steps=8)
    assert step_counts["as on a GPU"]["operations"] <= 201 < step_counts["as on a CPU"]["operations"]


def test_the_script_prints_its_usage_and_has_valid_syntax() -> None:
    usage = subprocess.run(["bash", HALF_HOUR], capture_output=True, text=True, check=False)
    assert (usage.returncode, usage.stderr) == (2, "")
    assert "prepare /path/to/multi30k" in usage.stdout
    assert subprocess.run(["bash", "-n", HALF_HOUR], check=False).returncode == 0


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("echo 5 passed", "## tests of loss: passed: 5 passed\n"),
        ("echo 1 failed; false", "1 failed\n## tests of loss: FAILED: 1 failed\n"),
        ("echo 3 passed; sleep 9", "3 passed\n## tests of loss: NOT FINISHED in 1 s: 3 passed\n"),
    ],
)
def test_a_group_of_tests_on_a_gpu_ends_with_a_verdict(command: str, verdict: str) -> None:
    functions = HALF_HOUR.read_text().partition("\ncall=")[0]
    fake = f"pytest() {{ {command}; }}; export -f pytest; tests loss 1 2 tests/loss"
    done = subprocess.run(["bash", "-c", f"{functions}\n{fake}"], capture_output=True, text=True, check=False)
    assert done.stdout == verdict
