"""Changes of the models of an `AllRounder`: reserve, build, switch in one step, drain and close the old pipes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import hami

from hami_serve.building import build
from hami_serve.capacity import Limits
from hami_serve.failures import line_of
from hami_serve.model import Model, Version
from hami_serve.registry import Registry
from hami_serve.source import ComponentSpec
from hami_serve.threads import Threads

MAX_LOADS = 32  # that requests have started, at a time; a load that hangs keeps its thread
log = logging.getLogger("hami.serve")


class Changes:
    """Builds and ends models. One change of a component is made at a time; those of others go on beside it.

    Requests never wait for a change. A request that loads its model makes no change: it builds beside the changes, and
    its model becomes ready if no change has taken the place meanwhile.
    """

    def __init__(self, registry: Registry, limits: Limits, drain_timeout: float) -> None:
        self.drain_timeout = drain_timeout
        self._registry = registry
        self._limits = limits
        self._threads = Threads("hami-serve-load", MAX_LOADS)
        self._free = threading.Condition()
        self._changing: set[str] = set()  # names of components

    @contextmanager
    def of(self, names: Callable[[], Collection[str]]) -> Iterator[None]:
        """Wait for the changes of these components, and let others wait until the end of the block.

        Args:
            names: Returns the components; other changes can add some and remove some while this one waits.
        """
        with self._free:
            while (wanted := set(names())) & self._changing:
                self._free.wait()
            self._changing |= wanted
        try:
            yield
        finally:
            with self._free:
                self._changing -= wanted
                self._free.notify_all()

    def replace(
        self,
        places: Mapping[tuple[str, str], Version],
        removed: Iterable[Model] = (),
        routing: Mapping[str, ComponentSpec] | None = None,
        *,
        partly: bool = False,
    ) -> list[Model]:
        """Build a model for each place, switch to all of them in one step, and end what they replace.

        Models that exceed the limits together are not built: their first request loads them. With `partly`, a model
        that cannot be built fails alone, as long as another one is built or left to its first request.
        """
        removed = list(removed)
        models = [self._registry.new(component, version, what) for (component, version), what in places.items()]
        try:
            self._limits.check(models)
            loaded = self._limits.fitting(models)
            if loaded:
                self.end(self._registry.reserve(loaded, removed))
            described = [model for model in models if model not in loaded]
            built, errors = self._built(loaded, partly and len(models) > 1)
            if errors and not (built or described):
                raise errors[0]
            draining = self._registry.switch(built, removed, described=described, routing=routing)
        except BaseException as error:
            for model in models:
                self._failed(model, error, restore=len(models) > 1)
            raise
        self.end(draining)
        return models

    def _built(self, models: Sequence[Model], partly: bool) -> tuple[list[Model], list[BaseException]]:
        """Build models; return those that could be built, and the errors of others. If not `partly`, raise the first.

        SystemExit and KeyboardInterrupt are errors of the model too: Ctrl-C interrupts only the main thread, on which
        no model is built `partly`.
        """
        built: list[Model] = []
        errors: list[BaseException] = []
        for model in models:
            try:
                build(model)
                built.append(model)
            except BaseException as error:
                if not partly:
                    raise
                errors.append(error)
                log.error("%s is not loaded: %s", model.handle, line_of(error))
                self._failed(model, error)
        return built, errors

    def load(self, model: Model) -> None:
        """Load a model that a request has made, on another thread; `loaded` of the model tells the outcome."""
        try:
            self._threads.start(self._load, model)
        except BaseException as error:  # no thread can be started
            self._registry.fail(model, error)

    def _load(self, model: Model) -> None:
        try:
            self.end(self._registry.reserve([model]))
            build(model)
            if not self._registry.become_ready(model):
                raise hami.PipeClosed("the model was replaced or removed while it was loaded")
        except BaseException as error:
            if not issubclass(type(error), hami.PipeClosed):
                log.error("%s is not loaded: %s", model.handle, line_of(error))
            self._failed(model, error)

    def _failed(self, model: Model, error: BaseException, *, restore: bool = False) -> None:
        """End a load; the pipe is closed before its slot is free."""
        pipe, model.pipe = model.pipe, None
        try:
            if pipe is not None:
                pipe.close(self.drain_timeout)
        finally:
            self._registry.fail(model, error, restore=restore)

    def end(self, models: Iterable[Model], timeout: float | None = None) -> None:
        """Wait for the requests of draining models, and close their pipes."""
        deadline = time.monotonic() + (self.drain_timeout if timeout is None else timeout)
        for model in models:
            self._registry.wait_idle(model, max(0.0, deadline - time.monotonic()))
            try:
                if model.pipe is not None:
                    model.pipe.close(max(0.0, deadline - time.monotonic()))
            finally:
                self._registry.unloaded(model)
