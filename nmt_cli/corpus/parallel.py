"""Parallel corpora, as `--train`, `--valid` and `--test` name them: found on disk, and read in blocks of
pairs."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from nmt_cli.corpus import archives, arrow, files, records, sgm, tmx, trees
from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.errors import UserError
from nmt_cli.language import THREE_LETTERS

STDIN = Path("-")
Form = Literal["lines", "tsv", "table", "jsonl", "tmx", "zip", "arrow", "sgm", "trees"]
FORM_OF: dict[str, Form] = {
    ".tsv": "tsv",
    trees.SUFFIX: "trees",
    ".xml": "sgm",
    tmx.SUFFIX: "tmx",
    archives.SUFFIX: "zip",
    arrow.PARQUET: "arrow",
    **dict.fromkeys(records.JSONL_SUFFIXES, "jsonl"),
}
"""What one file with both sides is, by its ending."""

SCORED: tuple[Form, ...] = ("table", "jsonl", "arrow")
"""What may have a column of scores."""

PLACES: dict[Form, str] = {"sgm": "segment", "tmx": "pair", "arrow": "row"}
"""What is counted in files whose pairs are not lines."""

FORMATS = (*FORM_OF, *sgm.SUFFIXES)


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive pairs as raw bytes, and the number of the first in its corpus, counted from 1."""

    first: int
    sources: list[bytes]
    targets: list[bytes]
    scores: list[float] = field(default_factory=list)
    """How good each pair is, if the corpus says it."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A parallel text: the files of its two sides, which are the same if one file holds both."""

    name: str
    source: Path
    target: Path
    form: Form
    names: tuple[str, ...] = ()
    """What messages call the files, if they are copies of what can be read only once, such as stdin."""

    languages: tuple[str, str] = field(default=("", ""), compare=False)
    """Source and target language, to find both sides in a file that marks languages."""

    config: CorpusConfig = field(default=CorpusConfig(), compare=False)
    """Which columns of a table hold what."""

    parts: tuple[Path, ...] = ()
    """The files of a folder that holds both sides."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Each file once."""
        if self.parts:
            return self.parts
        return (self.source,) if self.source == self.target else (self.source, self.target)

    @property
    def has_scores(self) -> bool:
        """Whether its pairs may have scores."""
        return self.form in SCORED and bool(self.config.score_column)

    def count(self) -> int:
        """How many pairs there are; reads all files, so that damage and unequal lengths are found before work
        begins."""
        match self.form:
            case "sgm":
                return len(self._segment_pairs())
            case "tmx":
                return sum(1 for _ in tmx.pairs(self.source, *self.languages))
            case "zip":
                return archives.count(self.source, self.languages)
            case "arrow":
                return self._at_least_one(arrow.count(self.files))
            case "table":
                header = not records.has_no_names(self.config)
                return self._at_least_one(files.count_lines(self.source, self._name("source")) - header)
            case _:
                return self._count_lines()

    def _at_least_one(self, count: int) -> int:
        if count < 1:
            raise UserError(f"{self._name('source')} holds no pair; give one with at least one.")
        return count

    def _count_lines(self) -> int:
        names = self.names or map(str, self.files)
        counts = [files.count_lines(file, name) for file, name in zip(self.files, names, strict=True)]
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
        for block in self._sides(size):
            yield Block(first, *block)
            first += len(block[0])

    def place(self, side: Literal["source", "target"], number: int) -> str:
        """The file and the number of a pair's line or segment, in words for a message."""
        header = self.form == "table" and not records.has_no_names(self.config)
        return f"{self._name(side)} {PLACES.get(self.form, 'line')} {number + header:,}"

    def symbols(self) -> set[str]:
        """Words that a tokeniser should not split: the brackets and tags of trees."""
        return trees.long_symbols(files.lines(self.source)) if self.form == "trees" else set()

    def _name(self, side: Literal["source", "target"]) -> str:
        if self.names:
            return self.names[0 if side == "source" else -1]  # one name where one file has both sides
        return str(self.source if side == "source" else self.target)

    def _sides(
        self, size: int
    ) -> Iterator[tuple[list[bytes], ...] | tuple[list[bytes], list[bytes], list[float]]]:
        if self.form == "lines":
            # `count` found them equally long before; a file that has changed since must not pass as shorter.
            named = (self.source, self._name("source")), (self.target, self._name("target"))
            yield from zip(*(files.blocks(file, size, name) for file, name in named), strict=True)
        elif self.form == "zip":
            yield from archives.blocks(self.source, self.languages, size)
        elif self.form in SCORED:
            for sources, targets, scores in self._grouped(self._scored(), size):
                yield (sources, targets, scores if self.has_scores else [])
        else:
            yield from self._grouped(self._pairs(), size)

    def _grouped(self, pairs: Iterator[Any], size: int) -> Iterator[tuple[list[Any], ...]]:
        """Yield `size` pairs at a time: their sources, their targets, and their scores if they have some."""
        some, held = [], 0
        for number, pair in enumerate(pairs, start=1):
            some.append(pair)
            held += len(pair[0]) + len(pair[1])
            if held > files.MOST_BYTES_HELD:  # checked here too, since a message takes its time
                place = self.place("source", number - len(some) + 1)
                files.refuse_large(held, f"{place} to {number:,}", files.MOST_BYTES_HELD)
            if len(some) == size:
                yield tuple(map(list, zip(*some, strict=True)))
                some, held = [], 0
        if some:
            yield tuple(map(list, zip(*some, strict=True)))

    def _scored(self) -> Iterator[records.Scored]:
        """The pairs of what has columns, with their scores."""
        if self.form == "arrow":
            return arrow.pairs(self.files, self.languages, self.config)
        read = records.table if self.form == "table" else records.jsonl
        return read(self.source, self._name("source"), self.languages, self.config)

    def _pairs(self) -> Iterator[tuple[bytes, bytes]]:
        match self.form:
            case "sgm":
                return iter(self._segment_pairs())
            case "trees":
                return self._words_and_trees()
            case "tmx":
                return tmx.pairs(self.source, *self.languages)
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
                    "one tab, the target (of more, say which: --set corpus.source_column=1 or =NAME)."
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


