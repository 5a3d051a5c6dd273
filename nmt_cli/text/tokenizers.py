"""The tokenisers of both languages together: made from a sample, kept in a folder, known by a fingerprint.

The folder holds `tokenizer.json`, the subword models (`joint.*`, or `source.*` and `target.*`), and for the
reader's eye the vocabulary, an entry a line. It is copied whole into every model that is trained on it.
"""

import hashlib
import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nmt_cli.config import section_of
from nmt_cli.errors import UserError
from nmt_cli.text import bpe
from nmt_cli.text.bpe import Bpe
from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.learn import learn, too_rare
from nmt_cli.text.moses import Moses
from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.pieces import Pieces
from nmt_cli.text.subwords import MARKS, Subwords
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer, prepared
from nmt_cli.text.units import Characters, Words

FORMAT = 1
DESCRIPTION = "tokenizer.json"
VOCABULARY = "vocabulary.txt"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What has to be known of a tokeniser besides its subword models."""

    kind: Kind
    joint: bool
    source_lang: str
    target_lang: str
    text: TextConfig
    symbols: tuple[str, ...] = ()
    byte_fallback: bool = False

    def normalizer(self) -> Normalizer:
        """The same for both sides."""
        return Normalizer(self.text, fold_blank_mark=self.kind == "sentencepiece")

    def moses(self, side: Side) -> Moses | None:
        """What splits a side into words, where that is asked for."""
        wanted = self.text.words == "moses" or (self.text.words == "auto" and self.kind in ("bpe", "word"))
        return Moses(self.source_lang if side == "source" else self.target_lang) if wanted else None

    def model_names(self) -> dict[Side, str]:
        """The name of each side's subword model."""
        return {side: "joint" if self.joint else side for side in SIDES}


class Preparer:
    """Prepares raw lines of both sides before there is a subword model."""

    def __init__(self, recipe: Recipe) -> None:
        self.normalized = recipe.normalizer()
        self._moses = {side: recipe.moses(side) for side in SIDES}
        self._symbols = recipe.symbols

    def __call__(self, side: Side, raw: str) -> str:
        """See `Tokenizer.prepare`."""
        return prepared(raw, self.normalized, self._moses[side], self._symbols)


