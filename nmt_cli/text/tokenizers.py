"""The tokenisers of both sides: learning from a sample, saving to a folder, and loading.

The folder contains `tokenizer.json`, the subword models, and the vocabularies with one entry per line. The
name of a subword model or a vocabulary is "joint", "source" or "target". A file of a subword model is
NAME.ENDING, with an ending in `ENDINGS`. A new vocabulary follows from its subword model. For any other
vocabulary, `tokenizer.json` has the ids of the special tokens. Every trained model contains a copy of the
folder.

Lines are prepared before they are cut into subwords: normalised, and split into words. Symbols are words that
never change and have an id each, such as language codes. Pieces of a subword model have numbers, and entries
of a vocabulary have ids.
"""

import hashlib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from nmt_cli.config import section_of
from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.languages.moses import Moses
from nmt_cli.text.model_languages import ModelLanguages, languages_of_symbols
from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.placeholders import JOINED, apart, masked_pair
from nmt_cli.text.subword_models import bpe
from nmt_cli.text.subword_models.bpe import Bpe
from nmt_cli.text.subword_models.characters_and_words import Characters, Words
from nmt_cli.text.subword_models.learn import learn
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.subwords import Subwords
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer, prepared
from nmt_cli.text.vocabulary import Numbering, Vocabulary, read_vocabulary

START_BYTES = 1024
"""The number of bytes at the start of a file that decide its kind."""

WORD_LINE, WORDS_SEEN = re.compile(r"\S+(?:\s+-?[\d.]+)?"), 100
"""A line of another toolkit's vocabulary, a word with or without a number, and the number of lines to look
at."""

FORMAT = 1
DESCRIPTION = "tokenizer.json"
VOCABULARY = "vocabulary.txt"
ENDINGS = ("model", "codes", "characters.txt", "words.txt")
"""The endings of files of subword models. Others are refused, because a folder could name any file to
read."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that defines tokenisers, except for the subword models and vocabularies themselves."""

    kind: Kind
    joint: bool
    source_lang: str
    target_lang: str
    text: TextConfig
    symbols: tuple[str, ...] = ()
    byte_fallback: bool = False
    own_models: bool = False
    """Each side has its own subword model, even if `joint` is true, so that both sides share a vocabulary."""
    begins: tuple[str, ...] = ()
    """The symbols with which source and target sentences begin. Empty for none on both sides, "" for none on
    one side."""
    bare_source: bool = False
    """Source sentences have no end token, as in models of OpenNMT and eole."""
    languages: ModelLanguages | None = None
    """The languages among which a call chooses. None means those of `own_languages`."""

    def normalizer(self) -> Normalizer:
        """Return a new normaliser, which fits both sides. For SentencePiece, it turns U+2581 into a space."""
        return Normalizer(self.text, fold_space_mark=self.kind == "sentencepiece")

    def moses(self, side: Side) -> Moses | None:
        """Return the Moses tokeniser of a side, or None if text is only split at spaces.

        `text.words` decides. With "auto", the kinds "bpe" and "word" use Moses.
        """
        words = self.text.words
        if words == "raw" or (words == "auto" and self.kind not in ("bpe", "word")):
            return None
        lang = self.source_lang if side == "source" else self.target_lang
        return Moses(lang, escape=words == "moses_escaped")

    def model_names(self) -> dict[Side, str]:
        """Return the name of each side's subword model. It is "joint" if both sides share one, otherwise the
        side."""
        return {side: side if self.own_models else name for side, name in self.vocabulary_names().items()}

    def vocabulary_names(self) -> dict[Side, str]:
        """Return the name of each side's vocabulary. It is "joint" if both sides share one, otherwise the
        side."""
        return {side: "joint" if self.joint else side for side in SIDES}

    def described(self) -> dict[str, Any]:
        """Return all fields in types of JSON. Fields that older versions did not have are left out if they
        are empty or false, so that the bytes of old folders do not change."""
        added_later = ("own_models", "begins", "bare_source", "languages")
        return {name: value for name, value in asdict(self).items() if value or name not in added_later}

    @property
    def placeholders(self) -> Sequence[str]:
        """The numbered symbols for placeholders, such as ⟦1⟧."""
        return apart(self.symbols)[0]

    def masked(self, source: str, target: str) -> tuple[str, str]:
        """Return both raw texts of a pair, with placeholders that they share replaced by symbols. If the
        vocabulary has no symbols for placeholders or terms, the texts do not change."""
        masks = JOINED in self.symbols
        return masked_pair(source, target, self.placeholders) if masks else (source, target)

    def begin(self, side: Side) -> str:
        """Return the symbol with which every sentence of a side begins, or "" for none."""
        return self.begins[SIDES.index(side)] if self.begins else ""

    @property
    def own_languages(self) -> ModelLanguages:
        """The languages of the model, recorded or else by the names of the symbols."""
        pair = self.source_lang, self.target_lang
        return self.languages or languages_of_symbols(pair, self.symbols, self.begins)

    @property
    def needs_direction(self) -> bool:
        """Whether translations have to begin with the symbol of a language that is not chosen yet."""
        return self.own_languages.target_symbols == "target" and not self.begin("target")


