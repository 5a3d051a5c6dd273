"""Check the documents: links lead to files and their sections, and commands use options that exist."""

import re
import shlex
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
import pytest

import nmt_cli
from nmt_cli.cli.main import nmt
from recipes.docs import address as repository

ROOT = Path(nmt_cli.__file__).parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(((?!\w+:)[^)#\s]*)#([^)\s]+)\)")
BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    folders = (ROOT, *(ROOT / name for name in (".github", "nmt_cli", "recipes", "tests")))
    paths = [path for folder in folders[1:] for path in folder.rglob("*.md")]
    return sorted(path for path in [*ROOT.glob("*.md"), *paths] if "run" not in path.parts)


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document: those of its headings, as hosts write them, and explicit ones."""
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^#+ (.*)$", BLOCK.sub("", text))
    names = [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]
    return {*names, *re.findall(r'id="([^"]+)"', text)}


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `nmt` command in the code blocks of a document, up to its first redirection."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if re.search(r"(^|[|;&]) *nmt ", line):
                lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
                lexer.whitespace_split = True
                for ends, words in groupby(lexer, key=lambda word: set(word) <= set("|;&<>")):
                    command = list(words)
                    if not ends and command[0] == "nmt":
                        yield command


def unknown_options(words: list[str]) -> list[str]:
    """Return the options of a command that `nmt` does not have, or the command itself if it is unknown."""
    command = nmt.commands.get(words[1]) if len(words) > 1 else None
    if command is None:
        return [] if len(words) < 2 or words[1].startswith("-") or words[1].isupper() else words[:2]
    parameters = [p for p in command.params if isinstance(p, click.Option)]
    names = {name for p in parameters for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in names]


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_sections_of_files_and_commands_have_these_options(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in links if not (path.parent / link).exists()] == []
    linked = [(path.parent / link if link else path, anchor) for link, anchor in ANCHOR.findall(text)]
    assert [anchor for page, anchor in linked if page.suffix == ".md" and anchor not in anchors(page)] == []
    assert [unknown for words in commands(text) if (unknown := unknown_options(words))] == []


def test_the_guide_for_additions_names_files_and_names_that_exist() -> None:
    guide = (ROOT / "nmt_cli" / "README.md").read_text(encoding="utf-8").split("\n## Adding to it\n")[1]
    guide = guide.split("\n## ")[0]
    named = re.findall(r"`([\w/]+(?:/|\.(?:py|toml)))`", guide)
    folders = (ROOT, ROOT / "nmt_cli")
    assert len(named) > 30
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []
    pairs = re.findall(r"`(\w+)`\s(?:in|of)\s`([\w/]+\.py)`", guide)
    assert len(pairs) > 5
    for name, file in pairs:
        path = next(folder / file for folder in folders if (folder / file).exists())
        assert re.search(rf"^(def |class )?{name}\b", path.read_text(encoding="utf-8"), re.MULTILINE), name


def test_numbers_of_the_readme_are_those_of_the_linked_pages() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    results = (ROOT / "recipes" / "benchmarks" / "results.md").read_text(encoding="utf-8")
    assert [ratio for ratio in re.findall(r"\d\.\d\d x", readme) if ratio not in results] == []
    for row in re.findall(r"(?m)^\|.*\]\(recipes/.*$", readme):
        pages = [(ROOT / link).read_text(encoding="utf-8") for link in LINK.findall(row)]
        numbers = re.findall(r"\d+\.\d\d", row)
        assert [number for number in numbers if not any(number in page for page in pages)] == []


def test_the_address_of_the_repository_is_that_of_the_project() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in repository.documents()}
    found = {path: set(repository.REPOSITORY.findall(text)) for path, text in texts.items()}
    assert found[ROOT / "README.md"] and found[ROOT / "nmt_cli/docs/how-to/install.md"]
    wrong = [str(path) for path, addresses in found.items() if addresses - {repository.address()}]
    assert wrong == [], "write the address again with: python -m recipes.docs.address"


def test_the_version_is_the_same_everywhere() -> None:
    citation = (ROOT / ".github" / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / ".github" / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^version: (.*)$", citation) == [nmt_cli.__version__]
    folder, guide = ROOT / "recipes" / "serving", ROOT / "nmt_cli" / "docs" / "how-to" / "deploy.md"
    texts = [path.read_text("utf-8") for path in (folder / "kubernetes.yaml", folder / "README.md", guide)]
    assert re.findall(r"(?m)^## (\d\S*)", changes)[0] == nmt_cli.__version__
    assert set(re.findall(r"nmt-serve:([\d.]+\d)", "".join(texts))) == {nmt_cli.__version__}


def test_unknown_options_and_commands_are_reported() -> None:
    lines = [
        "nmt train D --out R",
        "nmt train D --lr 1  # no",
        "nmt average R",
        "cat a | nmt translate M --bean 4 > b",
        """nmt train D --set 'a.b=["<BT>", "|"]' --lr 1""",
    ]
    text = "\n".join(["```", *lines, "```"])
    assert [unknown_options(words) for words in commands(text)] == [
        [],
        ["--lr"],
        ["nmt", "average"],
        ["--bean"],
        ["--lr"],
    ]


def test_messages_in_troubleshooting_are_those_of_the_code() -> None:
    package = Path(nmt_cli.__file__).parent
    sources = (path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    code = "\n".join(re.sub(r'"\s*\n\s*f?"', "", source) for source in sources)
    page = (package / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = [message.split() for message in re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)]
    long = [words for words in messages if len(words) > 4]
    assert len(long) > 10
    # A message has values, so only some of its words appear together in the code.
    runs = {" ".join(words): {" ".join(words[n : n + 3]) for n in range(len(words) - 2)} for words in long}
    assert [message for message, parts in runs.items() if not any(part in code for part in parts)] == []
