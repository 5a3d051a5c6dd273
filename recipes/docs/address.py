"""Write the address of the repository into all documents: `python -m recipes.docs.address`.

`Repository` in `pyproject.toml` is the address. `tests/test_documents.py` checks that the documents have it.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = re.compile(r"https://[\w.-]+/[\w.-]+/nmt(?![\w-])")
"""The address of a repository with the name nmt."""

FOLDERS = ("nmt_cli/docs", "recipes", ".github")
ENDINGS = (".md", ".yml", ".cff", ".ipynb")


def address() -> str:
    """Return the address of the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"])


def documents() -> list[Path]:
    """Return the files that may contain the address."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in ENDINGS]
    return [ROOT / "README.md", *sorted(path for path in paths if "run" not in path.parts)]


def main() -> None:
    """Replace every other address of the repository."""
    for path in documents():
        text = path.read_text(encoding="utf-8")
        changed = REPOSITORY.sub(address(), text)
        if changed != text:
            path.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    main()
