"""Which tokenisers a `preprocess` run uses: learnt ones, those of another folder, or ones built on given
files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from nmt_cli.corpus import files
from nmt_cli.data.dataset import MANIFEST, TOKENIZERS
from nmt_cli.data.preprocessing.job import Job
from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.text.config import Kind
from nmt_cli.text.tokenizers import DESCRIPTION, Recipe, Tokenizers, kind_of_file, load_tokenizers

MODEL = "config.json"
"""The file of a model folder that, as `dataset.json` of a dataset, names the tokenisers' fingerprint."""

STILL_FREE: Mapping[Kind, tuple[str, ...]] = {
    "bpe": ("symbols", "placeholders", "byte_fallback", "sample_lines"),
    "sentencepiece": ("symbols", "placeholders"),
    "word": ("symbols", "placeholders", "byte_fallback"),
}
"""Tokenizer settings that are still to be chosen where a file of this kind is given. All others follow from
it; but codes do not hold their alphabet, which is found in a sample of the corpus."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a run has its tokenisers from: `ready`, or built on `models`; without either they are learnt."""

    recipe: Recipe
    ready: Tokenizers | None = None
    """Those of a dataset or model folder."""

    models: Mapping[str, Path] | None = None
    """Files of codes or SentencePiece models, by model name: "joint", or "source" and "target"."""

    reused: str | None = None
    """For the manifest, to notice a change: the fingerprint of `ready`, or the hashes of `models`."""


def plan(job: Job) -> Plan:
    """Decide where the tokenisers come from; `UserError` for settings that would have no effect then."""
    config = job.config.tokenizer
    if config.merges and "tokenizer.vocab_size" in job.given:
        raise UserError("merges and vocab_size both say how large the vocabulary gets; give one of them.")
    if job.reuse is None:
        return Plan(_recipe(job, config.kind, config.joint))
    folder = _tokenizer_folder(Path(job.reuse))
    return _from_folder(job, folder) if folder else _from_files(job, job.reuse)


def _tokenizer_folder(path: Path) -> Path | None:
    if not path.is_dir():
        return None
    for folder in (path / TOKENIZERS, path):
        if (folder / DESCRIPTION).is_file():
            return folder
    raise UserError(f"{path} holds no {DESCRIPTION}; give a dataset or model folder, or a file.")


def _from_folder(job: Job, folder: Path) -> Plan:
    ready = load_tokenizers(folder)
    _refuse_other_bytes(folder, ready.fingerprint)
    known = (ready.recipe.source_lang, ready.recipe.target_lang)
    if known != (job.source_lang, job.target_lang):
        raise UserError(
            f"{folder} is for {known[0]}-{known[1]}, not for {job.source_lang}-{job.target_lang}; "
            "reuse its model file instead, or learn anew."
        )
    _refuse(job, "tokenizer", ready.recipe.described(), free=())
    _refuse(job, "text", asdict(ready.recipe.text), free=())
    return Plan(ready.recipe, ready=ready, reused=ready.fingerprint)


def _refuse_other_bytes(folder: Path, fingerprint: str) -> None:
    """Raise `UserError` if the dataset or model that `folder` is part of names another fingerprint."""
    for name in (MANIFEST, MODEL):
        try:
            told = parsed_json(read_ordinary(folder.parent / name))["tokenizer"]
            written = told["fingerprint"] if isinstance(told, dict) else told
        except (OSError, LookupError, TypeError, UserError, ValueError):
            continue
        if written != fingerprint:
            raise UserError(
                f"{folder} is not the tokeniser that {folder.parent / name} names; copy it again."
            )


def _from_files(job: Job, spec: str) -> Plan:
    # SOURCE:TARGET, or one file for both sides.
    paths = [Path(part) for part in spec.split(":", 1)]
    kinds = [kind_of_file(path) for path in paths]
    for folder in {path.parent for path in paths if (path.parent / DESCRIPTION).is_file()}:
        _refuse_other_bytes(folder, load_tokenizers(folder).fingerprint)
    if len(set(kinds)) > 1:
        raise UserError(f"{paths[0]} and {paths[1]} are of two kinds; give two of one.")
    joint = len(paths) == 1
    _refuse(job, "tokenizer", {"kind": kinds[0], "joint": joint}, STILL_FREE[kinds[0]])
    names = ["joint"] if joint else ["source", "target"]
    return Plan(
        _recipe(job, kinds[0], joint),
        models=dict(zip(names, paths, strict=True)),
        reused=" ".join(map(files.sha256, paths)),
    )


def _refuse(job: Job, section: str, decided: Mapping[str, object], free: tuple[str, ...]) -> None:
    """Raise `UserError` for a setting that was given, though what is reused decides it otherwise or ignores
    it.

    `decided` are the values that follow from what is reused; settings in `free` still have an effect.
    """
    config = getattr(job.config, section)
    for field in fields(config):
        value = getattr(config, field.name)
        given = value != field.default or f"{section}.{field.name}" in job.given
        agrees = field.name in decided and decided[field.name] == value
        if given and not agrees and field.name not in free:
            raise UserError(
                f"{section}.{field.name} is decided by {job.reuse}, which is reused; leave it out."
            )


def _recipe(job: Job, kind: Kind, joint: bool) -> Recipe:
    config = job.config
    return Recipe(
        kind=kind,
        joint=joint,
        source_lang=job.source_lang,
        target_lang=job.target_lang,
        text=config.text,
        symbols=config.tokenizer.all_symbols,
        byte_fallback=config.tokenizer.byte_fallback,
    )
