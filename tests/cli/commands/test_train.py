"""`nmt train`: settings, progress, errors, signals and exit codes."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nmt_cli import config as settings
from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.cli.commands import train as train_module
from nmt_cli.cli.commands.train import Stop
from nmt_cli.cli.reports.training_output import RunReporter
from nmt_cli.errors import EXIT_CODES
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.tracking.events import Progress
from tests.cli.conftest import TINY, Nmt, assert_one_line


@contextmanager
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in EXIT_CODES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def run(nmt: Nmt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nmt]:
    """Run `nmt train` with a tiny model on the CPU, in this process and one thread."""
    monkeypatch.setattr("nmt_cli.training.setup.start.default_threads", lambda processes: 1)
    file = tmp_path / "tiny.toml"
    file.write_text(
        "\n".join([*TINY, "training.max_steps=2", "training.log_every=1", "validation.every_steps=0"])
    )
    with signals_as_before():
        yield lambda *arguments: nmt("train", *arguments, "--config", file, "--device", "cpu")


def test_a_run_reports_on_stderr_and_prints_nothing_to_stdout(
    run: Nmt, toy_dataset: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = run(toy_dataset, "--out", out)
    assert (result.returncode, result.stdout) == (0, "")
    *preflight, first, second, cost, done = result.stderr.splitlines()
    assert [line.split()[0].rstrip(":") for line in preflight] == ["preflight"] * 3
    assert first.startswith("step 1 of 2, epoch 1: loss ")
    assert second.startswith("step 2 of 2, epoch 1: loss ")
    assert cost.startswith("cost: ")
    assert done == f"{out}: complete"


def test_options_are_settings_that_the_run_folder_records(
    run: Nmt, toy_dataset: Path, tmp_path: Path
) -> None:
    flags = (
        *("--max-steps 1 --set training.max_steps=5 --batch-tokens 300 --max-tokens-per-device 77".split()),
        *("--seed 9 --validate-every 2 --save-every 1 --deterministic --preset tiny --quiet".split()),
    )
    result = run(toy_dataset, "--out", tmp_path / "run", *flags)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    config = settings.read(TrainConfig, tmp_path / "run/config.toml")
    training = config.training
    assert (training.max_steps, training.max_tokens_per_device, training.seed) == (1, 77, 9)
    assert training.deterministic
    assert (config.batch.tokens, config.validation.every_steps, config.checkpoints.every_steps) == (300, 2, 1)
    assert (config.schedule.peak, config.model.width) == (0.005, 16)
    assert run(toy_dataset, "--out", tmp_path / "2", "--max-tokens-per-device", "auto").returncode == 0
    assert "max_tokens_per_device = 0\n" in (tmp_path / "2/config.toml").read_text("utf-8")


def test_the_same_command_with_more_steps_resumes(run: Nmt, toy_dataset: Path, tmp_path: Path) -> None:
    run(toy_dataset, "--out", tmp_path / "run")
    result = run(toy_dataset, "--out", tmp_path / "run", "--max-steps", "3")
    assert result.stderr.splitlines()[:3] == [
        "changed: training.max_steps: 2 -> 3",
        "resuming from step 2",
        next(line for line in result.stderr.splitlines() if line.startswith("step 3 of 3, ")),
    ]
    log = (tmp_path / "run/log.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line)["step"] for line in log.splitlines()] == [1, 2, 3]


def test_the_parent_model_is_needed_only_until_the_first_checkpoint(
    run: Nmt, toy_dataset: Path, tmp_path: Path
) -> None:
    parent, command = tmp_path / "parent", (toy_dataset, "--out", tmp_path / "run", "--quiet")
    assert_one_line(run(*command, "--init-from", parent), 1, f"{parent} does not exist. Check the path.")
    assert not (tmp_path / "run").exists()
    run(toy_dataset, "--out", parent, "--max-steps", "1")
    run(*command, "--init-from", parent, "--max-steps", "1")
    parent.rename(tmp_path / "elsewhere")
    assert run(*command, "--init-from", parent).returncode == 0
    assert [*checkpoints(tmp_path / "run")] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing option '--out'"),
        (("--out", "x", "--devices", "0"), "--devices must be at least 1 (got 0)"),
        (("--out", "x", "--device", "tpu"), '--device must be auto, cpu, cuda or cuda:N (got "tpu")'),
        (("--out", "x", "--max-steps", "many"), "'many' is not a valid integer"),
        (("--out", "x", "--max-tokens-per-device", "lots"), "must be a number or auto (got lots)"),
        (("--out", "x", "--preset", "tinny"), "'tinny' is not one of 'deep-12-1', 'deep-12-2', 'iwslt14', "),
        (("--out", "x", "surplus"), "unexpected extra argument (surplus)"),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, tuple) else "",
)
def test_wrong_usage_exits_with_2(
    nmt: Nmt, toy_dataset: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = nmt("train", toy_dataset, *arguments)
    assert_one_line(result, 2, message)


WITHOUT_DROPOUT = ("--set", "model.residual_dropout=0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--set", "optimizer.weight_decay=0.1"),
            "optimizer.weight_decay has no effect with adam. Set optimizer.kind to adamw",
        ),
        (("--max-steps", "0"), "Error: --max-steps must be at least 1 (got 0)"),
        (("--set", "schedule.warmup=0"), "schedule.warmup is 0. With noam, it must be at least 1"),
        (
            ("--set", "model.residual_stream=bf16"),
            'model.residual_stream = "bf16" was removed: values between layers are fp32',
        ),
        (
            ("--set", "loss.r_drop=5", *WITHOUT_DROPOUT),
            "loss.r_drop=5.0 has no effect without dropout. Set model.residual_dropout",
        ),
        (
            ("--set", "schedule.decay=0.1"),
            "schedule.decay = 0.1 was removed: plateau halves the learning rate",
        ),
        (("--set", "validation.least_improvement=-1"), "least_improvement = -1 was removed: any improvement"),
        (("--init-from", "nowhere"), "/nowhere does not exist. Check the path."),
        (("--set", "model.heads=3"), "width is 16, which is not a multiple of the 3 heads"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_invalid_settings_are_reported_in_one_line_before_training(
    run: Nmt, toy_dataset: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert_one_line(run(toy_dataset, "--out", tmp_path / "run", *arguments), 1, message)
    assert not (tmp_path / "run/checkpoints").exists()


@pytest.mark.parametrize("devices", [(), ("--devices", "2")], ids=["one process", "two"])
def test_a_folder_without_a_dataset_is_reported_in_one_line(
    run: Nmt, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    result = run(tmp_path, "--out", tmp_path / "run", *devices)
    assert_one_line(result, 1, f"{tmp_path} is not a dataset folder because it has no dataset.json")


def test_the_first_signal_is_recorded_and_a_second_ctrl_c_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with signals_as_before():
        stop = Stop()
        assert stop.signal == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal == signal.SIGUSR1
        monkeypatch.setattr(train_module, "SECONDS_OF_ECHO", 0.0)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", EXIT_CODES)
def test_a_signal_that_nohup_ignores_stays_ignored(number: int) -> None:
    with signals_as_before():
        signal.signal(number, signal.SIG_IGN)
        stop = Stop()
        os.kill(os.getpid(), number)
        assert stop.signal == 0
        assert [n for n in EXIT_CODES if signal.getsignal(n) is signal.SIG_IGN] == [number]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 143)]
)
def test_a_signal_saves_and_explains_how_to_resume(
    run: Nmt, toy_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    out, show = tmp_path / "run", RunReporter.__call__

    def interrupted(self: RunReporter, event: object) -> None:
        show(self, event)  # type: ignore[arg-type]
        if isinstance(event, Progress) and event.step == 1:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(RunReporter, "__call__", interrupted)
    result = run(toy_dataset, "--out", out, "--max-steps", "1000")
    assert result.returncode == code
    assert list(checkpoints(out)) == [2]
    assert result.stderr.splitlines()[-1:] == [
        f"{out}: stopped and saved. Run the same command again to resume."
    ]


def test_threads_sets_the_number_of_threads(run: Nmt, tmp_path: Path, toy_dataset: Path) -> None:
    assert run(toy_dataset, "--out", tmp_path / "run", "--threads", "2").returncode == 0
    (facts,) = (tmp_path / "run" / "environment.jsonl").read_text("utf-8").splitlines()
    assert json.loads(facts)["threads"] == 2


def test_files_of_marian_and_opustrainer_are_settings_and_name_what_they_are_not(
    nmt: Nmt, toy_dataset: Path, tmp_path: Path
) -> None:
    files = {
        "model.yml": "type: transformer\nenc-depth: 2\ndim-emb: 64\ntransformer-heads: 2\n",
        "train.yml": "learn-rate: 0.001\nvalid-freq: 50\nmini-batch-fit: true\nquantize-bits: 8\n",
        "trainer.yaml": "stages: [train]\nmodifiers:\n- UpperCase: 0.07\n- Noise: 0.1\n",
    }
    configs = [word for name in files for word in ("--config", tmp_path / name)]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = nmt("train", toy_dataset, "--out", "x", *configs, "--set", "model.heads=4", "--settings")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    for line in ("encoder_layers = 2", "heads = 4", "peak = 0.001", "every_steps = 50", "upper = 0.07"):
        assert line in lines
    train, trainer = tmp_path / "train.yml", tmp_path / "trainer.yaml"
    assert result.stderr.splitlines() == [
        f"{train}: left out, since batch.tokens alone is the size of a batch: mini-batch-fit",
        f"{train}: left out, since they have no counterpart: quantize-bits",
        f"{trainer}: left out, since they have no counterpart: stages, Noise",
    ]
    (tmp_path / "model.yml").write_text("type: amun\nenc-depth: 2\n")
    result = nmt("train", toy_dataset, "--out", "x", *configs)
    assert_one_line(result, 1, f"{tmp_path / 'model.yml'}: type must be 'transformer'")
