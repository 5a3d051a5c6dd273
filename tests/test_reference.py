"""Compare the pages of the reference with the code that they describe."""

import ast
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from nmt_cli.errors import EXIT_CODES
from nmt_cli.scoring.config import Metric
from recipes.docs.reference import PAGES, REFERENCE

PACKAGE = REFERENCE.parents[1]
GOLDEN = Path(__file__).parent / "golden"


def page(name: str) -> str:
    """Return the text of a page of the reference."""
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def rows(text: str) -> Iterator[list[str]]:
    """Yield the names in code marks in the first column of each row of the tables of a page."""
    for line in text.splitlines():
        if line.startswith("|") and (names := re.findall("`([^`]*)`", line.split(" | ")[0])):
            yield names


def documented(text: str) -> set[str]:
    """Return all names in code marks in the first columns of the tables of a page."""
    return {name for names in rows(text) for name in names}


def section(name: str, heading: str) -> str:
    """Return the text of the section of a page whose heading begins with `heading`."""
    (text,) = (part for part in page(name).split("\n## ") if part.startswith(heading))
    return text


def keys(*files: str) -> set[str]:
    """Return the literal keys of dicts in files of the package."""
    sources = [(PACKAGE / file).read_text(encoding="utf-8") for file in files]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    displays = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys]
    targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    assigned = [target.slice for target in targets if isinstance(target, ast.Subscript)]
    return {str(key.value) for key in (*displays, *assigned) if isinstance(key, ast.Constant)}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert page(name) == PAGES[name](), "write the page again with: python -m recipes.docs.reference"


@pytest.mark.parametrize(
    ("heading", "files", "other"),
    [
        ("log.jsonl: a training step", ["training/tracking/log.py"], ""),
        (
            "log.jsonl: a validation",
            ["training/validation/judge.py", "training/tracking/recorder.py"],
            "bleu chrf comet",
        ),
        (
            "environment.jsonl",
            ["training/tracking/environment.py"],
            "torch numpy safetensors sacrebleu sentencepiece",
        ),
        (
            "nmt translate --format json",
            ["cli/reports/translation_output.py"],
            "empty looping copied length short markup terms",
        ),
        ("nmt score --json", ["cli/reports/score_tables.py"], ""),
        ("filter-report.json", ["data/cleaning/filter_report.py"], ""),
    ],
)
def test_every_field_of_an_output_is_documented(heading: str, files: list[str], other: str) -> None:
    text = section("log", heading)
    if heading == "nmt score --json":
        text += section("log", "nmt score --model")
    elsewhere = {"word-perplexity", "shapes", "number", "source", "target"}
    if heading == "filter-report.json":  # the fields of the page of the report
        elsewhere |= {"languages", "corpora", "reasons", "most_words", "most_ratio", "ratio_step", "settings"}
        elsewhere |= {"max_words", "max_ratio", "min_score"}
    assert documented(text) == (keys(*files) - elsewhere) | set(other.split())


def test_every_exit_code_is_documented() -> None:
    codes = {int(code) for code in re.findall(r"(?m)^\| (\d+) \|", section("log", "Exit codes"))}
    assert codes == {0, 1, 2, 141, *EXIT_CODES.values()}
    for number, code in EXIT_CODES.items():
        assert re.search(rf"(?m)^\| {code} \| .*{signal.Signals(number).name}", page("log"))


def test_every_environment_variable_of_the_code_is_documented() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    pattern = r'(?:environ|env|_number)\b[\w.]*[\[(]"([A-Z_]+)"|"([A-Z_]+)" (?:not )?in (?:os\.environ|env)\b'
    used = {name for source in sources for match in re.findall(pattern, source) for name in match if name}
    constants = r"(?m)^(?:LAUNCHER|COMPLETE|WAITING|KERNELS_KEPT) = (.*)$"
    lines = [line for source in sources for line in re.findall(constants, source)]
    used |= {name for line in lines for name in re.findall(r'"(_?[A-Z][A-Z_]+)"', line)} - {"PASSIVE"}
    assert {"OMP_NUM_THREADS", "MASTER_PORT", "NMT_LAUNCHER", "LRU_CACHE_CAPACITY"} <= used
    assert documented(page("environment")) >= used


@pytest.mark.parametrize("folder", ["dataset", "dataset/tokenizer", "run", "run/last", "model"])
def test_every_file_of_a_folder_is_documented(folder: str) -> None:
    names = " ".join(documented(page("formats"))).replace("SIDE", "(source|target)").replace("SET", "valid")
    names = names.replace("SPLIT", "(train|valid)").replace("NAME", "joint").replace("/step-N/", "")
    patterns = [name.removesuffix("/") for name in names.split()]
    written = [path.name for path in (GOLDEN / folder).iterdir()]
    assert [name for name in written if not any(re.fullmatch(pattern, name) for pattern in patterns)] == []


@pytest.mark.parametrize(
    ("heading", "file", "newer"),
    [
        ("Dataset folder", "dataset/dataset.json", set()),
        ("Run folder", "run/last/state.json", {"device", "precision"}),
        ("Model folder", "model/config.json", {"step", "imported", "search", "scores", "licence"}),
    ],
)
def test_every_key_of_a_description_is_documented(heading: str, file: str, newer: set[str]) -> None:
    keys_page = section("formats", heading).partition("| key of ")[2]
    assert documented(keys_page) == {*json.loads((GOLDEN / file).read_bytes()), *newer}


def test_every_metric_is_documented() -> None:
    assert documented(page("metrics")) >= {*get_args(Metric), "nll", "perplexity", "word-perplexity"}


def test_the_glossary_is_sorted_and_has_each_term_once() -> None:
    terms = [line.split(" | ")[0].removeprefix("| ") for line in page("glossary").splitlines() if "|" in line]
    terms = [term.lower() for term in terms[2:]]
    assert terms == sorted(set(terms))
