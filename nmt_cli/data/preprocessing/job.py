"""The inputs and settings of a `preprocess` run, and their description for the manifest.

An input is a corpus with its role: training, validation, test or held out. The description of a run is
compared with that in an existing dataset, to see whether the dataset is up to date.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle, zip_longest
from pathlib import Path
from typing import Any, Literal

from nmt_cli.corpus import raw_files
from nmt_cli.corpus.parallel import Corpus, find, spool, write_pairs
from nmt_cli.corpus.raw_files import decoded
from nmt_cli.data.config import FilterConfig, NamedCorpus, PreprocessConfig
from nmt_cli.data.dataset import TRAIN, Role
from nmt_cli.errors import UserError
from nmt_cli.removed_settings import removed_from
from nmt_cli.setting_values import toml_literal
from nmt_cli.text.variation import VARIATIONS, Variation

LINES_AT_ONCE = 1000
COLUMNS = ("source_column", "target_column", "score_column", "alignment_column")

Part = Role | Literal["held out"]
"""The role of a corpus. A held-out corpus only names pairs that the training set must not have."""

COMMON = ("role", "name", "pairs", "files")
"""The keys that every input has in the manifest."""

OWN = ("tag", "source_lang", "target_lang", "filters")
"""The settings of a `[[corpus]]` section that the manifest has, unless they are empty."""


Given = str | Iterable[Sequence[object]]
"""A corpus by its name, or the pairs of a corpus in memory, which are read once."""

Score = Callable[[str, Iterable[dict[str, str]], int], Generator[float]]


@dataclass(frozen=True, slots=True)
class PreprocessJob:
    """The inputs of a `preprocess` run as the user names them, and all settings."""

    source_lang: str
    target_lang: str
    train: Sequence[Given]
    valid: Sequence[Given] = ()
    test: Sequence[Given] = ()
    reuse: str | None = None
    """The tokenizers to reuse: a dataset or model folder, BPE codes, or a SentencePiece model. Two files are
    given as SOURCE:TARGET. None to learn new ones."""

    config: PreprocessConfig = field(default_factory=PreprocessConfig)
    given: frozenset[str] = frozenset()
    """The names of the settings that the user gave, even with their default values."""

    score: Score | None = None
    """A function that yields the scores of pairs by the command in `filter.scorer`. It gets the command, the
    pairs and their number."""

    @property
    def filters(self) -> Sequence[FilterConfig]:
        """The filters of each `[[corpus]]` section, or a list of the general filters if there are no
        sections."""
        general = self.config.filter
        return [corpus.filter(general) for corpus in self.config.corpus.named] or [general]


@dataclass(frozen=True, slots=True)
class Input:
    """A corpus of a run, with its number of pairs and the SHA-256 of each of its files."""

    role: Part
    corpus: Corpus
    pairs: int
    sha256: Sequence[str]
    named: NamedCorpus | None = None
    """The `[[corpus]]` section of the corpus, or None."""

    variation: Variation | None = None
    """The change of all pairs of an evaluation set, such as "upper", or None."""

    alignments: Path | None = None
    """The file with the word alignments of the corpus, or None."""

    def filter(self, config: PreprocessConfig) -> FilterConfig:
        """Return the filters of this corpus: those in `config`, changed by its `[[corpus]]` section."""
        return self.named.filter(config.filter) if self.named else config.filter

    def description(self) -> dict[str, Any]:
        """Return the entry of the corpus in the manifest."""
        corpus = self.corpus
        names = corpus.names or map(str, corpus.files)
        entry: dict[str, Any] = {"role": self.role, "name": corpus.name, "pairs": self.pairs}
        if self.variation:
            entry["variation"] = self.variation
        if self.alignments:
            entry["alignments"] = raw_files.sha256(self.alignments)
        entry["files"] = [{"path": name, "sha256": sha} for name, sha in zip(names, self.sha256, strict=True)]
        own = {name: getattr(self.named, name) for name in OWN} if self.named else {}
        return entry | {name: value for name, value in own.items() if value}


def find_inputs(job: PreprocessJob, spool_folder: Callable[[], Path]) -> list[Input]:
    """Find, count and hash the corpora of a run. Return training corpora first, then evaluation sets and
    held-out sets.

    `spool_folder` makes the folder to which stdin, pipes and pairs in memory are copied. Raise `UserError` in
    these cases:

    - Both or neither of --train and `[[corpus]]` sections are given.
    - A corpus is missing or damaged, or stdin is used twice.
    - Two evaluation sets have the same name.
    - A setting has no effect.
    - An evaluation set has invalid UTF-8, and `invalid_utf8` is "error".
    """
    named = job.config.corpus.named
    if named and job.train:
        raise UserError("Both --train and [[corpus]] sections name training corpora. Use one of them.")
    if not named and not job.train:
        raise UserError(
            "There is no training text. Name it with --train, or with [[corpus]] sections in a --config file."
        )
    train: Sequence[Given | NamedCorpus] = named or job.train
    if job.config.corpus.alignments and len(job.config.corpus.alignments) != len(train):
        raise UserError(f"corpus.alignments must have {len(train)} files, one for each training corpus.")
    # In this order, because `[[corpus]]` sections and alignments belong to the first corpora.
    specs: dict[Part, Sequence[Given | NamedCorpus]] = {"train": train, "valid": job.valid, "test": job.test}
    if any(config.decontaminate for config in job.filters):
        specs["held out"] = job.config.filter.held_out
    texts = [spec.path if isinstance(spec, NamedCorpus) else spec for many in specs.values() for spec in many]
    given = [spec for spec in texts if isinstance(spec, str)]
    if sum(_varied(spec)[0] == "-" for spec in given) > 1:
        raise UserError(
            "stdin (-) is given twice but can be read only once. Give a file instead of one of them."
        )
    corpora = [(role, *_find(role, spec, job, spool_folder)) for role, many in specs.items() for spec in many]
    names = [corpus.name for role, corpus, _ in corpora if role in ("valid", "test")]
    _refuse_equal_names(names, job.config.corpus.drawn)
    _refuse_no_effect(job, [corpus for _, corpus, _ in corpora])
    _refuse_no_scores(job, [corpus for role, corpus, _ in corpora if role == TRAIN])
    inputs = []
    alignments = job.config.corpus.alignments
    for (role, corpus, variation), section, name in zip_longest(corpora, named, alignments):
        if section:
            corpus = replace(corpus, name=section.name)
        corpus = spool(corpus, spool_folder()) if corpus.streams else corpus
        # By content, so that a dataset is up to date if its inputs were moved, and is not if they were
        # edited.
        hashes = [raw_files.sha256(file) for file in corpus.files]
        item = Input(role, corpus, corpus.count(), hashes, section, variation, Path(name) if name else None)
        _refuse_other_lines(item)
        inputs.append(item)
    for item in inputs:
        if item.role in ("valid", "test") and job.config.corpus.invalid_utf8 == "error":
            _read_through(item.corpus)
    return inputs


def _refuse_other_lines(item: Input) -> None:
    """Raise `UserError` unless the alignments of `item`, if it has any, are a file with a line for each pair,
    or a column."""
    path = item.alignments
    if path and item.corpus.has_alignments:
        raise UserError(
            f"{item.corpus.source} has its alignments in corpus.alignment_column, and in {path} of "
            "corpus.alignments. Leave one out."
        )
    if path and not path.is_file():
        raise UserError(f"corpus.alignments: {path} does not exist or is not a file. Check the path.")
    if path and raw_files.count_lines(path) != item.pairs:
        raise UserError(f"{path} must have {item.pairs:,} lines, one for each pair of {item.corpus.name}.")


def _refuse_no_effect(job: PreprocessJob, corpora: Sequence[Corpus]) -> None:
    """Raise `UserError` for held-out sets with which no corpus is compared, or a column that no corpus
    has."""
    if job.config.filter.held_out and not any(config.decontaminate for config in job.filters):
        raise UserError("filter.held_out has no effect with filter.decontaminate=false. Leave one out.")
    column = next((name for name in COLUMNS if getattr(job.config.corpus, name)), None)
    if column and not any(corpus.has_columns for corpus in corpora):
        raise UserError(
            f"corpus.{column} is {getattr(job.config.corpus, column)!r}, but no corpus has columns. "
            "Leave it out, or give a .tsv, .jsonl or .parquet file."
        )


def _refuse_no_scores(job: PreprocessJob, training: Sequence[Corpus]) -> None:
    """Raise `UserError` for settings about scores that have no effect or contradict each other.

    `min_score` needs a corpus with scores. A scorer is refused for a corpus that has scores, and for drawn
    sets.
    """
    column = "corpus.score_column=NAME (in a .tsv, .jsonl or .parquet file)"
    remedy = f"Name their column with --set {column}, or set filter.scorer."
    scorers = [filters.scorer for _, filters in zip(training, cycle(job.filters), strict=False)]
    if any(scorers) and job.config.corpus.drawn:
        raise UserError("filter.scorer can't score drawn sets. Name a validation set with --valid instead.")
    for corpus, scorer in zip(training, scorers, strict=True):
        if scorer and corpus.has_scores:
            raise UserError(
                f"filter.scorer: {corpus.source} has a corpus.score_column. Leave one of both out."
            )
    for named, corpus, scorer in zip(job.config.corpus.named, training, scorers, strict=False):
        if named.filters.get("min_score") and not (corpus.has_scores or scorer):
            raise UserError(
                f"[[corpus]] {named.name}: min_score has no effect: {named.path} has no scores. {remedy}"
            )
    minimum = job.config.filter.min_score
    if minimum and not any(scorers) and not any(corpus.has_scores for corpus in training):
        raise UserError(f"filter.min_score is {minimum:g}, but no training corpus has scores. {remedy}")


def _find(
    role: Part, spec: Given | NamedCorpus, job: PreprocessJob, spool_folder: Callable[[], Path]
) -> tuple[Corpus, Variation | None]:
    """Return the corpus that `spec` names, and its variation or None. A `[[corpus]]` section may name its own
    languages.

    Pairs in memory are written to the folder that `spool_folder` makes. Raise `UserError` for a missing
    corpus, an invalid pair, or a training corpus with a variation.
    """
    if isinstance(spec, NamedCorpus):
        own = replace(
            job,
            source_lang=spec.source_lang or job.source_lang,
            target_lang=spec.target_lang or job.target_lang,
        )
        return _find(role, spec.path, own, spool_folder)
    if not isinstance(spec, str):
        return write_pairs(role, spec, (job.source_lang, job.target_lang), spool_folder()), None
    plain, kind = _varied(spec)
    if not kind:
        return find(spec, job.source_lang, job.target_lang, job.config.corpus), None
    if role == TRAIN:
        raise UserError(
            f"{spec}: a training corpus has no variants. Use the [augment] settings of nmt train instead."
        )
    corpus = find(plain, job.source_lang, job.target_lang, job.config.corpus)
    return replace(corpus, name=f"{corpus.name}+{kind}"), kind


def _varied(spec: str) -> tuple[str, Variation | None]:
    """Return the corpus and the variation in `spec`. "valid+upper" has the corpus "valid" and the variation
    "upper"."""
    plain, plus, ending = spec.rpartition("+")
    kind = next((one for one in VARIATIONS if one == ending), None)
    return (plain, kind) if plus and kind else (spec, None)


def _read_through(corpus: Corpus) -> None:
    """Read all pairs of a corpus. Raise `UserError` for the first line that is not UTF-8."""
    for block in corpus.blocks(LINES_AT_ONCE):
        for number, pair in enumerate(zip(block.sources, block.targets, strict=True), start=block.first):
            decoded(pair[0], "error", corpus.location("source", number))
            decoded(pair[1], "error", corpus.location("target", number))


def describe_job(job: PreprocessJob, inputs: Sequence[Input], reused: str | None) -> dict[str, Any]:
    """Return languages, settings and inputs for the manifest. `reused` is the fingerprint of reused
    tokenizers, or None."""
    settings = asdict(job.config)
    del settings["corpus"]["named"]  # the inputs have it
    return {
        "source_lang": job.source_lang,
        "target_lang": job.target_lang,
        "settings": settings,
        "reused_tokenizer": reused,
        "inputs": [item.description() for item in inputs],
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences of two descriptions, each as "name: old -> new". The paths of files do not
    matter."""
    before, after = dict(facts(old)), dict(facts(new))
    return [
        f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def facts(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, value as text) of everything that decides the dataset, with default values. A file is
    represented by its hash."""
    yield "languages", f"{description['source_lang']}-{description['target_lang']}"
    yield "reused tokeniser", str(description["reused_tokenizer"])
    for section, defaults in asdict(PreprocessConfig()).items():
        # A dataset of an older version lacks settings that were added later, and may have removed ones.
        values = {**defaults, **description["settings"].get(section, {})}
        removed = removed_from(section, values.keys() - defaults.keys())
        for key, value in values.items():
            if key not in removed or not removed[key].is_harmless(value, values):
                yield f"{section}.{key}", toml_literal(value)
    for number, item in enumerate(description["inputs"], start=1):
        hashes = " ".join(file["sha256"][:12] for file in item["files"])
        own = (f", {key} {toml_literal(item[key])}" for key in item if key not in COMMON)
        yield f"input {number}", f"{item['role']} {item['name']} ({hashes}){''.join(own)}"


def _refuse_equal_names(names: Sequence[str], drawn: Iterable[str]) -> None:
    """Raise `UserError` if two evaluation sets have the same name, or one is called "train".

    `drawn` are the names of sets that settings such as corpus.valid_size add.
    """
    if name := next((name for name in drawn if name in names), ""):
        raise UserError(
            f"corpus.{name}_size draws a set named {name}, but a given set has this name too. "
            "Remove the setting or the set, or give a link with another name."
        )
    for number, name in enumerate(names):
        if name in (TRAIN, *names[:number]):
            raise UserError(
                f"Two sets are named {name}, after their files (the training set is {TRAIN}). "
                "Rename one, or give a link with another name."
            )
