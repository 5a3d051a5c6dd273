"""Prepare the TED talks of IWSLT14 as fairseq's recipe does, without lower-casing and BPE.

    python recipes/iwslt14-de-en/prepare.py FOLDER --out FOLDER

Text is tokenised with the rules of Moses. Training pairs have 1 to 175 words per side, and a length ratio of
at most 1.5. Every 23rd of these pairs goes into the validation set. The test set consists of five sets.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sacremoses import MosesTokenizer

LANGUAGES = ("de", "en")
TEST_SETS = ("dev2010", "dev2012", "tst2010", "tst2011", "tst2012")
METADATA = ("<url>", "<talkid>", "<keywords>")
MAX_WORDS = 175
MAX_RATIO = 1.5
VALID_EVERY = 23

HEADING = re.compile("</?(?:title|description)>")
SEGMENT = re.compile(r'<seg id="[0-9]*">\s*|\s*</seg>\s*')


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file. Only line feeds end a line."""
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def training_text(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines of talks, titles and descriptions, without tags."""
    return (HEADING.sub("", line) for line in lines if not any(tag in line for tag in METADATA))


def test_text(lines: Iterable[str]) -> Iterator[str]:
    """Return the segments with plain apostrophes. The training text keeps typographic ones."""
    return (SEGMENT.sub("", line).replace("’", "'") for line in lines if "<seg id" in line)


def tokenize(lang: str) -> Callable[[str], str]:
    """Return a function that tokenises text of a language without escaping characters."""
    tokenizer = MosesTokenizer(lang)
    return lambda text: str(tokenizer.tokenize(text, escape=False, return_str=True))


def fits(source: str, target: str) -> bool:
    """Return whether a tokenised pair has at most `MAX_WORDS` per side and a ratio of at most `MAX_RATIO`."""
    shorter, longer = sorted((len(source.split()), len(target.split())))
    return shorter > 0 and longer <= min(MAX_WORDS, MAX_RATIO * shorter)


def write(folder: Path, name: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Write the pairs to FOLDER/name.de and FOLDER/name.en, and print their number."""
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    for lang, side in zip(LANGUAGES, sides, strict=True):
        (folder / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in side), "utf-8", newline="\n")
    print(f"{name}: {len(sides[0]):,} pairs")


def main() -> None:
    """Write the training, validation and test sets."""
    parser = argparse.ArgumentParser(description="Prepare the unpacked archive of IWSLT14 German-English.")
    parser.add_argument("folder", type=Path, help="folder with train.tags.de, dev2010.de.xml and so on")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the three sets into")
    options = parser.parse_args()
    tokenizers = {lang: tokenize(lang) for lang in LANGUAGES}

    def pairs(read: Callable[[Iterable[str]], Iterator[str]], name: str) -> Iterator[tuple[str, str]]:
        """Yield the pairs of a set, cleaned by `read` and tokenised. `name` has {} as the language."""
        de, en = (
            map(tokenizers[lang], read(lines_of(options.folder / name.format(lang)))) for lang in LANGUAGES
        )
        return zip(de, en, strict=True)

    options.out.mkdir(parents=True, exist_ok=True)
    training = [pair for pair in pairs(training_text, "train.tags.{}") if fits(*pair)]
    write(options.out, "train", (pair for n, pair in enumerate(training, start=1) if n % VALID_EVERY))
    write(options.out, "valid", training[VALID_EVERY - 1 :: VALID_EVERY])
    write(options.out, "test", (pair for name in TEST_SETS for pair in pairs(test_text, name + ".{}.xml")))


if __name__ == "__main__":
    main()
