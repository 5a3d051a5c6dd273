"""What training needs to be told; composes the sections of a recipe file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from nmt_cli.config import Gone, changed, check, setting
from nmt_cli.data.config import BatchConfig, MixingConfig
from nmt_cli.decoding.config import BeamConfig
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.scoring.config import BleuTokenizer
from nmt_cli.text.config import AugmentConfig, SamplingConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class LossConfig:
    """What is minimised."""

    smoothing: float = setting(0.1, least=0, below=1, everyday=True)
    """Share of the target probability that label smoothing spreads over the whole vocabulary."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """How gradients become steps; the defaults are the paper's."""

    kind: Literal["adam", "adamw"] = setting("adam", kind="whole run")
    """Adam, or AdamW, whose weight decay is apart from the gradients."""

    beta1: float = setting(0.9, least=0, below=1)
    """How much of the mean gradient stays from step to step."""

    beta2: float = setting(0.98, least=0, below=1)
    """The same for the mean squared gradient."""

    epsilon: float = setting(1e-9, least=0)
    """Added to the root of the mean squared gradient."""

    weight_decay: float = setting(0.0, least=0, needs="optimizer.kind=adamw")
    """Share of the weights that is taken off, times the learning rate; for adamw."""

    clip_norm: float = setting(0.0, least=0)
    """Longer gradients are scaled down to this norm; 0 for none, as in the paper."""

    split: bool = False
    """Let each process keep and update only its share of the optimiser's state, so that more tokens fit; the
    weights come out the same."""

    ema: float = setting(0.0, least=0, below=1)
    """Share of a moving average of the weights that stays from step to step, such as 0.9999; 0 for none."""

    def __post_init__(self) -> None:
        check(self)
        if self.weight_decay and self.kind == "adam":
            raise UserError("weight_decay has no effect with adam; set kind to adamw.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig:
    """The learning rate of each step."""

    kind: Literal["noam", "inverse-sqrt", "linear", "cosine", "constant", "plateau"] = setting(
        "noam", everyday=True
    )
    """The paper's (noam), or up to `peak` and then as named. Linear and cosine reach 0 at the end: at
    training.max_steps or training.max_hours, whichever comes first. Plateau waits for validation.watched."""

    factor: float = setting(1.0, above=0)
    """Noam: the rate is this times width^-0.5 times min(step^-0.5, step x warmup^-1.5)."""

    peak: float = setting(7e-4, above=0, everyday=True, needs="schedule.kind=inverse-sqrt")
    """The largest rate, at the end of the warm-up; not for noam, where it follows from the factor."""

    warmup: int = setting(4000, least=0, everyday=True)
    """Steps over which the rate rises from 0."""

    decay: float = setting(0.5, above=0, below=1, needs="schedule.kind=plateau")
    """Plateau: what the rate is multiplied by each time."""

    patience: int = setting(3, least=1, needs="schedule.kind=plateau")
    """Plateau: validations in a row without improvement, warm-up not counted, that lower the rate."""

    def __post_init__(self) -> None:
        check(self)
        if self.kind == "noam" and not self.warmup:  # the rule divides by it
            raise UserError("warmup is 0; with noam take at least 1.")
        if self.kind == "noam" and changed(self, "peak"):
            raise UserError("peak has no effect with noam, which has factor; set kind to inverse-sqrt.")
        if self.kind != "noam" and changed(self, "factor"):
            raise UserError(f"factor has no effect with {self.kind}, which has peak; leave it out.")
        if self.kind != "plateau" and changed(self, "decay", "patience"):
            raise UserError(f"decay and patience have no effect with {self.kind}; set kind to plateau.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """How long, in which numbers, and on what."""

    max_steps: int = setting(100_000, least=1)
    """Steps of the whole run."""

    max_epochs: int = setting(0, least=0)
    """Epochs of the whole run, if they end first; 0 for no limit."""

    max_hours: float = setting(0.0, least=0)
    """Hours of the whole run, resumed ones added up, if they end first; 0 for no limit."""

    seed: int = setting(1, least=0, kind="whole run")
    """Decides weights, batches and dropout."""

    max_tokens_per_device: int = setting(0, least=0)
    """Most source plus target tokens of a micro-batch; 0 finds what fits a GPU, and is 8,192 on a CPU."""

    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting("auto", everyday=True)
    """Numbers of the matrix products; auto is bf16 on a GPU that has it, fp16 on others, fp32 on a CPU."""

    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the model with torch.compile; auto is on for GPUs."""

    deterministic: bool = False
    """Refuse operations on the GPU whose results differ from run to run."""

    tensorboard: bool = False
    """Write the curves for TensorBoard too, in tensorboard/ of the run. Needs the extra '.[tensorboard]'."""

    wandb: bool = False
    """Send the curves to Weights & Biases too, or keep them with WANDB_MODE=offline. Needs the extra
    '.[wandb]'."""

    log_every: int = setting(100, least=1)
    """Steps between two lines on the screen; log.jsonl has them all."""

    rank_timeout: float = setting(120.0, above=0)
    """Seconds that a rank waits for the others before the run ends; sixty times as many where they validate
    or save."""

    gone: ClassVar[Mapping[str, Gone]] = {
        "give_up_after": Gone("ten steps in a row that are not finite end a run", 10),
        "graphs": Gone("every step asks the GPU for its launches one by one"),
    }

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationConfig:
    """How the model is judged during training."""

    every_steps: int = setting(1000, least=0)
    """Steps between two validations; the last step validates too. 0 for never."""

    metric: Literal["bleu", "chrf", "nll"] = setting("bleu", kind="whole run", everyday=True)
    """What the best checkpoint is best at, on the first validation set."""

    bleu_tokenizer: BleuTokenizer = setting("auto", kind="whole run")
    """How BLEU splits both sides into words; auto is as in `nmt score`, or char where a language's own
    tokeniser is not installed."""

    watched: Literal["metric", "bleu", "chrf", "nll", "perplexity", "word-perplexity"] = "metric"
    """What has to improve, for `patience` and the plateau schedule; metric is the one above."""

    patience: int = setting(0, least=0, everyday=True)
    """So many validations in a row without improvement end the run; 0 for never."""

    sentences: int = setting(0, least=0, kind="whole run")
    """Translate only that many sentences of each set; 0 for all. The loss is always that of all."""

    gone: ClassVar[Mapping[str, Gone]] = {
        "max_tokens": Gone("the loss of 8,192 tokens is computed at a time"),
        "least_improvement": Gone("any improvement counts; lower validation.patience to stop earlier", 0.0),
    }

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """When to save, and what to keep."""

    every_steps: int = setting(0, least=0)
    """Steps between two checkpoints; 0 for none by steps. The last step always saves."""

    every_minutes: float = setting(10.0, above=0)
    """Minutes between two checkpoints, where it is not by steps; the paper's base model saves every ten."""

    keep_last: int = setting(5, least=1, everyday=True)
    """The newest so many checkpoints stay."""

    keep_best: int = setting(1, least=0)
    """The best so many by the validation metric stay as well; they are saved when they are found."""

    def __post_init__(self) -> None:
        check(self)
        if self.every_steps and changed(self, "every_minutes"):
            raise UserError("every_minutes has no effect where every_steps decides; leave one of them out.")


@dataclass(frozen=True, kw_only=True, slots=True)
class StartConfig:
    """What a run starts from. Names of parameters may have `*` in them: "encoder.*"."""

    model: str = setting("", kind="whole run")
    """A model, checkpoint or run folder whose weights the run starts from."""

    allow: tuple[str, ...] = setting((), kind="whole run")
    """Parameters that may be missing there, be surplus, or have another shape; they are drawn anew."""

    freeze: tuple[str, ...] = ()
    """Parameters that training leaves as they are."""

    def __post_init__(self) -> None:
        if self.allow and not self.model:
            raise UserError("allow has no effect without a model to start from (--init-from); leave it out.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """Everything that decides what `nmt train` makes of a dataset."""

    model: ModelConfig = field(default_factory=ModelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    mixing: MixingConfig = field(default_factory=MixingConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    search: BeamConfig = field(default_factory=BeamConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    start: StartConfig = field(default_factory=StartConfig)

    @property
    def watches(self) -> bool:
        """Whether anything depends on validation getting better."""
        return bool(self.validation.patience) or self.schedule.kind == "plateau"

    def __post_init__(self) -> None:
        if self.watches and not self.validation.every_steps:
            raise UserError(
                "validation.patience and the plateau schedule have nothing to watch without validation; "
                "set validation.every_steps."
            )
        if self.schedule.kind in ("linear", "cosine") and self.training.max_epochs:
            raise UserError(
                f"a {self.schedule.kind} schedule has to know the last step; "
                "give training.max_steps in place of max_epochs."
            )
        if self.model.residual_stream == "bf16" and self.training.precision in ("fp32", "fp16"):
            raise UserError(
                f"model.residual_stream=bf16 has no effect with training.precision={self.training.precision};"
                " leave one of them out."
            )
        # A sentence of more tokens than a batch holds is left out too.
        most = min(self.batch.longest, self.batch.tokens)
        if 0 < self.model.limit < most:
            raise UserError(
                f"batch.longest lets sentences of {most} tokens in, but model.longest has only "
                f"{self.model.longest} positions for them; lower the one, or raise the other."
            )
