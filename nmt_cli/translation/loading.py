"""Loading of models for translation on one or more devices."""

import os
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self
from weakref import WeakSet

import torch

from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.model_folder import TERMS, LoadedModel, read_model
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.engine.decoder import Decoder, may_use, unknown
from nmt_cli.engine.packing import KERNELS, Packed
from nmt_cli.errors import Caution, UserError
from nmt_cli.model.kernel_trials import Use
from nmt_cli.model.kernel_verdicts import failures, line
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import (
    Precision,
    current,
    first_devices,
    is_gpu,
    start_of_workers,
    usual_translating_precision,
)
from nmt_cli.runtime.kernels.compiling import prepare
from nmt_cli.runtime.kernels.families import FAMILIES, plain_only, refused
from nmt_cli.runtime.memory import return_free_memory
from nmt_cli.runtime.processes import StartMethod
from nmt_cli.runtime.threads import available_cores, restored_threads, set_own_threads
from nmt_cli.setting_values import check_section
from nmt_cli.translation.call_options import CallOptions
from nmt_cli.translation.text.model_glossary import Glossary
from nmt_cli.translation.text.ranking import Scorer, check_scorer, waits_for_mbr
from nmt_cli.translation.translator import TrainedOn, Translator
from nmt_cli.translation.workers.worker import Load

