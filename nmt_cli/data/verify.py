"""Verifies a dataset folder by reading all of it once."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli.data.dataset import MANIFEST, TOKENIZERS, Dataset, Sentences, damaged, side_path
from nmt_cli.runtime.hashes import sha256_of
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import load_tokenizers

AT_ONCE = 1 << 20
"""Values that are checked at once. A mapped array may be larger than the memory."""


def verify(dataset: Dataset) -> None:
    """Read a dataset whole. Raise `UserError` for the first wrong hash, missing end token, invalid token, or
    offsets that do not increase. Also raise it for sides of unequal length."""
    check_hashes(dataset.folder, dataset.manifest)
    tokenizers = load_tokenizers(dataset.folder / TOKENIZERS)
    for name, split in dataset.splits.items():
        for side, sentences in zip(SIDES, (split.source, split.target), strict=True):
            end = tokenizers.side(side).vocabulary.end
            for content, problem in _problems(sentences, _vocabulary_size(dataset, side), end):
                raise damaged(side_path(dataset.folder, name, side, content), problem)
        if len(split.source) != len(split.target):
            counts = f"{len(split.source):,} source sentences, but {len(split.target):,} target sentences"
            raise damaged(dataset.folder, f"is damaged: {name} has {counts}")


def check_hashes(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first file in the manifest whose SHA-256 differs from its entry."""
    for name, file in manifest["files"].items():
        path = folder / name
        if sha256_of(path) != file.get("sha256"):
            raise damaged(path, "was changed: its SHA-256 differs from the manifest")


def _vocabulary_size(dataset: Dataset, side: Side) -> int:
    """Return the number of vocabulary entries of a side. Raise `UserError` if the manifest lacks it."""
    try:
        return int(dataset.manifest["tokenizer"][f"{side}_vocabulary"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f"is damaged: it has no size of the {side} vocabulary"
        raise damaged(dataset.folder / MANIFEST, problem) from error


def _problems(sentences: Sentences, vocabulary: int, end: int) -> Iterator[tuple[str, str]]:
    """Yield (end of the file name, text) per problem. `vocabulary` is the number of entries, and `end` the id
    of the end token. The caller must stop at the first problem, since later checks rely on earlier ones."""
    tokens, offsets = np.asarray(sentences.tokens), np.asarray(sentences.offsets)
    if offsets[0] != 0 or offsets[-1] != len(tokens):
        yield (
            "offsets.npy",
            f"ranges from {offsets[0]:,} to {offsets[-1]:,}, but there are {len(tokens):,} tokens",
        )
    for start in range(0, len(offsets) - 1, AT_ONCE):
        part = offsets[start : start + AT_ONCE + 1]
        # Each sentence has at least its end token, so equal offsets are wrong too.
        if not (part[1:] > part[:-1]).all():
            sentence = start + int(np.argmin(part[1:] > part[:-1]))
            yield "offsets.npy", f"does not increase at sentence {sentence:,}"
    for start in range(0, len(offsets) - 1, AT_ONCE):
        ends = offsets[start + 1 : start + AT_ONCE + 1]
        if (tokens[ends - 1] != end).any():
            sentence = start + int(np.argmax(tokens[ends - 1] != end))
            yield "tokens.npy", f"has no end token after sentence {sentence:,}"
    for start in range(0, len(tokens), AT_ONCE):
        highest = int(tokens[start : start + AT_ONCE].max())
        if highest >= vocabulary:
            yield "tokens.npy", f"has token {highest:,}, but the vocabulary has {vocabulary:,} entries"
