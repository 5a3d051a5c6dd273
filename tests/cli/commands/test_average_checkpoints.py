"""`nmt average-checkpoints`: choice of checkpoints, output and errors."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from nmt_cli import api
from nmt_cli.checkpoints.model_folder import read_model
from tests.checks import differing
from tests.cli.conftest import SET_TINY, Nmt, assert_one_line

STEPS = [2, 3, 4, 5, 6]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, toy_dataset: Path, run_nmt: Callable[..., bytes]) -> Path:
    """A run of six steps with checkpoints of the last five. Steps 3 and 6 are validated. Read only."""
    out = tmp_path_factory.mktemp("averaging") / "run"
    when = ("--max-steps", "6", "--save-every", "1", "--validate-every", "3", "--device", "cpu", "--quiet")
    run_nmt("train", toy_dataset, "--out", out, *SET_TINY, "--set", "checkpoints.keep_best=2", *when)
    return out


@pytest.fixture
def average(nmt: Nmt) -> Nmt:
    return lambda *arguments: nmt("average-checkpoints", *arguments)


def checkpoint(run: Path, step: int) -> Path:
    return run / f"checkpoints/step-{step:08d}"


def steps_in(out: Path) -> list[int]:
    return [part["step"] for part in read_model(out).description["averaged"]]


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        ((), STEPS),
        (("--last", "2"), [5, 6]),
        (("--best", "2"), {3, 6}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_choose_the_averaged_steps_which_are_printed(
    average: Nmt, run: Path, tmp_path: Path, flags: tuple[str, ...], steps: list[int] | set[int]
) -> None:
    out = tmp_path / "out"
    result = average(run, "--out", out, *flags)
    assert (result.returncode, result.stdout) == (0, "")
    assert type(steps)(steps_in(out)) == steps
    averaged = ", ".join(map(str, steps_in(out)))
    origin = f"average of steps {averaged}" if len(steps) > 1 else f"checkpoint of step {averaged}"
    assert result.stderr == f"{out}: {origin} of {run}\n"


def test_named_models_checkpoints_and_runs_are_averaged(average: Nmt, run: Path, tmp_path: Path) -> None:
    assert average(run, "--out", tmp_path / "model").returncode == 0
    copied = shutil.copytree(run, tmp_path / "copy", symlinks=True)
    result = average(tmp_path / "model", checkpoint(run, 3), copied, "--out", tmp_path / "out")
    assert result.returncode == 0
    best = (copied / "best").resolve()
    assert result.stderr == (
        f"{tmp_path / 'out'}: average of {tmp_path / 'model'}, {checkpoint(run, 3)}, {best}\n"
    )
    model, three, other = read_model(tmp_path / "out").description["averaged"]
    assert [part["step"] for part in model["averaged"]] == STEPS
    assert (three["step"], other["step"]) == (3, int(best.name[5:]))


def test_moving_averages_are_averaged_if_all_checkpoints_have_one(
    average: Nmt, toy_dataset: Path, run_nmt: Callable[..., bytes], run: Path, tmp_path: Path
) -> None:
    ema, when = tmp_path / "ema", ("--max-steps", "2", "--save-every", "1", "--device", "cpu", "--quiet")
    run_nmt("train", toy_dataset, "--out", ema, *SET_TINY, "--set", "optimizer.ema=0.9", *when)
    for name, models in (("last", [ema, "--last", 1]), ("named", [checkpoint(ema, 2)])):
        result = average(*models, "--out", tmp_path / name)
        assert result.stderr.startswith(f"{tmp_path / name}: moving average (EMA) of ")
        own = load_file(tmp_path / name / "model.safetensors")
        assert not differing(own, load_file(checkpoint(ema, 2) / "ema.safetensors"))
    api.average([checkpoint(ema, 2)], tmp_path / "api")
    assert not differing(load_file(tmp_path / "api/model.safetensors"), own)
    assert average(ema, run, "--out", tmp_path / "mixed").returncode == 0
    assert not any(part.get("ema") for part in read_model(tmp_path / "mixed").description["averaged"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "Missing option '--out'"),
        (("--out", "x", "--last", "0"), "--last must be at least 1 (got 0)"),
        (("--out", "x", "--last", "2", "--best", "2"), "--last has no effect with --best. Use one"),
        (("--out", "x", "--select", "--last", "2"), "--last has no effect with --select"),
        (("--out", "x", "--metric", "chrf"), "--metric and --metric-model have no effect without --select"),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, tuple) else "",
)
def test_wrong_usage_exits_with_2(average: Nmt, run: Path, flags: tuple[str, ...], message: str) -> None:
    assert_one_line(average(run, *flags), 2, message)


@pytest.mark.parametrize("flag", ["", "--last 1", "--best 1", "--select"])
def test_options_need_one_run_with_checkpoints(average: Nmt, run: Path, tmp_path: Path, flag: str) -> None:
    words = ("--out", tmp_path / "out", *flag.split())
    for models in ([checkpoint(run, 3)], [checkpoint(run, 3), checkpoint(run, 4)]) if flag else ():
        message = f"{words[2]} needs the folder of one run (got "
        assert_one_line(average(*models, *words), 2, message)
    young = tmp_path / "young"
    (young / "checkpoints").mkdir(parents=True)
    shutil.copy(run / "config.toml", young)
    message = f"{young} has no checkpoint yet. Wait for one, or train with --save-every."
    assert_one_line(average(young, *words), 1, message)


def test_a_missing_folder_and_a_folder_without_a_model_are_reported(
    average: Nmt, run: Path, tmp_path: Path
) -> None:
    assert_one_line(average(tmp_path / "no", "--out", "x"), 1, f"{tmp_path / 'no'} does not exist")
    assert_one_line(average(tmp_path, "--out", "x"), 1, f"{tmp_path} is not a model: ")
    assert_one_line(average(run, run / "best", "--out", "x"), 1, f"is named twice. Omit {run / 'best'}.")


def test_a_run_is_never_overwritten(
    average: Nmt, run: Path, digests: Callable[[Path], dict[str, str]]
) -> None:
    before = digests(run)
    for flags in ((), ("--select",)):
        result = average(run, "--out", run, *flags)
        assert_one_line(result, 1, f"{run} exists and is not an average that could be replaced")
    assert digests(run) == before


def test_select_prints_a_table_and_writes_the_winner(
    average: Nmt, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.scoring.confidence.MIN_TRANSLATIONS", 10)
    result = average(run, "--out", tmp_path / "out", "--select")
    assert result.returncode == 0
    head, *rows = result.stdout.splitlines()
    table, notes = rows[:-3], rows[-3:]
    assert head.split() == "candidate dev BLEU dev chrF2 dev perplexity steps".split()
    candidates = [row.strip("* ").split("  ")[0] for row in table]
    assert candidates in (
        ["last", "best", "average of 2", "average of 3", "average of 5"],
        ["last", "average of 2", "average of 3", "average of 5"],
    )
    (winner,) = (row for row in table if row.startswith(" *"))
    steps = ", ".join(map(str, steps_in(tmp_path / "out")))
    assert winner.rstrip().endswith(f"  {steps}")
    assert notes[0] == "* is the best by bleu on dev (the first of equal ones)"
    assert [note.split(" ")[0] for note in notes[1:]] == ["BLEU:", "chrF2:"]
    *progress, last = result.stderr.splitlines()
    assert [line.split(":")[0] for line in progress] == candidates
    origin = f"average of steps {steps}" if "," in steps else f"checkpoint of step {steps}"
    assert last == f"{tmp_path / 'out'}: {origin} of {run}"
    calibration = read_model(tmp_path / "out").identity.calibration
    assert calibration and calibration.probabilities[-1] <= 1
    quiet = average(run, "--out", tmp_path / "quiet", "--select", "--quiet")
    assert (quiet.stdout, quiet.stderr) == (result.stdout, "")


def test_select_by_another_metric_names_it(average: Nmt, run: Path, tmp_path: Path) -> None:
    result = average(run, "--out", tmp_path / "out", "--select", "--metric", "chrf", "--quiet")
    assert "* is the best by chrf on dev (the first of equal ones)" in result.stdout
    wrong = "--metric", "comet", "--metric-model", run
    message = f"validation.metric_model: {run} has no hparams.yaml"
    assert_one_line(average(run, "--out", tmp_path / "no", "--select", *wrong), 1, message)


def test_select_checks_the_output_before_decoding(average: Nmt, run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file/out"
    assert_one_line(average(run, "--out", out, "--select"), 1, f"{out} can't be written: Not a directory. ")


def test_a_failed_select_leaves_nothing(average: Nmt, run: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(run, tmp_path / "copy", symlinks=True)
    (copied / "config.toml").write_text("[validation]\nmetric = 7\n")
    result = average(copied, "--out", tmp_path / "not/there/out", "--select")
    assert_one_line(result, 1, "metric")
    assert list(tmp_path.iterdir()) == [copied]
