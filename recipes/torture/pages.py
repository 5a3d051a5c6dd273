"""Open pages with hostile texts in a real browser. No text may run or leave its element.

python -m recipes.torture.pages --rounds 5      all pages, five times

Each page is made twice, with hostile and with harmless texts. These are names of folders, sets and
languages, lines, translations, settings, and environments. In the browser both pages must have the same kinds
of elements and attributes. No hostile text may have set the attribute `MARK`, which proves that it ran.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import click

from recipes.torture import forks
from recipes.torture.cases import GOLDEN, TRAIN, arguments
from recipes.torture.mutations import agree
from recipes.torture.table import Tally, print_table

MARK = "data-ran"
SCRIPT = "document.documentElement.dataset.ran=1"
HOSTILE = (
    f"<img src=x onerror={SCRIPT}>",
    f'"><svg onload="{SCRIPT}">',
    f"' onmouseover='{SCRIPT}' autofocus onfocus='{SCRIPT}",
    f"<script>{SCRIPT}</script>",
    f"</script><script>{SCRIPT}</script>",
    f"</title></style></textarea><script>{SCRIPT}</script>",
    f"<!--<script>{SCRIPT}//-->",
    f"<iframe srcdoc='<script>parent.{SCRIPT}</script>'>",
    f"javascript:{SCRIPT}",
    f"</text><foreignObject><body onload={SCRIPT}>",
    f"${{{SCRIPT}}}$data\\u003cscript>{SCRIPT}",
    f"`);{SCRIPT};(`\u2028{SCRIPT}\u202e\x9b",
    f"');{SCRIPT};('",
    "<base href=https://x.invalid><meta http-equiv=refresh content=0><style>*{display:none}</style>",
    "</p></div></main></body></html><form><input autofocus><b class=out>",
)
"""Texts that would run or leave their element in some part of a page."""

Words = Callable[[], str]
"""Returns the next text of a page."""


class Elements(HTMLParser):
    """The kinds of elements of a page: each is a name, followed by sorted names of attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.kinds: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        self.kinds.add(" ".join([tag, *sorted(name for name, _ in attrs)]))


