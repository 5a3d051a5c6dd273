"""The settings of training: the sections of a recipe file."""

from dataclasses import dataclass, field
from typing import Literal

from nmt_cli.config import Section, changed, check, setting
from nmt_cli.data.config import BatchConfig, MixingConfig
from nmt_cli.decoding.config import BeamConfig
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.scoring.config import Metric
from nmt_cli.setting_values import Bounds
from nmt_cli.text.config import AugmentConfig, SamplingConfig

BETA1 = 0.9
"""Decay of Adam's running mean of gradients, as in the paper and in all presets."""

ValidationMetric = Literal[Metric, "nll", "comet"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LossConfig(Section):
    """The loss that training minimises."""

    section = "loss"

    smoothing: float = setting(0.1, Bounds(least=0, below=1), everyday=True)
    """Label smoothing. This fraction of the target probability is spread over the whole vocabulary."""

    r_drop: float = setting(0.0, Bounds(least=0))
    """Weight of R-Drop (Liang et al. 2021), usually 1 to 5. 0 disables it.

    Each step computes every pair twice, with different dropout masks. The loss is the mean of both losses,
    plus a quarter of the weight times the sum of the two KL divergences between both predictions. This is
    half of the paper's loss. A step takes twice the time.
    """

    @property
    def draws(self) -> int:
        """Draws of dropout for each pair: 2 with R-Drop, else 1."""
        return 2 if self.r_drop else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig(Section):
    """The optimiser. The defaults are those of the paper."""

    section = "optimizer"

    kind: Literal["adam", "adamw", "muon"] = setting("adam", kind="whole run")
    """Optimiser. AdamW applies weight decay apart from the gradients.

    Muon orthogonalises the steps of the weights of layers. Embeddings, output matrix, biases and norms use
    AdamW. The learning rate of Adam fits both.
    """

    beta2: float = setting(0.98, Bounds(least=0, below=1))
    """Decay of the running mean of squared gradients. That of gradients is 0.9, as in the paper. Muon has
    0.95 for the weights of layers."""

    epsilon: float = setting(1e-9, Bounds(above=0))
    """Added to the root of the mean squared gradient. Muon does without it."""

    weight_decay: float = setting(0.0, Bounds(least=0), needs="optimizer.kind=adamw")
    """Weight decay of adamw and muon. A step subtracts this times the learning rate from each weight."""

    clip_norm: float = setting(0.0, Bounds(least=0))
    """Clip the gradient norm to this value. 0, as in the paper, disables clipping."""

    ema: float = setting(0.0, Bounds(least=0, below=1))
    """Decay of a moving average of the weights. A usual value is 0.9999. 0 disables the average."""

    def __post_init__(self) -> None:
        check(self)
        if self.weight_decay and self.kind == "adam":
            raise UserError("weight_decay has no effect with adam. Set kind to adamw.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleConfig(Section):
    """The learning rate schedule."""

    section = "schedule"

    kind: Literal["noam", "inverse-sqrt", "linear", "cosine", "constant", "plateau"] = setting(
        "noam", everyday=True
    )
    """Schedule of the learning rate. Noam is the paper's. The others rise to `peak` first. Linear and cosine
    reach 0 at training.max_steps or training.max_hours, whichever comes first. Plateau halves the rate when
    validation.metric does not improve in three validations in a row."""

    factor: float = setting(1.0, Bounds(above=0))
    """Factor of the noam schedule. The learning rate is this times width^-0.5 times min(step^-0.5, step x
    warmup^-1.5)."""

    peak: float = setting(7e-4, Bounds(above=0), everyday=True, needs="schedule.kind=inverse-sqrt")
    """Peak learning rate, at the end of warm-up. Noam has a factor instead."""

    warmup: int = setting(4000, Bounds(least=0), everyday=True)
    """Steps of warm-up, in which the learning rate rises from 0. Linear and cosine end it early in a short
    run: after a tenth of training.max_hours, or of training.max_steps if it would take over half of them."""

    decay_start: int = setting(0, Bounds(least=0), needs="schedule.kind=inverse-sqrt")
    """Step at which inverse-sqrt begins to fall. 0 is the end of warm-up."""

    def __post_init__(self) -> None:
        check(self)
        if self.kind == "noam" and not self.warmup:  # the rule divides by it
            raise UserError("warmup is 0. With noam, it must be at least 1.")
        if self.kind == "noam" and changed(self, "peak"):
            raise UserError("peak has no effect with noam, which has factor. Set kind to inverse-sqrt.")
        if self.decay_start and self.kind != "inverse-sqrt":
            raise UserError(f"decay_start has no effect with {self.kind}. Set kind to inverse-sqrt.")
        if self.kind != "noam" and changed(self, "factor"):
            raise UserError(f"factor has no effect with {self.kind}, which has peak. Leave it out.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig(Section):
    """Length, precision and hardware of the run."""

    section = "training"

    max_steps: int = setting(100_000, Bounds(least=1))
    """Total number of training steps."""

    max_epochs: int = setting(0, Bounds(least=0))
    """Maximum number of epochs. 0 for no limit."""

    max_hours: float = setting(0.0, Bounds(least=0))
    """Maximum hours of the run, with its resumed parts. 0 for no limit."""

    seed: int = setting(1, Bounds(least=0), kind="whole run")
    """Seed of the weights, batches and dropout."""

    max_tokens_per_device: int = setting(0, Bounds(least=0))
    """Maximum source plus target tokens of a micro-batch. R-Drop counts each pair twice. 0 finds how many fit
    a GPU, and means 8,192 on a CPU."""

    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = setting("auto", everyday=True)
    """Precision of matrix products.

    Auto is bf16 on a GPU that has it, and fp16 on other GPUs. On a CPU, it is bf16 where that is faster,
    with AMX or on AMD's with AVX-512 bf16, else fp32. A resumed run on a CPU keeps its precision. With tf32,
    a GPU rounds the factors of fp32 products to 10 bits, which is faster than fp32.
    """

    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the model with torch.compile. Auto compiles on GPUs."""

    deterministic: bool = False
    """Refuse operations whose results differ from run to run."""

    guided_alignment: float = setting(0.0, Bounds(least=0), kind="whole run")
    """Weight of guided alignment, usually 0.1. 0 disables it.

    The first head of the last decoder layer learns the alignments of the dataset, which `corpus.align` or
    `corpus.alignments` of nmt preprocess adds. Tags and alignments of translations then use this head. Its
    cross-entropy with the alignments, times the weight, adds to the loss of each target token.
    """

    tensorboard: bool = False
    """Write TensorBoard files to the run folder. Needs the extra '.[tensorboard]'."""

    wandb: bool = False
    """Send the curves to Weights & Biases. WANDB_MODE=offline keeps them in the run folder. Needs the extra
    '.[wandb]'."""

    log_every: int = setting(100, Bounds(least=1))
    """Steps between progress lines. log.jsonl has every step."""

    gradient_sums: Literal["fp32", "bf16"] = "fp32"
    """Format in which processes send each other gradients. bf16 halves the time, which is long between GPUs
    without NVLink, and rounds sums to 8 bits."""

    rank_timeout: float = setting(600.0, Bounds(above=0))
    """Seconds that a process waits for the others. After that the run ends. The limit is twelve times as long
    while they compile at the start, validate or save."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationConfig(Section):
    """Validation during training."""

    section = "validation"

    every_steps: int = setting(1000, Bounds(least=0))
    """Steps between validations. 0 for none. The last step validates too."""

    metric: ValidationMetric = setting("bleu", kind="whole run", everyday=True)
    """Metric of the best checkpoint, on the first validation set. Patience and plateau watch it too. Comet
    needs validation.metric_model."""

    metric_model: str = ""
    """Folder of a COMET model, as for `nmt score`. Whatever the metric, its scores are logged.

    The model stays in main memory of the first rank, and is on its GPU only while it scores.
    """

    patience: int = setting(0, Bounds(least=0), everyday=True)
    """Stop after N validations without improvement. 0 for never."""

    sentences: int = setting(0, Bounds(least=0), kind="whole run")
    """Sentences of each set to translate. 0 for all. The loss is always that of all sentences."""

    def __post_init__(self) -> None:
        check(self)
        if self.metric == "comet" and not self.metric_model:
            raise UserError("metric=comet needs the folder of a COMET model. Set metric_model.")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig(Section):
    """When checkpoints are saved, and which are kept. Without an interval, a checkpoint is saved every ten
    minutes. If steps take longer, every step is saved. With several devices, every second step is."""

    section = "checkpoints"

    every_steps: int = setting(0, Bounds(least=0))
    """Steps between checkpoints. 0 saves by minutes. The last step always saves."""

    keep_last: int = setting(5, Bounds(least=1), everyday=True)
    """Keep this many newest checkpoints."""

    keep_best: int = setting(1, Bounds(least=0))
    """Keep this many best checkpoints, by validation.metric. They are saved when they are found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartConfig(Section):
    """The model that a run starts from, and the part of it that does not change."""

    section = "start"

    model: str = setting("", kind="whole run")
    """Start from the weights of this model, checkpoint or run."""

    take: tuple[Literal["optimizer", "schedule", "data"], ...] = setting((), kind="whole run")
    """What the run takes from start.model besides the weights. Start.model must be a checkpoint or run.

    "optimizer" is the optimiser's state, with the loss scale and the moving average. "schedule" is the number
    of steps and hours, so the learning rate continues. "data" is the position in the same dataset. With all
    three, the steps are those of a resumed run in the same precision. Validations and patience start again.
    """

    freeze: tuple[str, ...] = ()
    """Parameters that training does not change. A `*` stands for any text: "encoder.*"."""

    def __post_init__(self) -> None:
        if self.take and not self.model:
            needed = "without a model to start from (--init-from)"
            raise UserError(f"take has no effect {needed}. Leave it out.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """All settings of `nmt train`."""

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
    def is_timed(self) -> bool:
        """True if the learning rate depends on the used fraction of training.max_hours."""
        return self.training.max_hours > 0 and self.schedule.kind in ("linear", "cosine")

    @property
    def watches(self) -> bool:
        """True if early stopping or the plateau schedule watches the validations."""
        return bool(self.validation.patience) or self.schedule.kind == "plateau"

    def __post_init__(self) -> None:
        """Raise `UserError` for patience or plateaus without validation, and linear or cosine with
        max_epochs. Refuse sentences longer than the positions."""
        if self.watches and not self.validation.every_steps:
            raise UserError(
                "validation.patience and the plateau schedule have nothing to watch without validation. "
                "Set validation.every_steps."
            )
        if self.schedule.kind in ("linear", "cosine") and self.training.max_epochs:
            raise UserError(
                f"a {self.schedule.kind} schedule has to know the last step. "
                "Give training.max_steps in place of max_epochs."
            )
        dropouts = [name for name in type(self.model).__dataclass_fields__ if name.endswith("_dropout")]
        if self.loss.r_drop and not any(getattr(self.model, name) for name in dropouts):
            problem = f"loss.r_drop={self.loss.r_drop} has no effect without dropout"
            raise UserError(f"{problem}. Set model.residual_dropout, or leave it out.")
        limit = self.batch.max_length
        if 0 < self.model.limit < limit:
            raise UserError(
                f"batch.longest allows sentences of {limit} tokens, but model.longest has only "
                f"{self.model.longest} positions. Lower the former, or raise the latter."
            )
