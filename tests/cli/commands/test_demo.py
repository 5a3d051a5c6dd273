"""`nmt demo`: its commands and its end."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nmt_cli.cli.commands import demo as command
from nmt_cli.demo import corpus
from tests.cli.conftest import Nmt
from tests.forked import Forked


@pytest.fixture
def tiny(tmp_path: Path, tiny_settings: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the demo take seconds, and return its folder."""
    (tmp_path / "train.toml").write_text(f"{tiny_settings}training.max_steps = 3\n")
    (tmp_path / "preprocess.toml").write_text(
        "tokenizer.vocab_size = 200\ntokenizer.sentencepiece_model = 'bpe'\n"
    )
    monkeypatch.setattr(command, "SETTINGS", tmp_path)
    monkeypatch.setattr(corpus, "SIZES", {"train": 300, "valid": 8, "test": 20})
    return tmp_path / "out"


@pytest.mark.slow
def test_the_demo_runs_the_pipeline_and_shows_each_command(
    tiny: Path, nmt: Nmt, fork_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(words: list[str]) -> Forked[bytes]:
        assert words[:3] == [sys.executable, "-m", "nmt_cli"]
        return Forked(fork_server, words[3:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    monkeypatch.setattr(command, "subprocess", SimpleNamespace(Popen=forked))
    result = nmt("demo", "--out", tiny)
    assert result.returncode == 0, result.stderr
    shown = [line[2:] for line in result.stderr.splitlines() if line.startswith("$ ")]
    assert [shlex.split(line)[1] for line in shown] == [words[0] for words in command.commands(tiny)]
    source = (tiny / "corpus" / "test.en").read_text().splitlines()
    assert len((tiny / "translations.de").read_text().splitlines()) == len(source) == 20
    assert all(f"\n{line}\n" in result.stdout for line in source[:4])
    assert (tiny / "training" / "report.html").exists()


def test_a_command_that_fails_ends_the_demo(tiny: Path, nmt: Nmt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "commands", lambda out: [["info", "/no/such/place"], ["info", str(out)]])
    result = nmt("demo", "--out", tiny)
    assert result.returncode == 1
    assert result.stderr.endswith("Error: nmt info failed with exit code 1. See its message above.\n")


def test_the_demo_keeps_the_text_of_others(tiny: Path, nmt: Nmt) -> None:
    mine = tiny / "corpus" / "test.de"
    mine.parent.mkdir(parents=True)
    mine.write_text("Mein eigener Text.\n")
    result = nmt("demo", "--out", tiny)
    assert result.returncode == 1
    assert result.stderr == (
        f"Error: {mine} exists, and is not of this demo. Choose another folder by --out.\n"
    )
    assert mine.read_text() == "Mein eigener Text.\n"
    assert [*mine.parent.iterdir()] == [mine]


@pytest.mark.parametrize(
    ("reaction", "message"),
    [("trap 'exit 130' INT", ""), ("", "Error: interrupted.\n")],
    ids=["reported by the command", "before the command is ready"],
)
def test_an_interrupt_is_reported_once(
    tiny: Path, nmt: Nmt, monkeypatch: pytest.MonkeyPatch, reaction: str, message: str
) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, _: list[str]) -> None:
            script = f"{reaction}\necho ready\nwhile :; do sleep 0.01; done"
            super().__init__(["sh", "-c", script], stdout=subprocess.PIPE)

        def wait(self, timeout: float | None = None) -> int:
            assert self.stdout
            if not self.stdout.closed and self.stdout.readline():
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(command, "subprocess", SimpleNamespace(Popen=Interrupted))
    before = signal.getsignal(signal.SIGINT)
    result = nmt("demo", "--out", tiny, "--quiet")
    signal.signal(signal.SIGINT, before)
    assert (result.returncode, result.stderr) == (130, message)
