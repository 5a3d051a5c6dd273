"""The `nmt` command: imports, help, errors, signals and exit codes."""

import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from subprocess import Popen

import click
import pytest
from click.testing import CliRunner

from nmt_cli import __version__
from nmt_cli.cli.main import nmt as group
from nmt_cli.cli.options import SettingOption
from nmt_cli.config import preset_names
from tests.cli.conftest import SHOW_MODULES, Nmt, python
from tests.conftest import LANGUAGES

INTERRUPTED_IN_EXEC = """
from nmt_cli.cli import main as module
module.nmt.invoke = lambda _: exec("raise KeyboardInterrupt")
module.main()
"""
"""An interrupt within `exec`, which dataclasses call when modules are imported."""

HEAVY = {
    "torch",
    "numpy",
    "safetensors",
    "sacrebleu",
    "sentencepiece",
    "subword_nmt",
    "sacremoses",
    "rich",
    "multiprocessing",
}

ON_WINDOWS = """
import signal
import sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for name in ("SIGUSR1", "SIGHUP", "pthread_sigmask"):
    delattr(signal, name)
sys.platform = "win32"
sys.argv = ["nmt", *sys.argv[1:]]
from nmt_cli.cli.main import main
main()
"""
"""A process without the modules that Python lacks on Windows."""

TWO_SIGNALS = """
import os
import sys
import time
from nmt_cli.cli import main
first, second = map(int, sys.argv.pop().split())

@main.nmt.command()
def slow():
    try:
        os.kill(os.getpid(), first)
        time.sleep(60)
    finally:
        os.kill(os.getpid(), second)
        time.sleep(0.01)
        print("cleaned up")

main.main()
"""


@pytest.mark.parametrize(
    "name", ["", "preprocess", "train", "translate", "average-checkpoints", "score", "info"]
)
def test_help_loads_nothing_heavy(name: str) -> None:
    result = python("-c", SHOW_MODULES, *name.split(), "--help")
    assert result.returncode == 0
    loaded = set(result.stderr.split())
    assert "nmt_cli" in loaded
    assert not loaded & HEAVY


