"""The output of `nmt info` for each kind of folder, as names and texts.

Facts are the lines to print, each a name and a text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints.finding import BEST, CONFIG, checkpoints
from nmt_cli.checkpoints.foreign_kinds import foreign_kind, in_words, remedy
from nmt_cli.checkpoints.model_folder import FORMAT, read_identity, read_shortlist, weights_path
from nmt_cli.checkpoints.run_folder import STATE, read_state
from nmt_cli.checkpoints.verified_files import read_description, read_tensors
from nmt_cli.config import read
from nmt_cli.data.dataset import MANIFEST, TOKENIZERS, TRAIN, open_dataset, train_corpora
from nmt_cli.errors import UserError
from nmt_cli.model.config import shape_in_words
from nmt_cli.text.model_languages import listed
from nmt_cli.text.tokenizers import Recipe, read_recipe
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.settings import CONFIG as SETTINGS
from nmt_cli.training.tracking.log import LOG
from nmt_cli.units import duration

Facts = dict[str, str]


def facts(path: Path) -> Facts:
    """Return the facts about a folder or a foreign model. Raise `UserError` if it is damaged or unknown."""
    try:
        return _facts(path)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise UserError(f"{path} is damaged ({cause}). Copy it again.") from error


def _facts(path: Path) -> Facts:
    """Return the facts about `path`. A damaged file raises the error of reading it, such as `KeyError`."""
    if foreign := foreign_kind(path):
        return {"kind": f"{in_words(foreign)}, not of nmt", "to use it": remedy(foreign, path)}
    match kind(path):
        case "dataset":
            return _of_dataset(path)
        case "run":
            return _of_run(path)
        case "checkpoint":
            # A checkpoint is in RUN/checkpoints, and its scores depend on settings of the run.
            settings = path.resolve().parent.parent / SETTINGS
            sentences = read(TrainConfig, settings).validation.sentences if settings.is_file() else 0
            state = _of_state(read_state(path), sentences=sentences)
            return {"kind": "checkpoint folder", **state, **_of_model(path)}
        case "model":
            return {"kind": "model folder", **_of_model(path)}
    raise UserError(f"{path} is not a dataset, run, checkpoint or model folder. Name one.")


def kind(path: Path) -> str | None:
    """Return the kind of a folder: "dataset", "checkpoint", "model" or "run", or None if unknown. The names
    of its files decide."""
    if not path.is_dir():
        return None
    if (path / MANIFEST).is_file():
        return "dataset"
    # Before the model, because a checkpoint has all files of a model folder too.
    if (path / STATE).is_file():
        return "checkpoint"
    if (path / CONFIG).is_file():
        return "model"
    return "run" if checkpoints(path) or (path / LOG).is_file() else None


def _of_dataset(folder: Path) -> Facts:
    """Return the facts about a dataset folder. Corpora are listed if there are several."""
    dataset = open_dataset(folder)
    manifest = dataset.manifest
    tokenizer = manifest["tokenizer"]
    splits = {
        name: f"{split['pairs']:,} pairs, {split['source_tokens']:,} source and {split['target_tokens']:,} "
        f"target tokens{'' if name == TRAIN else ' (' + split['role'] + ')'}"
        for name, split in manifest["splits"].items()
    }
    corpora = [
        f"{corpus.name} {corpus.pairs:,}"
        + (f" x {corpus.weight:g}" if corpus.weight else "")
        + (f" ({corpus.tag})" if corpus.tag else "")
        for corpus in train_corpora(dataset)
    ]
    facts = {
        "kind": "dataset folder",
        "languages": _languages(read_recipe(folder / TOKENIZERS)),
        "subwords": _subwords(
            tokenizer["kind"],
            tokenizer["joint"],
            (tokenizer["source_vocabulary"], tokenizer["target_vocabulary"]),
        ),
        **splits,
    }
    if len(corpora) > 1:
        facts["corpora"] = ", ".join(corpora)
    return facts


def _of_run(run: Path) -> Facts:
    """Return the facts about a run folder. The model is the best checkpoint or, if there is none, the
    newest."""
    folders = checkpoints(run)
    if not folders:
        return {"kind": "run folder", "checkpoints": "none yet"}
    newest = folders[max(folders)]
    state, settings = read_state(newest), read(TrainConfig, run / SETTINGS)
    best = (run / BEST).resolve().name if (run / BEST).exists() else ""
    steps = f"of step{f's {min(folders):,} to' if len(folders) > 1 else ''} {max(folders):,}"
    return {
        "kind": "run folder",
        **_of_state(state, f" of {settings.training.max_steps:,}", settings.validation.sentences),
        "checkpoints": f"{len(folders)}, {steps}{best and f'; best: {best}'}",
        "dataset": state["dataset"],
        **_of_model(run / BEST if best else newest),
    }


def _of_state(state: Mapping[str, Any], limit: str = "", sentences: int = 0) -> Facts:
    """Return the progress and the latest scores of a checkpoint.

    - `state`: the content of its state file.
    - `limit`: a text after the step, such as " of 1,000".
    - `sentences`: the maximum number of sentences on which BLEU and chrF were computed, or 0 for all.
    """
    # Files count epochs from 0, people from 1.
    step = f"{state['step']:,}{limit}, epoch {state['epoch'] + 1:,}, {duration(state['seconds'])}"
    validations = state.get("judged")
    if not validations:
        return {"step": step}
    # Keys of JSON are texts, and "200" would come after "1000".
    last = max(validations, key=int)
    scores = ", ".join(
        f"{name} {value:.{4 if name == 'comet' else 2}f}" for name, value in validations[last].items()
    )
    on = f" (BLEU and chrF on up to {sentences:,} sentences)" if sentences else ""
    return {"step": step, "validated": f"step {int(last):,}: {scores}{on}"}


def _of_model(folder: Path) -> Facts:
    """Return the facts about a model folder. Its weights are not read."""
    description = read_description(folder, CONFIG, FORMAT)
    identity = read_identity(folder, description)
    recipe = identity.tokenizers.recipe
    # From the header of the file, which is faster than building the model.
    count = sum(tensor.numel() for tensor in read_tensors(weights_path(folder, description)).values())
    sizes = len(identity.tokenizers.source.vocabulary), len(identity.tokenizers.target.vocabulary)
    steps = [part.get("step") for part in description.get("averaged", [])]
    # An average of averages has no steps.
    models = f"{len(steps)} model{'s' if len(steps) > 1 else ''}"
    averaged = models if None in steps else f"steps {', '.join(map(str, steps))}"
    inputs = [part for part in identity.trained_on.get("inputs") or [] if part["role"] == TRAIN]
    trained = ", ".join(f"{part['name']} ({part['pairs']:,} pairs)" for part in inputs)
    facts = {
        "languages": _languages(recipe),
        "model": f"{shape_in_words(identity.config)}; {count:,} parameters",
        "subwords": _subwords(recipe.kind, recipe.joint, sizes),
    }
    languages = recipe.own_languages
    if len(languages.directions) > 1 and (recipe.source_lang, recipe.target_lang) in languages.directions:
        facts["without languages"] = f"{recipe.source_lang} -> {recipe.target_lang}"
    if search := description.get("search"):
        facts["search"] = ", ".join(f"{name} {value}" for name, value in search.items())
    if shortlist := read_shortlist(folder, identity.tokenizers):
        facts["shortlist"] = f"{len(shortlist.targets) / sizes[0]:.1f} entries for a source token"
    if steps:
        facts["average of"] = averaged
    if trained:
        facts["trained on"] = trained
    return facts


def _languages(recipe: Recipe) -> str:
    languages = recipe.own_languages
    return f"{listed(languages.sources)} -> {listed(languages.targets)}"


def _subwords(kind: str, joint: bool, sizes: tuple[int, int]) -> str:
    """Return a text about the subwords: their kind and the sizes of the vocabularies."""
    if joint:
        return f"{kind}, {sizes[0]:,} entries, joint"
    return f"{kind}, {sizes[0]:,} and {sizes[1]:,} entries"