def find(spec: str, source_lang: str, target_lang: str, config: CorpusConfig | None = None) -> Corpus:
    """The corpus that `spec` names: `-`, a file with both sides, a folder, PREFIX or SOURCE:TARGET."""
    config = config or CorpusConfig()
    corpus = replace(
        _find(spec, source_lang, target_lang), languages=(source_lang, target_lang), config=config
    )
    if corpus.form == "tsv" and records.wants_columns(config):
        return replace(corpus, form="table")
    return corpus


def _find(spec: str, source_lang: str, target_lang: str) -> Corpus:
    if spec == "-":
        return Corpus("stdin", STDIN, STDIN, "tsv")
    if two := _two_files(spec, source_lang, target_lang):
        return two
    if one := _one_path(Path(spec), source_lang, target_lang):
        return one
    if ":" in spec:
        # After all other forms, since a path may hold a colon.
        source, target = map(Path, spec.split(":", 1))
        return Corpus(_name(source, source_lang), source, target, _form(source, target))
    raise _not_found(spec, source_lang, target_lang)


def _one_path(path: Path, source_lang: str, target_lang: str) -> Corpus | None:
    if path.is_fifo():
        return Corpus(path.name, path, path, "tsv")
    if path.is_file():
        return _single_file(path)
    if not path.is_dir():
        return None
    if arrow.is_folder_of_rows(path):
        return Corpus(path.name, path, path, "arrow", parts=arrow.files_of(path))
    # A folder of mtdata has its training text under this name, and test sets in a folder of their own.
    two = _two_files(f"{path}/train", source_lang, target_lang)
    return replace(two, name=path.resolve().name) if two else None


def _not_found(spec: str, source_lang: str, target_lang: str) -> UserError:
    missing = f"{spec}.{target_lang}" if _side_of_prefix(spec, source_lang) else f"{spec}.{source_lang}"
    place = " (a directory: name the files in it)" if Path(spec).is_dir() else ""
    return UserError(
        f"{spec}{place}: there is no {missing}, nor with .gz, .bz2, .xz or .zst after it; "
        f"give PREFIX for PREFIX.{source_lang} and PREFIX.{target_lang}, SOURCE:TARGET, "
        f"one file that ends in {', '.join(FORM_OF)}, a folder of datasets or mtdata, or -."
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


def _two_files(prefix: str, source_lang: str, target_lang: str) -> Corpus | None:
    source, target = (_side_of_prefix(prefix, lang) for lang in (source_lang, target_lang))
    return Corpus(Path(prefix).name, source, target, _form(source, target)) if source and target else None


def _side_of_prefix(prefix: str, lang: str) -> Path | None:
    """PREFIX.de, packed or not; PREFIX.deu only where there is no such file."""
    for name in (lang, THREE_LETTERS.get(lang, lang)):
        if path := _one_of(f"{prefix}.{name}"):
            return path
    return None


def _one_of(name: str) -> Path | None:
    found = [path for end in ("", *files.COMPRESSIONS) if (path := Path(f"{name}{end}")).exists()]
    if len(found) > 1:
        raise UserError(f"{found[0]} and {found[1]} both exist; name the two files as SOURCE:TARGET.")
    return found[0] if found else None


def _single_file(file: Path) -> Corpus:
    for suffix in _suffixes(file):
        if suffix in FORM_OF:
            return Corpus(_name(file), file, file, FORM_OF[suffix])
    raise UserError(
        f"{file} is one file, but a parallel corpus has two sides; "
        f"give PREFIX (such as {file.with_suffix('')}), SOURCE:TARGET, or one file that ends in "
        f"{', '.join(FORM_OF)}."
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
