"""The registry: which models exist, which of them a request gets, and when a pipe has no requests left.

A lock guards all models. It is held for look-ups and transitions, and never while a pipe is built, called or closed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import hami

from hami_serve.capacity import Limits
from hami_serve.errors import (
    ModelUnavailable,
    load_failed,
    reason_of,
    unknown_component,
    unknown_version,
    with_text,
)
from hami_serve.model import Handle, Model, State, Version
from hami_serve.routing import Routing, natural
from hami_serve.source import ComponentSpec

AGAIN_S = 5.0  # after a load that a request started has failed, before a request starts it again
CLOSED = "the AllRounder is closed"
LONGEST_S = 1e9  # of a wait: `threading` raises OverflowError for a few times more, and for infinity


class Registry:
    """All models by component and version."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # a draining model is idle, or a slot may be free
        self._limits = limits or Limits()
        self._models: dict[str, dict[str, Model]] = {}
        self._routing: dict[str, Routing] = {}
        self._draining: set[Model] = set()
        self._loaded: set[Model] = set()  # which have a slot
        self._generation = 0
        self._ticks = 0
        self.closed = False
        self.changed: Callable[[], None] = lambda: None  # called after changes of what `served` returns

    # ---- requests ----

    def acquire(self, name: str, version: str | None = None, drawn: str | None = None) -> tuple[Model, bool]:
        """Choose the model of one request, and count the request, until `release` or `leave`.

        Args:
            name: A component or an alias.
            version: The version that the request asks for.
            drawn: What `draw` has returned for a request without a version; it holds as long as that version is there.

        Returns:
            The model, and whether the caller must start to load it. It is ready, or its `loaded` tells when it is.

        Raises:
            NotFound: There is no such component or version.
            ModelUnavailable: The model neither is ready nor loads, and a request does not load it.
        """
        with self._lock:
            if version is None and drawn is not None:
                component = self._component(name)
                model = self._models[component].get(drawn)
                if model is not None and model.usable:
                    return self._counted(model)
            return self._counted(self._chosen(name, version))

    def acquire_usable(self) -> dict[str, tuple[Model, bool]]:
        """Do the same as `acquire` for every component that can run a request."""
        with self._lock:
            chosen = {name: self._chosen(name, None) for name in self._models}
            return {name: self._counted(model) for name, model in chosen.items() if model.usable}

    def _counted(self, model: Model) -> tuple[Model, bool]:
        starts = self._waits_for_a_request(model)
        if starts:
            before, model = model, self._next(model.handle.component, model.handle.version, model.version)
            model.on_demand, model.before = True, before
            self._models[model.handle.component][model.handle.version] = model
        if model.state not in (State.READY, State.LOADING):
            raise unavailable(model)
        model.in_flight += 1
        self._ticks += 1
        model.used = self._ticks
        return model, starts

    @staticmethod
    def _waits_for_a_request(model: Model) -> bool:
        """Return whether the next request for a model loads it."""
        if not model.on_demand or model.state in (State.LOADING, State.READY):
            return False
        return model.state is not State.FAILED or time.monotonic() >= model.again_at

    def draw(self, name: str, version: str | None = None) -> Model:
        """Return the model that a request gets which is acquired later, with the version of this one as `drawn`."""
        with self._lock:
            return self._chosen(name, version)

    def leave(self, model: Model) -> None:
        """End a request that was counted, and has not run in the model."""
        with self._lock:
            self._one_less(model)

    def release(self, model: Model, started: float, error: BaseException | None = None) -> None:
        """End a request that began at `started`, of `time.perf_counter()`."""
        seconds = time.perf_counter() - started
        with self._lock:
            model.calls += 1
            model.last_call = time.time()
            model.latencies.append(seconds)
            if error is None:
                model.success_ns += int(seconds * 1e9)
            else:
                model.failures += 1
                model.failure_ns += int(seconds * 1e9)
            self._one_less(model)

    def count_rows(self, model: Model, rows: int) -> None:
        """Count the rows of a request that succeeded; `release` counts it as one."""
        if rows > 1:
            with self._lock:
                model.more_rows += rows - 1

    def count_native(
        self,
        model: Model,
        *,
        in_flight: int,
        calls: int,
        failures: int,
        more_rows: int,
        success_ns: int,
        failure_ns: int,
        latencies_ns: Iterable[int],
    ) -> None:
        """Count requests of the native door that have ended, and note how many run there."""
        with self._lock:
            model.native_in_flight = in_flight
            model.calls += calls
            model.failures += failures
            model.more_rows += more_rows
            model.success_ns += success_ns
            model.failure_ns += failure_ns
            model.latencies.extend(each / 1e9 for each in latencies_ns)
            if calls:
                model.last_call = time.time()

    def served(self) -> dict[str, Model]:
        """Return the ready models by the paths of their inference requests, where one model answers all of them.

        Models that may leave for others are not among them: each of their requests makes another one the oldest.
        """
        with self._lock:
            if self._limits != Limits():
                return {}
            found: dict[str, Model] = {}
            for component, versions in self._models.items():
                routing, default = self._routing[component], self._default(component)
                for version, model in versions.items():
                    if model.state is not State.READY:
                        continue
                    for name in (component, *routing.aliases):
                        found[f"/v2/models/{name}/versions/{version}/infer"] = model
                        if version == default and not routing.weights:
                            found[f"/v2/models/{name}/infer"] = model
            return found

    def _one_less(self, model: Model) -> None:
        model.in_flight -= 1
        if not model.in_flight and model.state is State.DRAINING:
            self._changed.notify_all()

    def find(self, name: str, version: str | None = None) -> Model:
        """Return the default model of a name, or that of a version, in any state."""
        with self._lock:
            return self._chosen(name, version, peek=True)

    def _chosen(self, name: str, version: str | None, *, peek: bool = False) -> Model:
        component = self._component(name)
        versions = self._models[component]
        if version is not None:
            if version not in versions:
                raise unknown_version(component, version, versions)
            return versions[version]
        routing = self._routing[component]
        if routing.weights and not peek:
            chosen = routing.weighted(each for each, model in versions.items() if model.usable)
            if chosen is not None:
                return versions[chosen]
        return versions[self._default(component)]

    def _component(self, name: str) -> str:
        if name in self._models:
            return name
        if component := self._owner(name):
            return component
        if self.closed:
            raise hami.PipeClosed(CLOSED)
        raise unknown_component(name, self._models)

    def _owner(self, alias: str) -> str | None:
        """Return the component that has the alias."""
        return next((name for name, routing in self._routing.items() if alias in routing.aliases), None)

    def _default(self, component: str) -> str:
        """Return the default version: the version that is set, else the newest that can run, else the newest."""
        versions = self._models[component]
        if len(versions) == 1:
            return next(iter(versions))
        default = self._routing[component].default
        if default in versions:
            return default
        usable = [each for each, model in versions.items() if model.usable]
        return max(usable or versions, key=natural)

    # ---- looking ----

    def component(self, name: str) -> str:
        """Return the name of a component that a name or an alias means."""
        with self._lock:
            return self._component(name)

    def default(self, name: str) -> str:
        with self._lock:
            return self._default(self._component(name))

    def components(self) -> list[str]:
        with self._lock:
            return list(self._models)

    def versions(self, name: str) -> dict[str, Model]:
        with self._lock:
            return dict(self._models[self._component(name)])

    def models(self) -> list[Model]:
        """Return all models, those that drain after a replacement included."""
        with self._lock:
            current = [model for versions in self._models.values() for model in versions.values()]
            replaced = [model for model in self._draining if model not in current]
            return current + sorted(replaced, key=lambda model: model.handle.generation)

    def at(self, handle: Handle) -> Model:
        """Return the model of a handle.

        Raises:
            NotFound: That load of the model is over.
        """
        with self._lock:
            model = self._models.get(handle.component, {}).get(handle.version)
            if model is None or model.handle != handle:
                now = f"; its generation is {model.handle.generation} now" if model else ""
                raise hami.NotFound(f"the model {handle} is not loaded any more{now}")
            return model

    def routing(self, name: str) -> Routing:
        with self._lock:
            return self._routing[self._component(name)]

    # ---- changes ----

    def new(self, component: str, version: str, what: Version) -> Model:
        """Return a new generation, and show it as loading if its place is free: requests then wait for it."""
        with self._lock:
            if self.closed:
                raise hami.PipeClosed(CLOSED)
            model = self._next(component, version, what)
            versions = self._models.setdefault(component, {})
            self._routing.setdefault(component, Routing())
            shown = versions.get(version)
            if shown is None or shown.state in (State.FAILED, State.UNLOADED):
                model.before = shown
                model.on_demand = shown is not None and shown.usable
                versions[version] = model
            return model

    def _next(self, component: str, version: str, what: Version) -> Model:
        self._generation += 1
        return Model(Handle(component, version, self._generation), what)

    def reserve(self, new: Sequence[Model], instead_of: Iterable[Model] = ()) -> list[Model]:
        """Wait until new models are within the limits with those that are loaded, and give each a slot.

        Args:
            new: The new models.
            instead_of: Models that end when the new ones are ready: new ones take over their slots.

        Returns:
            The models that drain now because they leave for the new ones. The caller ends them before it loads.

        Raises:
            PipeClosed: The registry was closed, or another model has taken the place of a new one.
        """
        with self._changed:
            self._share_slots(new, instead_of)
            victims = None
            while victims is None:
                if self.closed:
                    raise hami.PipeClosed(CLOSED)
                if any(model.state is not State.LOADING for model in new):
                    raise hami.PipeClosed("the model was replaced or removed while it waited to load")
                victims = self._limits.victims(self._loaded, new, self._evictable(new, instead_of))
                if victims is None:
                    self._changed.wait()
            self._loaded.update(new)
            self._loaded.difference_update(victims)  # their slots are those of the new ones
            return [drained for model in victims for drained in self._drain(model, on_demand=True)]

    def _share_slots(self, new: Iterable[Model], instead_of: Iterable[Model]) -> None:
        """Let each new model take over the slot of a model that ends for it: of its own place, else of any."""
        slots = {(model.handle.component, model.handle.version): model.slot for model in self._loaded}
        places = {(model.handle.component, model.handle.version): model for model in new}
        for place in places.keys() & slots.keys():
            places.pop(place).slot = slots[place]
        taken = {model.slot for model in new}
        left = [model.slot for model in instead_of if model in self._loaded and model.slot not in taken]
        for model, slot in zip(places.values(), left, strict=False):
            model.slot = slot

    def _evictable(self, new: Iterable[Model], instead_of: Iterable[Model]) -> list[Model]:
        """Return the ready models that no other model of their slot replaces now."""
        kept = {*new, *instead_of}
        shared = Counter(model.slot for model in self._loaded)
        return [
            model
            for versions in self._models.values()
            for model in versions.values()
            if model.state is State.READY and model not in kept and model in self._loaded and shared[model.slot] == 1
        ]

    def become_ready(self, model: Model) -> bool:
        """Make a model ready that a request has loaded; return False if another one has its place by now."""
        with self._lock:
            versions = self._models.get(model.handle.component, {})
            if self.closed or versions.get(model.handle.version) is not model or model.state is not State.LOADING:
                return False
            self._ready(model)
        self.changed()
        return True

    def _ready(self, model: Model) -> None:
        model.state, model.reason, model.on_demand, model.before = State.READY, "", False, None
        self._ticks += 1
        model.used = self._ticks
        model.loaded.set_result(True)
        self._changed.notify_all()  # it can leave for another one

    def fail(self, model: Model, error: BaseException, *, restore: bool = False) -> None:
        """End the load of a model that could not be built, which has no pipe.

        Args:
            model: The model.
            error: Why.
            restore: Show again what its place showed before. Otherwise that is only done if requests can use it, and
                else the place shows the model as failed.
        """
        with self._lock:
            self._loaded.discard(model)
            self._changed.notify_all()
            if model.state is not State.LOADING:  # it was replaced or removed meanwhile
                return
            model.state = State.FAILED
            model.reason = reason_of(error)
            model.again_at = time.monotonic() + AGAIN_S
            model.loaded.set_exception(error)
            versions = self._models.get(model.handle.component, {})
            if versions.get(model.handle.version) is model:
                before, model.before = model.before, None
                if before is not None and (restore or (before.usable and before.version != model.version)):
                    versions[model.handle.version] = before
                elif restore:
                    self._remove(model)

    def switch(
        self,
        ready: Iterable[Model],
        removed: Iterable[Model] = (),
        *,
        described: Iterable[Model] = (),
        routing: Mapping[str, ComponentSpec] | None = None,
        forget: bool = True,
    ) -> list[Model]:
        """Make models ready and take others away, in one step that no request can see half done.

        Args:
            ready: Models that were built.
            removed: Models that end.
            described: Models that their first request loads.
            routing: What requests without a version get, by component.
            forget: Whether the places of removed models are removed too.

        Returns:
            The models that drain now: those that were replaced, and those of `removed`.

        Raises:
            PipeClosed: The registry was closed, and takes no model.
        """
        draining = []
        with self._lock:
            ready, described = list(ready), list(described)
            if self.closed and (ready or described):
                raise hami.PipeClosed(CLOSED)
            for model in (*ready, *described):
                versions = self._models.setdefault(model.handle.component, {})
                self._routing.setdefault(model.handle.component, Routing())
                old = versions.get(model.handle.version)
                if old is not None and old is not model:
                    draining += self._drain(old)
                versions[model.handle.version] = model
            for model in ready:
                self._ready(model)
            for model in described:
                model.state, model.on_demand, model.before = State.UNLOADED, True, None
                model.loaded.set_result(False)
            for model in removed:
                draining += self._drain(model)
                if forget and self._models.get(model.handle.component, {}).get(model.handle.version) is model:
                    self._remove(model)
            for name, spec in (routing or {}).items():
                self._routing[name] = Routing(spec.default, dict(spec.weights), frozenset(spec.aliases))
        self.changed()
        return draining

    def close(self) -> list[Model]:
        """Take no more models, and remove all; return those that drain now."""
        with self._lock:
            self.closed = True
            self._changed.notify_all()
            draining = [
                drained
                for versions in self._models.values()
                for model in versions.values()
                for drained in self._drain(model)
            ]
            self._models, self._routing = {}, {}
        self.changed()
        return draining

    def _drain(self, model: Model, *, on_demand: bool = False) -> list[Model]:
        """Let a model receive no more requests; return it if it then has a pipe that must be closed."""
        was_ready = model.state is State.READY
        model.on_demand = on_demand
        if was_ready:
            model.state = State.DRAINING
            self._draining.add(model)
            return [model]
        if model.state is State.LOADING:  # its requests choose again, and its pipe is closed when it was built
            model.loaded.set_result(False)
        if model.state in (State.LOADING, State.UNLOADED):
            model.state = State.UNLOADED
            self._changed.notify_all()
        return []

    def check_aliases(self, component: str, aliases: Iterable[str]) -> None:
        """Check that names can be aliases of a component.

        Raises:
            AlreadyExists: A name means something else.
        """
        with self._lock:
            self._check_aliases(component, aliases)

    def _check_aliases(self, component: str, aliases: Iterable[str]) -> None:
        for alias in aliases:
            owner = alias if alias in self._models else self._owner(alias)
            if owner not in (None, component) or alias in self._models:
                raise hami.AlreadyExists(f'the alias "{alias}" of "{component}" is a name of "{owner}" already')

    def _remove(self, model: Model) -> None:
        versions = self._models[model.handle.component]
        del versions[model.handle.version]
        if not versions:
            del self._models[model.handle.component]
            del self._routing[model.handle.component]

    def wait_idle(self, model: Model, timeout: float | None) -> bool:
        """Wait until the last request of a draining model has ended; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: not model.in_flight, _waited(timeout))

    def unloaded(self, model: Model) -> None:
        """Mark a drained model, whose pipe was closed, as unloaded."""
        with self._lock:
            model.pipe = None
            model.state = State.UNLOADED
            self._draining.discard(model)
            self._loaded.discard(model)
            self._changed.notify_all()

    def wait_drained(self, timeout: float | None) -> bool:
        """Wait until every draining model is unloaded."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._draining, _waited(timeout))

    def route(
        self,
        name: str,
        *,
        default: str | None = None,
        weights: Mapping[str, float] | None = None,
        aliases: Iterable[str] | None = None,
    ) -> None:
        """Change what a name without a version means; None leaves a setting as it is."""
        with self._lock:
            component = self._component(name)
            versions, routing = self._models[component], self._routing[component]
            for version in [*([default] if default is not None else []), *(weights or ())]:
                if version not in versions:
                    raise unknown_version(component, version, versions)
            for version, weight in (weights or {}).items():
                if not isinstance(weight, (int, float)) or not 0 <= weight < float("inf"):
                    raise hami.ConfigError(
                        f'the weight of "{component}" version "{version}" is {weight!r}; it is 0 or more'
                    )
            self._check_aliases(component, aliases or ())
            if default is not None:
                routing.default = default
            if weights is not None:
                routing.weights, routing.credits = dict(weights), {}
            if aliases is not None:
                routing.aliases = frozenset(aliases)
        self.changed()


def unavailable(model: Model) -> ModelUnavailable:
    """Return why a model cannot run a request."""
    name = f'"{model.handle.component}" version "{model.handle.version}"'
    if model.state is State.FAILED:
        error = ModelUnavailable(f"{name} failed to load: {model.reason}")
        return with_text(error, f"{name} {load_failed(model.reason)}")
    what = {
        State.DRAINING: "is being removed",
        State.UNLOADED: "is unloaded; load it first",
    }[model.state]
    return ModelUnavailable(f"{name} {what}")


def _waited(timeout: float | None) -> float | None:
    return None if timeout is None else min(timeout, LONGEST_S)
