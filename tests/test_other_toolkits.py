"""Suggestions for names of other toolkits and for misspelt names."""

import re
import shlex
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess

import click
import pytest

from nmt_cli.cli.main import nmt as group
from nmt_cli.cli.options import Command
from nmt_cli.config import Setting, describe, read
from nmt_cli.other_toolkits import named_here, table
from nmt_cli.training.config import TrainConfig
from tests.checks import refusal

Run = Callable[..., CompletedProcess[str]]


def settings_of(command: click.Command) -> list[Setting]:
    """Return the settings of a command."""
    assert isinstance(command, Command)
    return describe(command.settings)


def own_names() -> dict[str, set[str]]:
    """Return the flags and settings of each command."""
    return {
        name: {flag for param in command.params for flag in param.opts + param.secondary_opts}
        | {setting.name for setting in settings_of(command)}
        for name, command in group.commands.items()
    }


def names(part: str) -> Iterator[tuple[str, list[str]]]:
    """Return each name of nmt in a part of the table, with the names in other toolkits."""
    return ((ours, foreign.split()) for ours, foreign in table()[part].items())


def last_name(name: str) -> str:
    """Return the name of a flag without hyphens, or of a setting without its section."""
    return name.lstrip("-").rpartition(".")[2]


def suggestions(command: str, option: str) -> list[str]:
    """Return the suggestions for an unknown option of a command, each as words to type."""
    with pytest.raises(click.UsageError, match=f"No such option '{option}'") as caught:
        group.commands[command].make_context(command, [option])
    match = re.search(r": did you mean (.*)\?$", caught.value.message)
    return re.split(" or (?=--)", match[1]) if match else []


def accept(command: click.Command, words: list[str]) -> None:
    """Fail if a command does not accept `words`, flags with values and settings."""
    assignments = [value for flag, value in zip(words[::2], words[1::2], strict=False) if flag == "--set"]
    if assignments:
        assert words[::2] == ["--set"] * len(assignments)
        read(command.settings, assignments=assignments)  # type: ignore[attr-defined]
        return
    param = next(param for param in command.params if words[0] in param.opts)
    if not param.is_flag:  # type: ignore[attr-defined]
        example = param.type.choices[0] if isinstance(param.type, click.Choice) else "3"
        param.type.convert((words[1:] or [example])[0], param, None)


def test_every_suggestion_is_an_option_or_a_setting_of_a_command() -> None:
    ours = {word.partition("=")[0].split()[0] for word, _ in names("options")}
    assert ours <= set().union(*own_names().values())


def test_no_name_in_the_table_hides_a_name_of_a_command() -> None:
    for command, own in own_names().items():
        flags = {name.lstrip("-").replace("-", "_") for name in own if name.startswith("--")}
        assert not {ours for ours, foreign in names("options") if flags & set(foreign) and ours in own}, (
            command
        )


def test_every_reason_belongs_to_a_command() -> None:
    assert all(any(reason["in"] in own for own in own_names().values()) for reason in table()["missing"])


@pytest.mark.parametrize("command", group.commands)
def test_a_command_accepts_everything_that_it_suggests(command: str) -> None:
    own = own_names()[command]
    foreign = [*(name for _, foreign in names("options") for name in foreign), *map(last_name, own)]
    # One name for each suggestion, as several names lead to the same.
    for name in {tuple(named_here(name, own)): name for name in foreign}.values():
        if (option := f"--{name.replace('_', '-')}") not in own:
            for words in suggestions(command, option):
                accept(group.commands[command], shlex.split(words))


