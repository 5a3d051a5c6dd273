"""Write model cards: the README.md of a model folder, and of an export for the Hugging Face Hub."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, get_args

from nmt_cli import __version__
from nmt_cli.checkpoints.finding import CONFIG
from nmt_cli.checkpoints.model_folder import Identity, LoadedModel
from nmt_cli.checkpoints.run_folder import STATE, read_state
from nmt_cli.checkpoints.verified_files import damaged
from nmt_cli.errors import UserError, printable, printable_json
from nmt_cli.language import iso_code, without_region
from nmt_cli.model.config import shape_in_words
from nmt_cli.runtime.foreign_text import read_if_exists
from nmt_cli.scoring.confidence import Calibration
from nmt_cli.scoring.config import Metric
from nmt_cli.scoring.measures import Score
from nmt_cli.setting_values import converted
from nmt_cli.text.model_languages import listed
from nmt_cli.text.tokenizers import Recipe

CARD = "README.md"
SCORES, LICENCE = "scores", "licence"
"""Keys of `config.json`."""

ABSOLUTE = re.compile(r'(= ")/(?:[^"]*/)?')
"""An absolute path as a setting in TOML, up to its last name."""

UNSCORED = (
    "Not scored yet. `nmt average-checkpoints --select` adds scores to this card. "
    "`nmt score` computes them for any set."
)
UNSIGNED = (
    "\n\nScores without a signature come from validation during training. They may be of only a part of the "
    "set (`validation.sentences`). `nmt score` computes scores that can be compared."
)


LIBRARIES = {"huggingface": "transformers", "argos": "argostranslate"}
"""The Hub's name of the library that loads each format, if it is not that of the format."""

USAGE = {
    "marian": "Marian\n\n    marian-decoder -c decoder.yml < lines\n\n"
    "If the vocabulary is a `.yml`, split the lines with `spm_encode` and join them with `spm_decode`.",
    "argos": "Argos Translate\n\n    from argostranslate import package, translate\n\n"
    '    package.install_from_path("translate-{source}_{target}.argosmodel")\n'
    '    print(translate.translate("A sentence.", "{source}", "{target}"))',
    "bergamot": 'Bergamot\n\n    model = service.modelFromConfigPath("config.intgemm8bitalpha.yml")',
}
"""The toolkit's name and an example, for exporters that write no README.md."""

LICENCES = frozenset(
    (
        "afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsl-1.0 cc cc-by-2.0 "
        "cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 "
        "cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 "
        "cc-by-sa-4.0 cc0-1.0 ecl-2.0 epl-2.0 eupl-1.1 eupl-1.2 gpl gpl-2.0 gpl-3.0 isc lgpl lgpl-2.1 "
        "lgpl-3.0 mit mpl-2.0 ms-pl odbl odc-by openrail osl-3.0 pddl unlicense wtfpl zlib"
    ).split()
)
"""Licences that the Hub knows by these names. It takes others as "other" with a name."""


@dataclass(frozen=True, slots=True)
class About:
    """Facts for a model card that neither the weights nor `config.json` contain."""

    scores: Mapping[str, Sequence[Score]] = field(default_factory=dict)
    """Scores by the name of the evaluation set."""

    licence: str = ""
    """Licence of the training data."""

    settings: str = ""
    """Settings of the training as TOML."""

    calibration: Calibration | None = None
    """The confidence of translations, learnt from a validation set."""

    @property
    def recorded(self) -> dict[str, Any]:
        """The scores and the licence as entries of `config.json`, from which `facts_of` reads them."""
        scores = {name: [asdict(score) for score in scores] for name, scores in self.scores.items()}
        entries = {SCORES: scores, LICENCE: self.licence}
        return {key: value for key, value in entries.items() if value}


NO_FACTS = About()


def facts_of(folder: Path, model: LoadedModel) -> About:
    """Return the scores and the licence that the model in `folder` records.

    A checkpoint that records no scores has those of its validation. Raise `UserError` if the record is
    damaged.
    """
    try:
        scores = converted(model.description.get(SCORES, {}), Mapping[str, tuple[Score, ...]])
    except UserError:
        scores = None
    if not isinstance(scores, Mapping):
        raise damaged(folder / CONFIG, "its scores are not valid")
    if not scores and (folder / STATE).is_file():
        state = read_state(folder)
        latest = state.get("judged", {}).get(str(state["step"]), {})
        digits = {**dict.fromkeys(get_args(Metric), 2), "comet": 4}
        known = [
            Score(name, name, "", latest[name], "", "", digits[name]) for name in digits if name in latest
        ]
        scores = {"validation": known}
    return About(scores, str(model.description.get(LICENCE, "")))


