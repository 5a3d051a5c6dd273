"""Translate the training files of Marian and OpusTrainer into settings, as the pipelines of Firefox use them.

A key gets the setting of the same meaning. The other keys are listed: those that change only where or how
fast Marian runs, those that size a batch, and those without a counterpart. A value that nmt cannot express is
an error.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml  # type: ignore[import-untyped]  # its types are a package of their own

from nmt_cli.errors import UserError
from nmt_cli.named_values import Values
from nmt_cli.other_toolkits import toolkit_of_yaml
from nmt_cli.training.config import BETA1

Settings = Mapping[str, object]
"""Values of our settings by full name."""

SAME = {
    "dim-emb": "model.width",
    "enc-depth": "model.encoder_layers",
    "dec-depth": "model.decoder_layers",
    "transformer-heads": "model.heads",
    "transformer-dim-ffn": "model.feed_forward",
    "transformer-dropout": "model.residual_dropout",
    "transformer-dropout-attention": "model.attention_dropout",
    "transformer-dropout-ffn": "model.activation_dropout",
    "label-smoothing": "loss.smoothing",
    "learn-rate": "schedule.peak",
    "clip-norm": "optimizer.clip_norm",
    "early-stopping": "validation.patience",
    "max-length": "batch.longest",
    "seed": "training.seed",
}
"""Our setting for a number of Marian."""

STEPS = {
    "lr-warmup": "schedule.warmup",
    "valid-freq": "validation.every_steps",
    "save-freq": "checkpoints.every_steps",
}
"""Our setting for a number of updates."""

MODEL = {
    "dim-emb": 512,
    "enc-depth": 1,
    "dec-depth": 1,
    "transformer-heads": 8,
    "transformer-dim-ffn": 2048,
    "transformer-dropout": 0.0,
    "transformer-dropout-attention": 0.0,
    "transformer-dropout-ffn": 0.0,
    "transformer-ffn-activation": "swish",
}
"""Marian's defaults of an architecture, which a file with `type` means by leaving them out."""

TRAINING = {
    "learn-rate": 0.0001,
    "lr-warmup": 0,
    "label-smoothing": 0.0,
    "clip-norm": 1.0,
    "early-stopping": 10,
    "valid-freq": 10_000,
    "save-freq": 10_000,
    "valid-metrics": ["cross-entropy"],
    "after-batches": 0,
    "optimizer-params": [0.9, 0.999, 1e-08],
    "max-length": 50,
}
"""Marian's defaults of a training, which a file with `learn-rate` means by leaving them out."""

ENDLESS = 1_000_000
"""`training.max_steps` for a file whose training ends by early stopping or epochs alone."""

