"""The models of the server. Beyond a limit of memory, models load when needed and unload when idle."""

import asyncio
import math
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from nmt_cli.api import Model, UserError
from nmt_cli.runtime.memory import resident_memory, return_free_memory
from nmt_cli.serving.config import ServerConfig
from nmt_cli.serving.refused import Refused
from nmt_cli.text.tokenizers import Recipe

RETRY_SECONDS = 10
"""Value of the `Retry-After` header. A model that failed to load is not loaded again before."""

LOAD_SECONDS = 30.0
"""Maximum time that a request waits for its model, in seconds."""

CHECK_SECONDS = 1.0
"""Time from the end of a request to the next look at the memory, in seconds."""


class Served:
    """A model of the server, loaded or not."""

    def __init__(
        self, recipe: Recipe, load: Callable[[], Model], size: int = 0, model: Model | None = None
    ) -> None:
        """Describe a model, which need not be loaded.

        recipe: names the languages of the model.
        load: returns the model.
        size: bytes of its weights.
        model: the model, if it is loaded already.
        """
        self.load, self.size, self.model = load, size, model
        self.languages = recipe.source_lang, recipe.target_lang
        """Source and target. "mul" stands for several languages."""

        self.directions = recipe.own_languages.directions
        """All pairs of a source and a target language."""

        self.is_plain = len(self.directions) == 1 or self.languages not in self.directions
        """Whether the model translates from and into `languages` without a symbol that the server adds."""

        self.needs_direction = recipe.needs_direction
        """Whether a request must name both languages."""

        self.requests = self.wanted = 0
        """Number of requests that use the model, and of those that use it or wait for it."""

        self.last_use = self.failure = -math.inf
        """Times of `time.monotonic`: the latest request, and the latest loading that failed."""

        self.leaving = False
        """Whether the model is unloaded once its requests have ended. New requests wait, then load it."""

    @property
    def name(self) -> str:
        """The languages with a hyphen between them, for example "en-de"."""
        return "-".join(self.languages)

    @property
    def usable(self) -> bool:
        """Whether a request may use the model."""
        return self.model is not None and not self.leaving

    def open(self) -> None:
        """Load the model and start its workers. Raise `UserError` if it has other languages now."""
        try:
            model = self.load()
            # The folder may have been replaced since the start, and would be served as the old pair.
            if (model.languages, model.directions) != (self.languages, self.directions):
                model.close()
                pair = "-".join(model.languages)
                raise UserError(f"its folder now has a model for {pair}. Start nmt serve again.")
            model.start()
        except Exception:
            self.failure = time.monotonic()
            raise
        self.model = model

    def close(self) -> None:
        """Unload the model, if it is loaded, and return its memory to the system."""
        if self.model:
            self.model.close()
            self.model = None
            return_free_memory()

    async def unload(self) -> None:
        """Unload the model once its requests have ended."""
        self.leaving = True
        try:
            while self.requests:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(self.close)
        finally:
            self.leaving = False


class Leg(NamedTuple):
    """A model of the server, and the direction in which it translates."""

    served: Served
    source: str
    target: str

    def opened(self) -> Model:
        """Return the loaded model for the direction."""
        assert self.served.model
        plain = self.served.is_plain and (self.source, self.target) == self.served.languages
        return self.served.model if plain else self.served.model.direction(self.target, self.source)


