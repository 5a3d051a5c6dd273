"""Describe another toolkit's model in our terms, and write it as a model folder."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from nmt_cli.checkpoints.model_folder import Identity, write_model
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.atomic import check_writable, folder_written_whole, refuse_other_files
from nmt_cli.setting_values import toml_literal
from nmt_cli.text.config import Kind, TextConfig
from nmt_cli.text.tokenizer import Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers, numbered_tokenizers
from nmt_cli.text.vocabulary import Vocabulary

PositionRule = Literal["marian", "huggingface"]

Positions = Literal["marian", "sinusoidal"]
Activation = Literal["relu", "gelu", "gelu_tanh", "swish"]

POSITIONS: Mapping[PositionRule, Positions] = {"marian": "marian", "huggingface": "sinusoidal"}
"""Our `model.positions` for the sinusoids of each toolkit."""

ACTIVATIONS: Mapping[str, Activation] = {
    **{"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"},
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh"), "gelu_tanh"),
}
"""Our `model.activation` for each name in Hugging Face and fairseq."""

LANGUAGE_CODE = re.compile(r">>\S+<<")

UNTOUCHED = TextConfig(unicode="none", words="raw")
"""Text settings of imported models: nmt changes no text. Their SentencePiece models contain all rules."""

TRAINING = "train.toml"
"""Settings file beside the model. `nmt train --config` continues training with it."""

TRAINING_HEAD = "# nmt train DATASET --config this file --init-from this folder\n[model]\n"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of `nmt import`. None means that the value comes from the model."""

    source_lang: str | None = None
    target_lang: str | None = None
    positions: PositionRule | None = None

    def languages(self, source: str, target: str, where: Path) -> tuple[str, str]:
        """Return the source and target language from the options. If an option is missing, take the model's
        `source` or `target`. Raise `UserError`, which names the path `where`, for an empty language."""
        languages = self.source_lang or source, self.target_lang or target
        if not languages[0] or not languages[1]:
            raise UserError(f"{where} does not record its languages. Add --source-lang and --target-lang.")
        return languages[0], languages[1]


@dataclass(frozen=True, slots=True)
class Foreign:
    """The contents of a model folder, read from another toolkit's model."""

    kind: str
    """Name of the toolkit, shown to people."""

    config: ModelConfig
    tokenizers: Tokenizers
    tensors: Mapping[str, Tensor]
    """Tensors by our names."""

    search: Mapping[str, Any] = field(default_factory=dict)
    """The toolkit's own search settings, under our names."""

    longest: int | None = None
    """Maximum sentence length in tokens that the model was made for, if known."""

    notes: Sequence[str] = ()
    """Notes for the user."""

    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """Training record of a model that nmt exported."""


def sentencepiece_tokenizers(
    languages: tuple[str, str],
    models: Mapping[Side, bytes],
    sides: Mapping[Side, Vocabulary],
    symbols: tuple[str, ...] = (),
    begins: tuple[str, ...] = (),
    bare_source: bool = False,
) -> Tokenizers:
    """Return tokenisers for `models`, the contents of SentencePiece files. `languages` are source and target.
    A vocabulary is shared if `sides` has one object twice. The last arguments are those of `Recipe`. By
    default, source entries like ">>de<<" are symbols."""
    joint = sides["source"] is sides["target"]
    own = joint and models["source"] != models["target"]
    symbols = symbols or tuple(entry for entry in sides["source"].entries if LANGUAGE_CODE.fullmatch(entry))
    kind: Kind = "sentencepiece"
    recipe = Recipe(
        kind, joint, *languages, UNTOUCHED, symbols, own_models=own, begins=begins, bare_source=bare_source
    )
    return numbered_tokenizers(recipe, {side: {"model": model} for side, model in models.items()}, sides)


def bpe_files(codes: bytes, vocabulary: Vocabulary) -> dict[str, bytes]:
    """Return the files of a BPE model of subword-nmt: its codes, and the characters of `vocabulary`."""
    alphabet = {*"".join(entry.removesuffix("@@") for entry in vocabulary.entries)} - {" ", "\n"}
    return {"codes": codes, "characters.txt": "".join(sorted(alphabet)).encode()}


def check_free(out: Path) -> None:
    """Raise `UserError` if `out` cannot be created, is a file, or is a folder that is not empty."""
    refuse_other_files(out)
    check_writable(out)


def write(foreign: Foreign, out: Path) -> None:
    """Write the model folder `out`, completely or not at all, with `train.toml` for further training. The
    description records the toolkit and its search settings."""
    origin: dict[str, Any] = {"imported": foreign.kind}
    if foreign.search:
        origin["search"] = dict(foreign.search)
    longest = {"longest": foreign.longest} if foreign.longest else {}
    identity = Identity(foreign.config, foreign.tokenizers, {**foreign.trained_on, **longest})
    settings = asdict(foreign.config)
    if foreign.config.positions != "learned":
        del settings["longest"]  # it has no effect with other positions, and would be refused
    lines = [f"{name} = {toml_literal(value)}\n" for name, value in settings.items()]
    with folder_written_whole(out) as folder:
        write_model(folder, identity, foreign.tensors, origin)
        (folder / TRAINING).write_text("".join([TRAINING_HEAD, *lines]), encoding="utf-8")
