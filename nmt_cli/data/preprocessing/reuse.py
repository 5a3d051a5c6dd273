"""The choice of the tokenizers of a `preprocess` run: learned, reused from a folder, or built from files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from nmt_cli.corpus import raw_files
from nmt_cli.data.dataset import MANIFEST, TOKENIZERS
from nmt_cli.data.preprocessing.job import PreprocessJob
from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.text.config import Kind
from nmt_cli.text.tokenizers import DESCRIPTION, Recipe, Tokenizers, kind_of_file, load_tokenizers

MODEL = "config.json"
"""The file of a model folder that has the fingerprint of its tokenizers. A dataset has it in
`dataset.json`."""

STILL_FREE: Mapping[Kind, tuple[str, ...]] = {
    "bpe": ("symbols", "placeholders", "terms", "byte_fallback", "sample_lines"),
    "sentencepiece": ("symbols", "placeholders", "terms"),
}
"""By the kind of a reused file, the settings that still have an effect. The file decides all others.

BPE codes do not contain their alphabet, so it comes from a sample of the corpus.
"""


@dataclass(frozen=True, slots=True)
class TokenizerPlan:
    """The tokenizers of a run: `ready` ones, or ones to build from `models`. If both are None, they are
    learned."""

    recipe: Recipe
    ready: Tokenizers | None = None
    """The tokenizers of a dataset or model folder."""

    models: Mapping[str, Path] | None = None
    """The files of BPE codes or SentencePiece models by name: "joint", or "source" and "target"."""

    reused: str | None = None
    """The fingerprint of `ready`, or the hashes of `models`. The manifest stores it, so that changes are
    noticed."""


def plan(job: PreprocessJob) -> TokenizerPlan:
    """Decide where the tokenizers come from.

    Without `job.reuse`, they are learned. The tokenizers of a dataset or model folder are reused as they are.
    From files, such as BPE codes, they are built.

    Raise `UserError` if a setting has no effect on reused tokenizers, a folder has no tokenizers, or both
    `tokenizer.merges` and the vocabulary size are given.
    """
    config = job.config.tokenizer
    if config.merges and "tokenizer.vocab_size" in job.given:
        raise UserError(
            "tokenizer.merges and --vocab-size both decide the size of the vocabulary. Give one of them."
        )
    if job.reuse is None:
        return TokenizerPlan(_recipe(job, config.kind, config.joint))
    path = Path(job.reuse)
    if not path.is_dir():
        return _from_files(job, job.reuse)
    for folder in (path / TOKENIZERS, path):
        if (folder / DESCRIPTION).is_file():
            return _from_folder(job, folder)
    raise UserError(f"{path} has no {DESCRIPTION}. Give a dataset or model folder, or a file.")


def _from_folder(job: PreprocessJob, folder: Path) -> TokenizerPlan:
    """Return the plan to reuse the tokenizers in `folder`.

    Raise `UserError` if they are for other languages, are damaged, or do not agree with a setting that the
    user gave.
    """
    ready = load_tokenizers(folder)
    _refuse_other_bytes(folder, ready.fingerprint)
    languages = (ready.recipe.source_lang, ready.recipe.target_lang)
    reused = ready.fingerprint
    if languages != (job.source_lang, job.target_lang):
        ready = _directed(ready, job, folder)
    _refuse(job, "tokenizer", ready.recipe.described(), free=())
    _refuse(job, "text", asdict(ready.recipe.text), free=())
    return TokenizerPlan(ready.recipe, ready=ready, reused=reused)


def _directed(ready: Tokenizers, job: PreprocessJob, folder: Path) -> Tokenizers:
    """Return the tokenizers of a model of several languages for those of the job, such as the codes of NLLB.
    Raise `UserError` if the model has no symbols for them."""
    languages, pair = ready.recipe.own_languages, (job.source_lang, job.target_lang)
    if languages.symbols and languages.target_symbols == "target" and pair in languages.directions:
        return ready.directed(*pair).described_anew()
    raise UserError(
        f"{folder} is for {ready.recipe.source_lang}-{ready.recipe.target_lang}, not for {'-'.join(pair)}. "
        "Reuse its model file instead, or learn new subwords."
    )


def _refuse_other_bytes(folder: Path, fingerprint: str) -> None:
    """Raise `UserError` if the dataset or model around `folder` names another fingerprint."""
    # Tokenizers that differ from the ones beside them belong to other ids, so a model would translate
    # nonsense.
    for name in (MANIFEST, MODEL):
        try:
            entry = parsed_json(read_ordinary(folder.parent / name))["tokenizer"]
            expected = entry["fingerprint"] if isinstance(entry, dict) else entry
        except (OSError, LookupError, TypeError, UserError, ValueError):
            continue
        if expected != fingerprint:
            raise UserError(
                f"{folder} is not the tokenizer that {folder.parent / name} names. Copy it again."
            )


def _from_files(job: PreprocessJob, spec: str) -> TokenizerPlan:
    """Return the plan to build tokenizers from the files in `spec`: one file, or SOURCE:TARGET.

    Raise `UserError` in these cases:

    - The files are of two kinds.
    - A file is in a tokenizer folder that was changed.
    - A file decides a setting that the user gave.
    - There are two files, but the settings ask for symbols of terms, which need one vocabulary.
    """
    # The name of a file may contain a colon.
    paths = [Path(spec)] if Path(spec).is_file() else [Path(part) for part in spec.split(":", 1)]
    kinds = [kind_of_file(path) for path in paths]
    for folder in {path.parent for path in paths if (path.parent / DESCRIPTION).is_file()}:
        _refuse_other_bytes(folder, load_tokenizers(folder).fingerprint)
    if len(set(kinds)) > 1:
        raise UserError(f"{paths[0]} and {paths[1]} are of different kinds. Give two files of the same kind.")
    joint = len(paths) == 1
    if job.config.tokenizer.terms and not joint:
        raise UserError(
            f"tokenizer.terms needs one vocabulary, not {job.reuse}. Remove the setting, or give one file."
        )
    _refuse(job, "tokenizer", {"kind": kinds[0], "joint": joint}, STILL_FREE[kinds[0]])
    names = ["joint"] if joint else ["source", "target"]
    return TokenizerPlan(
        _recipe(job, kinds[0], joint),
        models=dict(zip(names, paths, strict=True)),
        reused=" ".join(map(raw_files.sha256, paths)),
    )


def _refuse(job: PreprocessJob, section: str, decided: Mapping[str, object], free: tuple[str, ...]) -> None:
    """Raise `UserError` for the first setting that the user gave without an effect.

    - `section`: the section of the settings, "tokenizer" or "text".
    - `decided`: the values that the reused tokenizers fix. A setting of the same value is allowed.
    - `free`: the settings that still have an effect.
    """
    config = getattr(job.config, section)
    for field in fields(config):
        value = getattr(config, field.name)
        is_set = value != field.default or f"{section}.{field.name}" in job.given
        agrees = field.name in decided and decided[field.name] == value
        if is_set and not agrees and field.name not in free:
            raise UserError(
                f"{section}.{field.name} has no effect because {job.reuse} decides it. Remove the setting."
            )


def _recipe(job: PreprocessJob, kind: Kind, joint: bool) -> Recipe:
    """Return the recipe of new tokenizers. `joint` means that both sides share a vocabulary."""
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
