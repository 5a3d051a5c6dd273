"""Check that everything a person reads is written in plain English.

Each limit is slightly above the highest rate in click, httpx, fairseq2, litgpt, JoeyNMT and CTranslate2.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import nmt_cli

ROOT = Path(nmt_cli.__file__).parent.parent

LIMITS = {
    "after, not behind": (r"\bbehind\b", 0.15),
    "a number, not so many or as many": (r"\b(so|as) (many|much|few)\b", 0.35),
    "again, not anew": (r"\banew\b", 0.05),
    "report, pass or return, not tell": (r"\b(told|tells?|telling)\b", 0.6),
    "a noun, not a clause with what": (
        r"\b[Ww]hat (is|are|was|were|it|they|has|have|had|a|an|the|there|this|that|each|all|may|can|must|"
        r"comes?|becomes?|follows?|stands?|makes?|does|do|goes|belongs|begins|ends|fits|[a-z]+ed)\b(?!.*\?)",
        1.0,
    ),
    "the caller or the user, not who": (r"\b(whoever|who|whom)\b", 0.8),
    "if, when or in which, not where": (r"(?<!know )\b[Ww]here\b", 3.5),
    "is, not stands or lies": (r"\b(stands?|lies|lie)\b", 0.15),
    "slot, position or folder, not place": (r"\bplaces?\b", 0.75),
    "continue or resume, not go on": (r"\b(go|goes|going|gone|went) on\b", 0.1),
    "fixed, estimated, on, spaces": (
        r"\b(mend(ed|s|ing)?|reckon(ed|s|ing)?|upon|blanks|by lot|at hand)\b",
        0.15,
    ),
    "is not a, instead of is no": (r"(?<![Tt]here )\b(is|are) no [a-z]+", 0.35),
    "its own, not of its own or by itself": (r"\b(of (its|their|our) own|by (itself|themselves))\b", 0.35),
    "even if or except, not be it or save for": (r"\b(be it|were it|but for|save for)\b", 0.05),
    "in sequence, not one after another": (r"\bone (behind|after) (the other|another)\b", 0.1),
    "activation, not bend": (r"\b(bends?|bent)\b", 0.02),
    "beam state, random numbers": (r"\b(books|chances|lots|glad(ly)?)\b", 0.15),
}
"""The rule, the pattern that breaks it, and the matches that 1,000 words may have."""

SEMICOLONS_PER_100_SENTENCES = 4.0
DOCSTRINGS_WITHOUT_VERB = 0.2
NO_VERB = set(
    "the a an what which whether how where as of for all each see this that it those one some who why by in "
    "at with no every such so from on and both none true whose more their its our two several".split()
)
MESSAGE_CALLS = set(
    "UserError UsageError ClickException Notice echo option argument BadParameter warn ValueError "
    "RuntimeError".split()
)
GROUPS = ("documents", "docstrings", "comments", "messages")


class Text(NamedTuple):
    """A piece of prose and its first line in a file."""

    group: str
    path: str
    line: int
    text: str


def prose_of_source(source: str, path: str = "") -> Iterator[Text]:
    """Yield the docstrings, comments and messages of a Python file."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield Text("docstrings", path, node.lineno, text)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in MESSAGE_CALLS:
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
                        yield Text("messages", path, part.lineno, part.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text("comments", path, token.start[0], token.string.lstrip("# "))


def prose_of_document(source: str, path: str = "") -> Iterator[Text]:
    """Yield the lines of a Markdown file that are neither code nor part of a table."""
    in_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("    ") and not line.lstrip().startswith("|"):
            yield Text("documents", path, number, re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", "", line))


def broken_limits(texts: list[Text]) -> Iterator[str]:
    """Yield each group that exceeds a limit, with the lines that have the most matches."""
    for group in GROUPS:
        members = [text for text in texts if text.group == group]
        words = sum(len(re.findall(r"[A-Za-z']+", text.text)) for text in members)
        for rule, (pattern, limit) in LIMITS.items():
            matches = [(len(re.findall(pattern, member.text)), member) for member in members]
            rate = 1000 * sum(count for count, _ in matches) / max(words, 1)
            if rate > limit:
                examples = sorted((m for m in matches if m[0]), key=lambda match: -match[0])[:3]
                lines = "".join(f"\n  {m.path}:{m.line}: {m.text.strip()[:100]}" for _, m in examples)
                yield f"{group}: {rate:.2f} per 1,000 words, at most {limit} ({rule}){lines}"


def share_without_verb(docstrings: list[str]) -> float:
    """Return the share of function docstrings whose first word cannot be a verb."""
    first = [match[0].lower() for text in docstrings if (match := re.search(r"[A-Za-z']+", text))]
    return sum(word in NO_VERB for word in first) / max(len(first), 1)


def function_docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            yield text


def sources(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the content of each matching file of the package and the recipes."""
    if not (ROOT / "recipes").exists():
        pytest.skip("the package is installed apart from its repository")
    for folder in (ROOT / "nmt_cli", ROOT / "recipes"):
        for path in sorted(folder.rglob(pattern)):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_prose_keeps_the_limits() -> None:
    texts = [text for path, source in sources("*.py") for text in prose_of_source(source, path)]
    documents = [*sources("*.md"), ("README.md", (ROOT / "README.md").read_text(encoding="utf-8"))]
    texts += [text for path, source in documents for text in prose_of_document(source, path)]
    assert list(broken_limits(texts)) == []
    prose = "\n".join(text.text for text in texts if text.group != "messages")
    sentences = re.split(r"(?<=[.!?])\s+", prose)
    assert 100 * prose.count(";") / len(sentences) <= SEMICOLONS_PER_100_SENTENCES


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    docstrings = [text for _, source in sources("*.py") for text in function_docstrings(source)]
    assert share_without_verb(docstrings) <= DOCSTRINGS_WITHOUT_VERB


@pytest.mark.parametrize(
    ("source", "group"),
    [
        ('"""What is kept behind."""', "docstrings"),
        ("x = 1  # whoever made it anew", "comments"),
        ('raise UserError(f"{path} is no model; go on")', "messages"),
    ],
)
def test_a_broken_limit_is_reported_with_its_line(source: str, group: str) -> None:
    messages = list(broken_limits(list(prose_of_source(source, "a.py"))))
    assert messages
    assert all(message.startswith(group) and "a.py:1:" in message for message in messages)


def test_code_and_tables_of_documents_are_not_prose() -> None:
    document = "Plain text, `behind`.\n\n```\nbehind\n```\n\n    behind\n| behind |\n"
    assert list(broken_limits(list(prose_of_document(document)))) == []
    assert list(broken_limits(list(prose_of_document("It stands behind.")))) != []


def test_a_docstring_without_a_verb_counts() -> None:
    assert share_without_verb(["The rows.", "Return the rows."]) == 0.5
