"""Names that people bring along from other toolkits lead to ours."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from nmt_cli.cli.main import nmt as group
from nmt_cli.cli.options import CommandWithSettings
from nmt_cli.config import describe, read
from nmt_cli.elsewhere import HERE, NOWHERE
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig

Run = Callable[..., CompletedProcess[str]]


def known() -> dict[str, set[str]]:
    """Flags and settings of each command."""
    return {
        name: {flag for param in command.params for flag in param.opts + param.secondary_opts}
        | {one.name for one in describe(command.settings)}
        for name, command in group.commands.items()
        if isinstance(command, CommandWithSettings)
    }


def test_every_answer_is_a_flag_or_a_setting_of_some_command() -> None:
    assert set(HERE) <= set().union(*known().values())


def test_no_name_in_the_table_hides_one_that_a_command_has() -> None:
    for command, names in known().items():
        flags = {name.lstrip("-").replace("-", "_") for name in names if name.startswith("--")}
        there = {here for here, others in HERE.items() if flags & set(others.split()) and here in names}
        assert not there, command


def test_every_reason_is_for_a_command_of_ours() -> None:
    commands = known().values()
    assert all(any(has in names for names in commands) for has, _, _ in NOWHERE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train --dropout 0.3", "'--dropout': did you mean --set model.residual_dropout=…?"),
        ("train --lr=5e-4", "did you mean --set schedule.peak=…?"),
        ("train --max-tokens 4096", "did you mean --batch-tokens?"),
        ("train --fp16", "did you mean --set training.precision=…?"),
        ("train --arch transformer", "did you mean --preset?"),
        ("train --update-freq 8", "a step has --batch-tokens on any hardware"),
        ("train -batch_size 64", "did you mean --batch-tokens?"),
        ("train --d_model 512", "did you mean --set model.width=…?"),
        ("train --patience 5", "did you mean --set validation.patience=…?"),
        ("translate m --lenpen 0.6", "did you mean --length-penalty?"),
        ("translate m --fp16", "did you mean --precision?"),
        ("translate m --batch-size 32", "did you mean --set search.rows=…?"),
        ("translate m --remove-bpe", "text goes in and comes out as people write it;"),
        ("preprocess --trainpref x", "did you mean --train?"),
        ("preprocess --joined-dictionary", "did you mean --joint?"),
        ("score --tokenize 13a", "did you mean --set bleu.tokenizer=…?"),
        ("train --no-such-thing", "No such option"),
    ],
)
def test_a_flag_from_elsewhere_leads_to_ours(nmt: Run, words: str, told: str) -> None:
    result = nmt(*words.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert told in result.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("training.fp16", "did you mean training.precision?"),
        ("dropout", "did you mean model.residual_dropout?"),
        ("training.patience", "did you mean validation.patience?"),
        ("model.d_model", "did you mean model.width?"),
        ("batch.accum_count", "cut to what fits; there is nothing to set."),
        ("training.max_step", "did you mean training.max_steps?"),
    ],
)
def test_a_setting_from_elsewhere_leads_to_ours(name: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        read(TrainConfig, assignments=[f"{name}=1"])
    assert str(caught.value).endswith(told)
