"""The `nmt` command as a whole: what it loads, and how it ends."""

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
from subprocess import CompletedProcess, Popen

import click
import pytest
from click.testing import CliRunner

from nmt_cli import __version__
from nmt_cli.cli.main import nmt as group
from nmt_cli.config import preset_names

SHOW_MODULES = """
import sys
import time
from nmt_cli.cli.main import main
sys.argv = ["nmt", *sys.argv[1:]]
try:
    main()
finally:
    print(*sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""

INTERRUPTED_IN_EXEC = """
from nmt_cli.cli import main as module
module.nmt.invoke = lambda _: exec("raise KeyboardInterrupt")
module.main()
"""
"""As when a dataclass is being made while modules are read."""

HEAVY = {"torch", "numpy", "sentencepiece", "subword_nmt", "sacremoses", "rich", "multiprocessing"}

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
"""With what Python lacks there."""

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

MOST_FLAGS = {
    "preprocess": 15,
    "train": 16,
    "translate": 14,
    "average-checkpoints": 6,
    "score": 10,
    "serve": 8,
    "import": 4,
    "export": 4,
    "report": 1,
    "info": 0,
    "demo": 1,
}
"""What each may have; which they are stands in the tests of the command."""

NOT_COUNTED = {"help", "quiet", "debug", "settings"}


def python(*arguments: object) -> CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("preprocess", "--help"), ("info", "--help")], ids=" ".join
)
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    result = python("-c", SHOW_MODULES, *arguments)
    assert result.returncode == 0
    loaded = set(result.stderr.split())
    assert "nmt_cli" in loaded
    assert not loaded & HEAVY


def test_scores_and_datasets_are_made_without_what_only_models_need(tmp_path: Path) -> None:
    models = {"torch", "numba", "safetensors"}
    (tmp_path / "a.de").write_text("ein Haus am See\n")
    score = ("score", "--metric", "bleu", "--reference", tmp_path / "a.de", tmp_path / "a.de")
    result = python("-c", SHOW_MODULES, *score)
    assert "100.00" in result.stdout
    loaded = set(result.stderr.split())
    assert "sacrebleu" in loaded
    assert not loaded & (models | {"numpy", "sacremoses", "joblib", "sentencepiece", "subword_nmt"})
    languages = ("--source-lang", "en", "--target-lang", "de")
    # As far as the corpus, which is not there: nothing more is loaded in this process.
    result = python(
        "-c", SHOW_MODULES, "preprocess", *languages, "--train", "none", "--out", tmp_path / "out"
    )
    loaded = set(result.stderr.split())
    assert "sentencepiece" in loaded
    assert not loaded & (models | {"sacrebleu", "joblib"})


def test_what_is_no_model_is_told_before_pytorch_is_loaded(tmp_path: Path) -> None:
    result = python("-c", SHOW_MODULES, "translate", tmp_path)
    assert f"{tmp_path} is no model" in result.stderr
    assert not set(result.stderr.split()) & {"torch", "numpy", "numba"}


@pytest.mark.slow
def test_a_model_is_loaded_without_what_only_training_scoring_and_serving_need() -> None:
    script = (
        "import sys; import nmt_cli.cli.reports.translate, nmt_cli.translation.loading as here; "
        "here.kernels(); print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = set(python("-c", script).stdout.split())
    assert "torch" in loaded
    unneeded = {"sacrebleu", "sacremoses", "joblib", "pyarrow", "starlette", "transformers", "ctranslate2"}
    assert not loaded & (unneeded | {"triton", "tensorboard", "matplotlib", "sympy", "pandas"})


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    result = python("-m", "nmt_cli", "--version")
    assert (result.returncode, result.stdout.splitlines()[0]) == (0, f"nmt {__version__}")


def test_the_version_comes_with_all_that_a_report_of_a_fault_needs(
    nmt: Callable[..., CompletedProcess[str]],
) -> None:
    told = nmt("--version").stdout.splitlines()[1]
    assert f"Python {platform.python_version()}" in told
    assert f"PyTorch {version('torch')}" in told
    assert told.count(",") >= 2


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
        if not word.startswith("-") and not word.endswith(".html"):
            Path(word).mkdir(parents=True, exist_ok=True)
    group.commands[name].make_context(name, words[2:])


def test_each_preset_is_told_what_it_is() -> None:
    shown = " ".join(CliRunner().invoke(group, ["train", "--help"], terminal_width=110).stdout.split())
    listed = shown.partition("Presets.")[2].partition("Options:")[0]
    assert {word.strip("(),.") for word in listed.split()} >= set(preset_names())


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize(
    ("first", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_second_signal_does_not_disturb_the_cleaning_up(first: int, code: int, second: int) -> None:
    result = python("-c", TWO_SIGNALS, "slow", f"{first:d} {second:d}")
    assert (result.returncode, result.stdout) == (code, "cleaned up\n")


@pytest.mark.slow
def test_a_termination_that_we_came_to_ignore_stays_ignored() -> None:
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    ending = (
        "import atexit; atexit.register(lambda: print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN))\n"
    )
    result = python("-c", f"{ignoring}{ending}from nmt_cli.cli.main import main; main()", "--version")
    assert result.stdout.splitlines()[-1] == "True"


def test_an_interrupt_within_exec_ends_with_its_code_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IN_EXEC)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = python("-m", "interrupted", "score")
    assert (result.returncode, result.stderr) == (130, "Error: interrupted.\n")


def test_the_help_lists_every_command_with_a_short_summary(nmt: Callable[..., CompletedProcess[str]]) -> None:
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


def test_there_are_these_commands_with_few_flags_each() -> None:
    assert set(group.commands) == set(MOST_FLAGS)
    for name, command in group.commands.items():
        options = {option.name for option in command.params if isinstance(option, click.Option)}
        assert len(options - NOT_COUNTED) <= MOST_FLAGS[name], name


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("preprocess",),
        ("preprocess", "--no-such-flag"),
        ("preprocess", "--source-lang", "en", "--target-lang", "de", "--train", "c"),
        ("preprocess", "--source-lang", "en", "--target-lang", "de", "--train", "c", "--out"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_two(nmt: Callable[..., CompletedProcess[str]], arguments: tuple[str, ...]) -> None:
    result = nmt(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


def test_a_failure_is_one_with_one_line_and_debug_adds_where(
    nmt_preprocess: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    arguments = ("--train", tmp_path / "none", "--out", tmp_path / "out")
    result = nmt_preprocess(*arguments)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith("Error: ")


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    languages = ("--source-lang", "en", "--target-lang", "de")
    arguments = (*languages, "--train", tmp_path / "none", "--out", tmp_path / "out")
    result = python("-m", "nmt_cli", "preprocess", *arguments, "--debug")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "UserError" in result.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_reader_of_stdout_that_went_away_is_141_without_a_word(
    start_nmt: Callable[..., Popen[str]],
) -> None:
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
    sys.stdout = open(1, "w", closefd=False)  # however this Python was told to buffer
    sys.stdout.write("half")
    raise KeyboardInterrupt

main.nmt.invoke = interrupted
sys.argv = ["nmt", "info", "."]
main.main()
"""


