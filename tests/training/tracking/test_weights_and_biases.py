"""The numbers sent to Weights & Biases, with a fake client that needs no account."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.errors import UserError
from tests.training.runs import Go, lines_of, warnings

ON = "training.wandb=true"


class Client:
    """A fake of the parts of the client that are used."""

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
    client = Client()
    monkeypatch.setitem(sys.modules, "wandb", client)
    return client


def test_the_numbers_are_those_of_the_log(go: Go, run: Path, client: Client) -> None:
    go(ON, "validation.every_steps=2")
    lines = lines_of(run)
    assert [step for step, _ in client.logged] == [line["step"] for line in lines]
    for line, (_, values) in zip(lines, client.logged, strict=True):
        name, key = ("valid dev/bleu", "bleu") if "valid" in line else ("training/nll", "nll")
        assert values[name] == line[key]
    (begun,) = client.begun
    assert (begun["name"], begun["config"]["model"]["width"], client.finished) == ("run", 16, 1)


def test_a_resumed_run_keeps_its_id(go: Go, client: Client) -> None:
    go(ON, "training.max_steps=2")
    go(ON)
    assert len({begun["id"] for begun in client.begun}) == 1
    assert [step for step, _ in client.logged] == [1, 2, 3, 4]


def test_a_failure_of_the_client_ends_the_curves_but_not_the_run(go: Go, client: Client) -> None:
    client.fails = True
    complete, events = go(ON)
    assert complete
    (warning,) = warnings(events)
    assert "nobody there" in warning


def test_a_missing_library_is_one_error_before_the_run_starts(
    go: Go, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"^training\.wandb needs .* pip install '\.\[wandb\]'"):
        go(ON)
    assert not run.exists()
