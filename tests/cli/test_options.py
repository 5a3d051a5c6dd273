"""Settings on the command line: help, the output of --settings, and settings of old files."""

import re
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from nmt_cli.cli.main import nmt as group
from nmt_cli.cli.options import CommandWithSettings, SettingOption
from nmt_cli.config import describe, given_entries, own_entries, preset_names, preset_path, read, resolved
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.errors import IN_PYTHON, UserError
from nmt_cli.removed_settings import ONE_BEST
from nmt_cli.scoring.config import ScoreConfig
from nmt_cli.serving.config import ServeConfig
from nmt_cli.training.config import TrainConfig

SETTINGS: dict[str, type[Any]] = {
    "preprocess": PreprocessConfig,
    "train": TrainConfig,
    "translate": TranslateConfig,
    "score": ScoreConfig,
    "serve": ServeConfig,
}


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(group, arguments, terminal_width=110)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_exactly_the_commands_of_this_table_have_settings() -> None:
    flags = {
        name: {flag for option in command.params for flag in option.opts}
        for name, command in group.commands.items()
    }
    assert {name for name, options in flags.items() if "--config" in options} == set(SETTINGS)
    assert {name for name, options in flags.items() if "--settings" in options} == set(SETTINGS)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["preprocess", "--train", "text"], "--out"),
        (["train", "dataset"], "--out"),
        (["average-checkpoints", "."], "--out"),
        (["import", "model"], "--out"),
        (["export", ".", "--format", "marian"], "--out"),
        (["report", "."], "--out"),
        (["demo"], "--out"),
        (["translate", "."], "--attention"),
    ],
)
def test_outputs_that_cannot_be_stdout_refuse_a_dash(words: list[str], flag: str) -> None:
    result = CliRunner().invoke(group, [*words, flag, "-"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {flag} can't be stdout (-). Name another path.\n" in result.stderr


@pytest.mark.parametrize("command", SETTINGS)
def test_help_shows_the_common_settings(command: str) -> None:
    lines = printed(command, "--help").splitlines()
    assert max(map(len, lines)) <= 110
    everyday = [setting.name for setting in describe(SETTINGS[command]) if setting.everyday]
    shown = [match[1] for line in lines if (match := re.match(r"  (\w+\.\w+) = ", line))]
    assert shown == everyday
    assert 0 < len(everyday) < 15
    assert f"nmt {command} --settings lists all" in "\n".join(lines)


@pytest.mark.parametrize("command", SETTINGS)
def test_summaries_of_settings_have_at_most_60_characters(command: str) -> None:
    summaries = {setting.name: setting.summary for setting in describe(SETTINGS[command])}
    assert {name: text for name, text in summaries.items() if not 0 < len(text) <= 60} == {}


@pytest.mark.parametrize("command", SETTINGS)
def test_the_output_of_settings_is_read_back_as_the_defaults(command: str, tmp_path: Path) -> None:
    own = cast(CommandWithSettings, group.commands[command]).defaults
    file = tmp_path / "settings.toml"
    file.write_text(printed(command, "--settings"), encoding="utf-8")
    config = SETTINGS[command]
    defaults = own_entries(own)
    assert resolved(config, [*defaults, *given_entries(file)]) == resolved(config, defaults)
    assert printed(command, "--settings", "--config", str(file)) == file.read_text(encoding="utf-8")
    names = re.findall(r"(?m)^#?(\w+) = ", file.read_text(encoding="utf-8"))
    assert names == [setting.name.partition(".")[2] for setting in describe(config)]


@pytest.mark.parametrize("preset", preset_names())
def test_the_output_of_settings_for_a_preset_is_read_back_as_the_preset(preset: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(printed("train", "--settings", "--preset", preset), encoding="utf-8")
    assert read(TrainConfig, file) == read(TrainConfig, preset=preset_path(preset))


def test_the_output_of_settings_contains_the_settings_on_the_command_line() -> None:
    arguments = ("dataset", "--out", "run", "--max-steps", "7", "--set", "model.width=64", "--seed", "1")
    text = printed("train", *arguments, "--settings")
    assert re.findall(r"(?m)^(\w+) = (.*)", text) == [("width", "64"), ("max_steps", "7")]


@pytest.mark.parametrize("wrong", [["--nonsense"], ["--beam", "many"]], ids=" ".join)
def test_wrong_usage_beside_settings_exits_with_2(wrong: list[str]) -> None:
    assert CliRunner().invoke(group, ["translate", "--settings", *wrong]).exit_code == 2


def test_required_parameters_are_required_again_after_settings() -> None:
    printed("train", "--settings")
    result = CliRunner().invoke(group, ("train",))
    assert result.exit_code == 2
    assert "Missing" in result.stderr
    required = {param.name for param in group.commands["train"].params if param.required}
    assert required == {"dataset", "out"}


def test_ignored_removed_settings_are_noted_on_stderr_except_with_quiet(tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text("[search]\nbeam = 5\ntokens = 99\n[input]\nmost_unknown = 0.5\n")
    loud, quiet = (
        CliRunner().invoke(group, ("translate", "--settings", "--config", str(file), *more))
        for more in ((), ("--quiet",))
    )
    message = (
        f"{file}: ignored settings that were removed and change nothing: search.tokens, input.most_unknown\n"
    )
    assert (loud.stderr, quiet.stderr) == (message, "")
    assert loud.stdout == quiet.stdout
    assert "\nbeam = 5\n" in loud.stdout


OLD_SEARCH = """
[search]
beam = 4
n_best = 1
unknown = false
sample = false
temperature = 1.0
top_k = 0
top_p = 1.0
seed = 1
combine = "probability"
weights = []
rows = 0
tokens = 16384

[validation]
max_tokens = 4096
"""
"""From the config.toml of an old run."""


def test_the_settings_of_an_old_run_are_read(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(OLD_SEARCH)
    notes: list[str] = []
    assert read(TrainConfig, file, note=notes.append) == TrainConfig()
    assert len(notes) == 1
    assert notes[0].count("search.") == 11
    assert notes[0].endswith(", validation.max_tokens")


def test_a_removed_setting_of_validation_is_refused_with_the_replacement(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(OLD_SEARCH.replace("n_best = 1", "n_best = 3"))
    result = CliRunner().invoke(group, ("train", "--settings", "--config", str(file)))
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == (f"search.n_best = 3 was removed, in {file}: {ONE_BEST}. Delete it.")


@pytest.mark.parametrize("option", ["--give-up-after", "--training.give_up_after"])
def test_an_option_that_was_a_setting_gets_its_answer(option: str) -> None:
    result = CliRunner().invoke(group, ("train", "dataset", option, "3"))
    assert result.exit_code == 2
    expected = f"No such option '{option}': training.give_up_after was removed: a run ends after ten steps"
    assert expected in " ".join(result.stderr.split())


def test_errors_name_in_python_the_setting_of_every_option() -> None:
    options = [
        (flag, option.setting)
        for command in group.commands.values()
        for option in command.params
        if isinstance(option, SettingOption)
        for flag in option.opts
        if flag.startswith("--")
    ]
    names = {flag: IN_PYTHON.get(flag, flag[2:].replace("-", "_")) for flag, _ in options}
    assert names == dict(options)
