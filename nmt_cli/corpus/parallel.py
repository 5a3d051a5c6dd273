"""Parallel corpora: finding the files that `--train`, `--valid` and `--test` name, and reading pairs.

A pair is a source and a target text. A side is the source or the target of all pairs. Lines are read as
bytes, and decoded later, where the settings say what to do with invalid UTF-8.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from nmt_cli.corpus import arrow, raw_files, records, sgm, tmx
from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.errors import UserError
from nmt_cli.language import THREE_LETTERS
from nmt_cli.setting_values import shown

STDIN = Path("-")
Form = Literal["lines", "tsv", "jsonl", "tmx", "arrow", "sgm"]
FORM_OF: dict[str, Form] = {
    ".tsv": "tsv",
    ".xml": "sgm",
    tmx.SUFFIX: "tmx",
    arrow.PARQUET: "arrow",
    **dict.fromkeys(records.JSONL_SUFFIXES, "jsonl"),
}
"""The form of a file that contains both sides, by its ending."""

WITH_COLUMNS: tuple[Form, ...] = ("tsv", "jsonl", "arrow")
"""The forms with columns or fields, one of which may have quality scores."""

UNITS: dict[Form, str] = {"sgm": "segment", "tmx": "pair", "arrow": "row"}
"""The word for a pair in messages, for forms in which a pair is not a line."""

SAVED_DATASET = ("dataset_info.json", "dataset_dict.json")
"""Files that `save_to_disk` of Hugging Face's `datasets` writes."""

FORMATS = (*FORM_OF, *sgm.SUFFIXES)


