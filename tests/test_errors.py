"""Text from outside is printed on one line and cannot control the terminal."""

import pickle

import pytest

from nmt_cli.errors import LONGEST_MESSAGE, LONGEST_VALUE, UserError, printable
from nmt_cli.setting_values import shown as shown_value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Äö 日本", "plain Äö 日本"),
        ("two\nlines\r", "two\\x0alines\\x0d"),
        ("\x1b[31mred\x9b", "\\x1b[31mred\\x9b"),
        ("\u202etxt.exe\u2069", "\\u202etxt.exe\\u2069"),
        ("caf\udce9", "caf\\udce9"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_characters_that_a_terminal_obeys_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert len(printable(text).splitlines()) == 1
    printable(text).encode()


@pytest.mark.parametrize(
    ("typed", "in_python"),
    [
        ("Take --vocab-size 798 or less.", "Take tokenizer.vocab_size 798 or less."),
        ("Choose --precision fp32 or int8.", "Choose precision fp32 or int8."),
        ("--set search.rows=64", "search.rows=64"),
        ("more than --max-steps=3", "more than training.max_steps=3"),
        ("Give --overwrite, or another --out.", "Give overwrite=True, or another out."),
        ("Lower --max-tokens-per-device.", "Lower training.max_tokens_per_device."),
        # Names of files, quoted text and whole commands stay.
        ("/a--out/--b--out --out", "/a--out/--b--out out"),
        ("--scorer 'score --out x' can't run", "scorer 'score --out x' can't run"),
        (
            "Convert it: nmt import a.npz --out MODEL. See --out.",
            "Convert it: nmt import a.npz --out MODEL. See out.",
        ),
        ("pip install torch --index-url a.b/c. --device", "pip install torch --index-url a.b/c. device"),
    ],
)
def test_a_program_sees_arguments_and_settings_instead_of_options(typed: str, in_python: str) -> None:
    error = UserError(typed, "--out")
    assert error.args == (typed, "--out")  # for the command line
    assert str(error) == f"{in_python}; out"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_long_value_is_shortened_between_its_name_and_the_remedy() -> None:
    message = f"search.beam must be a number (got {'x' * 100_000}). Leave it out."
    (shortened,) = UserError(message).args
    assert len(shortened) < LONGEST_MESSAGE + 10
    assert shortened.startswith("search.beam must be a number (got xxx") and shortened.endswith(
        "x). Leave it out."
    )
    assert UserError("x" * LONGEST_MESSAGE).args == ("x" * LONGEST_MESSAGE,)
    for value in ("x" * 100_000, ["x"] * 100_000, {"x" * 100_000: 1}, 10**4000):
        assert len(shown_value(value)) < LONGEST_VALUE + 10