@click.command()
@click.option(
    "--rounds",
    default=5,
    type=click.IntRange(1),
    show_default=True,
    help="Number of times to make each page.",
)
@click.option("--seed", default=1, show_default=True)
@click.option("--only", type=int, help="Number of one round to reproduce.")
def main(rounds: int, seed: int, only: int | None) -> None:
    """Print a table of pages. Exit with 1 if any is wrong, or without a browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        raise SystemExit(
            "No page was opened: chromium or google-chrome is missing (apt-get install chromium)."
        )
    forks.load()
    with tempfile.TemporaryDirectory(prefix="nmt-torture-") as folder:
        tally = campaign(Path(folder), browser, seed, [only] if only is not None else range(rounds))
    print_table(tally, "page of hostile texts")
    raise SystemExit(tally.failed)


def campaign(folder: Path, browser: str, seed: int, rounds: Any) -> Tally:
    """Make each page in each round, open it in the browser, and count the outcomes."""
    tally = Tally()
    check_browser(folder, browser)
    for number in rounds:
        for name, make in PAGES.items():
            random = Random(f"{seed} {number} {name}")
            harmless, hostile = folder / f"harmless {name}", folder / f"hostile {name}"
            expected = Elements(rendered(browser, make(harmless, lambda: "word"))).kinds
            page = rendered(browser, make(hostile, lambda random=random: random.choice(HOSTILE)))  # type: ignore[misc]
            additional = Elements(page).kinds - expected
            ran = MARK in page.partition(">")[2].partition(">")[0]
            message = f"a script ran: {ran}; elements: {sorted(additional)} (--seed {seed} --only {number})"
            tally.add(name, "wrong" if ran or additional else "identical", message)
            shutil.rmtree(harmless)
            shutil.rmtree(hostile)
    return tally


def check_browser(folder: Path, browser: str) -> None:
    """Exit if the browser does not run a hostile text that nothing prevents from running."""
    page = folder / "open.html"
    page.write_text(f"<!doctype html><html><body>{HOSTILE[0]}</body></html>", encoding="utf-8")
    if MARK not in rendered(browser, page):
        sys.exit(f"{browser} runs no scripts, so this would prove nothing")


def rendered(browser: str, page: Path) -> str:
    """Return the HTML of a page after the browser has run its scripts."""
    options = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
        # Charts are drawn with the first frame, which a busy machine may not have shown by the end.
        "--run-all-compositor-stages-before-draw",
    )
    with tempfile.TemporaryDirectory() as profile:
        target = (f"--user-data-dir={profile}", "--virtual-time-budget=3000", "--dump-dom", page.as_uri())
        done = subprocess.run([browser, *options, *target], capture_output=True, timeout=120, check=True)
    return done.stdout.decode()


def _new_path(folder: Path, words: Words) -> Path:
    """Return an unused path with a hostile name."""
    return folder / f"{len(list(folder.iterdir()))}{words().replace('/', '|')}"


def _run(folder: Path, words: Words) -> Path:
    """Train one step on a dataset with hostile languages, names of sets and lines. Return the run."""
    dataset = Path(shutil.copytree(GOLDEN / "dataset", _new_path(folder, words)))
    manifest = json.loads((dataset / "dataset.json").read_bytes())
    manifest |= {"source_lang": words(), "target_lang": words()}
    name = words().replace("/", "|")
    manifest["splits"] = {"train": manifest["splits"]["train"], name: manifest["splits"]["valid"]}
    for path in sorted(dataset.glob("valid.*")):
        renamed = path.rename(path.with_name(path.name.replace("valid", name, 1)))
        manifest["files"][renamed.name] = manifest["files"].pop(path.name)
        if renamed.name.endswith("raw.txt"):
            lines = renamed.read_text("utf-8").splitlines()
            renamed.write_text("".join(f"{' '.join(words().split())}\n" for _ in lines), "utf-8")
    (dataset / "dataset.json").write_text(json.dumps(manifest), "utf-8")
    agree(dataset)
    run = _new_path(folder, words)
    command = ["train", str(dataset), *arguments(TRAIN, folder), "--validate-every", "1", "--max-steps", "1"]
    forks.succeed([*command, "--out", str(run)], folder)
    return run


def report(folder: Path, words: Words) -> Path:
    """Make the report of a run."""
    folder.mkdir()
    return _run(folder, words) / "report.html"


def attention(folder: Path, words: Words) -> Path:
    """Make the attention page of a model with hostile languages."""
    folder.mkdir()
    model = Path(shutil.copytree(GOLDEN / "model", _new_path(folder, words)))
    path = model / "tokenizer" / "tokenizer.json"
    metadata = json.loads(path.read_bytes()) | {"source_lang": words(), "target_lang": words()}
    path.write_text(json.dumps(metadata), "utf-8")
    agree(model)
    text = _new_path(folder, words)
    text.write_text("".join(f"{' '.join(words().split())}\n" for _ in range(4)), "utf-8")
    page = folder / "page.html"
    command = ["translate", str(model), "--input", str(text), "--attention", str(page), "--device", "cpu"]
    forks.succeed([*command, "--threads", "1"], folder)
    return page


def filters(folder: Path, words: Words) -> Path:
    """Make the filter report of two hostile corpora."""
    folder.mkdir()
    corpora = []
    for _ in range(2):
        prefix = _new_path(folder, words)
        for lang, side in (("en", 1), ("de", 2)):
            # Some pairs have equal sides and are left out. Some occur again in the other corpus.
            lines = [" ".join(words().split()) for _ in range(8)] + ["same", "a\0b" * side, "b", ""]
            prefix.with_name(f"{prefix.name}.{lang}").write_text(
                "".join(f"{line}\n" for line in lines), "utf-8"
            )
        corpora += ["--train", str(prefix)]
    flags = ("--source-lang=en", "--target-lang=de", "--tokenizer=char", "--workers=1")
    filter_settings = ("--set=filter.identical=true", "--set=filter.duplicates=true")
    forks.succeed(["preprocess", *flags, *corpora, *filter_settings, "--out", "dataset"], folder)
    return folder / "dataset" / "filter-report.html"


PAGES: dict[str, Callable[[Path, Words], Path]] = {
    "report of a run": report,
    "attention": attention,
    "filter report": filters,
}
"""Functions that make a page in a new folder and return its path, by the name of the page."""


if __name__ == "__main__":
    main()
