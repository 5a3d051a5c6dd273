"""Complete the README.md of an export: metadata for the Hugging Face Hub, and facts about the model."""

import re
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints.card import CARD, About, quality
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.errors import printable, printable_json
from nmt_cli.language import iso_code, without_region
from nmt_cli.runtime.foreign_text import read_if_exists
from nmt_cli.scoring.metrics import Score
from nmt_cli.text.tokenizers import Recipe

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


def complete(folder: Path, form: str, identity: Identity, about: About, licence: str) -> None:
    """Put metadata for the Hub before the text of README.md in `folder`, and scores, data and limits of the
    model after it. `licence` is that of the model, or "" to state none."""
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
    """Return the metadata of the Hub's model cards: languages, library, licence and scores if there are any.
    Leave out a language without a code of two or three letters."""
    codes = dict.fromkeys(iso_code(lang) for lang in (recipe.source_lang, recipe.target_lang))
    metadata: dict[str, Any] = {
        "language": [code for code in codes if re.fullmatch("[a-z]{2,3}", code)],
        "pipeline_tag": "translation",
        "library_name": LIBRARIES.get(form, form),
        "tags": ["translation", "nmt"],
    }
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
