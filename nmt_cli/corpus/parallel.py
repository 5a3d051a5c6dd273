"""Parallel corpora, as `--train`, `--valid` and `--test` name them: found on disk, and read in blocks of
pairs."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal

from nmt_cli.corpus import files, sgm, trees
from nmt_cli.errors import UserError

STDIN = Path("-")
FORMATS = (".tsv", trees.SUFFIX, *sgm.SUFFIXES)


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive pairs as raw bytes, and the number of the first in its corpus, counted from 1."""

    first: int
    sources: list[bytes]
    targets: list[bytes]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A parallel text: the files of its two sides, which are the same if one file holds both."""

    name: str
    source: Path
    target: Path
    form: Literal["lines", "tsv", "sgm", "trees"]
    names: tuple[str, ...] = ()
    """What messages call the files, if they are copies of what can be read only once, such as stdin."""

    languages: tuple[str, str] = field(default=("", ""), compare=False)
    """Source and target language, to find both sides in an xml that marks languages."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Each file once."""
        return (self.source,) if self.source == self.target else (self.source, self.target)

    def count(self) -> int:
        """How many pairs there are; reads all files, so that damage and unequal lengths are found before work
        begins."""
        if self.form == "sgm":
            return len(self._segment_pairs())
        counts = [files.count_lines(file) for file in self.files]
        if len(set(counts)) > 1:
            raise UserError(
                f"{self._name('source')} has {counts[0]:,} lines, {self._name('target')} has {counts[1]:,}: "
                "they must match line for line."
            )
        if not counts[0]:
            raise UserError(f"{self._name('source')} is empty; give a file with at least one line.")
        return counts[0]

    def blocks(self, size: int) -> Iterator[Block]:
        """All pairs in order, `size` at a time."""
        first = 1
        for sources, targets in self._sides(size):
            yield Block(first, sources, targets)
            first += len(sources)

    def place(self, side: Literal["source", "target"], number: int) -> str:
        """The file and the number of a pair's line or segment, in words for a message."""
        return f"{self._name(side)} {'segment' if self.form == 'sgm' else 'line'} {number:,}"

    def symbols(self) -> set[str]:
        """Words that a tokeniser should not split: the brackets and tags of trees."""
        return trees.long_symbols(files.lines(self.source)) if self.form == "trees" else set()

    def _name(self, side: Literal["source", "target"]) -> str:
        if self.names:
            return self.names[0 if side == "source" else -1]  # one name where one file has both sides
        return str(self.source if side == "source" else self.target)

    def _sides(self, size: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        if self.form == "lines":
            # `count` found them equally long before; a file that has changed since must not pass as shorter.
            return zip(files.blocks(self.source, size), files.blocks(self.target, size), strict=True)
        pairs = self._pairs()
        blocks = iter(lambda: list(islice(pairs, size)), [])
        return (([source for source, _ in block], [target for _, target in block]) for block in blocks)

    def _pairs(self) -> Iterator[tuple[bytes, bytes]]:
        match self.form:
            case "sgm":
                return iter(self._segment_pairs())
            case "trees":
                return self._words_and_trees()
            case _:
                return self._columns()

    def _words_and_trees(self) -> Iterator[tuple[bytes, bytes]]:
        for number, line in enumerate(files.lines(self.source), start=1):
            try:
                # Bytes that are not UTF-8 pass unchanged: the user's rule for them is applied to all text
                # later.
                tree = trees.parse(line.decode(errors="surrogateescape"))
            except ValueError as error:
                raise UserError(
                    f"{self.place('source', number)}: {error}; a line must be one bracketed tree, such as "
                    "(TOP (NP (DT the) (NN cat)))."
                ) from error
            sides = " ".join(tree.words), trees.linearised(tree)
            yield sides[0].encode(errors="surrogateescape"), sides[1].encode(errors="surrogateescape")

    def _columns(self) -> Iterator[tuple[bytes, bytes]]:
        for number, line in enumerate(files.lines(self.source), start=1):
            columns = line.split(b"\t")
            if len(columns) != 2:
                raise UserError(
                    f"{self.place('source', number)} has {len(columns)} columns; a line must be the source, "
                    "one tab, the target (cut -f1,2 leaves the first two of more)."
                )
            yield columns[0], columns[1]

    def _segment_pairs(self) -> list[tuple[bytes, bytes]]:
        sources = sgm.segments(self.source, "source", self.languages[0])
        targets = sgm.segments(self.target, "target", self.languages[1])
        for number, (source, target) in enumerate(zip_longest(sources, targets), start=1):
            if not source or not target or source.place != target.place:
                named = [
                    f"doc {side.document.decode()} seg {side.number.decode()}" if side else "nothing"
                    for side in (source, target)
                ]
                raise UserError(
                    f"{self.place('source', number)} is {named[0]}, but {self.target} has {named[1]} there: "
                    "source and target must have the same segments in the same order."
                )
        return [(source.text, target.text) for source, target in zip(sources, targets, strict=True)]


def find(spec: str, source_lang: str, target_lang: str) -> Corpus:
    """The corpus that `spec` names: `-`, FILE.tsv, FILE.trees, FILE.xml, PREFIX or SOURCE:TARGET."""
    return replace(_find(spec, source_lang, target_lang), languages=(source_lang, target_lang))


def _find(spec: str, source_lang: str, target_lang: str) -> Corpus:
    if spec == "-":
        return Corpus("stdin", STDIN, STDIN, "tsv")
    source, target = (_side_of_prefix(spec, lang) for lang in (source_lang, target_lang))
    if source and target:
        return Corpus(Path(spec).name, source, target, _form(source, target))
    if Path(spec).is_fifo():
        return Corpus(Path(spec).name, Path(spec), Path(spec), "tsv")
    if Path(spec).is_file():
        return _single_file(Path(spec))
    if ":" in spec:
        # After all other forms, since a path may hold a colon.
        source, target = map(Path, spec.split(":", 1))
        return Corpus(_name(source, source_lang), source, target, _form(source, target))
    missing = f"{spec}.{target_lang}" if source else f"{spec}.{source_lang}"
    place = " (a directory: name the files in it)" if Path(spec).is_dir() else ""
    raise UserError(
        f"{spec}{place}: there is no {missing}, nor with .gz, .bz2, .xz or .zst after it; "
        f"give PREFIX for PREFIX.{source_lang} and PREFIX.{target_lang}, SOURCE:TARGET, "
        "a .tsv, .trees or .xml, or -."
    )


def spool(corpus: Corpus, folder: Path) -> Corpus:
    """`corpus`, with what can be read only once (stdin, a pipe) copied to files in `folder`; it is read
    several times."""
    once = [file for file in corpus.files if file == STDIN or file.is_fifo()]
    if not once:
        return corpus
    folder.mkdir(parents=True, exist_ok=True)
    # Several corpora may share the folder.
    taken = len(list(folder.iterdir()))
    copies = {file: folder / str(number) for number, file in enumerate(once, start=taken)}
    for file, copy in copies.items():
        with sys.stdin.buffer if file == STDIN else file.open("rb") as stream, copy.open("wb") as out:
            shutil.copyfileobj(stream, out)
    source, target = (copies.get(file, file) for file in (corpus.source, corpus.target))
    names = tuple("stdin" if file == STDIN else str(file) for file in corpus.files)
    return replace(corpus, source=source, target=target, names=names)


def _side_of_prefix(prefix: str, lang: str) -> Path | None:
    found = [path for end in ("", *files.COMPRESSIONS) if (path := Path(f"{prefix}.{lang}{end}")).exists()]
    if len(found) > 1:
        raise UserError(f"{found[0]} and {found[1]} both exist; name the two files as SOURCE:TARGET.")
    return found[0] if found else None


def _single_file(file: Path) -> Corpus:
    suffixes = _suffixes(file)
    if ".tsv" in suffixes:
        return Corpus(_name(file), file, file, "tsv")
    if trees.SUFFIX in suffixes:
        return Corpus(_name(file), file, file, "trees")
    if ".xml" in suffixes:
        return Corpus(_name(file), file, file, "sgm")
    raise UserError(
        f"{file} is one file, but a parallel corpus has two sides; "
        f"give PREFIX (such as {file.with_suffix('')}), SOURCE:TARGET, or one file that ends in .tsv, .trees "
        "or .xml."
    )


def _form(source: Path, target: Path) -> Literal["lines", "sgm"]:
    marked = [any(end in sgm.SUFFIXES for end in _suffixes(file)) for file in (source, target)]
    if marked[0] != marked[1]:
        raise UserError(f"{source} and {target}: one is a WMT test set and one is not; give two of a kind.")
    return "sgm" if marked[0] else "lines"


def _suffixes(file: Path) -> list[str]:
    """The endings that say what is in the file: `corpus.tsv.gz` has .tsv and .gz."""
    return [end for end in map(str.lower, file.suffixes[-2:]) if end in (*FORMATS, *files.COMPRESSIONS)]


def _name(file: Path, lang: str = "") -> str:
    """The file's name without endings of format, compression and language."""
    name = file.name
    while Path(name).suffix.lower() in (*FORMATS, *files.COMPRESSIONS, f".{lang}"):
        name = Path(name).stem
    # WMT calls the source of a set newstest2014-deen-src.de.sgm.
    return name.removesuffix("-src")
