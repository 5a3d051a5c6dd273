"""CORS headers, errors and faults."""

import pytest

from nmt_cli.api import Model
from nmt_cli.serving.apis import libretranslate
from tests.serving.conftest import Client, Serving

BASIC = {"q": "Xylophone.", "source": "en", "target": "de"}


def test_other_sites_may_send_requests(client: Client) -> None:
    preflight = client.send("OPTIONS", "/translate", b"", {"origin": "https://example.org"})
    assert preflight.status == 200
    for answer in (
        preflight,
        client.get("/languages"),
        client.post("/translate", {}),
        client.get("/nowhere"),
    ):
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-allow-headers"] == "Authorization, Content-Type, X-API-Key"
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
    wanted = "authorization,content-type,x-stainless-os"
    asked = client.send("OPTIONS", "/v1/chat/completions", b"", {"access-control-request-headers": wanted})
    assert asked.headers["access-control-allow-headers"] == wanted


def test_unknown_paths_and_methods_are_reported(client: Client) -> None:
    assert client.get("/nowhere").status == 404
    assert client.get("/translate").status == 405
    assert list(client.get("/nowhere").json()) == ["error"]
    assert client.service.metrics.value("nmt_requests_total", route="other", status="404") >= 2


def test_a_fault_is_logged_with_its_location_and_without_user_text(
    german: Model, serving: Serving, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def fails(*_: object) -> None:
        raise KeyError("Xylophone")

    monkeypatch.setattr(libretranslate, "find_direction", fails)
    client = serving({"copies": german})
    answer = client.post("/translate", BASIC)
    assert answer.status == 500 and list(answer.json()) == ["error"]
    output = capfd.readouterr()
    assert "KeyError at " in output.err
    assert "Xylophone" not in output.err + output.out + answer.body.decode()
    assert client.service.metrics.value("nmt_requests_total", route="/translate", status="500") == 1
