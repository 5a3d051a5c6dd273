"""The corpus of `nmt demo`: English and German sentences from a small grammar, nothing downloaded."""

import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

from nmt_cli.demo.lexicon import Pair
from nmt_cli.demo.sentences import sentence

SIZES = {"train": 20_000, "valid": 500, "test": 500}

PATIENCE = 100_000
"""How many sentences in a row may be of no use before we say that the grammar has no more to give."""


def split_of(english: str) -> str:
    """The one set an English sentence may be in, whatever the seed and the sizes."""
    # Not Python's own hash, which differs from process to process.
    shard = zlib.crc32(english.encode("utf-8")) % 40
    return {0: "test", 1: "valid"}.get(shard, "train")


def corpus(split: str, size: int, seed: int) -> list[Pair]:
    """As many pairs as asked for, no English sentence twice; a larger size begins with the smaller one."""
    pairs = list(islice(_drawn(split, seed), size))
    if len(pairs) < size:
        raise ValueError(
            f"--{split} is {size}, but the grammar gave only {len(pairs)} different sentences; ask for fewer"
        )
    return pairs


def write(pairs: Sequence[Pair], folder: Path, split: str) -> None:
    """FOLDER/split.en and FOLDER/split.de, one sentence a line."""
    for language, lines in (("en", [pair.en for pair in pairs]), ("de", [pair.de for pair in pairs])):
        (folder / f"{split}.{language}").write_text("".join(f"{x}\n" for x in lines), "utf-8", newline="\n")


def _drawn(split: str, seed: int) -> Iterator[Pair]:
    rng, seen, in_vain = Random(f"{split} {seed}"), set[str](), 0
    while in_vain < PATIENCE:
        pair = sentence(rng)
        in_vain += 1
        if split_of(pair.en) == split and pair.en not in seen:
            seen.add(pair.en)
            in_vain = 0
            yield pair
