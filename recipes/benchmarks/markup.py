"""Measure the translation of marked-up text with a model of the demo. Print a table.

python -m recipes.benchmarks.markup --model RUN --source test.en --reference test.de [--fragments 10000]

RUN is a run or a model of the quickstart recipe, and test.en and test.de are in its corpus. The text gets
random inline tags and line breaks. Its translation without tags must score as plain text. A tag on a word of
the demo's lexicon must be on the word's only translation.
"""

import random
import re
import time
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path

import click
from lxml import etree

from nmt_cli.api import Model, load, score_texts
from nmt_cli.demo import lexicon
from recipes.benchmarks.machine import method, print_head, print_row

TAG = re.compile("<[^>]*>")
TAGS = ("b", "i", "u", "em")


def words(text: str) -> list[str]:
    """Return the words of `text` without punctuation marks."""
    return [word.strip(".,?!") for word in text.split()]


def known_words() -> dict[str, set[str]]:
    """Return the German words of each English word in the lexicon, for entries of one word in both."""
    known: dict[str, set[str]] = {}
    for entries in vars(lexicon).values():
        for entry in entries if isinstance(entries, Sequence) else ():
            english, german = getattr(entry, "en", None), getattr(entry, "de", None)
            if (
                isinstance(english, str)
                and isinstance(german, str)
                and english.isalpha()
                and german.isalpha()
            ):
                known.setdefault(english, set()).add(german)
    return known


def tagged(line: str, generator: random.Random, breaks: bool) -> str:
    """Return `line` as a paragraph with one or two random inline tags, and with a line break if `breaks`."""
    parts = [escape(word, quote=False) for word in line.split()]
    for _ in range(generator.choice([1, 2])):
        tag = generator.choice(TAGS)
        first = generator.randrange(len(parts))
        last = min(len(parts) - 1, first + generator.randrange(3))
        if not any("<" in part for part in parts[first : last + 1]):
            parts[first] = f"<{tag}>{parts[first]}"
            parts[last] = f"{parts[last]}</{tag}>"
    spaces = [" "] * (len(parts) - 1)
    if breaks and spaces:
        spaces[generator.randrange(len(spaces))] = "\n  "
    joined = "".join(part + space for part, space in zip(parts, [*spaces, ""], strict=True))
    return f"<p>{joined}</p>"


def text_of(document: str) -> list[str]:
    """Return the text of each paragraph, without tags."""
    return [unescape(TAG.sub("", line)).strip() for line in document.split("</p>")[:-1]]


def bleu(lines: Sequence[str], references: Sequence[str]) -> float:
    """Return the BLEU of `lines`."""
    return score_texts(lines, [references], ["bleu"], lang="de")[0].value


def placed(model: Model, sources: Sequence[str], references: Sequence[str]) -> tuple[int, int]:
    """Return how many tags on a word of the lexicon are on its translation, and the number of tags. Only
    words count that are once in the source and have one translation in the reference."""
    known = known_words()
    documents, expected = [], []
    for source, reference in zip(sources, references, strict=True):
        english, german = words(source), words(reference)
        for position, word in enumerate(english):
            partners = [other for other in german if other in known.get(word, ())]
            if english.count(word) == 1 and len(partners) == 1:
                parts = source.split()
                parts[position] = parts[position].replace(word, f"<b>{word}</b>", 1)
                documents.append(f"<p>{' '.join(parts)}</p>")
                expected.append((reference, partners[0]))
    right = count = 0
    for line, (reference, partner) in zip(
        model.translate_html("\n".join(documents)).split("\n"), expected, strict=True
    ):
        if text_of(line) == [reference]:
            count += 1
            right += f"<b>{partner}</b>" in line
    return right, count


def broken(model: Model, lines: Sequence[str], count: int, generator: random.Random) -> int:
    """Return how many of `count` random fragments come back with other tags, or with wrong nesting."""
    fragments = []
    for _ in range(count):
        parts = generator.choice(lines).split()
        for _ in range(generator.randrange(4)):
            first = generator.randrange(len(parts))
            last = generator.randrange(first, len(parts))
            inner = " ".join(parts[first : last + 1])
            if inner.count("<") == 2 * inner.count("</") and "<" not in " ".join(parts[:first]):
                tag = generator.choice(TAGS)
                parts[first : last + 1] = [f"<{tag}>{inner}</{tag}>"]
        fragments.append(f"<p>{' '.join(parts)}</p>")
    wrong = 0
    for fragment, result in zip(
        fragments, model.translate_html("\n".join(fragments)).split("\n"), strict=True
    ):
        etree.fromstring(result)
        wrong += sorted(TAG.findall(fragment)) != sorted(TAG.findall(result))
    return wrong


@click.command(help=method(__doc__))
@click.option("--model", "folder", type=Path, required=True)
@click.option("--source", type=Path, required=True)
@click.option("--reference", type=Path, required=True)
@click.option("--fragments", default=10_000)
@click.option("--threads", default=2)
def main(folder: Path, source: Path, reference: Path, fragments: int, threads: int) -> None:
    """Print a row for each measurement."""
    generator = random.Random(1)
    sources, references = (path.read_text("utf-8").splitlines() for path in (source, reference))
    with load(folder, device="cpu", threads=threads) as model:
        print_head("measurement", "value")
        start = time.perf_counter()
        plain = model.translate(sources)
        seconds = time.perf_counter() - start
        print_row("BLEU of plain text", f"{bleu(plain, references):.2f}")
        for name, breaks in (("tags", False), ("tags and line breaks", True)):
            document = "\n".join(tagged(line, generator, breaks) for line in sources)
            start = time.perf_counter()
            result = model.translate_html(document)
            took = time.perf_counter() - start
            print_row(f"BLEU with {name}", f"{bleu(text_of(result), references):.2f}")
            print_row(f"lines with {name} equal to plain", f"{sum(map(str.__eq__, text_of(result), plain))}")
            print_row(f"time with {name}, of plain", f"{took / seconds:.2f}")
        right, count = placed(model, sources, references)
        print_row("tags on the right word", f"{right} of {count}, {100 * right / count:.1f} %")
        print_row(f"of {fragments:,} fragments, broken", str(broken(model, sources, fragments, generator)))


if __name__ == "__main__":
    main()
