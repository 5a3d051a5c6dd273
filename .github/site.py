"""A hook of MkDocs. The site lacks files outside the documentation, so links to them become plain text."""

import re
from pathlib import Path
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the Markdown of a page without links to files outside of the folder of the documentation."""
    up = page.file.src_uri.count("/") + 1
    return re.sub(rf"\[([^]]*)\]\((?:\.\./){{{up},}}[^)]*\)", r"\1", markdown)


def on_post_build(config: Any) -> None:
    """Make the first tutorial the home page."""
    home = '<meta http-equiv="refresh" content="0; url=tutorials/first-model.html">\n'
    Path(config.site_dir, "index.html").write_text(home, encoding="utf-8")