class Models:
    """The models of the server, which are loaded when requests need them.

    Beyond the limit `server.memory`, models are unloaded whose last use is longest ago, after their requests
    have ended. Memory is measured before a model is loaded, and after requests, since models grow with their
    work. One event loop calls all methods.
    """

    def __init__(self, served: Sequence[Served], config: ServerConfig) -> None:
        """`served` are all models, and `config` has the limit of memory."""
        self._served, self._limit = served, config.memory * 1e9
        self._changing = asyncio.Lock()
        """Held while models are loaded and unloaded, so that a model is loaded once."""

        self._tasks: dict[tuple[Served, ...], asyncio.Task[Refused | None]] = {}
        """The task that loads the models of a direction. All requests for the direction wait for it."""

        self._latest: Sequence[Served] = ()
        """The models of the latest request, which stay loaded also beyond the limit."""

        self._check: asyncio.Task[None] | None = None
        """The task that measures the memory soon, or has done so."""

        self.loads = sum(one.model is not None for one in served)
        """Number of loaded models since the start."""

    @property
    def loaded(self) -> int:
        """The number of models that are loaded now."""
        return sum(one.model is not None for one in self._served)

    @property
    def restarts(self) -> int:
        """Number of worker processes of the loaded models that died and were replaced."""
        return sum(one.model.restarts for one in self._served if one.model)

    @asynccontextmanager
    async def using(self, legs: Sequence[Leg]) -> AsyncGenerator[list[Model]]:
        """Yield the models of `legs`, each for its direction. They stay loaded in the block. Wait until they
        are loaded. Raise `Refused` (503) after `LOAD_SECONDS`, or if loading fails."""
        needed = [*dict.fromkeys(leg.served for leg in legs)]  # a model may be both legs of a pivot
        self._latest = needed
        for one in needed:
            one.wanted, one.last_use = one.wanted + 1, time.monotonic()
        try:
            # A model counts as used only when all are loaded. Two requests that each use one model and wait
            # for another would wait forever.
            await self._wait_for(needed)
            for one in needed:
                one.requests += 1
            try:
                yield [leg.opened() for leg in legs]
            finally:
                for one in needed:
                    one.requests -= 1
        finally:
            for one in needed:
                one.wanted -= 1
            # Models grow with their work: below a limit of 0.43 GB, five small ones grew to 535 MB.
            if self._limit and (not self._check or self._check.done()):
                self._check = asyncio.create_task(self._unload_idle())

    async def _wait_for(self, needed: Sequence[Served]) -> None:
        """Wait until all of `needed` are usable. Raise `Refused` (503) as `using` does."""
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                await self._all_usable(tuple(needed))
        except TimeoutError as error:
            raise _not_loaded(needed, f"is not loaded within {LOAD_SECONDS:g} s") from error

    async def _all_usable(self, needed: tuple[Served, ...]) -> None:
        """Wait until all of `needed` are usable. Raise `Refused` (503) if they cannot be loaded."""
        while not all(one.usable for one in needed):
            if needed not in self._tasks:
                self._tasks[needed] = asyncio.create_task(self._bring(needed))
            # Loading continues if the client disconnects. The next request then finds the model.
            if refused := await asyncio.shield(self._tasks[needed]):
                raise refused

    async def _bring(self, needed: tuple[Served, ...]) -> Refused | None:
        """Load those of `needed` that are not loaded. Return why this fails, or None."""
        try:
            async with self._changing:
                missing = [one for one in needed if not one.model]
                if any(time.monotonic() < one.failure + RETRY_SECONDS for one in missing):
                    return _not_loaded(needed, "cannot be loaded")
                await asyncio.wait_for(self._make_room(needed, missing), LOAD_SECONDS)
                for one in missing:
                    await asyncio.to_thread(one.open)
                    self.loads += 1
        except TimeoutError:
            return _not_loaded(needed, "does not fit into memory beside the running requests")
        except Exception as error:
            reason = error.message if isinstance(error, UserError) else error
            print(
                f"Error: the model for {_names(needed)} cannot be loaded: {reason}",
                file=sys.stderr,
                flush=True,
            )
            return _not_loaded(needed, "cannot be loaded")
        finally:
            del self._tasks[needed]
        return None

    async def _make_room(self, needed: Sequence[Served], missing: Sequence[Served]) -> None:
        """Unload models until there is memory for those `missing`, or until only `needed` ones are loaded.
        Idle models are unloaded first, and others once their requests have ended."""
        size = sum(one.size for one in missing)
        while missing and (others := [one for one in self._served if one.model and one not in needed]):
            if await asyncio.to_thread(resident_memory) + size <= self._limit:
                return
            await min(others, key=lambda one: (one.requests > 0, one.last_use)).unload()

    async def _unload_idle(self) -> None:
        """After `CHECK_SECONDS`, unload idle models until the memory is within the limit. Models of the
        latest request stay loaded, and so do those that a request uses or waits for."""
        await asyncio.sleep(CHECK_SECONDS)
        async with self._changing:
            while idle := [
                one for one in self._served if one.model and not one.wanted and one not in self._latest
            ]:
                if await asyncio.to_thread(resident_memory) <= self._limit:
                    return
                await min(idle, key=lambda one: one.last_use).unload()


def _names(models: Sequence[Served]) -> str:
    """Return the languages of models, for example "fr-en or en-de"."""
    return " or ".join(one.name for one in models)


def _not_loaded(needed: Sequence[Served], reason: str) -> Refused:
    message = f"The model for {_names(needed)} {reason}. Try again in {RETRY_SECONDS} s."
    return Refused(503, message, RETRY_SECONDS)
