"""Whether imported models translate as transformers does: ids and scores of random models, line by line.

All kinds of vocabulary that such folders have, lines that are empty or odd among the others, and beams of 1,
4 and 6. A translation that transformers cuts at the greatest length is counted apart: ours ends with a mark.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import M2M100Tokenizer, MarianTokenizer, NllbTokenizer

from nmt_cli.checkpoints.model_folder import Model, read_model
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.decoding.lines.translator import Translator
from nmt_cli.interop.foreign import Wanted, write
from nmt_cli.interop.importing import read
from tests.interop import conftest
from tests.interop.conftest import CODES, m2m100_folder, marian_folder, sentences

LINES, BATCH, LONGEST, LEAST = 200, 25, 60, 4
ODD = ["", "  ", "…?! ÄÖ 5", "e\u0301 “b” x", "日本 ab", "a", f"{CODES[0]} abba deg", "x" * 60]

KINDS: Mapping[str, Callable[[Path], Any]] = {
    "Marian, shared vocabulary": marian_folder,
    "Marian, a vocabulary each": partial(marian_folder, vocabularies="separate"),
    "Marian, nothing tied, fp16 in pytorch_model.bin": partial(
        marian_folder, vocabularies="untied", half=True, pickled=True
    ),
    "Marian, end mark 7, relu": partial(marian_folder, end=7, activation_function="relu"),
    "Marian, starts with its end mark": partial(marian_folder, decoder_start_token_id=0),
    "M2M100, vocab.json": partial(m2m100_folder, kind="m2m100"),
    "NLLB, fairseq's numbers": partial(m2m100_folder, kind="nllb"),
}
LANGUAGES = {"M2M100": ("en", "fr"), "NLLB": ("eng_Latn", "fra_Latn")}
TOKENIZERS: Mapping[str, Any] = {"Marian": MarianTokenizer, "M2M100": M2M100Tokenizer, "NLLB": NllbTokenizer}


def lines_for(kind: str) -> list[str]:
    """Lines of 1 to 9 words, and the odd ones between them."""
    odd = ODD if kind.startswith("Marian") else [line for line in ODD if not line.startswith(">>")]
    return [*odd, *sentences("source", LINES - len(odd), seed=11)]


@torch.no_grad()
def by_transformers(model: Any, tokenizer: Any, lines: list[str], beam: int, forced: int | None) -> list[Any]:
    """The ids of each line's translation without marks, and its score; no ids where it was cut."""
    start, end, padding = (
        model.config.decoder_start_token_id,
        model.config.eos_token_id,
        model.config.pad_token_id,
    )
    found = []
    for first in range(0, len(lines), BATCH):
        ids = [torch.tensor(tokenizer(line).input_ids) for line in lines[first : first + BATCH]]
        rows = pad_sequence(ids, True, -1)
        out = model.generate(
            input_ids=rows.masked_fill(rows < 0, padding),
            attention_mask=(rows >= 0).long(),
            num_beams=beam,
            do_sample=False,
            length_penalty=1.0,
            early_stopping="never" if beam > 1 else False,
            min_new_tokens=LEAST,
            max_length=LONGEST,
            output_scores=True,
            return_dict_in_generate=True,
            **({} if forced is None else {"forced_bos_token_id": forced}),
        )
        scores = out.sequences_scores if beam > 1 else torch.full((len(ids),), torch.nan)
        for row, score in zip(out.sequences.tolist(), scores.tolist(), strict=True):
            assert row[0] == start
            found.append((row[1 : row.index(end, 1)] if end in row[1:] else None, score))
    return found


def by_us(model: Model, lines: list[str], beam: int) -> list[Any]:
    """The same by the search of nmt; an empty line has no translation here."""
    search = SearchConfig(
        beam=beam, length_rule="power", length_penalty=1.0, min_length=LEAST, cap_ratio=0.0,
        cap_extra=LONGEST - 2, unknown=True,
    )  # fmt: skip
    translator = Translator(model.identity.tokenizers, [model.transformer], TranslateConfig(search=search))
    each = translator.translate([model.transformer], lines)
    best = [one.candidates[0] if one.candidates else None for one in each]
    return [([*one.parts[0].tokens], one.score) if one else None for one in best]


def compared(kind: str, make: Callable[[Path], Any], folder: Path) -> None:
    """Print a row for each beam."""
    family = kind.split(",")[0]
    languages = LANGUAGES.get(family, (None, None))
    theirs = make(folder / "theirs")
    write(read(str(folder / "theirs"), Wanted(*languages)), folder / "ours")
    ours = read_model(folder / "ours")
    given = dict(zip(("src_lang", "tgt_lang"), languages, strict=True)) if languages[0] else {}
    tokenizer = TOKENIZERS[family].from_pretrained(folder / "theirs", **given)
    begins = ours.identity.tokenizers.recipe.begins
    forced = tokenizer.convert_tokens_to_ids(begins[1]) if begins else None
    lines = lines_for(family)
    for beam in (1, 4, 6):
        wanted, found = by_transformers(theirs, tokenizer, lines, beam, forced), by_us(ours, lines, beam)
        pairs = [(x, y) for x, y in zip(wanted, found, strict=True) if y is not None]
        ended = [(x, y) for x, y in pairs if x[0] is not None]
        same = [(x, y) for x, y in ended if x[0] == y[0]]
        apart = max((abs(x[1] - y[1]) for x, y in same), default=0.0) if beam > 1 else float("nan")
        empty, cut = len(lines) - len(pairs), len(pairs) - len(ended)
        shown = f"{apart:.0e}" if beam > 1 else "-"
        print(f"| {kind} | {beam} | {len(same)} of {len(ended)} | {shown} | {cut} | {empty} |", flush=True)


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    conftest.END_BIAS, conftest.ENDING = 9.0, 4.0  # so that transformers cuts few of them
    print("| folder | beam | same ids | scores differ by at most | cut by transformers | empty |")
    print("|---|---|---|---|---|---|")
    for kind, make in KINDS.items():
        with tempfile.TemporaryDirectory() as made, contextlib.redirect_stderr(io.StringIO()):
            compared(kind, make, Path(made))


if __name__ == "__main__":
    main()
