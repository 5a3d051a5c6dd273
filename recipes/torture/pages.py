"""Pages made of hostile texts, opened in a real browser: none of them may run, or leave its element.

python -m recipes.torture.pages --rounds 5      four pages a round: a run's report, a comparison, attention, a
                                                filter report

Each page is made twice, of hostile and of harmless words in the same places: names of folders, sets and
languages, lines, translations, settings, what a run ran on. What a browser draws has the same kinds of
elements and attributes in both, and the mark that each hostile text would set is not there.
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
from recipes.torture.cases import GOLDEN, TRAINED, arguments
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
"""What would run, or break out, in one place of a page or another."""

Words = Callable[[], str]
Maker = Callable[[Path, Words], Path]


class Drawn(HTMLParser):
    """The kinds of elements of a page, each with the names of its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.kinds: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.kinds.add(" ".join([tag, *sorted(name for name, _ in attrs)]))


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How often each page is made.")
@click.option("--seed", default=1, show_default=True)
@click.option("--only", type=int, help="The number of one round, to see it again.")
def main(rounds: int, seed: int, only: int | None) -> None:
    """Print a table of pages; exit with 1 where any is wrong, and do nothing where there is no browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        print("there is no chromium or google-chrome here, so no page was opened; apt-get install chromium")
        return
    forks.load()
    with tempfile.TemporaryDirectory(prefix="nmt-torture-") as folder:
        tally = campaign(Path(folder), browser, seed, [only] if only is not None else range(rounds))
    print_table(tally, "page of hostile texts")
    raise SystemExit(bool(tally.wrong))


def campaign(folder: Path, browser: str, seed: int, rounds: Any) -> Tally:
    """Make each page in each round, and look at it."""
    tally = Tally()
    check_browser(folder, browser)
    for number in rounds:
        for name, make in PAGES.items():
            random = Random(f"{seed} {number} {name}")
            harmless, hostile = folder / f"harmless {name}", folder / f"hostile {name}"
            wanted = Drawn(drawn(browser, make(harmless, lambda: "word"))).kinds
            page = drawn(browser, make(hostile, lambda random=random: random.choice(HOSTILE)))  # type: ignore[misc]
            surplus = Drawn(page).kinds - wanted
            ran = MARK in page.partition(">")[2].partition(">")[0]
            told = f"a script ran: {ran}; elements: {sorted(surplus)} (--seed {seed} --only {number})"
            tally.add(name, "wrong" if ran or surplus else "identical", told)
            shutil.rmtree(harmless)
            shutil.rmtree(hostile)
    return tally


def check_browser(folder: Path, browser: str) -> None:
    """Make sure that a browser would run such texts where nothing keeps it from that."""
    page = folder / "open.html"
    page.write_text(f"<!doctype html><html><body>{HOSTILE[0]}</body></html>", encoding="utf-8")
    if MARK not in drawn(browser, page):
        sys.exit(f"{browser} runs no script of a page, so that this would prove nothing")


def drawn(browser: str, page: Path) -> str:
    """What a browser makes of a page, as HTML, once its scripts are done."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
    with tempfile.TemporaryDirectory() as profile:
        where = (f"--user-data-dir={profile}", "--virtual-time-budget=3000", "--dump-dom", page.as_uri())
        done = subprocess.run([browser, *options, *where], capture_output=True, timeout=120, check=True)
    return done.stdout.decode()


def _place(folder: Path, words: Words) -> Path:
    """Of a name of its own."""
    return folder / f"{len(list(folder.iterdir()))}{words().replace('/', '|')}"


def _run(folder: Path, words: Words) -> Path:
    """A run that took one more step on a dataset that somebody has forged."""
    dataset = Path(shutil.copytree(GOLDEN / "dataset", _place(folder, words)))
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
    run = _place(folder, words)
    _nmt(["train", str(dataset), *arguments(TRAINED, folder)[:-2], "--validate-every", "1"], run)
    return run


def _nmt(words: list[str], out: Path, *more: str) -> None:
    ended = forks.run([*words, "--out", str(out), *more], out.parent, 60)
    if ended.code:
        raise RuntimeError(f"nmt {words}: {ended.errors}")


def report(folder: Path, words: Words) -> Path:
    """The page of a run."""
    folder.mkdir()
    run = _run(folder, words)
    return run / "report.html"


def comparison(folder: Path, words: Words) -> Path:
    """The page of two runs whose files somebody has forged."""
    folder.mkdir()
    runs = []
    for _ in range(2):
        run = Path(shutil.copytree(GOLDEN / "run", _place(folder, words), symlinks=True))
        runs.append(run)
        lines = [json.loads(line) for line in (run / "log.jsonl").read_bytes().splitlines()]
        for line in lines:
            if "valid" in line:
                metric = words()
                line |= {"valid": words(), metric: 3.0, "signatures": {metric: words()}, "decoded": words()}
                line["samples"] = dict.fromkeys(line["samples"], words())
        (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        told = json.loads((run / "environment.jsonl").read_bytes())
        told |= {"command": [words()], "host": words(), "device": words(), words(): words()}
        (run / "environment.jsonl").write_text(json.dumps(told) + "\n")
        settings = f"{json.dumps(words())} = {json.dumps(words())}\nheads = {json.dumps(words())}\n"
        (run / "config.toml").write_text(f"[{json.dumps(words())}]\n{settings}", "utf-8")
    _nmt(["report", *map(str, runs)], folder / "page.html")
    return folder / "page.html"


def attention(folder: Path, words: Words) -> Path:
    """The page of what a model looked at, whose languages somebody has forged."""
    folder.mkdir()
    model = Path(shutil.copytree(GOLDEN / "model", _place(folder, words)))
    path = model / "tokenizer" / "tokenizer.json"
    told = json.loads(path.read_bytes()) | {"source_lang": words(), "target_lang": words()}
    path.write_text(json.dumps(told), "utf-8")
    agree(model)
    text = _place(folder, words)
    text.write_text("".join(f"{' '.join(words().split())}\n" for _ in range(4)), "utf-8")
    page = folder / "page.html"
    command = ["translate", str(model), "--input", str(text), "--attention", str(page), "--device", "cpu"]
    ended = forks.run([*command, "--threads", "1"], folder, 60)
    if ended.code:
        raise RuntimeError(f"nmt {command}: {ended.errors}")
    return page


def filters(folder: Path, words: Words) -> Path:
    """The page of what was left out of a corpus."""
    folder.mkdir()
    corpora = []
    for _ in range(2):
        prefix = _place(folder, words)
        for lang, side in (("en", 1), ("de", 2)):
            # Of some pairs both sides are the same, and are left out; some occur again in the other corpus.
            lines = [" ".join(words().split()) for _ in range(8)] + ["same", "a\0b" * side, "b", ""]
            prefix.with_name(f"{prefix.name}.{lang}").write_text(
                "".join(f"{line}\n" for line in lines), "utf-8"
            )
        corpora += ["--train", str(prefix)]
    flags = ("--source-lang=en", "--target-lang=de", "--tokenizer=char", "--workers=1")
    wanted = ("--set=filter.identical=true", "--set=filter.duplicates=true")
    _nmt(["preprocess", *flags, *corpora, *wanted], folder / "dataset")
    return folder / "dataset" / "filter-report.html"


PAGES: dict[str, Maker] = {
    "report of a run": report,
    "comparison of runs": comparison,
    "attention": attention,
    "filter report": filters,
}


if __name__ == "__main__":
    main()