REQUIRED: Mapping[str, Sequence[object]] = {
    "type": ("transformer",),
    "transformer-preprocess": ("", "d"),
    "transformer-postprocess": ("dan", "an"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-ffn-depth": (2,),
    "transformer-no-projection": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-tied-layers": ([],),
    "transformer-guided-alignment-layer": ("last",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "dec-cell": ("ssru", "gru"),
    "optimizer": ("adam",),
    "guided-alignment-cost": ("ce",),
    "layer-normalization": (False,),
    "right-left": (False,),
}
"""The values of keys that change the model or the training, and that nmt supports."""

NEEDLESS = frozenset(
    """dec-cell-base-depth dec-cell-high-depth enc-cell enc-cell-depth enc-type cost-type disp-first
    disp-freq disp-label-counts lr-report maxi-batch-sort valid-mini-batch cpu-threads overwrite
    keep-best no-restore-corpus shuffle-in-ram sharding relative-paths quiet quiet-translation log-level
    log valid-log tempdir sqlite fp16 precision task-fusion tsv tsv-fields valid-reset-stalled-tags""".split()
)
"""Keys that decide where and how fast Marian runs, or only concern recurrent models."""

BATCH = frozenset(
    """mini-batch mini-batch-fit mini-batch-fit-step mini-batch-round-up maxi-batch workspace devices
    num-devices sync-sgd optimizer-delay""".split()
)
"""Keys that decide the size of a batch together with the memory of the GPUs."""

METRICS = {
    "chrf": "chrf",
    "bleu-detok": "bleu",
    "bleu": "bleu",
    "ce-mean-words": "nll",
    "cross-entropy": "nll",
    "perplexity": "nll",
}
"""Our `validation.metric` for a metric of Marian."""

MODIFIERS = {
    "UpperCase": "augment.upper",
    "TitleCase": "augment.title",
    "Typos": "augment.typos",
    "RemoveEndPunct": "augment.unended",
}
"""Our share for a modifier of OpusTrainer."""


@dataclass
class Translated:
    """The settings of a file, and the keys that did not become one."""

    settings: dict[str, object] = field(default_factory=dict)
    needless: list[str] = field(default_factory=list)
    of_batch: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def notes(self, file: Path) -> list[str]:
        """Return a message for each kind of keys that did not become settings."""
        # Both lists are named, since a key that is ignored in silence might be one that matters.
        kinds = (
            ("since they change no result here", self.needless),
            ("since batch.tokens alone is the size of a batch", self.of_batch),
            ("since they have no counterpart", self.left_out),
        )
        return [f"{file}: left out, {why}: {', '.join(keys)}" for why, keys in kinds if keys]


def is_foreign(file: Path) -> bool:
    """Return whether `file` is a training file of Marian or OpusTrainer."""
    return toolkit_of_yaml(_text(file)) in READERS


def translated(file: Path) -> Translated:
    """Translate a training file of Marian or OpusTrainer. Raise `UserError` for a value that nmt cannot
    express."""
    text = _text(file)
    return READERS[toolkit_of_yaml(text) or ""](text, file)


def of_marian(text: str, file: Path) -> Translated:
    """Translate the settings of Marian in the YAML `text` of `file`. Raise `UserError` for a value that nmt
    cannot express."""
    given = _table(text, file)
    defaults = (MODEL if "type" in given.values else {}) | (TRAINING if "learn-rate" in given.values else {})
    values = Values({**defaults, **given.values}, given.error)
    if "task" in values:
        raise values.error(
            f"task: {values.found('task')} stands for many settings. Write them out by "
            f"marian --task {values.found('task')} --dump-config expand"
        )
    for key, supported in REQUIRED.items():
        if key in values and values.found(key) not in supported:
            expected = " or ".join(repr(one) for one in supported)
            raise values.error(f"{key} must be {expected} (got {values.found(key)!r})")
    recurrent = values.text("transformer-decoder-autoreg", "self-attention") == "rnn"
    if recurrent and values.text("dec-cell", "gru") != "ssru":
        raise values.error("dec-cell must be 'ssru' with transformer-decoder-autoreg: rnn")
    result = Translated()
    if "learn-rate" in values:
        result.settings["schedule.kind"] = "constant"
    for key in values:
        _add(key, values, result)
    if "type" in values:
        result.settings |= {
            "model.decoder_history": "ssru" if recurrent else "attention",
            "model.positions": "marian",
            "model.attention_bias": True,
            "model.output_bias": True,
            "model.start": "zeros",
        }
    return result


def of_opustrainer(text: str, file: Path) -> Translated:
    """Translate the modifiers of OpusTrainer in the YAML `text` of `file`. Stages and data sets are left out:
    a dataset has them as weights of corpora."""
    values = _table(text, file)
    result = Translated()
    for key in values:
        match key:
            case "seed":
                result.settings["training.seed"] = values.integer(key)
            case "num_fields":
                result.needless.append(key)
            case "modifiers":
                found = values.found(key)
                groups = found.values() if isinstance(found, Mapping) else [found]
                for modifier in (one for group in groups for one in group or ()):
                    _modify(Values(modifier, values.error, "modifiers."), result)
            case _:
                result.left_out.append(key)
    return result


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8-sig", errors="replace")


def _table(text: str, file: Path) -> Values:
    try:
        # Unlike `load`, it runs no code that a file names.
        parsed = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        # The message of the library has several lines.
        problem = " ".join(str(error).split())[:200]
        raise UserError(f"{file} is not YAML: {problem}") from error
    return Values(parsed, lambda problem: UserError(f"{file}: {problem}. Correct the file."))


def _modify(modifier: Values, result: Translated) -> None:
    """Add a modifier of OpusTrainer to `result`. Its first key is its name, with the share as value."""
    name = next(iter(modifier), "")
    if name == "Tags" and modifier.found("augment") == 1:  # without it, Tags are terms
        result.settings["augment.noise"] = modifier.number(name)
    elif name in MODIFIERS:
        result.settings[MODIFIERS[name]] = modifier.number(name)
    else:
        result.left_out.append(name)


def _add(key: str, values: Values, result: Translated) -> None:
    """Add what a key of Marian means to `result`."""
    if key in SAME:
        value = values.found(key)
        # A whole number stays one. true, which is an int in Python, is refused.
        result.settings[SAME[key]] = value if type(value) is int else values.number(key)
    elif key in STEPS:
        result.settings[STEPS[key]] = _updates(key, values)
    elif key in OTHER:
        result.settings |= OTHER[key](key, values)
    elif key == "optimizer-delay" and "mini-batch-words" in values:
        pass  # both together are the size of a batch
    elif key in BATCH:
        result.of_batch.append(key)
    elif key in NEEDLESS:
        result.needless.append(key)
    elif key not in REQUIRED:
        result.left_out.append(key)


def _activation(key: str, values: Values) -> Settings:
    return {"model.activation": values.one_of(key, ("swish", "relu", "gelu"))}


def _tying(key: str, values: Values) -> Settings:
    all_tied, tied = (values.flag(name, False) for name in ("tied-embeddings-all", "tied-embeddings"))
    return {"model.tie": "all" if all_tied else "decoder" if tied else "none"}


def _adam(key: str, values: Values) -> Settings:
    numbers = _numbers(key, values)
    if numbers[0] != BETA1:
        raise values.error(f"{key} must begin with {BETA1}, the decay of gradients in nmt (got {numbers[0]})")
    return dict(zip(("optimizer.beta2", "optimizer.epsilon"), numbers[1:], strict=False))


def _average(key: str, values: Values) -> Settings:
    found = values.found(key)
    # True is Marian's usual decay.
    share = 1e-4 if found is True else 0.0 if found is False else values.number(key)
    return {"optimizer.ema": 1 - share if share else 0.0}


def _sampling(key: str, values: Values) -> Settings:
    alphas = _numbers(key, values)
    return {"sampling.source": alphas[0], "sampling.target": alphas[-1]}


def _guided(key: str, values: Values) -> Settings:
    if values.found(key) in ("none", False):
        return {}
    return {"training.guided_alignment": values.number("guided-alignment-weight", 0.1)}


def _beam(key: str, values: Values) -> Settings:
    return {"search.beam": values.integer(key)}


def _normalisation(key: str, values: Values) -> Settings:
    found = values.found(key)
    penalty = 1.0 if found is True else 0.0 if found is False else values.number(key)
    return {"search.length_rule": "power", "search.length_penalty": penalty}


def _metric(key: str, values: Values) -> Settings:
    found = values.found(key)
    first = found[0] if isinstance(found, list) and found else found
    if first not in METRICS:  # the first one decides when training stops and which checkpoint is the best
        raise values.error(f"{key} must begin with {' or '.join(METRICS)} (got {first!r})")
    return {"validation.metric": METRICS[first]}


def _batch(key: str, values: Values) -> Settings:
    return {"batch.tokens": values.integer(key) * values.integer("optimizer-delay", 1)}


def _epochs(key: str, values: Values) -> Settings:
    return {"training.max_epochs": values.integer(key)}


def _end(key: str, values: Values) -> Settings:
    number = str(values.found(key))
    if number.endswith("e") and number[:-1].isdecimal():  # epochs
        return {"training.max_epochs": int(number[:-1])}
    return {"training.max_steps": _updates(key, values) or ENDLESS}


def _weight(key: str, values: Values) -> Settings:
    """Return nothing, because `guided-alignment` uses the weight."""
    values.number(key)
    return {}


def _decay(key: str, values: Values) -> Settings:
    start = _updates(key, values)
    return {"schedule.kind": "inverse-sqrt", "schedule.decay_start": start} if start else {}


def _updates(key: str, values: Values) -> int:
    """Return a number of updates, which may have the unit "u" and may be in a list of one."""
    found = values.found(key)
    found = found[0] if isinstance(found, list) and len(found) == 1 else found
    text = str(found).removesuffix("u")
    if isinstance(found, bool) or not text.isdecimal():
        raise values.error(f"{key} must be a number of updates, such as 16000 (got {found!r})")
    return int(text)


def _numbers(key: str, values: Values) -> list[float]:
    """Return a list of numbers. YAML reads 1e-09 as text, since it has no decimal point."""
    found = values.found(key)
    try:
        numbers = [float(one) for one in (found if isinstance(found, Sequence) else [])]
    except (TypeError, ValueError):
        numbers = []
    if not numbers or isinstance(found, str) or not all(map(math.isfinite, numbers)):
        raise values.error(f"{key} must be a list of numbers (got {found!r})")
    return numbers


OTHER: Mapping[str, Callable[[str, Values], Settings]] = {
    "transformer-ffn-activation": _activation,
    "tied-embeddings-all": _tying,
    "tied-embeddings": _tying,
    "optimizer-params": _adam,
    "exponential-smoothing": _average,
    "sentencepiece-alphas": _sampling,
    "guided-alignment": _guided,
    "guided-alignment-weight": _weight,
    "beam-size": _beam,
    "normalize": _normalisation,
    "valid-metrics": _metric,
    "mini-batch-words": _batch,
    "after-epochs": _epochs,
    "after-batches": _end,
    "after": _end,
    "lr-decay-inv-sqrt": _decay,
}
"""What keys mean that are more than a number."""

READERS: Mapping[str, Callable[[str, Path], Translated]] = {
    "Marian": of_marian,
    "OpusTrainer": of_opustrainer,
}
