"""Loads models from their folders, for translating on one or more devices."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nmt_cli.attention.cached import kernels
from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.fast.packed import pack
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision, first_devices, is_gpu, usual_translating_precision
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.threads import available_cores, kept_threads, set_own_threads
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.translation.translator import Translator


@dataclass(frozen=True, slots=True)
class Where:
    """The devices and the precision to translate with."""

    device: str
    """cpu, cuda, or auto: cuda where there is one."""

    devices: int
    threads: int
    """On a CPU, how many workers there are, with a thread each; 0 for as many as this process may use
    cores."""

    precision: Precision | None
    """None for fp16 on a GPU, and fp32 elsewhere."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Models that translate together, a copy of them on each device."""

    translator: Translator
    workers: Sequence[Sequence[Transformer]]
    """For each worker the models it translates with: one for each GPU, or for each thread of the processor.
    Those on a CPU share their models."""

    @property
    def models(self) -> Sequence[Transformer]:
        """The copies on the first device."""
        return self.workers[0]

    @property
    def ensemble(self) -> Ensemble:
        """The models on the first device, combined as the settings say."""
        return Ensemble.of(self.models, self.translator.config.search)

    def searching(self, search: SearchConfig | None) -> Translator:
        """The translator, with other settings of the search if there are any."""
        if not search:
            return self.translator
        Ensemble.of(self.models, search)  # refuses settings that do not suit the models
        return self.translator.searching(search)


def load(paths: Sequence[Path], config: TranslateConfig, where: Where) -> Loaded:
    """Read the models in `paths`, as `find_model` finds them, and lay out their weights for translating."""
    cores = available_cores()
    threads = where.threads or cores
    copies = []
    devices = first_devices(where.device, where.devices)
    # Weights get a layout for the number of threads that PyTorch computes with at the time, and a worker
    # on a CPU computes with one.
    with kept_threads(), ThreadPoolExecutor(1) as meanwhile:
        if not is_gpu(devices[0]):
            compiled = meanwhile.submit(
                lambda: (kernels(), compiled_kernels("decoding.search"))
            )  # here and once: worker processes are forked from this one
        for device in devices:
            if not is_gpu(device):
                set_own_threads(1)
            tokenizers, models, told = _read(paths, device)
            for model in models:
                pack(model, where.precision or usual_translating_precision(device), min(threads, cores))
            Ensemble.of(models, config.search)  # refuses settings that do not suit the models
            copies.append(models)
    # Not every model folder tells.
    trained = min(filter(None, (one.get("longest") for one in told)), default=None)
    ratio = max(one.get("length_ratio", 1.0) for one in told)
    translator = Translator(tokenizers, models, config, trained, ratio)
    if not is_gpu(device):
        compiled.result()
        return Loaded(translator, copies * threads)
    return Loaded(translator, copies)


def _read(
    paths: Sequence[Path], device: torch.device
) -> tuple[Tokenizers, list[Transformer], list[Mapping[str, Any]]]:
    """The tokenisers, the models, and what each was trained on."""
    places = [find_model(path) for path in paths]
    read = [read_model(place, device) for place in places]
    first = read[0].identity.tokenizers
    for path, model in zip(paths, read, strict=True):
        if model.identity.tokenizers.fingerprint != first.fingerprint:
            raise UserError(
                f"{path} has another vocabulary than {paths[0]}; an ensemble needs models that were trained "
                "on one dataset."
            )
    return first, [model.transformer for model in read], [model.identity.trained_on for model in read]
