"""Suggestions for names of other toolkits and for misspelt names."""

import re
import shlex
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess

import click
import pytest
from click.testing import CliRunner

from nmt_cli.cli.main import nmt as group
from nmt_cli.cli.options import Command, SettingOption
from nmt_cli.config import Setting, describe, read
from nmt_cli.other_toolkits import table
from nmt_cli.training.config import TrainConfig
from tests.checks import refusal
from tests.foreign_options import OPTIONS

Run = Callable[..., CompletedProcess[str]]

VALUES = [
    "5",
    "0.1",
    "(0.9, 0.98)",
    "0.9,0.98,1e-09",
    "6:6",
    "inverse_sqrt",
    "transformer-base",
    "float16",
    "a.spm",
]
"""Values that users of other toolkits type."""

PLACEHOLDERS = re.compile("[ =](N|X|TEXT|VALUE)\\b|TEXT")


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


def hint(command: str, *words: str) -> str:
    """Return the error of a command about the unknown option that begins `words`, without its name."""
    with pytest.raises(click.UsageError, match=f"No such option '{words[0]}'") as caught:
        group.commands[command].make_context(command, [*words])
    return caught.value.message.removeprefix(f"No such option '{words[0]}'")


def suggestions(command: str, *words: str) -> list[str]:
    """Return the suggestions for the unknown option that begins `words`, each as words to type."""
    match = re.match(r": did you mean (.*?)\?(?: |$)", hint(command, *words))
    return match[1].split(" or ") if match else []


def accept(command: str, words: list[str]) -> None:
    """Fail if a command does not accept `words`, options with values and settings. Of an option for which
    the user has the value, only the name is checked."""
    if len(words) == 1 and words[0] not in own_names()[command]:
        pytest.fail(f"{command} has no {words[0]}")
    if len(words) > 1 and settings_of(group.commands[command]):
        # With --settings, the command reads all options and settings, and does not run.
        result = CliRunner().invoke(group, [command, *words, "--settings"])
        assert (result.exit_code, result.exception) == (0, None), (command, words, result.output)


def test_every_suggestion_is_an_option_or_a_setting_of_a_command() -> None:
    ours = {re.split("[ =]", word)[0] for here, _ in names("options") for word in here.split(" --")}
    assert ours <= set().union(*own_names().values())


def test_no_name_in_the_table_hides_a_name_of_a_command() -> None:
    for command, own in own_names().items():
        flags = {name.lstrip("-").replace("-", "_") for name in own if name.startswith("--")}
        hidden = {
            here
            for here, foreign in names("options")
            if flags & {*foreign} and re.split("[ =]", here)[0] in own
        }
        assert not hidden, command


def test_every_note_belongs_to_a_suggestion() -> None:
    assert {*table()["notes"]} <= {*table()["options"]}


@pytest.mark.parametrize(
    "words",
    [
        "translate m --max-tokens 4096",
        "train --max-tokens many --update-freq 8",
        "train --max-tokens 0",
        "train --update-freq 8",
        "train --batch-size 64",
    ],
)
def test_only_a_number_of_tokens_in_training_gets_a_batch_size(words: str) -> None:
    command, *options = words.split()
    with pytest.raises(click.UsageError) as caught:
        group.commands[command].make_context(command, options)
    assert "Begin with" not in caught.value.message


def test_all_answers_belong_to_a_command() -> None:
    assert all(any(owner in own for own in own_names().values()) for owner in table()["answers"])


def test_a_command_has_one_answer_for_a_name() -> None:
    for owner, answers in table()["answers"].items():
        foreign = " ".join(answers.values()).split()
        assert len(foreign) == len({*foreign}), owner


def test_every_value_of_the_table_is_a_value_of_an_option_or_a_setting() -> None:
    choices = {
        setting.name: setting.takes.split(" | ")
        for one in group.commands.values()
        for setting in settings_of(one)
    }
    for command in group.commands.values():
        for param in command.params:
            if isinstance(param.type, click.Choice):
                choices.setdefault(param.opts[0], []).extend(param.type.choices)
    for here in table()["values"]:
        name, _, value = here.partition("=")
        assert value in choices[name]


def typed(command: str) -> Iterator[tuple[str, ...]]:
    """Yield unknown options of a command: each name of the table and of the command's settings, and the first
    name of each line with each of `VALUES`."""
    own = own_names()[command]
    for _, foreign in [*names("options"), ("", [last_name(name) for name in own])]:
        values = VALUES
        for name, equals, value in (name.partition("=") for name in foreign):
            option = f"--{name.replace('_', '-')}"
            if option not in own and hint(command, option) != ".":
                yield (option, value.replace("*", "6")) if equals else (option,)
                yield from ((option, value) for value in values if not equals)
                values = values if equals else []