LOADED: WeakSet[Packed] = WeakSet()
"""The packed models in the memory of this process."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Models that translate together as an ensemble, with a copy on each GPU."""

    translator: Translator
    decoder: Decoder
    """The models of the ensemble on the first device."""

    workers: Sequence[Load]
    """Load the models of each worker. A worker is a GPU or a CPU thread. Workers on a CPU share `decoder`."""

    start: StartMethod | None
    """How to start several workers. None means as threads."""

    annotates: bool = False
    """Whether all models have learnt annotations of terms."""

    @property
    def models(self) -> Sequence[Transformer]:
        """The models of the ensemble on the first device, as modules that can be trained."""
        return self.decoder.models

    @property
    def ensemble(self) -> Ensemble:
        """The models on the first device as an ensemble."""
        return Ensemble(self.models)

    def directed(self, source: str | None, target: str | None) -> Self:
        """Return the same models for one of their directions. Raise `UserError` for an unknown language."""
        return replace(self, translator=self.translator.directed(source, target))

    def options(
        self, search: SearchConfig | None = None, aligned: bool = False, glossary: Glossary | None = None
    ) -> CallOptions:
        """Return how to translate the lines of a call, as `Translator.options` does. Raise `UserError` if the
        settings or the glossary do not suit the models."""
        check_section("search", search, SearchConfig)
        if search or glossary:
            search = search or self.translator.config.search
            if glossary:
                glossary.check(search, self.translator.tokenizers)
            _warn_of_fp32(self.decoder, search)
        return self.translator.options(search, aligned, glossary)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What models translate with."""

    device: str | torch.device
    """The kind of device as PyTorch names it, or "auto"."""

    count: int = 1
    """Number of GPUs."""

    threads: int = 0
    """Number of workers on a CPU, which share the models. 0 is one per core. Each GPU has one worker, and
    each worker of several GPUs loads its own models."""

    precision: Precision | None = None
    """None is fp16 on a GPU and fp32 on a CPU."""


def load(
    paths: Sequence[Path], config: TranslateConfig, hardware: Hardware, scorer: Scorer | None = None
) -> Loaded:
    """Read the models in `paths`, and prepare their weights for `hardware`. Several models are an ensemble.

    paths: model, checkpoint or run folders.
    scorer: ranks translations, if the settings ask for it.

    Raise `UserError` for an invalid folder, for different vocabularies, for too few GPUs, and for settings
    that do not suit the models or the scorer.
    """
    if not waits_for_mbr(config.search, scorer):
        check_scorer(config.search, scorer)
    threads = hardware.threads or available_cores()
    devices = first_devices(hardware.device, hardware.count)
    device, start = devices[0], start_of_workers(devices[0])
    precision = hardware.precision or usual_translating_precision(device)
    folders = [find_model(path) for path in paths]
    with restored_threads(), ThreadPoolExecutor(1) as executor:
        if not is_gpu(device):
            set_own_threads(1)
        # Compiled once, before worker processes are forked, and while this thread reads the weights.
        kernels = (KERNELS,) if may_use(len(paths), device, precision) else ()
        compiled = executor.submit(prepare, *kernels)
        read = [read_model(folder, device) for folder in folders]
        compiled.result()
        _refuse_different_vocabularies(paths, read)
        models = [model.transformer for model in read]
        decoder = Decoder.of(models, precision, read[0].shortlist)
    _warn_of_fp32(decoder, config.search)
    choose_kernels(models, device, FAMILIES if plain_only() else ())
    # Some model folders lack these values.
    longest = min(filter(None, (model.identity.trained_on.get("longest") for model in read)), default=None)
    ratio = max(model.identity.trained_on.get("length_ratio", 1.0) for model in read)
    # A calibration is valid only for the probabilities of the model that it was made for.
    calibration = read[0].identity.calibration if len(read) == 1 else None
    trained = TrainedOn(longest, ratio, calibration)
    translator = Translator(read[0].identity.tokenizers, models, config, trained, scorer)
    LOADED.update([decoder.packed] if decoder.packed else [])
    workers: Sequence[Load] = [partial(_only, decoder, os.getpid())] * (1 if is_gpu(device) else threads)
    # A step on a GPU is bound by the host. As threads of one process, two GPUs took 0.59 times the steps of
    # one.
    if start == "spawn" and len(devices) > 1:
        # A run replaces its links, and all workers must have the same checkpoint.
        fixed = [folder.resolve() for folder in folders]
        workers = [partial(models_on, fixed, one, precision, {*refused}) for one in devices]
    annotates = all(TERMS in model.identity.trained_on for model in read)
    return Loaded(translator, decoder, workers, start, annotates)


def _warn_of_fp32(decoder: Decoder, search: SearchConfig) -> None:
    """Warn if the weights have 8 bits, but the settings of a search need those of 32 bits."""
    if decoder.packed and decoder.packed.int8 and (names := unknown(search)):
        settings = ", ".join(f"search.{name}" for name in names)
        warnings.warn(
            f"int8 does not apply with {settings}: translating in fp32, which is slower",
            Caution,
            stacklevel=2,
        )


def _refuse_different_vocabularies(paths: Sequence[Path], models: Sequence[LoadedModel]) -> None:
    """Raise `UserError` if the models in `paths` have different vocabularies."""
    for path, model in zip(paths, models, strict=True):
        if model.identity.tokenizers.fingerprint != models[0].identity.tokenizers.fingerprint:
            raise UserError(
                f"{path} and {paths[0]} have different vocabularies. The models of an ensemble must be "
                "trained on the same dataset."
            )


def models_on(
    folders: Sequence[Path], device: torch.device, precision: Precision, avoided: Collection[str] = ()
) -> Decoder:
    """Return the models in `folders`, ready to translate on `device`, without the `avoided` kernels."""
    with current(device):  # Triton starts kernels on the current GPU
        decoder = Decoder.of([read_model(folder, device).transformer for folder in folders], precision)
        choose_kernels(decoder.models, device, avoided)
    return decoder


def _only(decoder: Decoder, loader: int) -> Decoder:
    """Return `decoder`, which the process `loader` has loaded.

    A worker that was forked from `loader` first frees the memory of all other models. Otherwise it would keep
    them in memory after `loader` unloads them.
    """
    if os.getpid() != loader and (others := [one for one in LOADED if one is not decoder.packed]):
        for other in others:
            other.release()
        return_free_memory()
    return decoder


def choose_kernels(models: Sequence[Transformer], device: torch.device, avoided: Collection[str]) -> None:
    """Try the kernels with the models on a GPU, and let this process use only those that work. Warn of the
    others.

    Families in `avoided` are neither tried nor used. The choice holds until the process ends.
    """
    refused.update(avoided)
    for model in models:
        entries, dtype = model.output_matrix.shape[0], model.output_matrix.dtype
        reasons = {} if "attention" in refused else failures(Use(model.config, dtype, entries, None), device)
        if reasons:
            refused.update(reasons)
            warnings.warn(line(reasons, device), Caution, stacklevel=2)
