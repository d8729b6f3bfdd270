"""Changes of the models of an `AllRounder`: build first, switch in one step, drain and close the old pipes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

import hami

from hami_serve.building import build
from hami_serve.model import Model, State, Version
from hami_serve.registry import Registry


class Changes:
    """Makes one change at a time. The caller holds `lock`; requests never take it, except to load a model again."""

    def __init__(
        self, registry: Registry, max_loaded: int | None, memory_budget: int | None, drain_timeout: float
    ) -> None:
        self.lock = threading.RLock()
        self.closed = False
        self.drain_timeout = drain_timeout
        self._registry = registry
        self._max_loaded = max_loaded
        self._memory_budget = memory_budget

    def replace(self, places: Mapping[tuple[str, str], Version], removed: Iterable[Model] = ()) -> list[Model]:
        """Build a model for each place, switch to all of them in one step, and end what they replace."""
        if self.closed and places:
            raise hami.PipeClosed("the AllRounder is closed")
        models = [self._registry.new(component, version, what) for (component, version), what in places.items()]
        removed = list(removed)
        single = len(models) == 1
        try:
            for model in models:
                self.make_space(model, [*models, *removed])
                build(model)
        except BaseException as error:
            for model in models:
                pipe, model.pipe = model.pipe, None
                self._registry.fail(model, f"{type(error).__name__}: {error}".splitlines()[0])
                if pipe is not None:
                    pipe.close()
                if not single:
                    self._registry.restore(model)
            raise
        self.end(self._registry.switch(models, removed))
        self.make_space(None, models)
        return models

    def make_space(self, new: Model | None, keep: list[Model]) -> None:
        """Unload models that were not used for long, until the limits hold with the new one."""
        while self._over_limit(new):
            victim = self._registry.least_recently_used(keep)
            if victim is None:
                return
            self.end(self._registry.switch((), [victim], forget=False), on_demand=True)

    def _over_limit(self, new: Model | None) -> bool:
        ready = [model for model in self._registry.models() if model.state is State.READY]
        if new is not None:
            place = (new.handle.component, new.handle.version)
            ready = [model for model in ready if (model.handle.component, model.handle.version) != place] + [new]
        if self._max_loaded is not None and len(ready) > self._max_loaded:
            return True
        return self._memory_budget is not None and sum(each.version.memory for each in ready) > self._memory_budget

    def end(self, models: Iterable[Model], *, on_demand: bool = False) -> None:
        """Wait for the requests of draining models, and close their pipes."""
        deadline = time.monotonic() + self.drain_timeout
        for model in models:
            self._registry.wait_idle(model, max(0.0, deadline - time.monotonic()))
            pipe = self._registry.unloaded(model, on_demand=on_demand)
            if pipe is not None:
                pipe.close(max(0.0, deadline - time.monotonic()))

    def load_again(self, model: Model) -> None:
        """Load a model again that was unloaded for another one; a caller that comes second finds it loaded."""
        with self.lock:
            current = self._registry.find(model.handle.component, model.handle.version)
            if current is model and model.on_demand:
                self.replace({(model.handle.component, model.handle.version): model.version})


def must_load(model: Model) -> bool:
    """Return whether a model with an unchanged description is not running and should be."""
    return model.state is not State.READY and not model.on_demand
