"""Write the model card, the README.md of a model folder."""

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
    "Not scored yet. `nmt average-checkpoints --select` adds scores to this card. "
    "`nmt score` computes them for any set."
)


@dataclass(frozen=True, slots=True)
class About:
    """Facts for a model card that neither the weights nor `config.json` contain."""

    scores: Mapping[str, Sequence[Score]] = field(default_factory=dict)
    """Scores by the name of the evaluation set."""

    licence: str = ""
    """Licence of the training data."""

    settings: str = ""
    """Settings of the training as TOML."""


def card(identity: Identity, parameters: int, origin: str, about: About) -> str:
    """Return a model card in Markdown. `origin` describes the weights, and `parameters` is their number."""
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
        # An indented block, which no line of the settings can end.
        lines = "\n".join(f"    {printable(line)}" for line in about.settings.splitlines())
        parts += ["## Settings of the training", lines]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _scores(scores: Mapping[str, Sequence[Score]]) -> str:
    """Return a Markdown table with a row per set and metric, or the sentence `UNSCORED` without scores."""
    rows = [
        (_text(name), _text(score.name), f"{score.value:.2f}", _code(score.signature))
        for name, set_scores in scores.items()
        for score in set_scores
    ]
    return _table(("set", "metric", "score", "signature"), rows) if rows else UNSCORED


@dataclass(frozen=True, slots=True)
class _Input:
    """A corpus in the training record of a model."""

    role: str
    name: str
    pairs: int
    hashes: Sequence[str]


def _inputs(trained_on: Mapping[str, Any]) -> list[_Input]:
    """Return the corpora in the `inputs` of a training record, or [] if missing or of another form."""
    try:
        return [
            _Input(part["role"], part["name"], int(part["pairs"]), [file["sha256"] for file in part["files"]])
            for part in trained_on["inputs"]
        ]
    except (LookupError, TypeError, ValueError):
        return []


def _data(inputs: Sequence[_Input], licence: str) -> str:
    """Return Markdown: a table of the corpora, or "Unknown.", and the licence, or "not stated"."""
    rows = [
        (_text(part.role), _text(part.name), f"{part.pairs:,}", "<br>".join(map(_code, part.hashes)))
        for part in inputs
    ]
    table = _table(("role", "name", "pairs", "SHA-256 of its files"), rows) if rows else "Unknown."
    return f"{table}\n\nLicence of the data: {_text(licence) or 'not stated'}."


def _limits(inputs: Sequence[_Input], longest: int | None) -> str:
    """Return a paragraph about the limits of the model, with the number of training pairs, if known. Say that
    lines of over `longest` subwords are split. If `longest` is None or 0, omit that sentence."""
    pairs = sum(part.pairs for part in inputs if part.role == "train")
    size = f" ({pairs:,} pairs)" if pairs else ""
    limit = f" Longer lines than {longest} subwords are split." if longest else ""
    return (
        f"The model was trained only on the data above{size}. Expect lower quality on other kinds of text, "
        f"and on names and numbers that the data lacks. Each line is translated without its context.{limit}"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: object) -> str:
    """Return `text` on one line, with control characters and Markdown characters escaped."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#!|~" else c for c in printable(text))


def _code(text: object) -> str:
    """Return `text` as Markdown code in a table cell. Remove its backticks, and escape its bars ("|")."""
    shown = printable(text).replace("`", "").replace("|", r"\|")
    return f"`{shown}`"