@dataclass(frozen=True, slots=True)
class PairBlock:
    """Consecutive pairs as raw bytes."""

    first: int
    """The number of the first pair in its corpus, from 1."""
    sources: list[bytes]
    targets: list[bytes]
    scores: list[float] = field(default_factory=list)
    """The quality score of each pair. Empty if the corpus has no scores."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A parallel corpus on disk. If one file contains both sides, it is both `source` and `target`."""

    name: str
    source: Path
    target: Path
    form: Form
    names: tuple[str, ...] = ()
    """The names of the original files for messages, if `source` and `target` are copies, such as of stdin."""

    languages: tuple[str, str] = field(default=("", ""), compare=False)
    """The source and the target language, by which sides are found in a file that labels languages."""

    config: CorpusConfig = field(default=CorpusConfig(), compare=False)
    """The settings that name the columns of a table."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the corpus, each once."""
        return (self.source,) if self.source == self.target else (self.source, self.target)

    @property
    def streams(self) -> list[Path]:
        """Those files that can be read only once: stdin and pipes."""
        return [file for file in self.files if file == STDIN or file.is_fifo()]

    @property
    def has_columns(self) -> bool:
        """True if the corpus is a table, or has records with fields."""
        return self.form in WITH_COLUMNS

    @property
    def has_scores(self) -> bool:
        """True if the corpus has columns, and the settings name one with scores."""
        return self.has_columns and bool(self.config.score_column)

    @property
    def has_alignments(self) -> bool:
        """True if the corpus has columns, and the settings name one with word alignments."""
        return self.has_columns and bool(self.config.alignment_column)

    def alignments(self, size: int) -> Iterator[bytes]:
        """Yield the word alignment of each pair from the column that the settings name, `size` at once."""
        # They are read like targets, because they have to be found in the same rows.
        config = replace(self.config, target_column=self.config.alignment_column, score_column="")
        for block in replace(self, config=config).blocks(size):
            yield from block.targets

    def count(self) -> int:
        """Return the number of pairs.

        This reads all files completely, except for the rows of Parquet, so that most damage is found before
        any work begins. Raise `UserError` if there are no pairs, or the sides have different numbers of
        lines.
        """
        match self.form:
            case "sgm" | "tmx":
                return sum(1 for _ in self._pairs())
            case "arrow":
                # Only the metadata is read, because decompressing all rows would take as long as the work
                # itself.
                return self._at_least_one(arrow.count(self.source))
            case "tsv" if self._header:
                return self._at_least_one(
                    raw_files.count_lines(self.source, self._name("source")) - self._header
                )
            case _:
                names = self.names or tuple(map(str, self.files))
                counts = [
                    raw_files.count_lines(file, name) for file, name in zip(self.files, names, strict=True)
                ]
                if counts[0] != counts[-1]:
                    raise UserError(
                        f"{names[0]} has {counts[0]:,} lines, {names[-1]} has {counts[-1]:,}: "
                        "they must match line for line."
                    )
                return self._at_least_one(counts[0])

    def _at_least_one(self, count: int) -> int:
        if count < 1:
            raise UserError(
                f"{self._name('source')} is empty: it has no pair. Give a file with at least one."
            )
        return count

    def blocks(self, size: int) -> Iterator[PairBlock]:
        """Yield all pairs in order, in blocks of `size`. The last block may be smaller.

        Raise `UserError` for a damaged file or an invalid line. Raise `ValueError` if two files of lines do
        not match, which `count` reports better.
        """
        blocks: Iterator[tuple[list[Any], ...]]
        if self.form == "lines":
            sides = (self.source, self._name("source")), (self.target, self._name("target"))
            # `count` found equal lengths. Strict, because a file may have changed since.
            blocks = zip(*(raw_files.blocks(file, size, name) for file, name in sides), strict=True)
        else:
            blocks = self._grouped(self._pairs(), size)
        first = 1
        for block in blocks:
            yield PairBlock(first, *block)
            first += len(block[0])

    def location(self, side: Literal["source", "target"], number: int) -> str:
        """Return the file and the line, segment or row of pair `number`, from 1, such as "a.de line 3"."""
        return f"{self._name(side)} {UNITS.get(self.form, 'line')} {number + self._header:,}"

    @property
    def _header(self) -> int:
        """The number of lines before the first pair: 1 for a .tsv file with names of columns, otherwise 0."""
        return int(self.form == "tsv" and not records.has_no_names(self.config))

    def _name(self, side: Literal["source", "target"]) -> str:
        if self.names:
            return self.names[0 if side == "source" else -1]  # one name if one file contains both sides
        return str(self.source if side == "source" else self.target)

    def _pairs(self) -> Iterator[tuple[bytes, bytes]] | Iterator[records.Scored]:
        """Yield (source, target) of each pair, or (source, target, score) if the corpus has scores. This is
        for all forms except "lines"."""
        match self.form:
            case "sgm":
                return iter(sgm.pairs(self.source, self.target, self.languages, self._name("source")))
            case "tmx":
                return tmx.pairs(self.source, *self.languages)
            case "arrow":
                scored = arrow.pairs(self.source, self.languages, self.config)
            case "tsv" if self.config.columns:
                scored = records.table(self.source, self._name("source"), self.languages, self.config)
            case "jsonl":
                scored = records.jsonl(self.source, self._name("source"), self.languages, self.config)
            case _:
                return records.two_columns(self.source, self._name("source"))
        return scored if self.has_scores else (pair[:2] for pair in scored)

    def _grouped(self, pairs: Iterator[Any], size: int) -> Iterator[tuple[list[Any], ...]]:
        """Yield tuples of lists: `size` sources, their targets and, if given, their scores. The last lists
        may be shorter.

        Raise `UserError` for a group of more than `MOST_BYTES_HELD` bytes.
        """
        group, held_bytes = [], 0
        for number, pair in enumerate(pairs, start=1):
            group.append(pair)
            held_bytes += len(pair[0]) + len(pair[1])
            # Checked here too, since the text of the message is slow.
            if held_bytes > raw_files.MOST_BYTES_HELD:
                location = self.location("source", number - len(group) + 1)
                raw_files.refuse_large(held_bytes, f"{location} to {number:,}", raw_files.MOST_BYTES_HELD)
            if len(group) == size:
                yield tuple(map(list, zip(*group, strict=True)))
                group, held_bytes = [], 0
        if group:
            yield tuple(map(list, zip(*group, strict=True)))


