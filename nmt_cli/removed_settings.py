"""The settings that nmt once had: what replaces each, for old files, old models and old programs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from nmt_cli.setting_values import toml_literal

ONE_BEST = "validation searches for the one best translation, and nmt translate has the setting"
SAMPLING = "samples follow the model's probabilities. search.top_k draws from the likeliest tokens"
BY_DEVICE = "the batch size depends on the device"


@dataclass(frozen=True, slots=True)
class Removed:
    """A setting that was removed."""

    now: str
    """What nmt does now and what to do instead, as part of an error message."""

    meant: object = None
    """The value that means what nmt does now, and so is ignored. With None, every value is ignored."""

    same_as: str = ""
    """The setting of the same section that replaces this one. The same value as there is ignored."""

    training_only: bool = False
    """Whether trained models do not depend on it, so that a model with any value is read."""

    def is_harmless(self, value: object, others: Mapping[str, object]) -> bool:
        """Return whether nmt still does what `value` means. `others` has the section's settings by name."""
        if self.same_as:
            return value == others.get(self.same_as)
        return self.meant is None or value == self.meant

    def refusal(self, name: str, value: object, where: str = "") -> str:
        """Return the error for the setting `name` with `value`. `where` names its file, such as ", in X"."""
        return f"{name} = {toml_literal(value)} was removed{where}: {self.now}. Delete it."


