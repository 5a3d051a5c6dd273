"""A hook of MkDocs. It adds the home page, the recipes and the changes to the site, and leads links to them.

A link to a file that is not a page leads to the repository.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "nmt_cli" / "docs"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")

PAGES = {
    ROOT / ".github" / "home.md": "index.md",
    ROOT / ".github" / "CHANGELOG.md": "changes.md",
    ROOT / ".github" / "CONTRIBUTING.md": "contributing.md",
    ROOT / "nmt_cli" / "README.md": "architecture.md",
}
"""The addresses of files outside of the documentation that are pages of the site."""

STYLES = ROOT / ".github" / "site.css"


def on_files(files: Files, config: Any, **_: object) -> Files:
    """Add the pages and pictures outside of the documentation, and the style sheet."""
    for path, address in PAGES.items():
        files.append(File.generated(config, address, abs_src_path=str(path)))
    for path in sorted((ROOT / "recipes").rglob("*")):
        if path.suffix in (".md", ".svg", ".png") and "run" not in path.parts:
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    files.append(File.generated(config, "site.css", abs_src_path=str(STYLES)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files, **_: object) -> str:
    """Return the Markdown of a page with links that lead to pages of the site, or to the repository."""
    source = Path(page.file.abs_src_path)

    def led(match: re.Match[str]) -> str:
        before, link, after = match.groups()
        if "://" in link or link.startswith("mailto:"):
            return match[0]
        target = (source.parent / link).resolve()
        address = _address(target)
        if files.get_file_from_path(address) is None:
            return f"{before}{config.repo_url}/blob/main/{target.relative_to(ROOT)}{after}"
        return f"{before}{posixpath.relpath(address, posixpath.dirname(page.file.src_uri))}{after}"

    return LINK.sub(led, markdown)


def _address(path: Path) -> str:
    """Return the address that a file has on the site if it is a page."""
    if path in PAGES:
        return PAGES[path]
    return str(path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT))
