"""The examples of the documentation: code blocks, each followed by a block with its output.

An example is a block of bash (without a language) or Python, directly before a block `text` or `json`. Its
commands run with the model of `nmt demo` as `demo/model`. Run `python -m tests.end_to_end.examples` to write
their outputs into the pages.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from nmt_cli.demo.corpus import corpus, write
from tests.end_to_end.pages import DOCS, ROOT

MODEL = Path(os.environ.get("NMT_DEMO_MODEL", Path(__file__).parent / "demo_model"))
"""The model of the demo: the one in this folder, or another that `nmt demo` has just trained."""

PAGES = [
    page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if page.parent.name != "reference"
]
HTTP = DOCS / "reference" / "http.md"

EXAMPLE = re.compile(
    r"^```(?P<language>python|)\n(?P<code>(?:(?!```).*\n)+)```\n\n```(?:text|json)\n(?P<output>(?:(?!```).*\n)*)```$",
    re.MULTILINE,
)
ROUTE = re.compile(r"^### POST (?P<path>/\S+)\n(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
GET_ROUTE = re.compile(
    r"^### GET (?P<path>/[^\s{]+)\n(?:(?!^##)[^`]|`(?!``))*```json\n(?P<output>[^`]+)```", re.MULTILINE
)
EXCHANGE = re.compile(r"```json\n(?P<request>[^`]+)```\n\n(?:[^`#\n]+\n\n)?```json\n(?P<output>[^`]+)```")

NOT_HERE = r"(?m)^(pip |make |git |nmt (demo|serve)\b|kill |sleep |\. ).*\n?"
"""Commands that the examples do without. They install, train, or start the server that runs anyway."""

PATIENCE = 400
"""Seconds for a server to start. It may compile kernels first."""


class Example(NamedTuple):
    """Code of a page and the output that the page shows for it."""

    page: Path
    language: str
    code: str
    output: str
    start: int
    """The index of the output in the text of the page."""


def examples(page: Path) -> list[Example]:
    """Return the examples of a page in order."""
    matches = EXAMPLE.finditer(page.read_text(encoding="utf-8"))
    return [Example(page, m["language"], m["code"], m["output"], m.start("output")) for m in matches]


@contextmanager
def server(nmt: str) -> Iterator[str]:
    """Run `nmt serve` with the demo's model, and yield HOST:PORT."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["serve", "demo/model", "--port", address.partition(":")[2], "--threads", "1", "--quiet"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([nmt, *words], cwd=prepare(Path(folder)), stderr=subprocess.DEVNULL) as process,
    ):
        try:
            _wait(address, process)
            yield address
        finally:
            process.terminate()


def _wait(address: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            urlopen(f"http://{address}/health").close()
        except OSError:
            if time.monotonic() > end or process.poll() is not None:
                raise
            time.sleep(0.1)
        else:
            return


def prepare(folder: Path) -> Path:
    """Write `demo/model` and the test set of the demo into a folder, and return the folder."""
    shutil.copytree(MODEL, folder / "demo" / "model")
    (folder / "demo" / "corpus").mkdir()
    write({"test": corpus("test", 500, seed=1)}, folder / "demo" / "corpus")
    return folder


def run(example: Example, folder: Path, nmt: str, address: str) -> str:
    """Run an example in a folder of `prepare`, with the server at `address`, and return what it prints."""
    code = example.code.replace("localhost:5000", address).replace("127.0.0.1:5000", address)
    words = [sys.executable, "-c", code]
    if not example.language:
        words = ["bash", "-euo", "pipefail", "-c", re.sub(NOT_HERE, "", code)]
    path = f"{Path(nmt).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{example.code}\n{done.stderr}"
    return done.stdout.replace(address, "localhost:5000")


def like(printed: str, shown: str) -> bool:
    """Return whether two outputs have the same text, with numbers that differ by at most a tenth. Each
    training gives slightly other probabilities."""
    fraction = r"-?\d+\.\d+(?:e-?\d+)?"
    numbers = [[float(number) for number in re.findall(fraction, text)] for text in (printed, shown)]
    same = re.sub(fraction, "#", printed).split() == re.sub(fraction, "#", shown).split()
    return same and all(abs(a - b) <= 0.1 * max(abs(a), abs(b), 0.1) for a, b in zip(*numbers, strict=True))


def exchanges() -> Iterator[tuple[str, Any, str, int]]:
    """Yield the path, the request, the response and its index of each example of the HTTP API.

    The request of GET is None. Routes with a part that varies, such as `{id}`, are left out.
    """
    page = HTTP.read_text(encoding="utf-8")
    for route in ROUTE.finditer(page):
        for found in EXCHANGE.finditer(route["text"]):
            start = route.start("text") + found.start("output")
            yield route["path"], json.loads(found["request"]), found["output"], start
    for route in GET_ROUTE.finditer(page):
        yield route["path"], None, route["output"], route.start("output")


def respond(path: str, fields: object, address: str) -> str:
    """Return the response of the server as text: to POST, or to GET if `fields` is None."""
    headers = {"Content-Type": "application/json"}
    body = json.dumps(fields).encode() if fields else None
    request = Request(f"http://{address}{path}", body, headers)
    with urlopen(request) as response:
        return str(response.read().decode("utf-8"))


def main() -> None:
    """Write the outputs of all examples into the pages."""
    nmt = str(Path(sys.executable).parent / "nmt")
    with server(nmt) as address:
        for page in [path for path in PAGES if not sys.argv[1:] or path.stem in sys.argv[1:]]:
            with tempfile.TemporaryDirectory() as folder:
                prepare(Path(folder))
                printed = [run(example, Path(folder), nmt, address) for example in examples(page)]
            text = page.read_text(encoding="utf-8")
            for example, output in reversed([*zip(examples(page), printed, strict=True)]):
                end = example.start + len(example.output)
                text = text[: example.start] + output.rstrip("\n") + "\n" + text[end:]
            page.write_text(text, encoding="utf-8")
        for path, fields, _, _ in exchanges():
            print(path, json.dumps(fields), respond(path, fields, address), sep="\n")


if __name__ == "__main__":
    main()