REMOVED: Mapping[str, Removed] = {
    # nmt preprocess
    "filter.max_repeats": Removed(
        "no filter counts repeated words. A filter.scorer with filter.min_score can drop such pairs", 0
    ),
    "filter.min_letters": Removed(
        "no filter counts letters. filter.source_script, target_script and filter.language drop such pairs",
        0.0,
    ),
    "filter.one_per_source": Removed("filter.one_per_target and filter.duplicates stay", False),
    "filter.scorer_timeout": Removed("a scorer may print nothing for an hour"),
    "tokenizer.character_coverage": Removed(
        "all characters have an entry. filter.source_script and target_script drop lines in other scripts",
        1.0,
    ),
    "tokenizer.min_count": Removed("a subword may be rare. A smaller --vocab-size has fewer rare ones", 0),
    "tokenizer.seed": Removed(
        "the sample of lines is always the same for a corpus. Shuffle the corpus for another", 1
    ),
    # nmt train
    "training.kernels": Removed(
        "a GPU's kernels are tried at the start. NMT_KERNELS=plain uses PyTorch's operations only", "auto"
    ),
    "model.decoder_window": Removed("model.window restricts self-attention of encoder and decoder", 0),
    "model.encoder_window": Removed("model.window restricts self-attention of encoder and decoder", 0),
    "schedule.decay": Removed("plateau halves the learning rate", 0.5),
    "schedule.patience": Removed("plateau waits for three validations without improvement", 3),
    "checkpoints.every_minutes": Removed(
        "checkpoints.every_steps replaces the ten minutes between checkpoints", 10.0
    ),
    "checkpoints.every_epochs": Removed(
        "checkpoints.every_steps saves by steps. --dry-run prints the steps of an epoch", 0
    ),
    "validation.every_epochs": Removed(
        "validation.every_steps validates by steps. --dry-run prints the steps of an epoch", 0
    ),
    "model.embedding_dropout": Removed(
        "model.residual_dropout drops embeddings too, as in the paper",
        same_as="residual_dropout",
        training_only=True,
    ),
    "model.depth_scaled_init": Removed(
        "model.init=depth-scaled divides the outputs of sub-layers", False, training_only=True
    ),
    "model.residual_stream": Removed(
        "values between layers are fp32 in bf16 training", "fp32", training_only=True
    ),
    "model.source_token_dropout": Removed(
        "no source token is dropped. augment.typos is another noise", 0.0, training_only=True
    ),
    "sampling.source_dropout": Removed("sampling.source is the dropout for subwords with merges", 0.0),
    "sampling.target_dropout": Removed("sampling.target is the dropout for subwords with merges", 0.0),
    "sampling.source_alpha": Removed("sampling.source is the alpha for unigram models", 0.0),
    "sampling.target_alpha": Removed("sampling.target is the alpha for unigram models", 0.0),
    "sampling.nbest": Removed("all segmentations of a line are drawn from. Set a larger alpha instead", 0),
    "augment.lower": Removed("no pair is lower-cased. A corpus of lower-cased lines does the same", 0.0),
    "augment.copies": Removed("no pair is copied. A corpus with the target on both sides does the same", 0.0),
    "augment.word_dropout": Removed("no word is left out. augment.typos is another noise", 0.0),
    "mixing.stage": Removed("a run has one mixture. Train the next stage with --init-from", []),
    "optimizer.beta1": Removed("the mean of gradients decays by 0.9, as in the paper", 0.9),
    "optimizer.split": Removed("each process has the whole state of the optimiser", False),
    "training.give_up_after": Removed("a run ends after ten steps in a row that are not finite", 10),
    "training.graphs": Removed("no step is recorded as a CUDA graph"),
    "start.allow": Removed(
        "a run starts from a model of the same shape. Leave --init-from out for another one", []
    ),
    "validation.bleu_tokenizer": Removed(
        "BLEU is that of nmt score by default. nmt score --set bleu.tokenizer has others", "auto"
    ),
    "validation.max_tokens": Removed("the loss of 8,192 tokens is computed at a time"),
    "validation.watched": Removed("validation.metric has to improve", "metric"),
    "validation.least_improvement": Removed(
        "any improvement counts. Lower validation.patience to stop earlier", 0.0
    ),
    # Validation once had all settings of a search, and old runs keep them in their files.
    "search.n_best": Removed(ONE_BEST, 1),
    "search.unknown": Removed(ONE_BEST, False),
    "search.sample": Removed(ONE_BEST, False),
    "search.temperature": Removed(SAMPLING, 1.0),
    "search.top_k": Removed(ONE_BEST, 0),
    "search.top_p": Removed(SAMPLING, 1.0),
    "search.seed": Removed(ONE_BEST, 1),
    "search.combine": Removed("several models average their probabilities", "probability"),
    "search.weights": Removed("models have equal weights. Name a model twice to double its weight", []),
    "search.rows": Removed(BY_DEVICE),
    # nmt translate and nmt serve
    "search.kernels": Removed(
        "a GPU's kernels are tried at the start. NMT_KERNELS=plain uses PyTorch's operations only", "auto"
    ),
    "search.repetition_penalty": Removed(
        "repeated tokens are as likely as others. search.no_repeat_ngram=3 stops loops", 1.0
    ),
    "scorer.timeout": Removed("a command may print nothing for an hour"),
    "server.most_characters": Removed(
        "a request has up to 100,000 characters. A proxy may refuse long requests by their bytes", 100_000
    ),
    "server.load_seconds": Removed("a request waits 30 seconds for its model"),
    "significance.samples": Removed("a test has 1,000 resamples or 10,000 trials, as in sacrebleu", 0),
    "search.coverage_penalty": Removed(
        "scores do not depend on attention. A larger length penalty keeps more words", 0.0
    ),
    "search.diversity": Removed(
        "a beam has its best hypotheses. search.sample=true gives different translations", 0.0
    ),
    "search.tokens": Removed("a batch has 16,384 source tokens. Lower search.rows to make it smaller"),
    "search.graphs": Removed("every step launches its GPU kernels one by one"),
    "input.window": Removed("translation reads up to 8,192 lines ahead of its output"),
    "input.too_long": Removed("lines that are too long are translated in parts", "split"),
    "input.longest": Removed(
        "longer lines than in training are translated in parts. input.sentences=split makes more parts", 0
    ),
    "input.least_confidence": Removed(
        "no translation is flagged for its confidence. --format json has that of each line", 0.0
    ),
    "input.most_unknown": Removed("a warning reports that more than a tenth of the tokens is unknown"),
    "output.trees": Removed(
        "parses are linearised. Use recipes/parsing to write them in brackets", "linearised"
    ),
}
"""The removed settings by full name. A command may still have a setting that another command lost."""


def removed_from(section: str, names: Iterable[str]) -> dict[str, Removed]:
    """Return the removed settings among `names` of a section, by their bare names."""
    return {name: REMOVED[f"{section}.{name}"] for name in names if f"{section}.{name}" in REMOVED}


def removed_like(option: str, names: Collection[str]) -> str | None:
    """Return the removed setting that the option `option` names, such as "search.tokens" for "--tokens", or
    None. `names` are the options and settings of the command, which has no settings of other sections."""
    sections = {name.partition(".")[0] for name in names if not name.startswith("-")}
    plain = option.lstrip("-").replace("-", "_")
    return next(
        (
            name
            for name in REMOVED
            if plain in (name, name.partition(".")[2])
            and name not in names
            and name.partition(".")[0] in sections
        ),
        None,
    )