@pytest.mark.parametrize("command", group.commands)
def test_a_command_accepts_everything_that_it_suggests(command: str) -> None:
    suggested = {words for option in typed(command) for words in suggestions(command, *option)}
    for words in sorted(suggested):
        if not PLACEHOLDERS.search(words):
            accept(command, shlex.split(words))


@pytest.mark.parametrize("command", ["preprocess", "train", "translate", "score", "serve"])
def test_an_option_named_like_a_setting_suggests_it(command: str) -> None:
    own = own_names()[command]
    in_table = [name for _, foreign in names("options") for name in foreign]
    in_table += [
        name for answers in table()["answers"].values() for name in " ".join(answers.values()).split()
    ]
    for setting in settings_of(group.commands[command]):
        name = last_name(setting.name)
        option = f"--{name.replace('_', '-')}"
        if option not in own and name not in in_table:
            option_of = {
                p.setting: p.opts[0] for p in group.commands[command].params if isinstance(p, SettingOption)
            }
            expected = option_of.get(setting.name, f"--set {setting.name}=")
            assert expected in " ".join(suggestions(command, option)).replace("'", ""), option


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train --dropout 0.3", "--set model.residual_dropout=0.3?"),
        ("train --lr=5e-4", "did you mean --set schedule.kind=inverse-sqrt --set schedule.peak=5e-4?"),
        (
            "train --lr 5e-4 --lr-scheduler cosine",
            "did you mean --set schedule.peak=5e-4? No such option '--lr-scheduler': did you mean "
            "--set schedule.kind=cosine?",
        ),
        (
            "train --optimizer adam --weight-decay 0.1",
            "Error: No such option '--optimizer', '--weight-decay': did you mean --set optimizer.kind=adamw "
            "--set optimizer.weight_decay=0.1?\n",
        ),
        (
            "train --weight-decay 0.1 --optimizer adam",
            "Error: No such option '--weight-decay', '--optimizer': did you mean --set optimizer.kind=adamw "
            "--set optimizer.weight_decay=0.1?\n",
        ),
        (
            "train --optimizer muon --weight-decay 0.1",
            "'--weight-decay': did you mean --set optimizer.weight_decay",
        ),
        ("train --set schedule.kind=linear --lr 5e-4", "did you mean --set schedule.peak=5e-4?"),
        ("train --learning-rate 2 ", "did you mean --set schedule.factor=2?"),
        ("train --lr-scheduler inverse_sqrt", "did you mean --set schedule.kind=inverse-sqrt?"),
        ("train --lr-scheduler polynomial_decay", "did you mean --set schedule.kind=linear?"),
        (
            "train --lr-warmup 8000 --lr-decay-inv-sqrt 16000",
            "--set schedule.warmup=8000? No such option '--lr-decay-inv-sqrt': did you mean "
            "--set schedule.kind=inverse-sqrt --set schedule.decay_start=16000?",
        ),
        ("train --adam-betas (0.9,0.98)", "did you mean --set optimizer.beta2=0.98?"),
        (
            "train --optimizer-params 0.9,0.98,1e-09",
            "did you mean --set optimizer.beta2=0.98 --set optimizer.epsilon=1e-09?",
        ),
        ("train --optimizer-params 0.9 0.997 dataset", "did you mean --set optimizer.beta2=0.997?"),
        ("train --optimizer adafactor", ": not available: the optimisers are adam, adamw and muon"),
        (
            "train --optimizer lion",
            'optimizer.kind=VALUE? optimizer.kind must be "adam" or "adamw" or "muon" (got',
        ),
        ("train --num-layers 6:2", "did you mean --set model.encoder_layers=6 --set model.decoder_layers=2?"),
        ("train --layers 4", "did you mean --set model.encoder_layers=4 --set model.decoder_layers=4?"),
        ("train --transformer-postprocess dan", "did you mean --set model.norm=post?"),
        ("train --transformer-preprocess n", "did you mean --set model.norm=pre?"),
        ("train --layer-norm rms", "did you mean --set model.norm_kind=rms?"),
        (
            "train --guided-alignment a.align",
            "nmt preprocess --set 'corpus.alignments=[\"FILE\"]' reads links of words, not of subwords. "
            "corpus.align=true makes them",
        ),
        ("train --exponential-smoothing", "for 1e-4, --set optimizer.ema=0.9999."),
        ("train --model m.npz", ": give a folder for the run to --out."),
        ("train --task translation", ": is the default: nmt train trains translation."),
        ("train --task transformer-base", "did you mean --preset marian-base?"),
        ("train --arch transformer_iwslt_de_en", "did you mean --preset iwslt14?"),
        ("train --arch transformer", "did you mean --preset vaswani2017-base?"),
        ("train --arch lstm", "did you mean --preset?"),
        ("train --weight-decay 0.1", "--set optimizer.kind=adamw --set optimizer.weight_decay=0.1?"),
        ("train --validate-interval 2", "--validate-every N counts steps. --dry-run prints the steps of an"),
        ("train --save-interval 2", "--save-every N counts steps. --dry-run prints the steps of an epoch."),
        ("train --keep-last-epochs 3", "did you mean --set checkpoints.keep_last=3?"),
        ("train --no-epoch-checkpoints", "did you mean --set checkpoints.keep_last=1?"),
        ("train --valid-freq 1e", "--validate-every N counts steps. --dry-run prints the steps of an epoch."),
        ("train --after 10e", "--max-steps N counts steps, --set training.max_epochs=N counts epochs."),
        (
            "train --after-batches 10Ku",
            "did you mean --max-steps VALUE? training.max_steps must be a whole number",
        ),
        ("train --stop-time-hours 24", "did you mean --set training.max_hours=24?"),
        (
            "train --save_strategy epoch",
            "--save-every N counts steps. --dry-run prints the steps of an epoch.",
        ),
        ("train --every-steps 9", "did you mean --validate-every 9 or --save-every 9?"),
        ("train --freeze-encoder", "did you mean --set 'start.freeze=[\"encoder.*\"]'?"),
        (
            "train --max-tokens 4096",
            ": --batch-tokens (batch.tokens) counts real tokens of a whole step: nmt help",
        ),
        (
            "train -batch_size 64",
            ": --batch-tokens (batch.tokens) counts real tokens of a whole step: nmt help",
        ),
        ("train --fp16", "did you mean --set training.precision=fp16?"),
        ("train --wandb-project p", "did you mean --set training.wandb=true?"),
        ("train --sampling-temperature 5", "did you mean --set mixing.temperature=5?"),
        ("train --update-freq 8", "a step has --batch-tokens on any hardware"),
        ("train --d_model 512", "did you mean --set model.width=512?"),
        ("train --reset-optimizer", "--init-from RUN --out NEW."),
        ("train --patience", "did you mean --set validation.patience=N?"),
        ("train --patience 10", "add --validate-every N, with the steps of an epoch that --dry-run prints."),
        ("train --early-stopping 10", "They compare BLEU. For the loss, add --set validation.metric=nll."),
        (
            "train --keep-last-epochs 5",
            "did you mean --set checkpoints.keep_last=5? nmt saves by minutes: add --save-every N, with the "
            "steps of an epoch that --dry-run prints.",
        ),
        ("train --finetune-from-model old", "did you mean --init-from old?"),
        (
            "train --finetune-from-model 'my old.pt'",
            ": import it first, then begin with its weights: nmt import 'my old.pt' --out old, and nmt train "
            "--init-from old.",
        ),
        ("train --pretrained-model m.npz", "nmt import m.npz --out old, and nmt train --init-from old."),
        (
            "train --max-tokens 4096 --update-freq 8",
            " Begin with --batch-tokens 29000, times the number of GPUs: 4,096 x 8 padded tokens are about "
            "as many real ones.",
        ),
        (
            "train --max-tokens 4096",
            " Begin with --batch-tokens 3600, times the number of GPUs: 4,096 padded",
        ),
        ("train --mini-batch-words 9000 --optimizer-delay 2", " Begin with --batch-tokens 9000. Without"),
        ("train --max-step 9", "did you mean --max-steps?"),
        ("train --layerdrop 0.1", "not available: nmt drops no layers."),
        ("translate m --lenpen 0.6", "did you mean --set search.length_rule=power --length-penalty 0.6?"),
        ("translate m --alpha 0.6", "did you mean --length-penalty 0.6?"),
        ("translate m -b 6 -n 0.6", "did you mean --beam 6? No such option '-n': did you mean --set search."),
        ("translate m --constraints", "did you mean --glossary?"),
        ("translate m --no-repeat-ngram-size 3", "did you mean --set search.no_repeat_ngram=3?"),
        ("translate m --sampling-topk 10", "did you mean --set search.sample=true --set search.top_k=10?"),
        ("translate m --src a", "did you mean --input?"),
        (
            "translate m --score-reference",
            ": nmt score --model MODEL --source FILE prints the log-probability",
        ),
        ("translate m --fp16", "did you mean --precision fp16?"),
        ("translate m --compute-type float16", "did you mean --precision fp16?"),
        ("translate m --remove-bpe", "not needed: input and output are plain text."),
        ("translate m --temperature 0.7", ": search.temperature was removed: samples follow the model's"),
        (
            "translate m --weights 2,1",
            ": search.weights was removed: models have equal weights. Name a",
        ),
        ("translate m --bean 4", "did you mean --beam?"),
        ("translate m --ban house", "did you mean --set 'search.ban=[\"house\"]'?"),
        ("serve --models m", ": give the models without a flag: nmt serve MODEL."),
        ("serve m --workers 4", ": not needed: one process serves all requests"),
        ("score --src a --tgt b", "did you mean --source? No such option '--tgt': did you mean --reference?"),
        ("preprocess --src en", "did you mean --source-lang?"),
        ("preprocess --joined-dictionary", "did you mean --joint?"),
        ("preprocess --only-source", "'--only-source': a dataset always has both languages"),
        ("preprocess --lowercase train.en", "did you mean --set text.lowercase=true?"),
        ("preprocess --num-merges 100", "did you mean --set tokenizer.kind=bpe --set tokenizer.merges=100?"),
        ("average-checkpoints --inputs a", "'--inputs': give the models without a flag:"),
        ("train d --out r --preset base", "'base': did you mean vaswani2017-base?"),
        (
            "train --vocabs a b --dim-vocabs 9 9",
            "No such option '--vocabs', '--dim-vocabs': not needed: the dataset",
        ),
        ("train --no-such-thing", "No such option '--no-such-thing'.\n"),
        ("train d --max-step 9 --fp 16 --out r", "did you mean --max-steps? No such option '--fp'.\n"),
        ("average run", "No such command 'average'. Did you mean average-checkpoints?"),
        ("trian", "No such command 'trian'. Did you mean train?"),
        ("fairseq-train", "No such command 'fairseq-train'. Did you mean train?"),
        ("translate.py", "No such command 'translate.py'. Did you mean translate?"),
        ("decoder", "No such command 'decoder'. Did you mean translate?"),
        ("xyzzy", "No such command 'xyzzy'."),
    ],
)
def test_names_of_other_toolkits_get_suggestions(nmt: Run, words: str, expected: str) -> None:
    result = nmt(*shlex.split(words))
    assert (result.returncode, result.stdout) == (2, "")
    assert expected in result.stderr


