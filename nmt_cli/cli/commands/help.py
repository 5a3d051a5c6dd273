"""`nmt help`: the documentation, without a network."""

from pathlib import Path
from typing import cast

import click

from nmt_cli.cli.options import Command, common
from nmt_cli.setting_values import nearest

PAGES = Path(__file__).resolve().parents[2] / "docs"

PARTS = {
    "tutorials": "Tutorials",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
}
"""The headings in the list of pages, by the folder of the pages, in order."""


def pages() -> dict[str, Path]:
    """Return the file of each page by its topic, in the order of `PARTS`. The topic is the name of the file
    without its ending."""
    files = sorted(PAGES.glob("*/*.md"), key=lambda file: ([*PARTS].index(file.parent.name), file.name))
    return {file.stem: file for file in files}


@click.command("help", cls=Command, epilog="nmt help settings")
@click.argument("topic", default="")
@common
@click.pass_context
def help_pages(context: click.Context, topic: str, quiet: bool) -> None:
    """List the pages of the documentation, or show one.

    TOPIC is a page or a command. A page is Markdown, in a pager if stdout is
    a terminal.
    """
    files, group = pages(), cast(click.Group, context.find_root().command)
    topic = Path(topic.lower()).stem  # "how-to/decode.md" is a page too
    if not topic:
        click.echo(_listed(context, files))
    elif topic in files:
        click.echo_via_pager(files[topic].read_text(encoding="utf-8"))
    elif command := group.get_command(context, topic):
        # The arguments that the command requires are missing here, hence `resilient_parsing`.
        click.echo(command.make_context(topic, [], context.parent, resilient_parsing=True).get_help())
    else:
        hint = nearest(topic, [*files, *group.commands], "nmt help lists all pages.")
        raise click.UsageError(f"There is no page '{topic}': {hint}", context)


def _listed(context: click.Context, files: dict[str, Path]) -> str:
    """Return the list of all pages by heading, with a line that says how to read one."""
    formatter = context.make_formatter()
    for part, heading in PARTS.items():
        in_part = [file for file in files.values() if file.parent.name == part]
        titles = [file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for file in in_part]
        with formatter.section(heading):
            formatter.write_dl([(file.stem, title) for file, title in zip(in_part, titles, strict=True)])
    begin = "Begin with: nmt help first-model. To understand what happens: nmt help how-it-learns."
    end = "nmt help TOPIC shows a page, nmt help COMMAND the help of a command."
    return f"{begin}\n\n{formatter.getvalue()}\n{end}"
