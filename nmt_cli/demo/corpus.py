"""The corpus of `nmt demo`: English and German sentences from a small grammar, without a download."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from nmt_cli.demo.lexicon import Pair
from nmt_cli.demo.phrases import RandomPhrases
from nmt_cli.demo.sentences import sentence
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import file_written_whole

SIZES = {"train": 20_000, "valid": 500, "test": 500}

PATIENCE = 100_000
"""Number of useless sentences in a row after which the grammar counts as exhausted."""


def split_of(english: str) -> str:
    """Return "train", "valid" or "test": the only set that an English sentence may be in. A checksum of the
    sentence decides. One in 40 sentences is for "valid", and one for "test"."""
    # Python's own hash differs between processes.
    shard = zlib.crc32(english.encode("utf-8")) % 40
    return {0: "test", 1: "valid"}.get(shard, "train")


def corpus(split: str, size: int, seed: int) -> list[Pair]:
    """Return the first `size` distinct sentence pairs for `split`. The same `seed` gives the same pairs.
    Raise `ValueError` if the grammar has fewer pairs."""
    draw, pairs, useless = RandomPhrases(f"{split} {seed}"), dict[str, Pair](), 0
    while len(pairs) < size:
        pair = sentence(draw)
        useless += 1
        if split_of(pair.en) == split and pair.en not in pairs:
            pairs[pair.en] = pair
            useless = 0
        elif useless == PATIENCE:
            raise ValueError(f"--{split} must be at most {len(pairs)}, the size of the grammar (got {size}).")
    return [*pairs.values()]


def write(sets: Mapping[str, Sequence[Pair]], folder: Path, *, replace: bool = True) -> None:
    """Write the pairs of each set into the files NAME.en and NAME.de in `folder`, one sentence per line.
    Without `replace`, raise `UserError` before writing if one of them exists with other content."""
    files = {
        folder / f"{name}.{language}": "".join(f"{getattr(pair, language)}\n" for pair in pairs).encode()
        for name, pairs in sets.items()
        for language in ("en", "de")
    }
    for path, content in files.items():
        # All files are compared before the first is written, so that an error changes nothing.
        if not replace and path.exists() and path.read_bytes() != content:
            raise UserError(f"{path} exists, and is not of this demo. Choose another folder by --out.")
    for path, content in files.items():
        with file_written_whole(path) as file:
            file.write(content)