@pytest.mark.parametrize("command", ["preprocess", "train", "translate", "score", "serve"])
def test_an_option_named_like_a_setting_suggests_it(command: str) -> None:
    own = own_names()[command]
    in_table = [name for _, foreign in names("options") for name in foreign]
    for setting in settings_of(group.commands[command]):
        name = last_name(setting.name)
        option = f"--{name.replace('_', '-')}"
        if option not in own and name not in in_table:
            assert f"--set {setting.name}=" in " ".join(suggestions(command, option)).replace("'", ""), option


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train --dropout 0.3", "'--dropout': did you mean --set model.residual_dropout=0.3?"),
        ("train --lr=5e-4", "did you mean --set schedule.kind=inverse-sqrt --set schedule.peak=5e-4?"),
        ("train --weight-decay 0.1", "--set optimizer.kind=adamw --set optimizer.weight_decay=0.1?"),
        ("train --validate-interval 2", "did you mean --set validation.every_epochs=2?"),
        ("train --save-interval 2", "did you mean --set checkpoints.every_epochs=2?"),
        ("train --keep-last-epochs 3", "did you mean --set checkpoints.keep_last=3?"),
        ("train --no-epoch-checkpoints", "did you mean --set checkpoints.keep_last=1?"),
        ("train --valid-freq 1e", "steps, --set validation.every_epochs=N counts epochs."),
        ("train --save_strategy epoch", "steps, --set checkpoints.every_epochs=N counts epochs."),
        ("train --every-steps 9", "--set validation.every_steps=9 or --set checkpoints.every_steps=9?"),
        ("train --freeze-encoder", "did you mean --set 'start.freeze=[\"encoder.*\"]'?"),
        ("train --max-tokens 4096", "did you mean --batch-tokens?"),
        ("train --fp16", "did you mean --set training.precision=fp16?"),
        ("train --arch transformer", "did you mean --preset?"),
        ("train --update-freq 8", "a step has --batch-tokens on any hardware"),
        ("train -batch_size 64", "did you mean --batch-tokens?"),
        ("train --d_model 512", "did you mean --set model.width=512?"),
        ("train --reset-optimizer", "--init-from RUN --out NEW."),
        ("train --max-step 9", "did you mean --max-steps?"),
        ("translate m --lenpen 0.6", "did you mean --length-penalty?"),
        ("translate m --fp16", "did you mean --precision fp16?"),
        ("translate m --remove-bpe", "not needed: input and output are plain text."),
        ("translate m --temperature 0.7", "--set search.sample=true --set search.temperature=0.7?"),
        ("translate m --bean 4", "did you mean --beam?"),
        ("translate m --ban house", "did you mean --set 'search.ban=[\"house\"]'?"),
        ("preprocess --joined-dictionary", "did you mean --joint?"),
        ("preprocess --only-source", "'--only-source': a dataset always has both languages"),
        ("preprocess --lowercase train.en", "did you mean --set text.lowercase=true?"),
        ("average-checkpoints --inputs a", "'--inputs': give the models without a flag:"),
        ("train --no-such-thing", "No such option '--no-such-thing'.\n"),
        ("train d --max-step 9 --fp 16 --out r", "did you mean --max-steps? No such option '--fp'.\n"),
        ("average run", "No such command 'average'. Did you mean average-checkpoints?"),
        ("trian", "No such command 'trian'. Did you mean train?"),
        ("fairseq-train", "No such command 'fairseq-train'. Did you mean train?"),
        ("translate.py", "No such command 'translate.py'. Did you mean translate?"),
        ("xyzzy", "No such command 'xyzzy'."),
    ],
)
def test_names_of_other_toolkits_get_suggestions(nmt: Run, words: str, expected: str) -> None:
    result = nmt(*words.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert expected in result.stderr


def test_every_command_of_the_table_exists() -> None:
    assert {ours for ours, _ in names("commands")} <= {*group.commands}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("training.fp16", "did you mean training.precision=fp16?"),
        ("dropout", "did you mean model.residual_dropout?"),
        ("training.patience", "did you mean validation.patience?"),
        ("model.d_model", "did you mean model.width?"),
        ("batch.accum_count", "on any hardware, split to fit into memory."),
        ("training.max_step", "did you mean training.max_steps?"),
    ],
)
def test_settings_of_other_toolkits_get_suggestions(name: str, expected: str) -> None:
    assert refusal(read, TrainConfig, assignments=[f"{name}=1"]).endswith(expected)