@dataclass(frozen=True, slots=True)
class Tokenizers:
    """Both sides, ready to use, and the files that they are kept in."""

    recipe: Recipe
    source: Tokenizer
    target: Tokenizer
    files: Mapping[str, bytes]

    @property
    def fingerprint(self) -> str:
        """Tells apart any two tokenisers that could treat a line differently."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)} ".encode() + content)
        return digest.hexdigest()

    def side(self, side: Side) -> Tokenizer:
        """One of the two."""
        return self.source if side == "source" else self.target

    def save(self, folder: Path) -> None:
        """Write all files into `folder`, which is made."""
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


def learn_tokenizers(recipe: Recipe, config: TokenizerConfig, sample: Mapping[Side, list[str]]) -> Tokenizers:
    """Learn the subwords of prepared text, from both sides together or from each."""
    plain = {side: _without_symbols(lines, recipe.symbols) for side, lines in sample.items()}
    names = recipe.model_names()
    texts = {
        name: [line for side in SIDES if names[side] == name for line in plain[side]]
        for name in names.values()
    }
    models = {name: _learnt(name, lines, config) for name, lines in texts.items()}
    rare: dict[Side, list[int]] = {side: [] for side in SIDES}
    if config.min_count and recipe.kind in ("sentencepiece", "bpe"):
        first = len(MARKS) + len(recipe.symbols)
        rare = {side: too_rare(models[names[side]], plain[side], first, config.min_count) for side in SIDES}
    return _assembled(recipe, {name: model.files() for name, model in models.items()}, rare)


def _learnt(name: str, lines: list[str], config: TokenizerConfig) -> Subwords:
    try:
        return learn(lines, config)
    except UserError as error:
        raise UserError(f"{name} vocabulary: {error}") from error


def adopt_tokenizers(
    recipe: Recipe, models: Mapping[str, Path], sample: Mapping[Side, list[str]]
) -> Tokenizers:
    """Build tokenisers on existing codes or `.model` files, given by model name; codes take their alphabet
    from the sample too."""
    names = recipe.model_names()
    contents: dict[str, dict[str, bytes]] = {}
    for name, path in models.items():
        with _naming(path):
            content = path.read_bytes()
            if recipe.kind == "sentencepiece":
                contents[name] = Pieces(content, len(MARKS)).files()
                continue
            codes = content.decode("utf-8-sig")
            lines = [line for side in SIDES if names[side] == name for line in sample[side]]
            known = set(" ".join(_without_symbols(lines, recipe.symbols)))
            known |= bpe.characters_of(bpe.parse_codes(codes))
            contents[name] = Bpe(codes, "".join(sorted(known - {" "})), len(MARKS)).files()
    return _assembled(recipe, contents, {side: [] for side in SIDES})


def kind_of_file(path: Path) -> Kind:
    """Whether `path` is a file of subword-nmt codes ("bpe") or a SentencePiece model ("sentencepiece")."""
    try:
        with path.open("rb") as file:
            start = file.read(12).removeprefix(BOM_UTF8)
            return "bpe" if start.startswith(b"#version:") else "sentencepiece"
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}; check the path.") from error


def load_tokenizers(folder: Path) -> Tokenizers:
    """Read what `Tokenizers.save` wrote; the settings, languages and symbols come with it."""
    with _naming(folder):
        description = json.loads((folder / DESCRIPTION).read_bytes())
        if description["format"] != FORMAT:
            raise UserError(f"format {description['format']}, but this version reads {FORMAT}.")
        recipe = Recipe(
            kind=description["kind"],
            joint=description["joint"],
            source_lang=description["source_lang"],
            target_lang=description["target_lang"],
            text=section_of(TextConfig, description["text"]),
            symbols=tuple(description["symbols"]),
            byte_fallback=description["byte_fallback"],
        )
        contents = {
            name: {ending: (folder / f"{name}.{ending}").read_bytes() for ending in description["files"]}
            for name in recipe.model_names().values()
        }
        loaded = _assembled(recipe, contents, description["too_rare"])
        for name, content in loaded.files.items():
            if name.endswith(VOCABULARY) and (folder / name).read_bytes() != content:
                raise UserError(
                    f"{name} is not the vocabulary of the subword model beside it; copy both again."
                )
        return replace(loaded, files={name: (folder / name).read_bytes() for name in loaded.files})


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say which file or folder it is that can't be used."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing; copy it again.") from error
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error!r}); copy it again.") from error


def _assembled(
    recipe: Recipe, contents: Mapping[str, Mapping[str, bytes]], rare: Mapping[Side, list[int]]
) -> Tokenizers:
    """`contents` holds the files of each model by ending."""
    names = recipe.model_names()
    sides = {
        side: Tokenizer(
            recipe.normalizer(),
            recipe.moses(side),
            recipe.symbols,
            _model(recipe, contents[names[side]], rare[side]),
        )
        for side in SIDES
    }
    description: dict[str, Any] = {
        "format": FORMAT,
        **asdict(recipe),
        "files": sorted(next(iter(contents.values()))),
        "vocabulary": {side: len(tokenizer.entries) for side, tokenizer in sides.items()},
        "too_rare": rare,
    }
    files = {DESCRIPTION: (json.dumps(description, indent=1, ensure_ascii=False) + "\n").encode()}
    for side, name in names.items():
        files |= {f"{name}.{ending}": content for ending, content in contents[name].items()}
        files[f"{name}.{VOCABULARY}"] = "".join(f"{entry}\n" for entry in sides[side].entries).encode()
    return Tokenizers(recipe, sides["source"], sides["target"], files)


def _without_symbols(lines: Iterable[str], symbols: Sequence[str]) -> list[str]:
    if not symbols:
        return list(lines)
    return [" ".join(word for word in line.split() if word not in symbols) for line in lines]


def _model(recipe: Recipe, content: Mapping[str, bytes], rare: list[int]) -> Subwords:
    first = len(MARKS) + len(recipe.symbols)
    match recipe.kind:
        case "sentencepiece":
            return Pieces(content["model"], first, rare)
        case "bpe":
            codes, alphabet = content["codes"].decode(), content["characters.txt"].decode()
            return Bpe(codes, alphabet, first, recipe.byte_fallback, rare)
        case "char":
            return Characters(content["characters.txt"].decode(), first, recipe.byte_fallback)
        case "word":
            return Words(content["words.txt"].decode().split("\n")[:-1], first, recipe.byte_fallback)
        case unknown:
            raise ValueError(f"kind {unknown}")
