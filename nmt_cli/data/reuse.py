"""Which tokeniser a run uses: its own, one from a dataset or model folder, or one made of existing files."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from nmt_cli.corpus import files
from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.data.request import Request
from nmt_cli.errors import UserError
from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.tokenizers import DESCRIPTION, Recipe, Tokenizers, kind_of_file, load_tokenizers

STILL_FREE = ("symbols", "byte_fallback", "sample_lines", "seed")
"""Tokenizer settings that a given subword model leaves open."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How text is prepared, and where the subwords come from; neither of the two: they are learnt."""

    recipe: Recipe
    ready: Tokenizers | None = None
    models: Mapping[str, Path] | None = None
    reused: str | None = None
    """Tells what is reused: a fingerprint or hashes."""


def plan(request: Request) -> Plan:
    """Decide, refusing settings that would have no effect."""
    config = request.config.tokenizer
    if request.reuse is None:
        return Plan(_recipe(request, config.kind, config.joint))
    folder = _tokenizer_folder(Path(request.reuse))
    if folder:
        return _from_folder(request, folder)
    paths = [Path(part) for part in request.reuse.split(":", 1)]
    kinds = [kind_of_file(path) for path in paths]
    if len(set(kinds)) > 1:
        raise UserError(f"{paths[0]} and {paths[1]} are of two kinds; give two files of codes or two models.")
    decided = TokenizerConfig(kind=kinds[0], joint=len(paths) == 1)
    given = [name for name in _given(config) if name not in STILL_FREE]
    _refuse(config, decided, given, request.reuse)
    if kinds[0] == "sentencepiece" and config.byte_fallback:
        raise UserError(f"[tokenizer]: byte_fallback is decided by {request.reuse}; leave it out.")
    names = ["joint"] if len(paths) == 1 else ["source", "target"]
    return Plan(
        _recipe(request, kinds[0], joint=len(paths) == 1),
        models=dict(zip(names, paths, strict=True)),
        reused=" ".join(map(files.sha256, paths)),
    )


def _tokenizer_folder(path: Path) -> Path | None:
    if not path.is_dir():
        return None
    for folder in (path / TOKENIZERS, path):
        if (folder / DESCRIPTION).is_file():
            return folder
    raise UserError(f"{path} holds no {DESCRIPTION}; give a dataset or model folder, or a file.")


def _from_folder(request: Request, folder: Path) -> Plan:
    ready = load_tokenizers(folder)
    known = (ready.recipe.source_lang, ready.recipe.target_lang)
    if known != (request.source_lang, request.target_lang):
        raise UserError(
            f"{folder} is for {known[0]}-{known[1]}, not for {request.source_lang}-{request.target_lang}; "
            "reuse its model file instead, or learn anew."
        )
    config = request.config
    _refuse(config.tokenizer, TokenizerConfig(), _given(config.tokenizer), str(folder))
    _refuse(config.text, ready.recipe.text, _given(config.text), str(folder))
    return Plan(ready.recipe, ready=ready, reused=ready.fingerprint)


def _given(config: TextConfig | TokenizerConfig) -> list[str]:
    """The settings that are not at their defaults."""
    return [field.name for field in fields(config) if getattr(config, field.name) != field.default]


def _refuse(given: object, decided: object, names: list[str], by: str) -> None:
    for name in names:
        if getattr(given, name) != getattr(decided, name):
            raise UserError(f"{name} is decided by {by}, which is reused; leave it out.")


def _recipe(request: Request, kind: Kind, joint: bool) -> Recipe:
    config = request.config
    return Recipe(
        kind=kind,
        joint=joint,
        source_lang=request.source_lang,
        target_lang=request.target_lang,
        text=config.text,
        symbols=config.tokenizer.symbols,
        byte_fallback=config.tokenizer.byte_fallback,
    )
