"""Reads a whole dataset folder once and makes sure that it is what was written."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli.data.dataset import MANIFEST, TOKENIZERS, Dataset, Sentences, side_path
from nmt_cli.errors import UserError
from nmt_cli.runtime.hashes import sha256_of
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import load_tokenizers

AT_ONCE = 1 << 20

REMEDY = "make the dataset again with --overwrite."


def verify(dataset: Dataset) -> None:
    """Raise `UserError` for the first file that is not as it was written, or whose numbers make no sense."""
    check_hashes(dataset.folder, dataset.manifest)
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    for name, split in dataset.splits.items():
        for side, sentences in zip(SIDES, (split.source, split.target), strict=True):
            end = tokenizers.side(side).vocabulary.end
            for what, problem in _problems(sentences, _vocabulary(dataset, side), end):
                raise UserError(f"{side_path(dataset.folder, name, side, what)} {problem}; {REMEDY}")
        if len(split.source) != len(split.target):
            raise UserError(
                f"{dataset.folder}: {name} has {len(split.source):,} source sentences, "
                f"but {len(split.target):,} target sentences; {REMEDY}"
            )


def check_hashes(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first file that has other bytes than were written."""
    for name, written in manifest["files"].items():
        path = folder / name
        if sha256_of(path) != written.get("sha256"):
            raise UserError(f"{path} is not what was written (its SHA-256 differs); {REMEDY}")


def _vocabulary(dataset: Dataset, side: Side) -> int:
    try:
        return int(dataset.manifest["tokenizer"][f"{side}_vocabulary"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{dataset.folder / MANIFEST} is damaged (no size of the {side} vocabulary); {REMEDY}"
        ) from error


def _problems(sentences: Sentences, vocabulary: int, end: int) -> Iterator[tuple[str, str]]:
    """The files that are wrong, and what is wrong with each.

    A check relies on those before it: who takes a problem must not ask for the next.
    """
    tokens, offsets = np.asarray(sentences.tokens), np.asarray(sentences.offsets)
    if offsets[0] != 0 or offsets[-1] != len(tokens):
        yield (
            "offsets.npy",
            f"goes from {offsets[0]:,} to {offsets[-1]:,}, but there are {len(tokens):,} tokens",
        )
    for start in range(0, len(offsets) - 1, AT_ONCE):
        # In parts, as what is mapped may be larger than the memory.
        some = offsets[start : start + AT_ONCE + 1]
        # Equal ones would be a sentence without even its end mark.
        if not (some[1:] > some[:-1]).all():
            place = start + int(np.argmin(some[1:] > some[:-1]))
            yield "offsets.npy", f"does not increase at sentence {place:,}"
    for start in range(0, len(offsets) - 1, AT_ONCE):
        ends = offsets[start + 1 : start + AT_ONCE + 1]
        if (tokens[ends - 1] != end).any():
            place = start + int(np.argmax(tokens[ends - 1] != end))
            yield "tokens.npy", f"has no end mark behind sentence {place:,}"
    for start in range(0, len(tokens), AT_ONCE):
        highest = int(tokens[start : start + AT_ONCE].max())
        if highest >= vocabulary:
            yield "tokens.npy", f"has token {highest:,}, but the vocabulary has {vocabulary:,} entries"
