"""Fits the weights of a model to another vocabulary.

Some parameters have a row for each entry of a vocabulary. An entry that both vocabularies have keeps its row.
A new entry starts as the mean of the rows of its old pieces: the entries with which the old vocabulary spells
its text.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from nmt_cli.text.normalize import SPACE_MARK
from nmt_cli.text.subword_models.bpe import INSIDE, Bpe
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.subwords import BYTES
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

ROWS: Mapping[str, Side] = {
    "source_embedding.matrix": "source",
    "target_embedding.matrix": "target",
    "output_matrix": "target",
    "output_bias": "target",
}
"""Parameters with one row per vocabulary entry, and the side whose vocabulary it is."""

STRANGE = "\ue000"
"""A character of the private area, which no text has."""


def fitted_rows(
    tensors: Mapping[str, Tensor], old: Tokenizers, new: Tokenizers, starts: Mapping[str, str] | None = None
) -> tuple[dict[str, Tensor], str]:
    """Return the weights of a model by our names, with rows for another vocabulary, and a summary of where
    the rows come from.

    tensors: the weights, with rows for the vocabulary of `old`. Parameters that are not in `ROWS` stay as
        they are.
    starts: for entries such as new language codes, the old entry that each starts as.

    Rows of padding are zeros. An entry that `old` cannot spell gets random numbers with the mean and the
    deviation of all old rows, the same numbers each time.
    """
    # Sides with one vocabulary may still have a subword model each, which spell an entry in different ways.
    origins = {side: _origins(old.side(side), new.side(side), starts or {}) for side in SIDES}
    fitted = dict(tensors)
    for name, side in ROWS.items():
        if name not in tensors:
            continue
        rows, ids = tensors[name].float(), origins[side][0]
        used = [i for i, entry in enumerate(old.side(side).vocabulary.entries) if entry]
        deviation, mean = torch.std_mean(rows[torch.tensor(used)], dim=0)
        random = torch.randn(len(ids), *rows.shape[1:], generator=torch.Generator().manual_seed(0))
        # Copied rows come first, because most rows are, and one operation copies all of them.
        matrix = mean + deviation * random
        copied = [(i, one[0]) for i, one in enumerate(ids) if len(one) == 1]
        matrix[[i for i, _ in copied]] = rows[[one for _, one in copied]]
        for i, several in enumerate(ids):
            if len(several) > 1:
                matrix[i] = rows[several].mean(0)
        matrix[[i for i, entry in enumerate(new.side(side).vocabulary.entries) if not entry]] = 0
        fitted[name] = matrix.to(tensors[name].dtype)
    summary = "; ".join(f"{side} {origins[side][1]}" for side in SIDES)
    return fitted, origins["target"][1] if new.recipe.joint else summary


def _origins(old: Tokenizer, new: Tokenizer, starts: Mapping[str, str]) -> tuple[list[list[int]], str]:
    """Return for each id of a new vocabulary the old ids whose rows it starts as the mean of, and a summary.

    There are none for padding, and for an entry whose text the old vocabulary cannot spell. Special tokens
    are matched by meaning. `starts` has the old entry that a new one starts as.
    """
    first, second = old.vocabulary, new.vocabulary
    marks = {second.unknown: first.unknown, second.end: first.end}
    # If the new start token is the end token, it has the row of the old end already.
    if first.start is not None and second.start is not None:
        marks.setdefault(second.start, first.start)
    special = {*marks.values()}
    known = {entry: i for i, entry in enumerate(first.entries) if entry and i not in special}
    known |= {code: known[start] for code, start in starts.items() if start in known}
    same = {i: known[entry] for i, entry in enumerate(second.entries) if entry in known} | marks
    spell = _spelling(old, new)
    ids = [
        [same[i]] if i in same else [one for one in spell(i) if one != first.unknown]
        for i in range(len(second))
    ]
    entries, found = sum(map(bool, second.entries)), sum(map(bool, ids))
    return ids, (
        f"{len(same):,} of {entries:,} entries are copied, {found - len(same):,} start as the mean of their "
        f"old pieces, {entries - found:,} from random values"
    )


def _spelling(old: Tokenizer, new: Tokenizer) -> Callable[[int], list[int]]:
    """Return a function that spells the entry with an id of `new` in ids of `old`, unknown ones included."""
    numbers, model, decode = new.numbering.pieces, old.subwords, new.subwords.decode
    within = model.within_words() if isinstance(model, Pieces) else None

    def spell(i: int) -> list[int]:
        # Entries that are no piece, such as symbols and padding, and single bytes have no text.
        entry = new.vocabulary.entries[i]
        if i not in numbers or entry in BYTES:
            return []
        # Only pieces of SentencePiece say whether they begin a word. Most others do.
        text = entry if isinstance(new.subwords, Pieces) else SPACE_MARK + decode([numbers[i]]).strip()
        if within:
            return old.numbering.ids_of(within.encode(text))
        text = text.replace(SPACE_MARK, " ").strip()
        if isinstance(new.subwords, Bpe) and entry.endswith(INSIDE):
            # No merge joins the text to a character that no alphabet has.
            pieces = model.encode(text + STRANGE)
            return old.numbering.ids_of(pieces[: -len(model.encode(STRANGE))])
        return old.numbering.ids_of(model.encode(text))

    return spell
