"""XLM-RoBERTa's tokeniser has the ids of Hugging Face's library."""

import random
from pathlib import Path

from nmt_cli.text.subword_models.xlm_roberta import XlmRobertaTokenizer
from tests.scoring.neural.models import fast_tokenizer, lines, write_encoder

ODD = [
    *("", " ", "a  b", " a ", "a\tb", "a\u00a0b", "a\u3000b", "a▁b", "▁▁", "a ▁ b", "\x85", "\r\n", "a\x01b"),
    *("<s>", "a<mask>b", "xx <mask>  y", "<pad>x", "x </s> y", "<unk>", "< s>"),
    *("ｶﾞｷﾞ", "か\u3099", "e\u0301", "a\u0300\u0301\u0302 b", "\u1112\u1161\u11ab", "① ㍿ ﬁ …", "⒪\u033d"),
    *("😀 \U0001f1e9\U0001f1ea", "\u200ba\u200b", "\ufeffx", "☃☃☃ ☃", "漢漢 龘龘", "a" * 700),
]


def test_ids_are_those_of_the_fast_tokenizer(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    model = (tmp_path / "sentencepiece.bpe.model").read_bytes()
    ours, theirs = XlmRobertaTokenizer(model), fast_tokenizer(model)
    chosen = random.Random(1)
    ranges = (*range(0x20, 0x250), *range(0x300, 0x370), *range(0x3040, 0x3100), *range(0xFF00, 0xFFEF))
    characters = [*map(chr, ranges), *" " * 100]
    mixed = ["".join(chosen.choices(characters, k=chosen.randint(1, 20))) for _ in range(1000)]
    for text in (*ODD, *lines(500, seed=9), *mixed):
        assert [0, *ours.encode(text), 2] == theirs.encode(text).ids, ascii(text)
    assert theirs.token_to_id("<mask>") == ours.largest
