"""Fitting of tokenisers to texts and languages: SentencePiece models and vocabularies that grow or shrink."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nmt_cli.errors import UserError
from nmt_cli.text.model_languages import ModelLanguages
from nmt_cli.text.subword_models.model_file import DEFINED
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.trim_and_grow import grown, trimmed, with_new_pieces
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer, prepared
from nmt_cli.text.tokenizers import DESCRIPTION, Recipe, Tokenizers, numbered_tokenizers, without_symbols
from nmt_cli.text.vocabulary import MULTIPLE, Vocabulary


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a vocabulary."""

    languages: ModelLanguages
    """The languages of the new model. Symbols of other languages are removed."""

    usual: tuple[str, str]
    """The source and the target language of calls that name none."""

    trim: bool = False
    """Remove the pieces that the texts and their scripts do not need."""

    added: Mapping[str, str] = field(default_factory=dict)
    """For each new symbol of a language, the symbol that it starts as."""

    pieces: int = 0
    """The maximum number of pieces to learn."""

    def removed(self, recipe: Recipe) -> set[str]:
        """Return the symbols of languages that only the old model, with `recipe`, has."""
        return recipe.own_languages.symbols - self.languages.symbols


def fitted(
    old: Tokenizers,
    texts: Mapping[Side, Sequence[str]],
    to_learn: Mapping[Side, Sequence[str]],
    changes: Changes,
) -> Tokenizers:
    """Return tokenisers with the `changes`.

    texts: the raw lines of each side whose segmentation must stay possible.
    to_learn: the raw lines of each side from which new pieces are learnt.

    Raise `UserError` if the tokenisers do not have SentencePiece models of a kind that can be changed.
    """
    recipe = old.recipe
    names = recipe.model_names()
    for side in SIDES:
        _refuse_fixed(old.side(side), recipe.kind)
    if any(json.loads(old.files[DESCRIPTION])["too_rare"].values()):
        raise UserError(
            "the vocabulary splits rare pieces (tokenizer.min_count of an older version), so it cannot be "
            "changed. Omit the option, or train with a new vocabulary (nmt train --init-from)."
        )
    models: dict[str, Pieces] = {}
    for name in dict.fromkeys(names.values()):
        sides = [side for side in SIDES if names[side] == name]
        lines, learnt = (
            list(dict.fromkeys(line for side in sides for line in _prepared(old.side(side), part[side])))
            for part in (texts, to_learn)
        )
        models[name] = _fitted_model(old.side(sides[0]), lines, learnt, changes, changes.removed(recipe))
    vocabularies = {side: _fitted_vocabulary(old, side, models, changes) for side in SIDES}
    symbols = tuple(symbol for symbol in recipe.symbols if symbol not in changes.removed(recipe))
    languages, (source, target) = changes.languages, changes.usual
    begins = languages.begins(source, target) if target in languages.targets else ("", "")
    recipe = replace(
        recipe,
        source_lang=source,
        target_lang=target,
        symbols=(*symbols, *changes.added),
        begins=begins if any(begins) else (),
        languages=languages if languages.symbols else None,
    )
    return numbered_tokenizers(recipe, {side: models[names[side]].files() for side in SIDES}, vocabularies)


def _refuse_fixed(tokenizer: Tokenizer, kind: str) -> None:
    """Raise `UserError` if the subword model cannot be changed. `kind` is that of the tokenisers."""
    model = tokenizer.subwords
    if not isinstance(model, Pieces) or model.draws_by is None:
        kind = "a SentencePiece model of words or characters" if isinstance(model, Pieces) else kind
        raise UserError(
            f"the vocabulary is {kind}, which cannot be changed. nmt changes SentencePiece models of BPE or "
            "unigram only. Omit the option, or train with a new vocabulary (nmt train --init-from)."
        )


def _prepared(tokenizer: Tokenizer, lines: Sequence[str]) -> Iterator[str]:
    """Yield prepared lines without symbols."""
    symbols = tokenizer.symbols
    for line in lines:
        yield from without_symbols([prepared(line, tokenizer.normalizer, tokenizer.moses, symbols)], symbols)


def _fitted_model(
    tokenizer: Tokenizer, lines: Sequence[str], to_learn: Sequence[str], changes: Changes, removed: set[str]
) -> Pieces:
    """Return the subword model of `tokenizer` with the changes, and without the symbols `removed`. `lines`
    and `to_learn` are prepared."""
    old = tokenizer.subwords
    assert isinstance(old, Pieces)
    model = old
    if changes.added and tokenizer.symbols_are_pieces:
        model = with_new_pieces(model, [(code, 0.0, DEFINED) for code in changes.added])
    symbols = [i for i, piece in enumerate(model.written) if piece in {*tokenizer.symbols, *changes.added}]
    if changes.pieces and to_learn:
        model = grown(model, to_learn, changes.pieces, tokenizer.vocabulary.entries)
    if model is old and not changes.trim:
        return old
    also = symbols if changes.trim else range(len(old.entries))
    return trimmed(model, lines, {*symbols, *also}, removed)


def _fitted_vocabulary(
    old: Tokenizers, side: Side, models: Mapping[str, Pieces], changes: Changes
) -> Vocabulary:
    """Return the vocabulary of a side for its subword models.

    Old entries keep their order. New pieces come after the old pieces, and new codes after the old codes.
    """
    vocabulary, recipe = old.side(side).vocabulary, old.recipe
    names = {model for one, model in recipe.model_names().items() if recipe.joint or one == side}
    pieces = dict.fromkeys(
        piece for name in sorted(names) for piece in models[name].entries if piece is not None
    )
    marks = {vocabulary.end, vocabulary.unknown, *vocabulary.never}
    marks |= set() if vocabulary.start is None else {vocabulary.start}
    symbols, removed = {*recipe.symbols} - {*pieces}, changes.removed(recipe)
    kept = [
        i
        for i, entry in enumerate(vocabulary.entries)
        if entry
        and entry not in removed
        and (not changes.trim or i in marks or entry in pieces or entry in symbols)
    ]
    # Toolkits number language codes and the mask token after all pieces.
    last = max((i for i in kept if vocabulary.entries[i] in pieces), default=0)
    in_tail = [i > last or vocabulary.entries[i] in symbols for i in kept]
    head, tail = ([i for i, late in zip(kept, in_tail, strict=True) if late == one] for one in (False, True))
    has_codes = recipe.joint or any(code in vocabulary.entries for code in changes.added.values())
    taken = {*vocabulary.entries, *changes.added}
    new = [piece for piece in pieces if piece not in taken]
    codes = [code for code in changes.added if has_codes]
    ids = [*head, *[-1] * len(new), *tail, *[-1] * len(codes)]
    texts = iter([*new, *codes])
    entries = [vocabulary.entries[i] if i >= 0 else next(texts) for i in ids]
    padding = range(len(entries), len(entries) + -len(entries) % MULTIPLE)
    new_id = {i: number for number, i in enumerate(ids) if i >= 0}
    return Vocabulary(
        entries=(*entries, *[""] * len(padding)),
        end=new_id[vocabulary.end],
        start=None if vocabulary.start is None else new_id[vocabulary.start],
        unknown=new_id[vocabulary.unknown],
        never=(*sorted(new_id[i] for i in vocabulary.never if i in new_id), *padding),
    )