def find(spec: str, source_lang: str, target_lang: str, config: CorpusConfig | None = None) -> Corpus:
    """Return the corpus that `spec` names. It is one of these:

    - "-": tab-separated pairs from stdin.
    - SOURCE:TARGET: two files, which may be missing.
    - One path: a file with both sides, a pipe of tab-separated pairs, or a folder of mtdata.
    - PREFIX: the files PREFIX.`source_lang` and PREFIX.`target_lang`, compressed or not.

    `config` has the settings for columns. Raise `UserError` if nothing is found, the ending of a file is
    unknown, or two files have different forms.
    """
    corpus = _find(spec, source_lang, target_lang)
    return replace(corpus, languages=(source_lang, target_lang), config=config or CorpusConfig())


def _find(spec: str, source_lang: str, target_lang: str) -> Corpus:
    """Return the corpus that `spec` names, still without languages and settings. Raise `UserError` if there
    is none."""
    if spec == "-":
        return Corpus("stdin", STDIN, STDIN, "tsv")
    corpus = _two_files(spec, source_lang, target_lang) or _one_path(Path(spec), source_lang, target_lang)
    if corpus:
        return corpus
    if ":" in spec:
        # Tried last, because a path may contain a colon.
        source, target = map(Path, spec.split(":", 1))
        return Corpus(_name(source, source_lang), source, target, _form(source, target))
    raise _not_found(spec, source_lang, target_lang)


def _one_path(path: Path, source_lang: str, target_lang: str) -> Corpus | None:
    """Return the corpus of a pipe, a file with both sides, or a folder with files train.LANG. Return None for
    a missing path or another folder.

    Raise `UserError` for a file with an unknown ending, or a folder that Hugging Face's `datasets` wrote.
    """
    if path.is_fifo():
        return Corpus(path.name, path, path, "tsv")
    if path.is_file():
        return _single_file(path)
    if not path.is_dir():
        return None
    if any((path / name).is_file() for name in SAVED_DATASET):
        raise UserError(f"{path} is a folder of Hugging Face's datasets. Write it with to_parquet instead.")
    # A folder of mtdata has its training text under this prefix, and test sets in a subfolder.
    corpus = _two_files(f"{path}/train", source_lang, target_lang)
    return replace(corpus, name=path.resolve().name) if corpus else None


def _not_found(spec: str, source_lang: str, target_lang: str) -> UserError:
    """Return the error for a `spec` that names no corpus. It lists the possible forms and the missing
    file."""
    missing = f"{spec}.{target_lang}" if _side_of_prefix(spec, source_lang) else f"{spec}.{source_lang}"
    hint = " (a directory: name the files in it)" if Path(spec).is_dir() else ""
    return UserError(
        f"{spec}{hint}: there is no {missing}, nor with .gz, .bz2, .xz or .zst after it. "
        f"Give PREFIX for PREFIX.{source_lang} and PREFIX.{target_lang}, SOURCE:TARGET, "
        f"one file that ends in {', '.join(FORM_OF)}, a folder of mtdata, or -."
    )


def spool(corpus: Corpus, folder: Path) -> Corpus:
    """Copy stdin and pipes of a corpus to `folder`, so that it can be read repeatedly. Return the corpus of
    the copies.

    Messages still have the original names. Without stdin and pipes, `folder` is not created, and `corpus` is
    returned. Several corpora may share a folder.
    """
    streams = corpus.streams
    if not streams:
        return corpus
    folder.mkdir(parents=True, exist_ok=True)
    first = len(list(folder.iterdir()))
    copies = {file: folder / str(number) for number, file in enumerate(streams, start=first)}
    for file, copy in copies.items():
        # A stream has no position, and preprocessing reads a corpus several times.
        with sys.stdin.buffer if file == STDIN else file.open("rb") as stream, copy.open("wb") as out:
            shutil.copyfileobj(stream, out)
    source, target = (copies.get(file, file) for file in (corpus.source, corpus.target))
    names = tuple("stdin" if file == STDIN else str(file) for file in corpus.files)
    return replace(corpus, source=source, target=target, names=names)


