"""Word lists of several toolkits are read."""

import pytest

from nmt_cli.errors import UserError
from nmt_cli.text.word_list import words_of


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"the\ncat\n", ["the", "cat"]),
        (b"\xef\xbb\xbfthe\r\ncat\r\n\r\n", ["the", "cat"]),
        (b"the 12\ncat 3\n", ["the", "cat"]),
        (b"the\t12\n7\t3\n", ["the", "7"]),
        (b"<s>\n<pad>\n</s>\n<unk>\nthe\n", ["the"]),
        (b"the 12\nmadeupword0000 0\n<unk> 4 #fairseq:overwrite\n", ["the"]),
        (b"madeupword0000\nthe\nthe\n", ["madeupword0000", "the"]),
        (b"@@\nthe\n", ["@@", "the"]),
    ],
    ids=["plain", "Windows", "fairseq", "tabs", "marks", "filler", "twice", "at signs"],
)
def test_words_are_in_order_and_unique(content: bytes, words: list[str]) -> None:
    assert words_of(content) == words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no word"),
        (b"\n<s>\n", "no word"),
        (b"the\ntwo words\n", "line 2 holds"),
        (b"the 12\ncat 3\n 100\n", "line 3 is ' 100', not a word and its count"),
        (b"the 12\ncat\n", "line 2 is 'cat', not a word and its count"),
        (
            b"the 12\n" + b"".join(b"%c@@ 3\n" % c for c in range(97, 123)),
            "26 of 27 entries end in @@, such as 'a@@'.*--reuse-tokenizer CODES",
        ),
    ],
)
def test_a_file_that_is_not_a_word_list_is_an_error(content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        words_of(content)
