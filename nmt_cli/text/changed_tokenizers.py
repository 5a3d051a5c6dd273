"""Tokenisers whose SentencePiece models and vocabularies grow or shrink for other texts and languages."""

import json
from collections.abc import Mapping, Sequence

from nmt_cli.errors import UserError
from nmt_cli.text.subword_models.model_file import DEFINED
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.trim_and_grow import grown, trimmed, with_new_pieces
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer, prepared
from nmt_cli.text.tokenizers import DESCRIPTION, Recipe, Tokenizers, numbered_tokenizers, without_symbols
from nmt_cli.text.vocabulary import MULTIPLE, Vocabulary


def changed_tokenizers(
    old: Tokenizers,
    recipe: Recipe,
    texts: Mapping[Side, Sequence[str]],
    to_learn: Mapping[Side, Sequence[str]],
    count: int,
    *,
    trim: bool,
) -> Tokenizers:
    """Return tokenisers with another recipe, new pieces, and with `trim` fewer old ones.

    recipe: the new recipe. Only languages and their symbols may differ from the old one.
    texts: the raw lines of each side whose segmentation must stay possible.
    to_learn: the raw lines of each side from which new pieces are learnt. Without lines, none are.
    count: the maximum number of pieces to learn.
    trim: remove the old pieces that `texts` and their scripts do not need.

    Raise `UserError` if the tokenisers do not have SentencePiece models of a kind that can be changed.
    """
    names = recipe.model_names()
    if any(json.loads(old.files[DESCRIPTION])["too_rare"].values()):
        raise UserError(
            "the vocabulary splits rare pieces (tokenizer.min_count of an older version), so it cannot be "
            "changed. Omit the option, or train with a new vocabulary (nmt train --init-from)."
        )
    added = [symbol for symbol in recipe.symbols if symbol not in old.recipe.symbols]
    removed = {*old.recipe.symbols} - {*recipe.symbols}
    models: dict[str, Pieces] = {}
    for name in dict.fromkeys(names.values()):
        sides = [side for side in SIDES if names[side] == name]
        tokenizer = old.side(sides[0])
        before = model = _changeable(tokenizer, recipe.kind)
        if added and tokenizer.symbols_are_pieces:
            model = with_new_pieces(model, [(symbol, 0.0, DEFINED) for symbol in added])
        if learnt := _prepared(old, sides, to_learn):
            model = grown(model, learnt, count, {*tokenizer.vocabulary.entries, *added})
        # Also without `trim`, because some of the new pieces may be of no use.
        if trim or model is not before:
            size = 0 if trim else len(before.written)
            kept = [i for i, piece in enumerate(model.written) if i < size or piece in recipe.symbols]
            model = trimmed(model, _prepared(old, sides, texts), kept, removed)
        models[name] = model
    vocabularies = {side: _changed_vocabulary(old, side, recipe, models, trim=trim) for side in SIDES}
    return numbered_tokenizers(recipe, {side: models[names[side]].files() for side in SIDES}, vocabularies)


def _changeable(tokenizer: Tokenizer, kind: str) -> Pieces:
    """Return the subword model. Raise `UserError` if it cannot be changed. `kind` is that of the recipe."""
    model = tokenizer.subwords
    if isinstance(model, Pieces) and model.draws_by:
        return model
    kind = "a SentencePiece model of words or characters" if isinstance(model, Pieces) else kind
    raise UserError(
        f"the vocabulary is {kind}, which cannot be changed. nmt changes SentencePiece models of BPE or "
        "unigram only. Omit the option, or train with a new vocabulary (nmt train --init-from)."
    )


def _prepared(old: Tokenizers, sides: Sequence[Side], texts: Mapping[Side, Sequence[str]]) -> list[str]:
    """Return the different lines of some sides, prepared and without symbols."""
    lines: dict[str, None] = {}
    for side in sides:
        one = old.side(side)
        ready = (prepared(line, one.normalizer, one.moses, one.symbols) for line in texts[side])
        lines |= dict.fromkeys(without_symbols(ready, one.symbols))
    return [*lines]


def _changed_vocabulary(
    old: Tokenizers, side: Side, recipe: Recipe, models: Mapping[str, Pieces], *, trim: bool
) -> Vocabulary:
    """Return the vocabulary of a side for its subword models.

    Old entries keep their order. New pieces come after the old pieces, and new symbols after all others. A
    side whose entries have no symbols, such as the target of OPUS-MT, gets none.
    """
    vocabulary, symbols = old.side(side).vocabulary, {*recipe.symbols}
    names = {name for one, name in recipe.model_names().items() if recipe.joint or one == side}
    pieces = dict.fromkeys(piece for name in sorted(names) for piece in models[name].entries if piece)
    marks = {vocabulary.end, vocabulary.unknown, vocabulary.start, *vocabulary.never}
    kept = [
        entry
        for i, entry in enumerate(vocabulary.entries)
        if entry in symbols
        or (entry and entry not in old.recipe.symbols and (not trim or i in marks or entry in pieces))
    ]
    known = {*vocabulary.entries}
    new = [piece for piece in pieces if piece not in known]
    codes = [one for one in recipe.symbols if one not in old.recipe.symbols and one not in pieces]
    # Toolkits number language codes and the mask token after all pieces.
    last = max((place for place, entry in enumerate(kept, 1) if entry in pieces), default=0)
    entries = [*kept[:last], *new, *kept[last:], *(codes if old.side(side).symbols else [])]
    padding = range(len(entries), len(entries) + -len(entries) % MULTIPLE)
    ids = {entry: i for i, entry in enumerate(entries)}
    never = (ids[entry] for i in vocabulary.never if (entry := vocabulary.entries[i]) in ids)
    return Vocabulary(
        entries=(*entries, *[""] * len(padding)),
        end=ids[vocabulary.entries[vocabulary.end]],
        start=None if vocabulary.start is None else ids[vocabulary.entries[vocabulary.start]],
        unknown=ids[vocabulary.entries[vocabulary.unknown]],
        never=(*sorted(never), *padding),
    )
