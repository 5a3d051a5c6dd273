"""The files of `recipes/serving` fit the server: port, routes, options, and the time it needs to stop."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]

import nmt_cli
from nmt_cli.api import Model
from nmt_cli.cli.main import nmt
from nmt_cli.serving.config import ServerConfig
from nmt_cli.serving.keys import Keys
from tests.serving.conftest import Serving

RECIPE = Path(nmt_cli.__file__).parent.parent / "recipes" / "serving"
SECONDS_TO_STOP = ServerConfig().most_seconds + 15
"""The longest time in which the server answers the accepted requests. `deploy.md` states it."""

PORT = next(option.default for option in nmt.commands["serve"].params if option.name == "port")
"""The port of `nmt serve` without `--port`."""


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    """Return the specifications in `kubernetes.yaml` by kind."""
    documents = yaml.safe_load_all((RECIPE / "kubernetes.yaml").read_text(encoding="utf-8"))
    return {document["kind"]: document["spec"] for document in documents}


@pytest.fixture(scope="module")
def pod(manifest: dict[str, Any]) -> Any:
    return manifest["Deployment"]["template"]["spec"]


def options_of(words: list[str]) -> dict[str, Any]:
    """Return the options of `nmt serve` by name. Fail for a word that it does not know."""
    command = nmt.commands["serve"]
    context = click.Context(command, info_name="serve")
    options, _, _ = command.make_parser(context).parse_args(list(words))
    return dict(options)


def test_the_probes_are_routes_that_need_no_key(
    pod: Any, german: Model, serving: Serving, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("secret\n")
    client = serving({"en-de": german}, keys=Keys(tmp_path / "keys"))
    (container,) = pod["containers"]
    probes = {name: probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")}
    assert set(probes) == {"startupProbe", "readinessProbe", "livenessProbe"}
    assert {name: client.get(probe["path"]).status for name, probe in probes.items()} == dict.fromkeys(
        probes, 200
    )
    assert client.get("/v1/models").status == 401  # keys are needed elsewhere


def test_service_and_probes_lead_to_the_port_of_the_server(manifest: dict[str, Any], pod: Any) -> None:
    (container,), (port,) = pod["containers"], manifest["Service"]["ports"]
    named = {one["name"]: one["containerPort"] for one in container["ports"]}
    probes = [probe["httpGet"]["port"] for name, probe in container.items() if name.endswith("Probe")]
    assert {named[name] for name in [*probes, port["targetPort"]]} == {PORT}
    assert (
        manifest["Service"]["selector"].items()
        <= manifest["Deployment"]["template"]["metadata"]["labels"].items()
    )


def test_the_image_listens_and_asks_where_the_manifest_does(pod: Any) -> None:
    image = (RECIPE / "Containerfile").read_text(encoding="utf-8")
    (container,) = pod["containers"]
    entry = json.loads(re.findall(r"(?m)^ENTRYPOINT (.*)$", image)[0])
    assert entry[:2] == ["nmt", "serve"]
    assert options_of([*entry[2:], *container["args"]])["host"] == "0.0.0.0"
    assert re.findall(r"(?m)^EXPOSE (\d+)$", image) == [str(PORT)]
    assert f"127.0.0.1:{PORT}{container['readinessProbe']['httpGet']['path']}'" in image
    assert re.findall(r"(?m)^USER (\d+):", image) == [str(pod["securityContext"]["runAsUser"])]


def test_every_file_that_an_option_names_is_mounted(pod: Any) -> None:
    (container,) = pod["containers"]
    mounts = {Path(mount["mountPath"]): mount["name"] for mount in container["volumeMounts"]}
    options = options_of(container["args"])
    files = [Path(options["keys"]), *map(Path, options["models"])]
    assert [file for file in files if file.parent not in mounts] == []
    assert sorted(mounts.values()) == sorted(volume["name"] for volume in pod["volumes"])


def test_all_files_leave_the_server_the_time_to_answer(pod: Any) -> None:
    (container,) = pod["containers"]
    (seconds,) = [
        int(word) for word in container["lifecycle"]["preStop"]["exec"]["command"] if word.isdigit()
    ]
    compose = yaml.safe_load((RECIPE / "compose.yaml").read_text(encoding="utf-8"))["services"]["nmt"]
    unit = (RECIPE / "nmt@.service").read_text(encoding="utf-8")
    assert pod["terminationGracePeriodSeconds"] >= seconds + SECONDS_TO_STOP
    assert int(compose["stop_grace_period"].removesuffix("s")) >= SECONDS_TO_STOP
    assert int(re.findall(r"(?m)^TimeoutStopSec=(\d+)$", unit)[0]) >= SECONDS_TO_STOP


def test_the_compose_file_starts_the_server_with_its_options() -> None:
    compose = yaml.safe_load((RECIPE / "compose.yaml").read_text(encoding="utf-8"))["services"]["nmt"]
    options = options_of(compose["command"])
    assert options["keys"] == "/run/secrets/keys" and compose["secrets"] == ["keys"]
    assert compose["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
