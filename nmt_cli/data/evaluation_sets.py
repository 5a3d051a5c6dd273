"""Valid and test sets: every line is kept, raw and encoded; what training would drop is only warned of."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from nmt_cli.corpus.parallel import Block
from nmt_cli.corpus.utf8 import decoded
from nmt_cli.data.arrays import ArrayWriter, OffsetsWriter
from nmt_cli.data.clean import REPLACED
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.dataset import side_path
from nmt_cli.data.encode import EncodedSide, encode_lines, token_type
from nmt_cli.data.filters import SUBWORDS, Filters
from nmt_cli.data.report import CorpusReport, FilterReport
from nmt_cli.data.request import Input
from nmt_cli.data.tally import Tally
from nmt_cli.text.subwords import UNKNOWN
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Tokenizers

BLOCK_PAIRS = 1000
UNKNOWNS = "unknown subwords"


def write_evaluation_set(
    item: Input, config: PreprocessConfig, tokenizers: Tokenizers, folder: Path, report: FilterReport
) -> dict[str, Any]:
    """Write a set's raw lines and ids to `folder`; returns the description of the split for the manifest."""
    corpus = CorpusReport(item.role, item.corpus.name, item.pairs, kept=item.pairs)
    report.corpora.append(corpus)
    filters = Filters(config.filter)
    with ExitStack() as stack:
        writers = {
            side: stack.enter_context(_RawSideWriter(folder, item.corpus.name, side, tokenizers.side(side)))
            for side in SIDES
        }
        for block in item.corpus.blocks(BLOCK_PAIRS):
            raw = {side: _raw_lines(item, block, side, config, corpus.noted) for side in SIDES}
            prepared = {side: [tokenizers.side(side).prepare(line) for line in raw[side]] for side in SIDES}
            encoded = {side: encode_lines(tokenizers.side(side), prepared[side]) for side in SIDES}
            for side in SIDES:
                writers[side].append(raw[side], encoded[side])
            flags = _flags(encoded, config.filter.max_subwords)
            for i, pair in enumerate(zip(prepared["source"], prepared["target"], strict=True)):
                if reason := filters.reason(*pair) or flags[i]:
                    corpus.noted.add(reason, block.first + i, raw["source"][i], raw["target"][i])
    counts = {f"{side}_{key}": value for side in SIDES for key, value in writers[side].counts().items()}
    return {"role": item.role, "pairs": item.pairs, **counts}


class _RawSideWriter:
    """Writes raw lines and ids of one side."""

    def __init__(self, folder: Path, split: str, side: Side, tokenizer: Tokenizer) -> None:
        self._raw = side_path(folder, split, side, "raw.txt").open("wb")
        self._tokens = ArrayWriter(side_path(folder, split, side, "tokens.npy"), token_type(tokenizer))
        self._offsets = OffsetsWriter(side_path(folder, split, side, "offsets.npy"))
        self._unknowns = 0

    def append(self, raw: list[str], encoded: EncodedSide) -> None:
        """Add lines and their ids."""
        self._raw.write("".join(f"{line}\n" for line in raw).encode())
        self._tokens.append(encoded.tokens)
        self._offsets.append(encoded.lengths)
        self._unknowns += encoded.unknowns

    def counts(self) -> dict[str, int]:
        """Tokens in all, end marks included, and how many of them are unknowns."""
        return {"tokens": self._tokens.length, "unknowns": self._unknowns}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._raw.close()
        self._tokens.__exit__(*error)
        self._offsets.__exit__(*error)


def _raw_lines(item: Input, block: Block, side: Side, config: PreprocessConfig, noted: Tally) -> list[str]:
    """The lines of one side as text; bytes that are not UTF-8 are at most replaced, since no line may go."""
    rule = "error" if config.corpus.invalid_utf8 == "error" else "replace"
    lines = []
    for number, raw in enumerate(block.sources if side == "source" else block.targets, start=block.first):
        line = decoded(raw, rule, item.corpus.place(side, number)) or ""
        if line.encode() != raw:
            noted.add(REPLACED, number, line, line)
        lines.append(line)
    return lines


def _flags(encoded: dict[Side, EncodedSide], max_subwords: int) -> list[str | None]:
    """What is worth a warning about each pair of encoded sentences."""
    longest = np.maximum(*(encoded[side].lengths for side in SIDES))
    unknown = np.zeros(len(longest), np.bool_)
    for side in encoded.values():
        np.logical_or.at(unknown, np.repeat(np.arange(len(longest)), side.lengths), side.tokens == UNKNOWN)
    return [
        SUBWORDS if max_subwords and length > max_subwords else UNKNOWNS if has_unknown else None
        for length, has_unknown in zip(longest, unknown, strict=True)
    ]
