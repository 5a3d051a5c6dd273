"""The benchmark of 13 minutes on a GPU: its report, its counts of operations, and its script."""

import json
import os
import re
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from recipes.benchmarks import lengths
from recipes.benchmarks.gpu import report, step
from recipes.benchmarks.gpu import search as timed_search
from recipes.benchmarks.gpu.counts import attention, counts, search

SCRIPT = Path(report.__file__).with_name("nine_minutes.sh")
ROOT = SCRIPT.parents[3]


def test_the_report_has_predictions_measurements_and_missing_values(tmp_path: Path) -> None:
    measured = {"ms_a_step": 27.5, "host_ms_a_step": 12.0, "share_of_peak": {"989": 0.4, "798": 0.5}}
    (tmp_path / "base-compiled.json").write_text(json.dumps(measured))
    (tmp_path / "check.json").write_text(json.dumps({"right": False, "off_by": {}}))
    result = CliRunner().invoke(report.main, [str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "| base, compiled: ms a step | 25 to 27 | 27.5 | <= 25 | missed |" in result.output
    assert "| base, compiled: host ms a step | 6 to 9 | 12.0 | <= 15 | met |" in result.output
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


@pytest.mark.slow
def test_the_search_is_timed_on_the_lines_of_any_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NMT_DATA", raising=False)
    monkeypatch.setattr(timed_search, "ROWS", (8,))
    out, lines = tmp_path / "search.json", ROOT / "tests" / "golden" / "corpus" / "valid.en"
    arguments = [str(out), str(ROOT / "tests" / "golden" / "model"), "nmt", "--sentences", "6"]
    result = CliRunner().invoke(timed_search.main, [*arguments, "--lines", str(lines)])
    assert result.exit_code == 0, result.output
    (run,) = json.loads(out.read_text())["runs"]
    assert run["text"] == lines.name and run["sentences_per_second"] > 0


STUBS = {
    "nvidia-smi": "echo H200, 580.1",
    # It writes what steps and ceilings write, to the argument that is a file of results.
    "python3": """case "$*" in *stuck*) sleep 60 ;; esac
echo "ran $* with NMT_DATA=$NMT_DATA"
for each; do case $each in *.json) echo '{}' > "$each" ;; esac; done""",
}


@pytest.fixture
def _stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put programs that do nothing before those of the machine."""
    for name, script in STUBS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("NMT_DATA", raising=False)


@pytest.fixture
def dry_run(tmp_path: Path, _stubs: None) -> Callable[..., tuple[str, float]]:
    """Return a function that makes a call of the script, with programs that do nothing. It returns what the
    script printed and its seconds."""

    def call(number: int, **variables: str) -> tuple[str, float]:
        places = {name: str(tmp_path / name.lower()) for name in ("OUT", "RESULTS", "RUN", "XDG_CACHE_HOME")}
        Path(places["RUN"]).mkdir(exist_ok=True)
        Path(places["RUN"], "log.jsonl").write_text("{}\n")
        environment = {**os.environ, **places, **variables}
        began = time.monotonic()
        done = subprocess.run(
            ["bash", SCRIPT, str(number)],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout, time.monotonic() - began

    return call


def test_the_script_prints_its_usage_and_has_valid_syntax() -> None:
    usage = subprocess.run(["bash", SCRIPT], capture_output=True, text=True, check=False)
    assert (usage.returncode, usage.stderr) == (2, "")
    assert "nine_minutes.sh prepare" in usage.stdout
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0


@pytest.mark.usefixtures("_stubs")
def test_git_ignores_what_is_prepared_in_a_worktree_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ["git", "-c", "user.name=N", "-c", "user.email=n@example.org"]
    monkeypatch.chdir(tmp_path)
    for command in (
        "init -q main",
        "-C main commit -q --allow-empty -m M",
        "-C main worktree add -q ../tree",
    ):
        subprocess.run([*git, *command.split()], check=True)
    # Another Python, whose Triton is that of the GPU's machine, compiles the kernels.
    other = tmp_path / "bin" / "python3.12"
    other.write_text('#!/usr/bin/env bash\necho "$@" > "$TRITON_CACHE_DIR.log"\n')
    other.chmod(0o755)
    monkeypatch.setenv("KERNELS_PYTHON", str(other))
    tree = tmp_path / "tree"
    done = subprocess.run(["bash", SCRIPT, "prepare"], cwd=tree, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tree / ".gpu" / "triton.log").read_text() == "-m recipes.benchmarks.gpu.stubs\n"
    assert (tree / ".gpu" / "revision").exists()
    status = subprocess.run([*git, "status", "--porcelain"], cwd=tree, capture_output=True, check=True)
    assert status.stdout == b""


@pytest.mark.parametrize(("number", "seconds", "first"), [(1, 540, "nmt train"), (2, 200, "big, compiled")])
def test_a_call_fits_its_time_even_if_every_part_takes_all_of_its_own(
    number: int, seconds: int, first: str, tmp_path: Path, dry_run: Callable[..., tuple[str, float]]
) -> None:
    printed, _ = dry_run(number)
    parts = re.findall(r"^## (.+), at most (\d+) s$", printed, re.MULTILINE)
    assert [name for name, _ in parts][:2] == ["wheels", first]
    # There is no Multi30k on the machine, which NMT_DATA would name.
    assert printed.count("with NMT_DATA=\n") >= len(parts) - 1, printed
    # Time is kept for the report and for packing.
    assert sum(int(most) for _, most in parts) <= seconds - 20
    assert printed.count(": status 0,") == len(parts), printed
    with tarfile.open(tmp_path / "out" / "results.tar") as packed:
        names = {Path(name).name for name in packed.getnames()}
    assert f"call-{number}.log" in names
    assert names >= (
        {"train-log.jsonl", "base-eighth.json", "ceilings.json"} if number == 1 else {"search-nmt.json"}
    )


@pytest.mark.slow
def test_a_part_that_hangs_ends_in_time_and_earlier_results_are_packed(
    tmp_path: Path, dry_run: Callable[..., tuple[str, float]]
) -> None:
    printed, seconds = dry_run(2, LIMIT="27", RUN=str(tmp_path / "stuck"))
    assert "## nmt translate: status NOT FINISHED in" in printed
    assert "## search: no time left" in printed and "## big, compiled: status 0" in printed
    assert seconds < 27
    with tarfile.open(tmp_path / "out" / "results.tar") as packed:
        assert any(name.endswith("big-compiled.json") for name in packed.getnames())