def write_pairs(name: str, pairs: Iterable[Sequence[object]], langs: tuple[str, str], folder: Path) -> Corpus:
    """Write pairs of texts from memory to two files in `folder`, and return their corpus.

    None becomes an empty text, and line breaks become spaces. Raise `UserError` for an item that is not a
    pair of texts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source, target = (folder / f"{name}.{side}" for side in ("source", "target"))
    with source.open("wb") as sources, target.open("wb") as targets:
        for number, pair in enumerate(pairs, start=1):
            location = f"{name} pair {number:,}"
            if isinstance(pair, str | bytes | Mapping) or not hasattr(pair, "__len__") or len(pair) != 2:
                raise UserError(f"{location} must be a source and its translation (got {shown(pair)}).")
            sources.write(records.text_of(pair[0], "the source", location) + b"\n")
            targets.write(records.text_of(pair[1], "the target", location) + b"\n")
    names = (f"{name} (source)", f"{name} (target)")
    return Corpus(name, source, target, "lines", names, langs)


def _two_files(prefix: str, source_lang: str, target_lang: str) -> Corpus | None:
    """Return the corpus of PREFIX.`source_lang` and PREFIX.`target_lang`, or None if a file is missing.

    Raise `UserError` if a file exists both plain and compressed, or only one of the two is a WMT test set.
    """
    source, target = (_side_of_prefix(prefix, lang) for lang in (source_lang, target_lang))
    return Corpus(Path(prefix).name, source, target, _form(source, target)) if source and target else None


def _side_of_prefix(prefix: str, lang: str) -> Path | None:
    """Return the file of one side: PREFIX.de or, with a code of three letters, PREFIX.deu, compressed or not.
    Return None if there is none. Raise `UserError` if it exists both plain and compressed."""
    for code in (lang, THREE_LETTERS.get(lang, lang)):
        names = [f"{prefix}.{code}{ending}" for ending in ("", *raw_files.COMPRESSIONS)]
        existing = [name for name in names if Path(name).exists()]
        if len(existing) > 1:
            raise UserError(
                f"{existing[0]} and {existing[1]} both exist. Name the two files as SOURCE:TARGET."
            )
        if existing:
            return Path(existing[0])
    return None


def _single_file(file: Path) -> Corpus:
    """Return the corpus of a file that contains both sides. Raise `UserError` for an unknown ending."""
    for ending in raw_files.endings(file):
        if ending in FORM_OF:
            return Corpus(_name(file), file, file, FORM_OF[ending])
        if ending == ".zip":
            raise UserError(f"{file} is a zip archive. Unpack it, and give its files as SOURCE:TARGET.")
    raise UserError(
        f"{file} is one file, but a parallel corpus has two sides. "
        f"Give PREFIX (such as {file.with_suffix('')}), SOURCE:TARGET, or one file that ends in "
        f"{', '.join(FORM_OF)}."
    )


def _form(source: Path, target: Path) -> Literal["lines", "sgm"]:
    """Return "sgm" for two WMT test sets, and "lines" for two other files. Raise `UserError` for one of
    each."""
    if sgm.is_test_set(source) != sgm.is_test_set(target):
        raise UserError(f"{source} and {target}: one is a WMT test set and one is not. Give two of a kind.")
    return "sgm" if sgm.is_test_set(source) else "lines"


def _name(file: Path, lang: str = "") -> str:
    """Return the name of a file without the endings of format, compression and `lang`, and without "-src" at
    its end."""
    name = file.name
    while Path(name).suffix.lower() in (*FORMATS, *raw_files.COMPRESSIONS, f".{lang}"):
        name = Path(name).stem
    # WMT names the source file of a set newstest2014-deen-src.de.sgm.
    return name.removesuffix("-src")