def test_ctrl_c_is_130_though_nobody_reads_what_was_to_be_printed() -> None:
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
    languages = ("--source-lang", "en", "--target-lang", "de")
    read, write = os.pipe()
    process = start_nmt("preprocess", *languages, "--train", "-", "--out", tmp_path / "out", stdin=read)
    os.close(read)
    while not any(tmp_path.iterdir()):
        assert process.poll() is None
    time.sleep(0.5)  # a signal in the very instant in which a read begins is seen when the read returns
    process.send_signal(number)
    assert process.wait(timeout=300) == code
    os.close(write)
    assert process.stderr
    assert process.stderr.read().strip() == words
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["translate", "nowhere"], 1)])
def test_a_program_does_what_is_due_at_its_end_but_takes_nothing_apart(
    arguments: list[str], code: int
) -> None:
    script = (
        "import atexit, sys\n"
        "class Kept:\n"
        "    def __del__(self): print('taken apart')\n"
        "kept = Kept()\n"
        "atexit.register(print, 'due', end='')\n"
        "from nmt_cli.cli.main import program\n"
        "sys.argv[0] = 'nmt'\n"
        "try: program()\n"
        "finally: print('wrapped')"
    )
    result = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert result.returncode == code
    assert result.stdout.endswith("wrapped\ndue")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_empty_and_take_everything(tmp_path: Path, closed: str) -> None:
    (tmp_path / "a.de").write_text("ein Haus\n")
    command = f'exec {sys.executable} -m nmt_cli score --reference "{tmp_path}/a.de" {closed}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, input="", check=False)
    assert done.returncode == 1
    assert "bug in nmt" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--help"], ["train", "data", "--out", "run"], ["--debug"]])
def test_windows_is_refused_in_one_sentence(arguments: list[str]) -> None:
    command = [sys.executable, "-c", ON_WINDOWS, *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stderr == "Error: nmt runs on Linux and macOS; on Windows use WSL.\n"
    assert (result.returncode, result.stdout) == (1, "")


def test_a_caution_is_one_line_and_stops_nothing(tmp_path: Path) -> None:
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
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr == (
        f"Warning: the file system of {tmp_path} has no locks (No locks available), so nothing keeps two "
        "runs from writing there at once; take care that only one does.\n"
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
def test_a_name_never_reaches_the_terminal_raw(
    nmt: Callable[..., CompletedProcess[str]], arguments: tuple[str, ...]
) -> None:
    result = nmt(*arguments)
    assert result.returncode
    assert "\\x1b[31m\\x9b2J\\u202e" in result.stderr
    assert not set("\x1b\x9b\u202e") & {*result.stderr, *result.stdout}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_stdout_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "nmt_cli", "translate", "--settings"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert (
        result.stderr == "Error: cannot write to stdout: No space left on device; free space on its disk.\n"
    )


def test_an_error_that_quotes_a_whole_file_is_shortened(nmt: Callable[..., CompletedProcess[str]]) -> None:
    result = nmt("score", "--reference", "x" * 5000)
    assert result.returncode == 1
    assert len(result.stderr) < 2100


def test_a_mapped_file_that_is_cut_ends_a_command_with_a_word_of_where_it_was(tmp_path: Path) -> None:
    script = (
        "import mmap, os, sys, nmt_cli.cli.reports.info as told; from nmt_cli.cli.main import main\n"
        "def facts(path):\n"
        "    with open(path, 'r+b') as file:\n"
        "        mapped = mmap.mmap(file.fileno(), 0)\n"
        "        file.truncate(0)\n"
        "        return {'first': mapped[0]}\n"
        "told.facts = facts; sys.argv = ['nmt', 'info', sys.argv[1]]; main()"
    )
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    ended = subprocess.run([sys.executable, "-c", script, tmp_path / "file"], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGBUS
    assert "Bus error" in ended.stderr
    assert "in facts" in ended.stderr


def test_without_a_command_there_is_the_help(nmt: Callable[..., CompletedProcess[str]]) -> None:
    bare = nmt()
    assert (bare.returncode, bare.stdout, bare.stderr) == (2, "", nmt("--help").stdout)
