"""Whole sentences of the demo: word order and agreement."""

from collections.abc import Callable
from random import Random

import pytest

from nmt_cli.demo import sentences
from nmt_cli.demo.lexicon import Pair


@pytest.mark.parametrize(
    ("pattern", "seed", "english", "german"),
    [
        (
            sentences.departure,
            2,
            "the plane to London leaves on Saturday at ten to two.",
            "das Flugzeug nach London fliegt am Samstag um zehn vor zwei ab.",
        ),
        (
            sentences.errand,
            1,
            "they should go home because the bus leaves at a quarter to seven.",
            "sie sollten nach Hause gehen, weil der Bus um Viertel vor sieben abfährt.",
        ),
        (
            sentences.bought,
            3,
            "she ordered sixty-three chairs eleven weeks ago.",
            "sie hat vor elf Wochen dreiundsechzig Stühle bestellt.",
        ),
        (
            sentences.bought_for,
            3,
            "on the seventh of December she bought a green shirt for two euros.",
            "am siebten Dezember hat sie ein grünes Hemd für zwei Euro gekauft.",
        ),
        (
            sentences.condition,
            2,
            "if the old chair costs less than seven hundred and two euros and sixty cents, "
            "the students will buy it.",
            "wenn der alte Stuhl weniger als siebenhundertzwei Euro sechzig kostet, "
            "kaufen die Studenten ihn.",
        ),
        (
            sentences.which_cost,
            4,
            "the old blanket that I bought yesterday cost ninety-one euros.",
            "die alte Decke, die ich gestern gekauft habe, hat einundneunzig Euro gekostet.",
        ),
        (
            sentences.present,
            2,
            "Felix gave my brother a white children's book on Wednesday afternoon.",
            "Felix hat meinem Bruder am Mittwochnachmittag ein weißes Kinderbuch geschenkt.",
        ),
        (
            sentences.born,
            4,
            "I was born on the twelfth of February nineteen oh eight.",
            "ich wurde am zwölften Februar neunzehnhundertacht geboren.",
        ),
        (
            sentences.event,
            2,
            "the book fair takes place in front of the church on Monday morning at a quarter past nine.",
            "die Buchmesse findet am Montagmorgen um Viertel nach neun vor der Kirche statt.",
        ),
        (
            sentences.inhabitants,
            3,
            "thirty-four thousand five hundred people lived in Cologne in nineteen forty.",
            "im Jahr neunzehnhundertvierzig lebten in Köln vierunddreißigtausendfünfhundert Menschen.",
        ),
        (
            sentences.number_of,
            4,
            "my father's room number is one.",
            "die Zimmernummer meines Vaters ist eins.",
        ),
    ],
)
def test_whole_sentences_with_german_word_order(
    pattern: Callable[[Random], Pair], seed: int, english: str, german: str
) -> None:
    assert pattern(Random(seed)) == (english, german)