def test_every_command_of_the_table_exists() -> None:
    assert {ours for ours, _ in names("commands")} <= {*group.commands}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("training.fp16", "did you mean training.precision=fp16?"),
        ("dropout", "did you mean model.residual_dropout?"),
        ("adam_betas", "did you mean optimizer.beta2?"),
        ("learning_rate", "did you mean schedule.factor?"),
        ("valid_steps", "did you mean validation.every_steps?"),
        (
            "batch_size",
            ": --batch-tokens (batch.tokens) counts real tokens of a whole step: nmt help from-other-toolkits"
            " converts.",
        ),
        ("training.keep_last_epochs", "did you mean checkpoints.keep_last?"),
        (
            "training.quantize_bits",
            ": not available: nmt translate --precision int8 needs no training for it.",
        ),
        ("training.patience", "did you mean validation.patience?"),
        ("model.d_model", "did you mean model.width?"),
        ("batch.accum_count", "on any hardware, split to fit into memory."),
        ("training.max_step", "did you mean training.max_steps?"),
    ],
)
def test_settings_of_other_toolkits_get_suggestions(name: str, expected: str) -> None:
    assert refusal(read, TrainConfig, assignments=[f"{name}=1"]).endswith(expected)


@pytest.mark.parametrize(("program", "command"), OPTIONS)
def test_every_option_of_other_programs_gets_an_answer(program: str, command: str) -> None:
    own = own_names()[command]
    options = [f"--{name}" if len(name) > 1 else f"-{name}" for name in OPTIONS[program, command].split()]
    assert [option for option in options if option not in own and hint(command, option) == "."] == []
