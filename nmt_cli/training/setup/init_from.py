"""Starting from another model's weights, and leaving some of them as they are."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor, nn

from nmt_cli.checkpoints.files import read_description, read_tensors
from nmt_cli.checkpoints.finding import CONFIG, find_model
from nmt_cli.checkpoints.model_folder import FORMAT, Identity, read_identity, weights, weights_path
from nmt_cli.errors import UserError
from nmt_cli.model.config import disagreements
from nmt_cli.model.transformer import Transformer
from nmt_cli.setting_values import nearest
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.text.vocabulary import Vocabulary
from nmt_cli.training.config import StartConfig
from nmt_cli.training.step.flat import trained

ROWS: Mapping[str, Side] = {
    "source_embedding.matrix": "source",
    "target_embedding.matrix": "target",
    "output_matrix": "target",
    "output_bias": "target",
}
"""Parameters that have a row for each entry of a vocabulary."""


OWN_SEARCH = (
    "; how its owner decodes (nmt info tells) stays with it: the new model translates by nmt's defaults"
)


def start_from(model: Transformer, identity: Identity, config: StartConfig) -> str:
    """Fill `model` with the weights of `config.model`; tells what was taken, and what was not.

    Of a model with another vocabulary it gets the rows of the pieces that both have; the others are as they
    were drawn. Parameters that are missing, surplus or of another shape are an error, unless `config.allow`
    names them.
    """
    folder = find_model(Path(config.model))
    description = read_description(folder, CONFIG, FORMAT)
    theirs = read_identity(folder, description)
    _refuse_other(folder, theirs, identity)
    tensors = read_tensors(weights_path(folder, description))
    transferred = ""
    if theirs.tokenizers.fingerprint != identity.tokenizers.fingerprint:
        tensors = _by_piece(weights(model), tensors, theirs.tokenizers, identity.tokenizers)
        transferred = f"; {_shared_in_words(theirs.tokenizers, identity.tokenizers)}"
    differing = _differing(weights(model), tensors)
    _check_allowed(folder, differing, config.allow)
    taken = {name: tensor for name, tensor in tensors.items() if name not in differing}
    with torch.no_grad():
        for name, tensor in taken.items():
            weights(model)[name].copy_(tensor)
    told = f"starting from {folder} ({len(taken)} of {len(weights(model))} parameters by name"
    allowed = f"; as allowed: {'; '.join(differing.values())}" if differing else ""
    own = OWN_SEARCH if description.get("search") else ""
    return f"{told}{allowed}){transferred}{own}"


def freeze(model: nn.Module, patterns: Sequence[str]) -> str:
    """Take the parameters whose names match out of training; tells how many.

    A matrix that serves twice has two names, and is frozen by either.
    """
    names = dict(model.named_parameters(remove_duplicate=False))  # a tied matrix has one for each use
    for pattern in patterns:
        if not any(_matching(pattern, names)):
            raise UserError(f"start.freeze: no parameter is named {pattern}; {nearest(pattern, names)}")
        for name in _matching(pattern, names):
            names[name].requires_grad_(False)
    everything, left = (sum(p.numel() for p in which) for which in (model.parameters(), trained(model)))
    if not left:
        raise UserError("start.freeze names all parameters, so there is nothing left to train.")
    return f"frozen: {everything - left:,} of {everything:,} parameters ({', '.join(patterns)})"


def _refuse_other(folder: Path, theirs: Identity, ours: Identity) -> None:
    if wrong := [
        f"{key} is {getattr(theirs.config, key)} there, but {getattr(ours.config, key)} here"
        for key in disagreements(theirs.config, ours.config, "use")
    ]:
        raise UserError(
            f"{folder} is another kind of model: {'; '.join(wrong)}; set [model] as it was there."
        )


def _by_piece(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], from_them: Tokenizers, for_us: Tokenizers
) -> dict[str, Tensor]:
    """`theirs`, with rows for our vocabulary: those of pieces that both have, and our own."""
    found = dict(theirs)
    for name, side in ROWS.items():
        if name in ours and name in theirs and ours[name].shape[1:] == theirs[name].shape[1:]:
            pairs = _shared(from_them.side(side).vocabulary, for_us.side(side).vocabulary)
            found[name] = ours[name].detach().clone()
            found[name][list(pairs.values())] = theirs[name][list(pairs)].to(found[name])
    return found


def _shared(theirs: Vocabulary, ours: Vocabulary) -> dict[int, int]:
    """The ids of what both have, theirs to ours: marks by what they mean, all else by how it is shown."""
    marks = [(theirs.end, ours.end), (theirs.unknown, ours.unknown)]
    # Where our start mark is our end mark, it takes the row of their end, as was said already.
    if theirs.start is not None and ours.start not in (None, ours.end):
        marks.append((theirs.start, ours.start))
    special = ({first for first, _ in marks}, {second for _, second in marks})
    known = {entry: i for i, entry in enumerate(ours.entries) if entry and i not in special[1]}
    return dict(marks) | {
        i: known[entry] for i, entry in enumerate(theirs.entries) if entry in known and i not in special[0]
    }


def _shared_in_words(theirs: Tokenizers, ours: Tokenizers) -> str:
    sides: Sequence[Side] = SIDES[1:] if ours.recipe.joint else SIDES
    told = []
    for side in sides:
        vocabulary = ours.side(side).vocabulary
        count, of = len(_shared(theirs.side(side).vocabulary, vocabulary)), sum(map(bool, vocabulary.entries))
        told.append(f"{count:,} of {of:,} {side} pieces" if len(sides) > 1 else f"{count:,} of {of:,} pieces")
    return f"it has another vocabulary: {' and '.join(told)} are taken over, the others begin anew"


def _differing(wanted: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> dict[str, str]:
    """What is not the same in both, by name, each in words."""
    told = {name: f"{name} is missing" for name in wanted if name not in there}
    told |= {name: f"{name} is surplus" for name in there if name not in wanted}
    return told | {
        name: f"{name} is {list(there[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in there and there[name].shape != tensor.shape
    }


def _check_allowed(folder: Path, differing: Mapping[str, str], allowed: Sequence[str]) -> None:
    if refused := [told for name, told in differing.items() if not _named(name, allowed)]:
        raise UserError(
            f"{folder} is not this model: {'; '.join(refused)}. Set [model] as it was there, "
            "or name what may differ in start.allow."
        )
    if useless := [pattern for pattern in allowed if not any(_matching(pattern, differing))]:
        raise UserError(f"start.allow: nothing that differs is named {useless[0]}; leave it out.")


def _matching(pattern: str, names: Mapping[str, object]) -> Iterator[str]:
    return (name for name in names if fnmatchcase(name, pattern))


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
