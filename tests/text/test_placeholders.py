"""Placeholders and addresses are replaced by symbols and restored exactly."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nmt_cli.text.placeholders import apart, family, masked, masked_pair, restored, values_of

SYMBOLS = apart(family(8))[0]
PARTS = [
    *("{{name}}", "{{ user.name }}", "{0}", "${x}", "{}", "%s", "%1$s", "%(n)d", "a.b+c@mail.example.co.uk"),
    *(
        "https://x.org/a?b=c&d=%20#e",
        "http://x.org",
        "⟦1⟧",
        "⟦+⟧",
        "⟦99⟧",
        "⟦",
        "⟧",
        "word",
        ".",
        ",",
        "(",
        " ",
    ),
]


def words(text: str) -> str:
    return " ".join(text.split())


def through(text: str) -> str:
    """Return the text as a copying model gives it back: text between symbols loses its outer whitespace."""
    values = values_of(text, SYMBOLS)
    return restored(words(masked(text, values)), values)


@given(st.lists(st.sampled_from(PARTS)).map("".join).map(words))
@example("{{name}}" * 8 + "https://x.org/⟦1⟧")  # no symbol is left for it
def test_any_text_is_restored(text: str) -> None:
    assert through(text) == text


@pytest.mark.parametrize(
    ("text", "placeholders"),
    [
        ("Dear {{name}}, {{ a b }} and {0}!", ["{{name}}", "{{ a b }}", "{0}"]),
        ("%s of %1$s, %(n)d%", ["%s", "%1$s", "%(n)d"]),
        ("100 %sure, 5 % d", []),
        ("(see https://x.org/a_b.), http://y.de!", ["https://x.org/a_b", "http://y.de"]),
        ("to a.b@c.co.uk.", ["a.b@c.co.uk"]),
        ("a⟦2⟧b", ["⟦2⟧"]),
        ("<b>bold</b> {not one} @home", []),
    ],
)
def test_placeholders_and_addresses_are_found(text: str, placeholders: list[str]) -> None:
    assert list(values_of(text, SYMBOLS).values()) == placeholders


def test_shared_placeholders_have_the_same_symbols_on_both_sides() -> None:
    source, target = masked_pair("%s of %s in {a}", "{a}: %s von %s und {b}", SYMBOLS)
    first, second, third = (word for word in source.split() if word in SYMBOLS)
    assert words(source) == f"{first} of {second} in {third}"
    assert words(target) == f"{third} ⟦+⟧ : {first} von {second} und {{b}}"


def test_a_placeholder_on_one_side_only_stays_text() -> None:
    assert masked_pair("{a} x", "x {b}", SYMBOLS) == ("{a} x", "x {b}")
    # Text that is spelt like a symbol must not become one.
    source, _ = masked_pair("⟦1⟧ x", "x", SYMBOLS)
    assert not {*source.split()} & {*SYMBOLS}
    assert restored(words(source), {}) == "⟦1⟧ x"


def test_placeholders_beyond_the_number_of_symbols_stay_text() -> None:
    text = " ".join(f"{{{number}}}" for number in range(10))
    values = values_of(text, SYMBOLS)
    assert sorted(values) == SYMBOLS
    assert words(masked(text, values)).endswith(" {8} {9}")


def test_every_symbol_is_the_first_in_some_text() -> None:
    assert {next(iter(values_of(f"{number} %s", SYMBOLS))) for number in range(100)} == {*SYMBOLS}


def test_without_symbols_nothing_is_masked() -> None:
    assert family(0) == ()
    assert apart(("<2de>", *family(2))) == (["⟦1⟧", "⟦2⟧"], ["<2de>"])