class Preparer:
    """A function that prepares raw lines of both sides, for use before there are subword models."""

    def __init__(self, recipe: Recipe) -> None:
        self.normalized = recipe.normalizer()
        self._moses = {side: recipe.moses(side) for side in SIDES}
        self._symbols = recipe.symbols
        self._begin = recipe.begin

    def __call__(self, side: Side, raw: str) -> str:
        """Return a raw line of `side` normalised and split into words. Symbols do not change.

        The symbol with which sentences of the side begin is added, unless the line is empty or begins with a
        symbol.
        """
        return prepared(raw, self.normalized, self._moses[side], self._symbols, self._begin(side))


@dataclass(frozen=True, slots=True)
class Tokenizers:
    """The tokenisers of both sides, with the content of their files."""

    recipe: Recipe
    source: Tokenizer
    target: Tokenizer
    files: Mapping[str, bytes]

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all files, in hexadecimal. With equal fingerprints, every line gets equal ids."""
        digest = hashlib.sha256()
        # The size is included, so that two lists of files cannot have the same bytes in sequence.
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)} ".encode() + content)
        return digest.hexdigest()

    def directed(self, source: str | None = None, target: str | None = None) -> Self:
        """Return the tokenisers for one direction of a model of several languages, with its symbols.

        source, target: languages. None is that of the usual direction.

        The files are those of the model. Raise `UserError` as `ModelLanguages.direction` does.
        """
        languages = self.recipe.own_languages
        usual = self.recipe.source_lang, self.recipe.target_lang
        chosen = languages.direction(source, target, usual)
        begins = languages.begins(*chosen)
        recipe = replace(
            self.recipe, source_lang=chosen[0], target_lang=chosen[1], begins=begins, languages=languages
        )
        sides = replace(self.source, begin=begins[0]), replace(self.target, begin=begins[1])
        return replace(self, recipe=recipe, source=sides[0], target=sides[1])

    def described_anew(self) -> Self:
        """Return the tokenisers with a new description of their recipe, since `directed` keeps the files."""
        description = parsed_json(self.files[DESCRIPTION]) | self.recipe.described()
        return replace(self, files={**self.files, DESCRIPTION: _as_file(description)})

    def side(self, side: Side) -> Tokenizer:
        """Return the tokeniser of one side."""
        return self.source if side == "source" else self.target

    def save(self, folder: Path) -> None:
        """Create `folder`, and write all files into it. Raise `FileExistsError` if it exists."""
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


def learn_tokenizers(recipe: Recipe, config: TokenizerConfig, sample: Mapping[Side, list[str]]) -> Tokenizers:
    """Learn subword models and create vocabularies.

    - `recipe`: decides, among other things, whether both sides share a subword model.
    - `config`: the settings of learning.
    - `sample`: the prepared lines of each side to learn from.

    Raise `UserError` if the text does not suit the settings.
    """
    plain = {side: without_symbols(lines, recipe.symbols) for side, lines in sample.items()}
    names = recipe.model_names()
    texts = {
        name: [line for side in SIDES if names[side] == name for line in plain[side]]
        for name in names.values()
    }
    models = {name: _learnt(name, lines, config) for name, lines in texts.items()}
    files = {name: model.files() for name, model in models.items()}
    return _assembled(recipe, files, {side: [] for side in SIDES}, {})


def _learnt(name: str, lines: list[str], config: TokenizerConfig) -> Subwords:
    """Learn a subword model from `lines`. Errors begin with `name`, that of its vocabulary."""
    try:
        return learn(lines, config)
    except UserError as error:
        raise UserError(f"{name} vocabulary: {error.message}") from error


def adopt_tokenizers(
    recipe: Recipe, models: Mapping[str, Path], sample: Mapping[Side, list[str]]
) -> Tokenizers:
    """Build tokenisers with existing subword models, and create new vocabularies.

    - `recipe`: its kind is that of the models, "sentencepiece" or "bpe".
    - `models`: the file of each model by its name: a SentencePiece model, or codes of subword-nmt.
    - `sample`: the prepared lines of each side. For BPE, their characters get entries too.

    Raise `UserError` if a file does not fit.
    """
    names = recipe.model_names()
    contents: dict[str, dict[str, bytes]] = {}
    for name, path in models.items():
        with _explained(path):
            content = path.read_bytes()
            if recipe.kind == "sentencepiece":
                contents[name] = _adopted_pieces(content)
                continue
            codes = content.decode("utf-8-sig")
            lines = [line for side in SIDES if names[side] == name for line in sample[side]]
            alphabet = set(" ".join(without_symbols(lines, recipe.symbols)))
            # The sample may lack characters that the codes merge.
            alphabet |= bpe.characters_of(bpe.parse_codes(codes))
            contents[name] = Bpe(codes, "".join(sorted(alphabet - {" "}))).files()
    return _assembled(recipe, contents, {side: [] for side in SIDES}, {})


def _adopted_pieces(content: bytes) -> dict[str, bytes]:
    """Return the files of a SentencePiece model, given the content of its file. Raise `UserError` if it is
    none. The message says which files can be used instead."""
    try:
        return Pieces(content).files()
    except UserError as error:
        if _is_word_list(content):
            raise UserError(
                "this is a list of words, which does not say how to split text. Give the SentencePiece model "
                "or the codes of subword-nmt that split its words. Without subwords, set tokenizer.kind=word "
                "to learn a new list."
            ) from error
        raise UserError(f"{error.message} Codes of subword-nmt must begin with '{bpe.HEADER}'.") from error


def _is_word_list(content: bytes) -> bool:
    """Return whether `content` is another toolkit's vocabulary. Then each line has a word and perhaps a
    number: "word 123" (fairseq), "word<TAB>-5.2" (SentencePiece) or "word: 7" (Marian)."""
    try:
        lines = content.decode("utf-8-sig").splitlines()[:WORDS_SEEN]
    except UnicodeDecodeError:
        return False
    return bool(lines) and all(WORD_LINE.fullmatch(line) for line in lines)


def kind_of_file(path: Path) -> Kind:
    """Return the kind of subword model in a file: "bpe" if it begins with `#version:`, otherwise
    "sentencepiece". Raise `UserError` if the file cannot be read."""
    try:
        with path.open("rb") as file:
            # Windows programs begin UTF-8 files with a byte order mark.
            start = file.read(START_BYTES).removeprefix(BOM_UTF8)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}. Check the path.") from error
    return "bpe" if start.startswith(b"#version:") else "sentencepiece"


def numbered_tokenizers(
    recipe: Recipe, models: Mapping[Side, Mapping[str, bytes]], vocabularies: Mapping[Side, Vocabulary]
) -> Tokenizers:
    """Build tokenisers with existing subword models and vocabularies, such as those of other toolkits.

    - `models`: the files of each side's subword model, by their endings.
    - `vocabularies`: the vocabulary of each side.

    A piece that has no entry is unknown. Raise `UserError` if no piece has one.
    """
    contents = {name: models[side] for side, name in recipe.model_names().items()}
    by_name = {name: vocabularies[side] for side, name in recipe.vocabulary_names().items()}
    return _assembled(recipe, contents, {side: [] for side in SIDES}, by_name)


def read_recipe(folder: Path) -> Recipe:
    """Return the recipe of the tokenisers in a folder, without reading its other files. Raise `UserError` as
    `load_tokenizers` does."""
    with _explained(folder):
        return _recipe_in(parsed_json(read_ordinary(folder / DESCRIPTION)))


def load_tokenizers(folder: Path) -> Tokenizers:
    """Load the tokenisers in a folder that `Tokenizers.save` wrote.

    Raise `UserError` if the folder has another format, a file is missing or damaged, or a vocabulary does not
    fit its subword model.
    """
    with _explained(folder):
        description = parsed_json(read_ordinary(folder / DESCRIPTION))
        recipe = _recipe_in(description)
        # A description from outside could name any file to read as a part of the model.
        if unexpected := [ending for ending in description["files"] if ending not in ENDINGS]:
            raise UserError(
                f"{DESCRIPTION} names a file of unknown kind {unexpected[0]!r}. Copy the folder again."
            )
        contents = {
            name: {ending: read_ordinary(folder / f"{name}.{ending}") for ending in description["files"]}
            for name in recipe.model_names().values()
        }
        vocabularies = {
            name: read_vocabulary(read_ordinary(folder / f"{name}.{VOCABULARY}"), marks)
            for name, marks in description.get("marks", {}).items()
        }
        loaded = _assembled(recipe, contents, description["too_rare"], vocabularies)
        for side, name in recipe.vocabulary_names().items():
            file, size = f"{name}.{VOCABULARY}", len(loaded.side(side).vocabulary)
            if read_ordinary(folder / file) != loaded.files[file] or size != description["vocabulary"][side]:
                raise UserError(
                    f"{file} is not the vocabulary of the subword model in the folder. Copy both again."
                )
        # The files are kept as they are on disk. A folder of another version may be formatted differently,
        # and its fingerprint must stay.
        return replace(loaded, files={name: read_ordinary(folder / name) for name in loaded.files})


def _recipe_in(description: Mapping[str, Any]) -> Recipe:
    """Return the recipe in a description. Raise `UserError` for another format."""
    if description["format"] != FORMAT:
        raise UserError(f"format {description['format']}, but this version reads {FORMAT}.")
    names = [key.name for key in fields(Recipe)]
    recipe = section_of(Recipe, {name: description[name] for name in names if name in description})
    known = {*recipe.begins} <= {*recipe.symbols, ""}
    if recipe.begins and (len(recipe.begins) != len(SIDES) or not known):
        raise UserError(
            f"{DESCRIPTION}: begins is {[*recipe.begins]}, not a symbol for each side. Copy it again."
        )
    if unknown := recipe.own_languages.symbols - {*recipe.symbols}:
        raise UserError(f"{DESCRIPTION}: languages has {min(unknown)!r}, which is no symbol. Copy it again.")
    return recipe


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of the block into `UserError` with a remedy. `path` is the file or folder that the block
    reads.

    `FileNotFoundError` means a missing file, and `LookupError`, `TypeError` and `ValueError` mean a damaged
    one.
    """
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error.message}") from error
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing. Copy it again.") from error
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error!r}). Copy it again.") from error


