"""What a `preprocess` run is asked to do, and its description in the manifest, to compare later runs with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from nmt_cli.corpus import files
from nmt_cli.corpus.parallel import Corpus, find, spool
from nmt_cli.corpus.utf8 import decoded
from nmt_cli.data.config import FilterConfig, NamedCorpus, PreprocessConfig
from nmt_cli.data.dataset import TRAIN, Role
from nmt_cli.errors import UserError
from nmt_cli.setting_values import toml_literal
from nmt_cli.text.variation import VARIATIONS, Variation

LINES_AT_ONCE = 1000

Part = Role | Literal["held out"]
"""What a corpus is for; one that is held out is part of no split, and its pairs are left out of train."""

COMMON = ("role", "name", "pairs", "files")
"""What the manifest says of each input."""


@dataclass(frozen=True, slots=True)
class Job:
    """The inputs as the user names them, and all settings."""

    source_lang: str
    target_lang: str
    train: Sequence[str]
    valid: Sequence[str] = ()
    test: Sequence[str] = ()
    reuse: str | None = None
    """A dataset or model folder, a file of codes, a SentencePiece model or a list of words, or two such files
    as SOURCE:TARGET."""

    config: PreprocessConfig = field(default_factory=PreprocessConfig)
    given: frozenset[str] = frozenset()
    """Names of the settings that the user gave, also those given their default values."""

    @property
    def filters(self) -> Sequence[FilterConfig]:
        """Those of each training corpus that has a name, or else those of all."""
        general = self.config.filter
        return [corpus.filter(general) for corpus in self.config.corpus.named] or [general]


@dataclass(frozen=True, slots=True)
class Input:
    """One corpus of a run, with its number of pairs and the hashes of its files."""

    role: Part
    corpus: Corpus
    pairs: int
    sha256: Sequence[str]
    named: NamedCorpus | None = None
    """What `[[corpus]]` says of it."""

    variation: Variation | None = None
    """Of an evaluation set: how its pairs are changed."""

    def filter(self, config: PreprocessConfig) -> FilterConfig:
        """Its filters, its own or those of all."""
        return self.named.filter(config.filter) if self.named else config.filter

    def description(self) -> dict[str, Any]:
        """What the manifest says of it."""
        corpus = self.corpus
        names = corpus.names or map(str, corpus.files)
        return {
            "role": self.role,
            "name": corpus.name,
            "pairs": self.pairs,
            **({"variation": self.variation} if self.variation else {}),
            "files": [{"path": name, "sha256": sha} for name, sha in zip(names, self.sha256, strict=True)],
            **(_own_settings(self.named) if self.named else {}),
        }


def _own_settings(named: NamedCorpus) -> dict[str, Any]:
    """What was given of a corpus besides its name and place."""
    return {key.name: value for key in fields(named)[2:] if (value := getattr(named, key.name))}


def find_inputs(job: Job, spool_folder: Path) -> list[Input]:
    """Every corpus of the run, train first; reads all of them once, to count and to hash.

    What can be read only once, such as stdin, is copied to `spool_folder`.
    """
    _refuse_no_training(job)
    named = job.config.corpus.named
    train = [corpus.path for corpus in named] or job.train
    specs: dict[Part, Sequence[str]] = {"train": train, "valid": job.valid, "test": job.test}
    if any(config.decontaminate for config in job.filters):
        specs["held out"] = job.config.filter.held_out
    if sum(some.count("-") for some in specs.values()) > 1:
        raise UserError("stdin (-) is named twice, but can be read once; give a file for the other.")
    found = [(role, *_found(role, spec, job)) for role, some in specs.items() for spec in some]
    names = [corpus.name for role, corpus, _ in found if role in ("valid", "test")]
    _refuse_equal_names([*names, *job.config.corpus.drawn])
    _refuse_no_scores(job, [corpus for role, corpus, _ in found if role == TRAIN])
    spooled = [(role, spool(corpus, spool_folder), variation) for role, corpus, variation in found]
    inputs = [
        Input(role, corpus, corpus.count(), [files.sha256(file) for file in corpus.files], variation=kind)
        for role, corpus, kind in spooled
    ]
    for number, corpus in enumerate(named):
        item = inputs[number]
        inputs[number] = replace(item, corpus=replace(item.corpus, name=corpus.name), named=corpus)
    for item in inputs:
        if item.role in ("valid", "test") and job.config.corpus.invalid_utf8 == "error":
            _read_through(item.corpus)
    return inputs


def _refuse_no_training(job: Job) -> None:
    """`UserError` where it is not clear what to train on."""
    named = job.config.corpus.named
    if named and job.train:
        raise UserError(
            "the settings name the training corpora ([[corpus]]), so --train can't; take one of them."
        )
    if not named and not job.train:
        raise UserError(
            "there is no training text; name it by --train, or by [[corpus]] in a file of settings."
        )


def _refuse_no_scores(job: Job, training: Sequence[Corpus]) -> None:
    """`UserError` where a least score is asked of training corpora that have no scores."""
    cure = "name their column with --set corpus.score_column=NAME (of a .tsv, .jsonl or .parquet)."
    for named, corpus in zip(job.config.corpus.named, training, strict=False):
        if named.filters.get("min_score") and not corpus.has_scores:
            raise UserError(
                f"[[corpus]] {named.name}: min_score has no effect, as {named.path} has no scores; {cure}"
            )
    least = job.config.filter.min_score
    if least and not any(corpus.has_scores for corpus in training):
        raise UserError(f"filter.min_score is {least:g}, but no training corpus has scores; {cure}")


def _found(role: Part, spec: str, job: Job) -> tuple[Corpus, Variation | None]:
    """The corpus that `spec` names, and of a spec such as valid+upper how it is changed."""
    plain, plus, ending = spec.rpartition("+")
    kind = next((one for one in VARIATIONS if one == ending), None)
    if not (plus and kind):
        return find(spec, job.source_lang, job.target_lang, job.config.corpus), None
    if role == TRAIN:
        raise UserError(f"{spec}: training pairs are changed anew in each epoch; see [augment] of nmt train.")
    corpus = find(plain, job.source_lang, job.target_lang, job.config.corpus)
    return replace(corpus, name=f"{corpus.name}+{kind}"), kind


def _read_through(corpus: Corpus) -> None:
    """Raise what is wrong with a valid or test set now, and not after hours of work on the training set."""
    for block in corpus.blocks(LINES_AT_ONCE):
        for number, pair in enumerate(zip(block.sources, block.targets, strict=True), start=block.first):
            decoded(pair[0], "error", corpus.location("source", number))
            decoded(pair[1], "error", corpus.location("target", number))


def describe_job(job: Job, inputs: Sequence[Input], reused: str | None) -> dict[str, Any]:
    """All that decides what the dataset holds, for the manifest; for `reused` see `reuse.Plan`."""
    settings = asdict(job.config)
    del settings["corpus"]["named"]  # the inputs say it
    return {
        "source_lang": job.source_lang,
        "target_lang": job.target_lang,
        "settings": settings,
        "reused_tokenizer": reused,
        "inputs": [item.description() for item in inputs],
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What two results of `describe_job` disagree on, each as "what: old -> new"."""
    before, after = dict(_facts(old)), dict(_facts(new))
    return [
        f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _facts(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is compared, as text; files by content, so that they may be moved."""
    yield "languages", f"{description['source_lang']}-{description['target_lang']}"
    yield "reused tokeniser", str(description["reused_tokenizer"])
    sections = get_type_hints(PreprocessConfig)
    for section, defaults in asdict(PreprocessConfig()).items():
        removed = getattr(sections[section], "gone", {})
        # A dataset of an older version lacks settings that were added later, and may have removed ones.
        for key, value in {**defaults, **description["settings"].get(section, {})}.items():
            if key not in removed or value != removed[key].meant:
                yield f"{section}.{key}", toml_literal(value)
    for number, item in enumerate(description["inputs"], start=1):
        hashes = " ".join(file["sha256"][:12] for file in item["files"])
        own = (f", {key} {toml_literal(item[key])}" for key in item if key not in COMMON)
        yield f"input {number}", f"{item['role']} {item['name']} ({hashes}){''.join(own)}"


def _refuse_equal_names(names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        if name in (TRAIN, *names[:number]):
            raise UserError(
                f"two sets are named {name} (after their files; the training set is {TRAIN}): "
                "rename one, or give a link to it with another name."
            )
