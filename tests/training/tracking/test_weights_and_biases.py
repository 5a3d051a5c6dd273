"""What is sent to Weights & Biases, with a stand-in for their client, which wants an account."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.errors import UserError
from nmt_cli.training.tracking.events import Event, Warned

Go = Callable[..., tuple[bool, list[Event]]]

ON = "training.wandb=true"


class Client:
    """Their client, as far as it is used."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0
        self.fails = False

    def init(self, **what: Any) -> SimpleNamespace:
        self.begun.append(what)
        return SimpleNamespace(log=self.log, finish=self.finish)

    def log(self, values: dict[str, float], step: int) -> None:
        if self.fails:
            raise ConnectionError("nobody there")
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    found = Client()
    monkeypatch.setitem(sys.modules, "wandb", found)
    return found


def test_the_numbers_are_those_of_the_log(go: Go, run: Path, client: Client) -> None:
    go(ON, "validation.every_steps=2")
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    assert [step for step, _ in client.logged] == [line["step"] for line in lines]
    for line, (_, values) in zip(lines, client.logged, strict=True):
        name, key = ("valid dev/bleu", "bleu") if "valid" in line else ("training/nll", "nll")
        assert values[name] == line[key]
    (begun,) = client.begun
    assert (begun["name"], begun["config"]["model"]["width"], client.finished) == ("run", 16, 1)


def test_a_run_that_goes_on_is_the_same_run_there(go: Go, client: Client) -> None:
    go(ON, "training.max_steps=2")
    go(ON)
    assert len({begun["id"] for begun in client.begun}) == 1
    assert [step for step, _ in client.logged] == [1, 2, 3, 4]


def test_a_failure_there_ends_the_curves_and_not_the_run(go: Go, client: Client) -> None:
    client.fails = True
    complete, events = go(ON)
    assert complete
    assert sum(isinstance(event, Warned) and "nobody there" in event.text for event in events) == 1


def test_where_it_is_not_installed_one_error_says_so_before_anything_is_begun(
    go: Go, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"^training\.wandb needs .* pip install '\.\[wandb\]'"):
        go(ON)
    assert not run.exists()