def card(identity: Identity, parameters: int, origin: str, about: About) -> str:
    """Return a model card in Markdown. `origin` describes the weights, and `parameters` is their number."""
    recipe, config = identity.tokenizers.recipe, identity.config
    languages = recipe.own_languages
    sizes = [len(side.vocabulary) for side in (identity.tokenizers.source, identity.tokenizers.target)]
    entries = f"{sizes[0]:,} joint entries" if recipe.joint else f"{sizes[0]:,} and {sizes[1]:,} entries"
    facts = {
        "Languages": f"{listed(languages.sources)} to {listed(languages.targets)}",
        "Architecture": f"Transformer, {shape_in_words(config)}",
        "Parameters": f"{parameters:,}",
        "Subwords": f"{recipe.kind}, {entries}",
        "Weights": origin,
        "Made": f"{date.today().isoformat()} by nmt {__version__}",
    }
    parts = [
        f"# {_text(recipe.source_lang)} to {_text(recipe.target_lang)}",
        "    nmt translate THIS_FOLDER < lines",
        _table(("", ""), [(name, _text(value)) for name, value in facts.items()]),
        quality(identity, about),
    ]
    if about.settings:
        # Folders may name users and projects.
        settings = ABSOLUTE.sub(r"\1", about.settings)
        # An indented block, which no line of the settings can end.
        lines = "\n".join(f"    {printable(line)}" for line in settings.splitlines())
        parts += ["## Settings of the training", lines]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def quality(identity: Identity, about: About) -> str:
    """Return the sections of a model card about scores, data and limits, in Markdown."""
    data, limits = _data_and_limits(identity.trained_on, about.licence)
    sections = {"Scores": _scores(about.scores), "Data": data, "Limits": limits}
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())


def complete_export(folder: Path, form: str, identity: Identity, about: About, licence: str) -> None:
    """Complete the README.md of an export in `folder`.

    Put metadata for the Hub before its text, and the scores, data and limits of the model after it.

    form: the format of the export.
    licence: that of the model, or "" to state none.
    """
    recipe = identity.tokenizers.recipe
    pair = {"source": without_region(recipe.source_lang), "target": without_region(recipe.target_lang)}
    usage = USAGE.get(form, "").format(**pair)
    text = read_if_exists(folder / CARD).decode() or f"# A translation model for {usage}\n"
    head = "".join(
        f"{key}: {printable_json(value)}\n"  # YAML contains JSON
        for key, value in _metadata(form, recipe, about, licence).items()
    )
    text = f"---\n{head}---\n\n{text}\n{quality(identity, about)}\n"
    (folder / CARD).write_text(text, encoding="utf-8")


def _metadata(form: str, recipe: Recipe, about: About, licence: str) -> dict[str, Any]:
    """Return the metadata of a card of the Hub: languages, library, licence, and scores if there are any.

    A language without a code of two or three letters is left out.
    """
    languages = recipe.own_languages
    codes = dict.fromkeys(map(iso_code, (*languages.sources, *languages.targets)))
    metadata: dict[str, Any] = {
        "language": [code for code in codes if re.fullmatch("[a-z]{2,3}", code)],
        "pipeline_tag": "translation",
        "library_name": LIBRARIES.get(form, form),
        "tags": ["translation", "nmt"],
    }
    # "Apache 2.0" is apache-2.0 on the Hub.
    name = re.sub("[ _]", "-", licence.lower())
    if licence:
        metadata["license"] = name if name in LICENCES else "other"
    if licence and name not in LICENCES:
        metadata["license_name"] = printable(licence)
    if about.scores:
        results = [
            {
                "task": {"type": "translation"},
                "dataset": {"name": name, "type": name},
                "metrics": [_metric(score) for score in scores],
            }
            for name, scores in about.scores.items()
        ]
        metadata["model-index"] = [{"name": f"{recipe.source_lang}-{recipe.target_lang}", "results": results}]
    return metadata


def _metric(score: Score) -> dict[str, Any]:
    """Return a score as a metric of the Hub's model-index."""
    metric = {"type": score.metric, "name": score.label, "value": round(score.value, 2)}
    return metric | ({"args": {"signature": score.signature}} if score.signature else {})


def _scores(scores: Mapping[str, Sequence[Score]]) -> str:
    """Return a Markdown table with a row per set and metric, or the sentence `UNSCORED` without scores."""
    rows = [
        (_text(name), _text(score.name), score.shown, _code(score.signature) if score.signature else "none")
        for name, set_scores in scores.items()
        for score in set_scores
    ]
    unsigned = any(not score.signature for set_scores in scores.values() for score in set_scores)
    return _table(("set", "metric", "score", "signature"), rows) + unsigned * UNSIGNED if rows else UNSCORED


def _data_and_limits(trained_on: Mapping[str, Any], licence: str) -> tuple[str, str]:
    """Return two texts in Markdown: the corpora with their licence, and the limits of the model.

    `trained_on` is the training record. Without readable corpora in it, the first text says that they are
    unknown. The limits mention the length at which lines are split, if the record has it.
    """
    try:
        inputs = [
            (part["role"], part["name"], int(part["pairs"]), [file["sha256"] for file in part["files"]])
            for part in trained_on["inputs"]
        ]
    except (LookupError, TypeError, ValueError):
        inputs = []
    rows = [
        (_text(role), _text(name), f"{pairs:,}", "<br>".join(map(_code, hashes)))
        for role, name, pairs, hashes in inputs
    ]
    table = _table(("role", "name", "pairs", "SHA-256 of its files"), rows) if rows else "Unknown."
    trained_pairs = sum(pairs for role, _, pairs, _ in inputs if role == "train")
    size = f" ({trained_pairs:,} pairs before cleaning)" if trained_pairs else ""
    longest = trained_on.get("longest")
    limit = f" Longer lines than {longest} subwords are split." if longest else ""
    return f"{table}\n\nLicence of the data: {_text(licence) or 'not stated'}.", (
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
