"""The card of a model: the README.md in its folder, with which it can be handed on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from nmt_cli import __version__
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.errors import printable
from nmt_cli.scoring.metrics import Score

CARD = "README.md"
UNSCORED = (
    "Not scored yet: `nmt average-checkpoints --select` puts its scores here, and `nmt score` has them for "
    "any other set."
)


@dataclass(frozen=True, slots=True)
class About:
    """What a card says that neither weights nor `config.json` know."""

    scores: Mapping[str, Sequence[Score]] = field(default_factory=dict)
    """Of each set on which the model was judged."""

    licence: str = ""
    """Of the data that it was trained on."""

    settings: str = ""
    """Those of the training, as text."""


def card(identity: Identity, parameters: int, origin: str, about: About) -> str:
    """The whole card, in Markdown; `origin` says which weights these are."""
    recipe, config = identity.tokenizers.recipe, identity.config
    sizes = [len(side.vocabulary) for side in (identity.tokenizers.source, identity.tokenizers.target)]
    entries = f"{sizes[0]:,} joint entries" if recipe.joint else f"{sizes[0]:,} and {sizes[1]:,} entries"
    inputs = _inputs(identity.trained_on)
    facts = {
        "Languages": f"{recipe.source_lang} to {recipe.target_lang}",
        "Architecture": f"Transformer, {config.encoder_layers}+{config.decoder_layers} layers, "
        f"{config.width} wide, {config.heads} heads, feed-forward {config.feed_forward}, norm {config.norm}",
        "Parameters": f"{parameters:,}",
        "Subwords": f"{recipe.kind}, {entries}",
        "Weights": origin,
        "Made": f"{date.today().isoformat()} by nmt {__version__}",
    }
    parts = [
        f"# {_text(recipe.source_lang)} to {_text(recipe.target_lang)}",
        "    nmt translate THIS_FOLDER < lines",
        _table(("", ""), [(name, _text(value)) for name, value in facts.items()]),
        "## Scores",
        _scores(about.scores),
        "## Data",
        _data(inputs, about.licence),
        "## Limits",
        _limits(inputs, identity.trained_on.get("longest")),
    ]
    if about.settings:
        # Indented, which no line of theirs can end.
        lines = "\n".join(f"    {printable(line)}" for line in about.settings.splitlines())
        parts += ["## Settings of the training", lines]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _scores(scores: Mapping[str, Sequence[Score]]) -> str:
    rows = [
        (_text(name), _text(score.name), f"{score.value:.2f}", _code(score.signature))
        for name, judged in scores.items()
        for score in judged
    ]
    return _table(("set", "metric", "score", "signature"), rows) if rows else UNSCORED


@dataclass(frozen=True, slots=True)
class _Input:
    """A corpus that the model has seen, as far as its description tells."""

    role: str
    name: str
    pairs: int
    hashes: Sequence[str]


def _inputs(trained_on: Mapping[str, Any]) -> list[_Input]:
    """None where the description tells of none, or in a way that is not ours."""
    try:
        return [
            _Input(part["role"], part["name"], int(part["pairs"]), [file["sha256"] for file in part["files"]])
            for part in trained_on["inputs"]
        ]
    except (LookupError, TypeError, ValueError):
        return []


def _data(inputs: Sequence[_Input], licence: str) -> str:
    rows = [
        (
            _text(part.role),
            _text(part.name),
            f"{part.pairs:,}",
            "<br>".join(map(_code, part.hashes)),
        )
        for part in inputs
    ]
    table = _table(("role", "name", "pairs", "SHA-256 of its files"), rows) if rows else "Not known."
    return f"{table}\n\nLicence of the data: {_text(licence) or 'not stated'}."


def _limits(inputs: Sequence[_Input], longest: int | None) -> str:
    pairs = sum(part.pairs for part in inputs if part.role == "train")
    seen = f" {pairs:,} pairs of" if pairs else ""
    sight = (
        f"one line at a time, and of that no more than {longest} subwords"
        if longest
        else "one line at a time"
    )
    return (
        f"It has seen{seen} the data above and nothing else: on other kinds of text, and with names and "
        f"numbers that are not there, expect worse than its scores. It sees {sight}."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: object) -> str:
    """`text` on one line, with nothing in it that Markdown would obey."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#!|~" else c for c in printable(text))


def _code(text: object) -> str:
    """The same as code in a table, where nothing but a bar is still obeyed."""
    shown = printable(text).replace("`", "").replace("|", r"\|")
    return f"`{shown}`"
