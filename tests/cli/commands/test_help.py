"""`nmt help`: the list of pages, and one page."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from nmt_cli.cli.commands.help import PAGES, pages


def test_every_page_is_listed_with_its_title(nmt: Callable[..., CompletedProcess[str]]) -> None:
    listed = " ".join(nmt("help").stdout.split())
    assert sorted(pages().values()) == sorted(PAGES.rglob("*.md"))
    titles = {topic: file.read_text(encoding="utf-8").splitlines()[0] for topic, file in pages().items()}
    assert [topic for topic, title in titles.items() if f"{topic} {title[2:]}" not in listed] == []


@pytest.mark.parametrize("topic", ["log", "LOG", "reference/log", "nmt_cli/docs/reference/log.md"])
def test_a_page_in_a_pipe_is_its_markdown(nmt: Callable[..., CompletedProcess[str]], topic: str) -> None:
    assert nmt("help", topic).stdout.strip() == pages()["log"].read_text(encoding="utf-8").strip()


def test_a_command_as_topic_shows_its_help(nmt: Callable[..., CompletedProcess[str]]) -> None:
    assert nmt("help", "train").stdout == nmt("train", "--help").stdout


def test_an_unknown_topic_is_refused(nmt: Callable[..., CompletedProcess[str]]) -> None:
    result = nmt("help", "xyzzy")
    assert result.returncode == 2
    assert "Error: There is no page 'xyzzy': nmt help lists all pages." in result.stderr
    assert "Error: There is no page 'decod': did you mean decode?" in nmt("help", "decod").stderr
