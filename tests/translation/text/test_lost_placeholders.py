"""Placeholders and addresses that a model lost or damaged."""

from pathlib import Path

import pytest

from nmt_cli.api import SearchConfig, load
from nmt_cli.text.placeholders import MASKED
from nmt_cli.text.tag_placement import units
from nmt_cli.translation.text.lost_placeholders import with_placeholders

LINES = [
    "See https://x.org/a?b=1 now.",
    "One {{name}} runs, and %s too.",
    "{{name}}",
    "Mail anna@x.org.",
    "Two cats sleep.",
]


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        (
            "See https://x.org/a.",
            "Siehe https: / / x.org/a.",
            [0, 1, 1, 1, 1, 1, 2],
            "Siehe https://x.org/a.",
        ),
        ("Hi {{name}}!", "Hallo { { Name } }!", [0, 1, 2, 3, 4, 5, 6], "Hallo {{name}}!"),
        ("A %s file", "Eine Datei", [0, 3], "Eine %s Datei"),
        ("A %s file", "Eine %s Datei", [0, 1, 2, 3], "Eine %s Datei"),
        ("{{name}} is here", "Er ist am Ort", [0, 5, 6, 0], "Er {{name}} ist am Ort"),
        ("Hello %(name)s, you", "Du neun", [0, 6], "Du %(name)s neun"),
        ("Hi {{name}}!", "Hallo", [0], "Hallo {{name}}"),
        ("{{name}}: one", "eins", [5], "{{name}} eins"),
        ("v{0}x", "vx", [0], "vx{0}"),
        ("好{0}，早", "好早", [0, 4], "好{0}早"),
        ("({{name}})", "()", [0, 6], "({{name}})"),
        ("{{name}}", "", [], "{{name}}"),
    ],
)
def test_a_lost_placeholder_returns(source: str, target: str, links: list[int], expected: str) -> None:
    shares = [{partner: 1.0} for _, partner in zip(units(target), links, strict=False)]
    text, aligned = with_placeholders(source, target, shares)
    assert text == expected
    assert len(aligned) == len(units(text))


def test_a_model_without_symbols_keeps_placeholders(made_models: Path) -> None:
    with load(made_models / "copies", device="cpu", threads=1) as model:
        assert not model.tokenizers.recipe.placeholders
        translations = list(model.translations(LINES))
        aligned = list(model.translations(LINES, aligned=True))
        n_best = list(model.translations(LINES, SearchConfig(beam=4, n_best=4)))
    for line, one, other in zip(LINES, translations, aligned, strict=True):
        assert MASKED.findall(one.text) == MASKED.findall(line)
        assert one.text == other.text and "markup" not in one.flags
        assert len(other.shares) == len(units(one.text))
    for line, one in zip(LINES, n_best, strict=True):
        assert len(one.candidates) > 1
        assert all(MASKED.findall(candidate.text) == MASKED.findall(line) for candidate in one.candidates)
