"""Loading of models for translation on one or more devices."""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt_cli.attention.cached import kernels
from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.model_folder import Model, read_model
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.fast.packed import pack
from nmt_cli.errors import Caution, UserError
from nmt_cli.kernel_checks.trials import Use
from nmt_cli.kernel_checks.verdicts import failures, line
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision, first_devices, is_gpu, usual_translating_precision
from nmt_cli.runtime.kernels.families import FAMILIES, refused
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.threads import available_cores, restored_threads, set_own_threads
from nmt_cli.translation.translator import Translator


@dataclass(frozen=True, slots=True)
class Where:
    """The devices and the numeric precision to translate with."""

    device: str
    """One of "cpu", "cuda" and "auto", which means "cuda" if there is a GPU."""

    devices: int
    """Number of GPUs."""

    threads: int
    """Number of workers on a CPU, with one thread each. 0 means one per available core."""

    precision: Precision | None
    """None means fp16 on a GPU and fp32 on a CPU."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Models that translate together as an ensemble, with a copy on each GPU."""

    translator: Translator
    workers: Sequence[Sequence[Transformer]]
    """The models of each worker. A worker is a GPU, or a CPU thread. Workers on a CPU share their models."""

    @property
    def models(self) -> Sequence[Transformer]:
        """The models of the ensemble on the first device."""
        return self.workers[0]

    @property
    def ensemble(self) -> Ensemble:
        """The models on the first device as an ensemble."""
        return Ensemble.of(self.models, self.translator.config.search)

    def searching(self, search: SearchConfig | None, aligned: bool = False) -> Translator:
        """Return a translator with the settings `search`, by default the present ones. If `aligned`, the best
        translation of each sentence has its attention to the source. Raise `UserError` if the settings do not
        suit the models."""
        if not search and not aligned:
            return self.translator
        search = search or self.translator.config.search
        Ensemble.of(self.models, search)  # raises UserError if the settings do not suit the models
        return self.translator.searching(search, aligned)


def load(paths: Sequence[Path], config: TranslateConfig, where: Where) -> Loaded:
    """Read the models in `paths`, each a model, checkpoint or run folder, and prepare their weights for
    `where`. Several models are an ensemble. Each GPU has a copy. The workers of a CPU share the models. Raise
    `UserError` for invalid folders, different vocabularies or too few GPUs. Also raise `UserError` for
    settings of `config` that do not suit the models."""
    cores = available_cores()
    threads = where.threads or cores
    copies = []
    devices = first_devices(where.device, where.devices)
    # PyTorch packs weights for its current number of threads, and a worker on a CPU has one thread.
    with restored_threads(), ThreadPoolExecutor(1) as executor:
        if not is_gpu(devices[0]):
            compiled = executor.submit(
                lambda: (kernels(), compiled_kernels("model.tree"), compiled_kernels("decoding.search"))
            )  # compiled once, before worker processes are forked
        for device in devices:
            if not is_gpu(device):
                set_own_threads(1)
            read = _read(paths, device)
            models = [model.transformer for model in read]
            for model in models:
                pack(model, where.precision or usual_translating_precision(device), min(threads, cores))
            choose_kernels(models, device, config.search.kernels)
            Ensemble.of(models, config.search)  # raises UserError if the settings do not suit the models
            copies.append(models)
    # Some model folders lack these values.
    trained = min(filter(None, (one.identity.trained_on.get("longest") for one in read)), default=None)
    ratio = max(one.identity.trained_on.get("length_ratio", 1.0) for one in read)
    translator = Translator(read[0].identity.tokenizers, models, config, trained, ratio)
    if not is_gpu(device):
        compiled.result()
        return Loaded(translator, copies * threads)
    return Loaded(translator, copies)


def choose_kernels(models: Sequence[Transformer], device: torch.device, setting: str) -> None:
    """Let this process use kernels that work for the models on a GPU, and warn of others. `setting` is
    search.kernels. Other kernels stay unused until the process ends."""
    if setting == "plain":
        refused.update(FAMILIES)
    for model in models:
        entries, dtype = model.output_matrix.shape[0], model.output_matrix.dtype
        reasons = {} if "attention" in refused else failures(Use(model.config, dtype, entries, None), device)
        if reasons:
            refused.update(reasons)
            warnings.warn(line(reasons, device), Caution, stacklevel=2)


def _read(paths: Sequence[Path], device: torch.device) -> list[Model]:
    """Return the model of each path on `device`. Raise `UserError` if a folder has no model, or if the models
    have different vocabularies."""
    models = [read_model(find_model(path), device) for path in paths]
    for path, model in zip(paths, models, strict=True):
        if model.identity.tokenizers.fingerprint != models[0].identity.tokenizers.fingerprint:
            raise UserError(
                f"{path} and {paths[0]} have different vocabularies. The models of an ensemble must be "
                "trained on the same dataset."
            )
    return models
