"""`nmt help`: the documentation, offline."""

import os
import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import cast

import click

from nmt_cli.cli.options import Command, common

PAGES = Path(__file__).parents[2] / "docs"

PARTS = {
    "tutorials": "Tutorials",
    "how-to": "How-to guides",
    "docs": "Guides",
    "reference": "Reference",
    "explanation": "Explanation",
}
"""The headings of the list by the folders of the pages, in order."""


def pages() -> dict[str, str]:
    """Return the texts of all pages by topic."""
    return {file.stem: file.read_text(encoding="utf-8") for file in _files() if file.stem != "README"}


def summary(page: str) -> str:
    """Return the title and the first sentence of a page, without the marks of Markdown."""
    title, _, body = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE).partition("\n")
    prose = next((part for part in body.split("\n\n") if re.match(r"\s*[\w`*\[]", part)), "")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", " ".join(prose.split()))
    return f"{title.strip('# ')}. {re.split(r'(?<=[.!?:]) ', plain)[0]}"


@click.command("help", cls=Command, epilog="nmt help training")
@click.argument("topic", default="")
@common
@click.pass_context
def help_pages(context: click.Context, topic: str, quiet: bool) -> None:
    """List the pages of the documentation, or show one.

    TOPIC is a page or a command. If stdout is not a terminal, the page is
    printed as Markdown.
    """
    texts, group = pages(), cast(click.Group, context.find_root().command)
    if not topic:
        click.echo(_listed(context, texts))
    elif topic in texts:
        _show(texts[topic], texts)
    elif command := group.get_command(context, topic):
        click.echo(command.make_context(topic, [], context.parent, resilient_parsing=True).get_help())
    else:
        mentions = {name: text.lower().count(topic.lower()) for name, text in texts.items()}
        most = sorted(filter(mentions.get, mentions), key=lambda name: -mentions[name])[:3]
        similar = " or ".join(get_close_matches(topic, texts, n=1) or most)
        hint = f"Did you mean {similar}?" if similar else "nmt help lists all pages."
        raise click.UsageError(f"There is no page '{topic}'. {hint}", context)


def _files() -> list[Path]:
    """Return the files of all pages, in the order of `PARTS`."""
    return sorted(PAGES.rglob("*.md"), key=lambda file: ([*PARTS].index(file.parent.name), file.name))


def _listed(context: click.Context, texts: dict[str, str]) -> str:
    """Return the topics and summaries of all pages, under the headings of their parts."""
    formatter = context.make_formatter()
    for part, heading in PARTS.items():
        topics = [file.stem for file in _files() if file.parent.name == part and file.stem in texts]
        if topics:
            with formatter.section(heading):
                formatter.write_dl([(topic, summary(texts[topic])) for topic in topics])
    return f"{formatter.getvalue()}\nnmt help TOPIC shows a page, nmt help COMMAND the help of a command."


def _show(page: str, topics: Iterable[str]) -> None:
    """Print a page. On a terminal it has styles and a pager, and links to other `topics` become commands.
    Elsewhere it is Markdown."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        linked = re.sub(rf"\]\([^:)]*?\b({'|'.join(topics)})\.md[^)]*\)", r"](nmt help \1)", page)
        console = Console(width=min(Console().width, 110))
        with console.capture() as capture:
            console.print(Markdown(linked, hyperlinks=False))
        page = capture.get()
        os.environ.setdefault("LESS", "FRX")  # colours, and no pager for a short page
    click.echo_via_pager(page, color=True)
