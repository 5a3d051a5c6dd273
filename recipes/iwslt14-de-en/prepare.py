"""The TED talks of IWSLT14 as fairseq's recipe prepares them, all but lower-casing and byte pairs.

    python recipes/iwslt14-de-en/prepare.py FOLDER --out FOLDER

Words are split as Moses does. Of the training pairs those stay that have 1 to 175 words on either side and at
most 1.5 of one side for each of the other; every 23rd of these is a validation pair. The test set is five
sets in a row.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sacremoses import MosesTokenizer

LANGUAGES = ("de", "en")
TEST_SETS = ("dev2010", "dev2012", "tst2010", "tst2011", "tst2012")
LEFT_OUT = ("<url>", "<talkid>", "<keywords>")
MOST_WORDS = 175
MOST_RATIO = 1.5
VALID_EVERY = 23

HEADING = re.compile("</?(?:title|description)>")
SEGMENT = re.compile(r'<seg id="[0-9]*">\s*|\s*</seg>\s*')


def lines_of(path: Path) -> list[str]:
    """The lines of a file; only line feeds end them."""
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def training_text(lines: Iterable[str]) -> Iterator[str]:
    """What is said in talks, their titles and descriptions, without tags."""
    return (HEADING.sub("", line) for line in lines if not any(tag in line for tag in LEFT_OUT))


def test_text(lines: Iterable[str]) -> Iterator[str]:
    """The segments, with plain apostrophes; the training text keeps its own."""
    return (SEGMENT.sub("", line).replace("’", "'") for line in lines if "<seg id" in line)


def words(lang: str) -> Callable[[str], str]:
    """Splits text of a language into words with blanks between; nothing is escaped."""
    tokenizer = MosesTokenizer(lang)
    return lambda text: str(tokenizer.tokenize(text, escape=False, return_str=True))


def fits(source: str, target: str) -> bool:
    """Whether a pair, split into words, is to be kept."""
    fewer, more = sorted((len(source.split()), len(target.split())))
    return fewer > 0 and more <= min(MOST_WORDS, MOST_RATIO * fewer)


def write(folder: Path, name: str, pairs: Iterable[tuple[str, str]]) -> None:
    """FOLDER/name.de and FOLDER/name.en."""
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    for lang, side in zip(LANGUAGES, sides, strict=True):
        (folder / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in side), "utf-8", newline="\n")
    print(f"{name}: {len(sides[0]):,} pairs")


def main() -> None:
    """Read the options and write train, valid and test."""
    parser = argparse.ArgumentParser(description="Prepare the unpacked archive of IWSLT14 German-English.")
    parser.add_argument("folder", type=Path, help="where train.tags.de, dev2010.de.xml and the others are")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the three sets into")
    options = parser.parse_args()
    split = {lang: words(lang) for lang in LANGUAGES}

    def pairs(read: Callable[[Iterable[str]], Iterator[str]], name: str) -> Iterator[tuple[str, str]]:
        de, en = (map(split[lang], read(lines_of(options.folder / name.format(lang)))) for lang in LANGUAGES)
        return zip(de, en, strict=True)

    options.out.mkdir(parents=True, exist_ok=True)
    kept = [pair for pair in pairs(training_text, "train.tags.{}") if fits(*pair)]
    write(options.out, "train", (pair for n, pair in enumerate(kept, start=1) if n % VALID_EVERY))
    write(options.out, "valid", kept[VALID_EVERY - 1 :: VALID_EVERY])
    write(options.out, "test", (pair for name in TEST_SETS for pair in pairs(test_text, name + ".{}.xml")))


if __name__ == "__main__":
    main()