def _assembled(
    recipe: Recipe,
    contents: Mapping[str, Mapping[str, bytes]],
    rare: Mapping[Side, list[int]],
    vocabularies: Mapping[str, Vocabulary],
) -> Tokenizers:
    """Build tokenisers, and the content of their files.

    - `contents`: the files of each subword model, by the name of the model and their endings.
    - `rare`: for each side, the ids of pieces that are split into smaller ones.
    - `vocabularies`: the existing vocabularies by name. If empty, new ones are created.
    """
    names = recipe.vocabulary_names()
    sides = {
        side: _tokenizer(recipe, side, contents[model], rare[side], vocabularies.get(names[side]))
        for side, model in recipe.model_names().items()
    }
    description: dict[str, Any] = {
        "format": FORMAT,
        **recipe.described(),
        "files": sorted(next(iter(contents.values()))),
        "vocabulary": {side: len(tokenizer.vocabulary) for side, tokenizer in sides.items()},
        "too_rare": rare,
    }
    if vocabularies:
        description["marks"] = {name: vocabulary.marks for name, vocabulary in vocabularies.items()}
    files = {DESCRIPTION: _as_file(description)}
    for side, name in recipe.model_names().items():
        files |= {f"{name}.{ending}": content for ending, content in contents[name].items()}
        files[f"{names[side]}.{VOCABULARY}"] = sides[side].vocabulary.file()
    return Tokenizers(recipe, sides["source"], sides["target"], files)


