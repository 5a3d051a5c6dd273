"""Lines that are not UTF-8, under each rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.utf8 import decoded
from tests.checks import refusal


@pytest.mark.parametrize("rule", ["error", "replace", "skip"])
@given(text=st.text())
def test_valid_text_is_the_same_under_every_rule(rule: str, text: str) -> None:
    assert decoded(text.encode(), rule, "f line 1") == text


@pytest.mark.parametrize(
    ("raw", "location", "replaced"),
    [
        (b"caf\xe9 noir", "byte 4 (0xe9)", "caf\ufffd noir"),
        (b"\xff", "byte 1 (0xff)", "\ufffd"),
        (b"ab\xed\xa0\x80", "byte 3 (0xed)", "ab\ufffd\ufffd\ufffd"),
        (b"ab\xc0\xaf", "byte 3 (0xc0)", "ab\ufffd\ufffd"),
        (b"x" * 1500 + b"\xe2\x82", "byte 1,501 (0xe2)", "x" * 1500 + "\ufffd"),
    ],
)
def test_invalid_bytes_are_an_error_or_replaced_or_skipped(raw: bytes, location: str, replaced: str) -> None:
    message = refusal(decoded, raw, "error", "train.de line 7")
    assert message.startswith(f"train.de line 7, {location} is not UTF-8")
    assert "corpus.invalid_utf8=replace" in message
    assert decoded(raw, "replace", "train.de line 7") == replaced
    assert decoded(raw, "skip", "train.de line 7") is None
