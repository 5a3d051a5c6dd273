"""Fit the vocabulary of a model to the user's languages and texts, for options of `nmt import`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import regex

from nmt_cli.checkpoints.entry_rows import fitted_rows
from nmt_cli.corpus import raw_files
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import Foreign, ImportOptions
from nmt_cli.language import fits, language_in, nearest_language
from nmt_cli.text.changed_tokenizers import changed_tokenizers
from nmt_cli.text.model_languages import ModelLanguages, listed
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Recipe
from nmt_cli.units import size

FEWEST_LINES, MOST_LINES = 100, 1_000_000
"""The minimum number of lines in a text to choose entries by, and the number of lines that are used."""

USUAL_PIECES = 2000
"""The number of new pieces with --add, if the user gives none."""

SCRIPTS = {"Hans": "Hani", "Hant": "Hani", "Jpan": "Hani Hira Kana", "Kore": "Hang Hani", "Hang": "Hang Hani"}
"""Unicode's names of the scripts in language names, if they differ."""

LETTER = regex.compile(r"\p{L}")


@dataclass(frozen=True, slots=True)
class Wishes:
    """The user's wishes for the vocabulary of a model. Without any, it stays as it is."""

    keep: tuple[str, ...] = ()
    """The languages that the trimmed model has. Empty for all, which trims nothing."""

    add: Mapping[str, str] = field(default_factory=dict)
    """For each new language, the language that it starts as."""

    texts: tuple[Path, ...] = ()
    """Texts in the languages of the model. A text is in the language that its name ends with, if any."""

    pieces: int | None = None
    """The maximum number of pieces to learn from the texts. None is 0, or `USUAL_PIECES` with `add`."""

    def __post_init__(self) -> None:
        """Raise `UserError` if wishes and texts do not go together."""
        wanted = [f"--{name}" for name in ("keep", "add", "pieces") if getattr(self, name)]
        if wanted and not self.texts:
            raise UserError(f"{wanted[0]} needs text in the languages of the model. Add --text mine.en.")
        if self.texts and not wanted:
            raise UserError("--text has no effect without --keep, --add or --pieces. Add one of them.")

    def options(self, options: ImportOptions) -> ImportOptions:
        """Return the options for reading the model, which does not have the new languages yet."""
        pair = options.source_lang, options.target_lang
        source, target = (name and self.add.get(name, name) for name in pair)
        return replace(options, source_lang=source, target_lang=target)


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the user."""

    path: Path
    language: str
    """The name of its language, or "" if the name of the file does not end with one."""

    lines: Sequence[str]


class Comparison(NamedTuple):
    """A property of the model before and after the change, as people read it."""

    name: str
    before: str
    after: str


def fit(foreign: Foreign, wishes: Wishes, options: ImportOptions) -> tuple[Foreign, list[Comparison]]:
    """Return the model with the vocabulary that the user wishes, and a comparison with the model before.

    options: the languages that the user named, which may be new ones.

    Raise `UserError` for a language that the model lacks or, if it is new, has; for a text that is too short
    or in another script; for a language without a text; and for a vocabulary that cannot be changed.
    """
    old = foreign.tokenizers
    wishes = _resolved(wishes, old.recipe.own_languages)
    languages, starts = _languages(wishes, old.recipe.own_languages)
    recipe = _recipe(old.recipe, languages, starts, wishes, options)
    names = [*{**languages.sources, **languages.targets}]
    texts = [_read(path, names) for path in wishes.texts]
    _check_scripts(texts, names)
    _check_covered(texts, [*wishes.keep, *wishes.add])
    count = wishes.pieces if wishes.pieces is not None else USUAL_PIECES * bool(wishes.add)
    # New pieces are for the new languages only. Others would change how old text is segmented.
    of_new = [text for text in texts if text.language in wishes.add] or texts
    to_learn = _by_side(of_new if count else [], languages)
    new = changed_tokenizers(old, recipe, _by_side(texts, languages), to_learn, count, trim=bool(wishes.keep))
    tensors, _ = fitted_rows(foreign.tensors, old, new, starts)
    counts = [f" {len(one.recipe.own_languages.targets)} languages" for one in (old, new)]
    notes = [note.replace(counts[0], counts[1]) for note in foreign.notes]
    # A shortlist of the old vocabulary has other ids.
    result = replace(foreign, tokenizers=new, tensors=tensors, notes=notes, shortlist=None)
    return result, _compared(foreign, result, texts)


def _resolved(wishes: Wishes, languages: ModelLanguages) -> Wishes:
    """Return the wishes with languages as the model spells them. Raise `UserError` for one that the model
    lacks, and for a new one that it has."""
    known = {**languages.sources, **languages.targets}

    def found(option: str, name: str) -> str:
        # "kas_Latn" must not mean kas_Arab, but "kas" may.
        if (resolved := language_in(known, name)) and fits(name, resolved):
            return resolved
        offered = nearest_language(name, known) or f"it has {listed(known)}."
        raise UserError(f"{option}: the model has no language {name}: {offered}")

    for name in wishes.add:
        if name in known:
            raise UserError(f"--add {name}={wishes.add[name]}: the model has {name} already. Omit --add.")
    keep = tuple(dict.fromkeys(found("--keep", name) for name in wishes.keep if name not in wishes.add))
    add = {name: found(f"--add {name}={start}", start) for name, start in wishes.add.items()}
    return replace(wishes, keep=keep, add=add)


def _languages(wishes: Wishes, old: ModelLanguages) -> tuple[ModelLanguages, dict[str, str]]:
    """Return the languages of the new model, and for each new symbol the old one that it starts as. Raise
    `UserError` for a language that would start as one without a symbol, and if a side would have none."""
    starts: dict[str, str] = {}
    sides = []
    for side in (old.sources, old.targets):
        symbols = {name: symbol for name, symbol in side.items() if not wishes.keep or name in wishes.keep}
        for name, start in wishes.add.items():
            if start not in side:
                continue
            symbols[name] = side[start].replace(start, name)
            # A side without symbols, such as the source of MADLAD-400, takes any language.
            if side[start]:
                starts[symbols[name]] = side[start]
        sides.append(symbols)
    if len(starts) < len(wishes.add):
        raise UserError(
            f"--add {next(iter(wishes.add))} needs a model of several languages, which has a symbol for each "
            "of them. Omit --add, and fine-tune the model for one direction."
        )
    if not all(sides):
        word, all_names = ("from", old.sources) if not sides[0] else ("into", old.targets)
        raise UserError(f"--keep needs a language to translate {word}. The model has {listed(all_names)}.")
    if len({*sides[0], *sides[1]}) < 2:
        raise UserError(
            f"--keep {next(iter(sides[0]))} leaves nothing to translate into. Name two languages."
        )
    # Directions are recorded if the training data had only some.
    pairs = [*old.pairs]
    for name, start in wishes.add.items():
        pairs += [(name, target) for source, target in old.pairs if source == start]
        pairs += [(source, name) for source, target in old.pairs if target == start]
    kept = tuple(pair for pair in pairs if pair[0] in sides[0] and pair[1] in sides[1])
    return ModelLanguages(sides[0], sides[1], old.target_symbols, kept), starts


def _recipe(
    old: Recipe, languages: ModelLanguages, starts: Mapping[str, str], wishes: Wishes, options: ImportOptions
) -> Recipe:
    """Return the recipe with new languages, and with the symbols in `starts`.

    Its usual languages are those in `options`, or else those of the model if they are kept, or else the first
    two of --keep. Raise `UserError` if the new model does not have a language in `options`.
    """
    usual = []
    for known, named, own, kept in zip(
        (languages.sources, languages.targets),
        (options.source_lang, options.target_lang),
        (old.source_lang, old.target_lang),
        [*wishes.keep, *wishes.add, "", ""],
        strict=False,
    ):
        if named and not language_in(known, named):
            raise UserError(f"the new model would not have the language {named}. Add it to --keep.")
        # The usual language of OPUS-MT may have no symbol. A model that keeps all languages keeps it.
        changes = named or wishes.keep
        usual.append((language_in(known, named or own) or kept or own) if changes else own)
    source, target = usual
    begins = languages.begins(source, target) if target in languages.targets else ()
    removed = old.own_languages.symbols - languages.symbols
    return replace(
        old,
        source_lang=source,
        target_lang=target,
        symbols=(*(symbol for symbol in old.symbols if symbol not in removed), *starts),
        begins=begins if any(begins) else (),
        languages=languages if languages.symbols else None,
    )


def _read(path: Path, names: Sequence[str]) -> Text:
    """Return the lines of a text that are not empty, at most `MOST_LINES`. Raise `UserError` if there are
    fewer than `FEWEST_LINES`, and for a line that is not UTF-8."""
    found = (
        raw_files.decoded(raw, "replace", f"{path} line {number:,}")
        for number, raw in enumerate(raw_files.lines(path), 1)
    )
    lines = [line for line in islice(found, MOST_LINES) if line and line.strip()]
    if len(lines) < FEWEST_LINES:
        raise UserError(
            f"{path} has {len(lines)} lines of text, but choosing entries needs at least {FEWEST_LINES}, and "
            "thousands are better. Give more --text."
        )
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    return Text(path, next((name for name in names if fits(ending, name)), ""), lines)


def _check_scripts(texts: Sequence[Text], names: Sequence[str]) -> None:
    """Raise `UserError` if a text is mostly in other scripts than its language, or than all languages."""
    for text in texts:
        languages = [text.language] if text.language else names
        scripts = {name.rpartition("_")[2] for name in languages}
        letters = LETTER.findall("".join(text.lines))
        # Names such as "en" have no script.
        if not letters or not all(regex.fullmatch("[A-Z][a-z]{3}", script) for script in scripts):
            continue
        classes = "".join(
            rf"\p{{Script={one}}}" for script in scripts for one in SCRIPTS.get(script, script).split()
        )
        share = len(regex.findall(f"[{classes}]", "".join(letters))) / len(letters)
        if share < 0.5:
            raise UserError(
                f"{text.path}: {share:.0%} of its letters are {' or '.join(sorted(scripts))}, the script of "
                f"{', '.join(languages[:6])}. Check the file, or name the language that it is in."
            )


def _check_covered(texts: Sequence[Text], names: Sequence[str]) -> None:
    """Raise `UserError` if a language has no text. A text without a language may be in any of them."""
    of_texts = {text.language for text in texts}
    missing = [name for name in names if name not in of_texts]
    if missing and "" not in of_texts:
        raise UserError(
            f"no --text is in {missing[0]}, so its entries cannot be chosen. Add a text whose name ends with "
            "the language, such as mine.de."
        )


def _sides(text: Text, languages: ModelLanguages) -> Sequence[Side]:
    """Return the sides with the language of a text. A text without a language may be on both."""
    names = {"source": languages.sources, "target": languages.targets}
    return [side for side in SIDES if text.language in names[side]] or SIDES


def _by_side(texts: Sequence[Text], languages: ModelLanguages) -> dict[Side, list[str]]:
    """Return the lines of the texts for each side."""
    return {
        side: [line for text in texts if side in _sides(text, languages) for line in text.lines]
        for side in SIDES
    }


def _compared(before: Foreign, after: Foreign, texts: Sequence[Text]) -> list[Comparison]:
    """Return the properties of both models: entries, memory, and how they segment each text."""
    both = before, after
    entries = [[len(one.tokenizers.side(side).vocabulary) for side in SIDES] for one in both]
    joint = after.tokenizers.recipe.joint
    parameters = [sum(tensor.numel() for tensor in one.tensors.values()) for one in both]
    rows = [
        Comparison("entries", *(f"{a:,}" if joint else f"{a:,} and {b:,}" for a, b in entries)),
        Comparison("parameters", *(f"{count:,}" for count in parameters)),
        Comparison("size, and memory to translate, in fp32", *(size(4 * count) for count in parameters)),
        Comparison("memory to train all of it with Adam", *(size(16 * count) for count in parameters)),
    ]
    for text in texts:
        words = max(1, sum(len(line.split()) for line in text.lines))
        side = _sides(text, after.tokenizers.recipe.own_languages)[0]
        counts = [_counts(one.tokenizers.side(side), text.lines) for one in both]
        name = text.path.name
        rows.append(
            Comparison(f"pieces per word, {name}", *(f"{pieces / words:.2f}" for pieces, _ in counts))
        )
        shares = (f"{unknown / max(1, pieces):.2%}" for pieces, unknown in counts)
        rows.append(Comparison(f"unknown pieces, {name}", *shares))
    return rows


def _counts(tokenizer: Tokenizer, lines: Sequence[str]) -> tuple[int, int]:
    """Return the number of pieces in `lines`, and of unknown ones among them."""
    pieces = unknown = 0
    for line in lines:
        ids = tokenizer.encode(tokenizer.prepare(line))
        pieces += len(ids) - bool(tokenizer.begin)
        unknown += ids.count(tokenizer.vocabulary.unknown)
    return pieces, unknown
