"""The rule of the search for well-formed linearised trees with one tag for each word of the sentence.

    (S (NP DT NN )NP (VP VBZ )VP . )S

A symbol is a token of the vocabulary: an opening bracket, a closing bracket, or a tag. `TreeRule` is a rule
for `Model.translate(rule=...)`. It forbids every token after which no well-formed tree could follow. Names
with capital suffixes are tensors: R hypotheses (rows), V entries of the vocabulary.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt_cli.text.tokenizer import Tokenizer
from recipes.parsing.trees import words_of


@dataclass(frozen=True, slots=True)
class TreeRule:
    """Allows only what can continue a well-formed tree. The translation of a line is then such a tree.

    A closing bracket matches the innermost open one, and each bracket has a word in it. The tree ends when it
    has a tag for each word and all brackets are closed. Brackets open only if there is room to close them
    before the maximum length, so this must be at least the number of words. Other rules, such as
    `search.no_repeat_ngram`, could leave no token, and must be off.
    """

    closing: tuple[tuple[int, int], ...]
    """Each opening bracket with its closing one, as ids."""

    tags: tuple[int, ...]

    def __call__(self, log_probs_RV: Tensor, history: Any, end: int) -> None:
        """Forbid the tokens that break the tree of their row."""
        closing, tags = dict(self.closing), frozenset(self.tags)
        opening, all_tags = list(closing), list(self.tags)
        allowed_RV = torch.zeros(log_probs_RV.shape, dtype=torch.bool)
        for row, (path, item) in enumerate(zip(history.paths(), history.items_R, strict=True)):
            to_close, missing = _state(path, closing, tags)
            missing += len(words_of(item.sentence.raw))
            if missing > 0:
                allowed_RV[row, all_tags] = True
                # A new bracket takes two tokens, one to open and one to close it.
                if item.room >= missing + len(to_close) + 2:
                    allowed_RV[row, opening] = True
            if to_close and path[-1] not in closing:
                allowed_RV[row, to_close[-1]] = True
            if missing <= 0 and not to_close:
                allowed_RV[row, end] = True
        log_probs_RV.masked_fill_(~allowed_RV.to(log_probs_RV.device), -torch.inf)


def _state(path: Sequence[int], closing: dict[int, int], tags: frozenset[int]) -> tuple[list[int], int]:
    """Return the closing brackets that `path` lacks, outermost first, and minus the number of its tags."""
    to_close: list[int] = []
    count = 0
    for token in path:
        if token in closing:
            to_close.append(closing[token])
        elif to_close and token == to_close[-1]:
            to_close.pop()
        else:
            count += token in tags
    return to_close, -count


def tree_rule(target: Tokenizer) -> TreeRule:
    """Return the rule for models that write with `target`. Raise `ValueError` if these do not write trees, or
    if a tag of one character is several tokens.

    Symbols of the vocabulary are brackets and tags of several characters. Tags of one character, such as "."
    are entries like any other.
    """
    ids = {symbol: target.encode(symbol)[0] for symbol in target.symbols}
    closing = [
        (i, ids[f"){symbol[1:]}"])
        for symbol, i in ids.items()
        if symbol[0] == "(" and f"){symbol[1:]}" in ids
    ]
    tags = [i for symbol, i in ids.items() if symbol[0] not in "()"]
    for character in sorted({*string.punctuation, *string.ascii_letters} - {"(", ")"}):
        pieces = target.encode(f"{character} {character}")
        if target.vocabulary.unknown in pieces:
            continue
        if len(pieces) != 2:
            raise ValueError(f"the tag {character} is several tokens, so the search cannot count it.")
        tags.append(pieces[0])
    if not closing or not tags:
        raise ValueError(
            "the vocabulary has no brackets and tags of trees. Choose a model of recipes/parsing."
        )
    return TreeRule(tuple(closing), tuple(tags))