def test_score_and_preprocess_load_nothing_that_only_models_need(tmp_path: Path) -> None:
    models = {"torch", "numba", "safetensors"}
    (tmp_path / "a.de").write_text("ein Haus am See\n")
    score = ("score", "--metric", "bleu", "--reference", tmp_path / "a.de", tmp_path / "a.de")
    result = python("-c", SHOW_MODULES, *score)
    assert "100.00" in result.stdout
    loaded = set(result.stderr.split())
    assert "sacrebleu" in loaded
    assert not loaded & (models | {"numpy", "sacremoses", "joblib", "sentencepiece", "subword_nmt"})
    # The command fails at the missing corpus, after all imports of this process.
    result = python(
        "-c", SHOW_MODULES, "preprocess", *LANGUAGES, "--train", "none", "--out", tmp_path / "out"
    )
    loaded = set(result.stderr.split())
    assert "sentencepiece" in loaded
    assert not loaded & (models | {"sacrebleu", "joblib"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "{} is not a model"), (("--input", "nowhere"), "Error: nowhere does not exist. Check the path.")],
    ids=["model", "input"],
)
def test_a_missing_file_is_reported_before_pytorch_is_loaded(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = python("-c", SHOW_MODULES, "translate", tmp_path, *arguments)
    assert message.format(tmp_path) in result.stderr
    assert not set(result.stderr.split()) & {"torch", "numpy", "numba"}


@pytest.mark.slow
def test_loading_a_model_loads_nothing_that_only_training_scoring_and_serving_need() -> None:
    script = (
        "import sys; import nmt_cli.cli.reports.translation_output, nmt_cli.translation.loading as here; "
        "here.prepare(here.KERNELS); print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = set(python("-c", script).stdout.split())
    assert "torch" in loaded
    unneeded = {"sacrebleu", "sacremoses", "joblib", "pyarrow", "starlette", "transformers", "ctranslate2"}
    assert not loaded & (unneeded | {"triton", "tensorboard", "matplotlib", "sympy", "pandas"})


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    result = python("-m", "nmt_cli", "--version")
    assert (result.returncode, result.stdout.splitlines()[0]) == (0, f"nmt {__version__}")


def test_the_version_shows_python_pytorch_and_the_device(nmt: Nmt) -> None:
    message = nmt("--version").stdout.splitlines()[1]
    assert f"Python {platform.python_version()}" in message
    assert f"PyTorch {version('torch')}" in message
    assert message.count(",") >= 2


@pytest.mark.parametrize("name", group.commands)
def test_help_ends_with_an_example_that_can_be_typed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = CliRunner().invoke(group, [name, "--help"], terminal_width=110).stdout
    example = shown.rstrip().rpartition("\nExample:\n")[2].strip()
    words = shlex.split(example.partition("<")[0].replace("\\\n", ""))
    assert words[:2] == ["nmt", name]
    monkeypatch.chdir(tmp_path)
    for word in words[2:]:
        if not word.startswith("-") and not word.endswith(".svg"):
            Path(word).mkdir(parents=True, exist_ok=True)
    group.commands[name].make_context(name, words[2:])


def test_the_help_of_train_describes_every_preset() -> None:
    shown = " ".join(CliRunner().invoke(group, ["train", "--help"], terminal_width=110).stdout.split())
    listed = shown.partition("Presets.")[2].partition("Options:")[0]
    assert {word.strip("(),.") for word in listed.split()} >= set(preset_names())


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize(
    ("first", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_second_signal_does_not_interrupt_the_cleanup(first: int, code: int, second: int) -> None:
    result = python("-c", TWO_SIGNALS, "slow", f"{first:d} {second:d}")
    assert (result.returncode, result.stdout) == (code, "cleaned up\n")


@pytest.mark.slow
def test_an_ignored_sigterm_stays_ignored() -> None:
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    ending = (
        "import atexit; atexit.register(lambda: print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN))\n"
    )
    result = python("-c", f"{ignoring}{ending}from nmt_cli.cli.main import main; main()", "--version")
    assert result.stdout.splitlines()[-1] == "True"


def test_an_interrupt_within_exec_exits_with_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IN_EXEC)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = python("-m", "interrupted", "score")
    assert (result.returncode, result.stderr) == (130, "Error: interrupted.\n")


def test_the_help_lists_every_command_with_a_short_summary(nmt: Nmt) -> None:
    result = nmt("--help")
    assert result.returncode == 0
    summaries = dict(
        re.findall(r"(?m)^  ([a-z-]+) +(\S.*)$", result.stdout.partition("Data and training:")[2])
    )
    assert set(summaries) == set(group.commands)
    assert all(len(summary) <= 50 and summary.endswith(".") for summary in summaries.values())


@pytest.mark.parametrize("name", ["", *group.commands])
def test_no_help_is_cut_off_or_wider_than_80_columns(name: str) -> None:
    arguments = [name, "--help"] if name else ["--help"]
    lines = CliRunner().invoke(group, arguments, terminal_width=80).stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    # The usage names repeated arguments as "MODEL ...".
    assert [line for line in lines[1:] if "…" in line or re.search(r"[a-z,]\.\.\.", line)] == []


OPTIONS = {
    "preprocess": "source-lang target-lang train valid test tokenizer joint vocab-size reuse-tokenizer "
    "workers out overwrite config set settings",
    "train": "out preset max-steps batch-tokens max-tokens-per-device seed device devices threads "
    "validate-every save-every init-from deterministic dry-run config set settings",
    "average-checkpoints": "out last best select metric metric-model licence",
    "translate": "beam length-penalty n-best source-lang target-lang precision threads device devices input "
    "output format glossary rerank metric-model attention config set settings",
    "serve": "host port api-keys precision threads device devices config set settings",
    "score": "reference source-lang target-lang metric metric-model scorer device sentences by-length "
    "documents significance model source json config set settings",
    "import": "out source-lang target-lang positions keep add text pieces",
    "export": "format out precision check source licence push private",
    "shortlist": "",
    "info": "",
    "report": "out",
    "demo": "out",
    "help": "",
}
"""All options. Values that rarely change from run to run are settings instead."""


def test_every_command_has_these_options_and_no_more() -> None:
    options = {
        name: [option.opts[0] for option in command.params if isinstance(option, click.Option)]
        for name, command in group.commands.items()
    }
    assert options == {
        name: [*(f"--{option}" for option in text.split()), "--quiet", "--debug"]
        for name, text in OPTIONS.items()
    }


def test_help_texts_of_options_have_at_most_60_characters() -> None:
    texts = {
        f"{name} {option.opts[0]}": (option.help or "").partition("  [default")[0]
        for name, command in group.commands.items()
        for option in command.params
        if isinstance(option, click.Option) and not isinstance(option, SettingOption)
    }
    assert {name: text for name, text in texts.items() if not 0 < len(text) <= 60} == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("preprocess",),
        ("preprocess", "--no-such-flag"),
        ("preprocess", *LANGUAGES, "--train", "c"),
        ("preprocess", *LANGUAGES, "--train", "c", "--out"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(nmt: Nmt, arguments: tuple[str, ...]) -> None:
    result = nmt(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    arguments = (*LANGUAGES, "--train", tmp_path / "none", "--out", tmp_path / "out", "--debug")
    result = python("-m", "nmt_cli", "preprocess", *arguments)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "UserError" in result.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_closed_pipe_exits_with_141_and_without_output(start_nmt: Callable[..., Popen[str]]) -> None:
    process = start_nmt("preprocess", "--help")
    assert process.stdout
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr
    assert process.stderr.read() == ""


INTERRUPTED = """
import sys
from nmt_cli.cli import main

def interrupted(*_):
    sys.stdout = open(1, "w", closefd=False)  # independent of the buffering of this Python
    sys.stdout.write("half")
    raise KeyboardInterrupt

main.nmt.invoke = interrupted
sys.argv = ["nmt", "info", "."]
main.main()
"""


def test_ctrl_c_exits_with_130_even_with_a_closed_pipe() -> None:
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (130, "Error: interrupted.\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGINT, 130, "Error: interrupted."), (signal.SIGTERM, 143, "Error: terminated.")],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_a_signal_while_waiting_for_input_ends_with_its_code(
    tmp_path: Path, start_nmt: Callable[..., Popen[str]], number: int, code: int, words: str
) -> None:
    read, write = os.pipe()
    process = start_nmt("preprocess", *LANGUAGES, "--train", "-", "--out", tmp_path / "out", stdin=read)
    os.close(read)
    while not any(tmp_path.iterdir()):
        assert process.poll() is None
    time.sleep(0.5)  # a signal that arrives just before a read is handled only after the read
    process.send_signal(number)
    assert process.wait(timeout=300) == code
    os.close(write)
    assert process.stderr
    assert process.stderr.read().strip() == words
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["translate", "nowhere"], 1)])
def test_a_program_runs_exit_functions_but_destroys_no_objects(arguments: list[str], code: int) -> None:
    script = (
        "import atexit, sys\n"
        "class Permanent:\n"
        "    def __del__(self): print('taken apart')\n"
        "permanent = Permanent()\n"
        "atexit.register(print, 'due', end='')\n"
        "from nmt_cli.cli.main import program\n"
        "sys.argv[0] = 'nmt'\n"
        "try: program()\n"
        "finally: print('wrapped')"
    )
    result = python("-c", script, *arguments)
    assert result.returncode == code
    assert result.stdout.endswith("wrapped\ndue")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_cause_no_bug(tmp_path: Path, closed: str) -> None:
    (tmp_path / "a.de").write_text("ein Haus\n")
    command = f'exec {sys.executable} -m nmt_cli score --reference "{tmp_path}/a.de" {closed}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, input="", check=False)
    assert done.returncode == 1
    assert "bug in nmt" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--help"], ["train", "data", "--out", "run"], ["--debug"]])
def test_windows_is_refused_in_one_sentence(arguments: list[str]) -> None:
    result = python("-c", ON_WINDOWS, *arguments)
    assert result.stderr == "Error: nmt runs on Linux and macOS. On Windows, use WSL.\n"
    assert (result.returncode, result.stdout) == (1, "")


def test_a_caution_is_one_line_and_does_not_stop_the_command(tmp_path: Path) -> None:
    script = (
        "import errno, fcntl, os, sys\n"
        "def flock(*_): raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))\n"
        "fcntl.flock = flock\n"
        "from pathlib import Path\n"
        "from nmt_cli.cli import main\n"
        "from nmt_cli.runtime.atomic import folder_written_whole\n"
        "@main.nmt.command()\n"
        "def write():\n"
        f"    with folder_written_whole(Path({str(tmp_path / 'out')!r})) as new:\n"
        "        (new / 'file').touch()\n"
        "sys.argv = ['nmt', 'write']\n"
        "main.main()\n"
    )
    result = python("-c", script)
    assert result.returncode == 0
    assert result.stderr == (
        f"Warning: the file system of {tmp_path} has no locks (No locks available), so nothing keeps two "
        "runs from writing there at once. Take care that only one does.\n"
    )
    assert (tmp_path / "out" / "file").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("translate", "\x1b[31m\x9b2J\u202e"),
        ("score", "-", "--reference", "\x1b[31m\x9b2J\u202e"),
        ("preprocess", "--source-lang=a", "--target-lang=b", "--out=x", "--train", "\x1b[31m\x9b2J\u202e"),
    ],
    ids=["wrong usage", "score", "preprocess"],
)
def test_control_characters_in_names_are_escaped(nmt: Nmt, arguments: tuple[str, ...]) -> None:
    result = nmt(*arguments)
    assert result.returncode
    assert "\\x1b[31m\\x9b2J\\u202e" in result.stderr
    assert not set("\x1b\x9b\u202e") & {*result.stderr, *result.stdout}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_of_stdout_is_reported() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "nmt_cli", "translate", "--settings"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert (
        result.stderr == "Error: cannot write to stdout: No space left on device. Free space on its disk.\n"
    )


def test_truncating_a_mapped_file_prints_the_stack(tmp_path: Path) -> None:
    script = (
        "import mmap, os, sys, nmt_cli.cli.reports.folder_facts as message\n"
        "from nmt_cli.cli.main import main\n"
        "def facts(path):\n"
        "    with open(path, 'r+b') as file:\n"
        "        mapped = mmap.mmap(file.fileno(), 0)\n"
        "        file.truncate(0)\n"
        "        return {'first': mapped[0]}\n"
        "message.facts = facts; sys.argv = ['nmt', 'info', sys.argv[1]]; main()"
    )
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    ended = python("-c", script, tmp_path / "file")
    assert ended.returncode == -signal.SIGBUS
    assert "Bus error" in ended.stderr
    assert "in facts" in ended.stderr


def test_without_a_command_the_help_is_printed(nmt: Nmt) -> None:
    bare = nmt()
    assert (bare.returncode, bare.stdout, bare.stderr) == (2, "", nmt("--help").stdout)