def _as_file(description: Mapping[str, Any]) -> bytes:
    return (json.dumps(description, indent=1, ensure_ascii=False) + "\n").encode()


def _tokenizer(
    recipe: Recipe, side: Side, content: Mapping[str, bytes], rare: list[int], vocabulary: Vocabulary | None
) -> Tokenizer:
    """Build the tokeniser of one side.

    - `content`: the files of its subword model, by their endings.
    - `rare`: the ids of pieces that are split into smaller ones.
    - `vocabulary`: an existing vocabulary, or None to create one. If the sides do not share it, it may lack
      symbols.
    """
    model = _model(recipe, content, [])
    if vocabulary:
        vocabulary = replace(vocabulary, bare=recipe.bare_source and side == "source")
        symbols = recipe.symbols
        if not recipe.joint:  # symbols of other toolkits may be in the source only
            symbols = tuple(symbol for symbol in symbols if symbol in vocabulary.entries)
        numbering = Numbering.over(vocabulary, symbols, model.entries)
        if recipe.kind != "sentencepiece":  # the text of a foreign entry is not known for other kinds
            numbering = replace(numbering, foreign=())
    else:
        numbering = Numbering.new(recipe.symbols, model.entries)
    # Built again, because the numbering of the first model decides which pieces the rare ids are.
    if rare:
        model = _model(recipe, content, [numbering.pieces[i] for i in rare])
    has_codes = bool(recipe.begins or recipe.languages)
    pieces = has_codes and {*numbering.symbols.values()} <= numbering.pieces.keys()
    return Tokenizer(recipe.normalizer(), recipe.moses(side), model, numbering, recipe.begin(side), pieces)


def without_symbols(lines: Iterable[str], symbols: Sequence[str]) -> list[str]:
    """Return the lines without words that are symbols."""
    if not symbols:
        return list(lines)
    return [" ".join(word for word in line.split() if word not in symbols) for line in lines]


def _model(recipe: Recipe, content: Mapping[str, bytes], rare: list[int]) -> Subwords:
    """Load the subword model of `recipe.kind` from its files. Raise `ValueError` for an unknown kind.

    - `content`: its files, by their endings.
    - `rare`: the numbers of pieces, not ids, that are split into smaller ones. Only SentencePiece and BPE use
      them.
    """
    match recipe.kind:
        case "sentencepiece":
            return Pieces(content["model"], rare)
        case "bpe":
            codes, alphabet = content["codes"].decode(), content["characters.txt"].decode()
            return Bpe(codes, alphabet, recipe.byte_fallback, rare)
        case "char":
            return Characters(content["characters.txt"].decode(), recipe.byte_fallback)
        case "word":
            return Words(content["words.txt"].decode().split("\n")[:-1], recipe.byte_fallback)
        case unknown:
            raise ValueError(f"kind {unknown}")
