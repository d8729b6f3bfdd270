"""The registry: which models exist, which of them a request gets, and when a pipe has no requests left.

A lock guards all models. It is held for look-ups and transitions, and never while a pipe is built, called or closed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import hami

from hami_serve.errors import ModelUnavailable, unknown_component, unknown_version
from hami_serve.model import Handle, Model, State, Version


@dataclass
class Routing:
    """Which version of a component a request without a version gets."""

    default: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    aliases: frozenset[str] = frozenset()
    credits: dict[str, float] = field(default_factory=dict)

    def weighted(self, ready: Iterable[str]) -> str | None:
        """Return the next version in a smooth weighted round-robin over the versions that are ready."""
        shares = {version: self.weights[version] for version in ready if self.weights.get(version, 0) > 0}
        if not shares:
            return None
        for version, weight in shares.items():
            self.credits[version] = self.credits.get(version, 0.0) + weight
        chosen = max(shares, key=lambda version: self.credits[version])
        self.credits[chosen] -= sum(shares.values())
        return chosen


class Registry:
    """All models by component and version."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)  # notified when a draining model has no request left
        self._models: dict[str, dict[str, Model]] = {}
        self._routing: dict[str, Routing] = {}
        self._draining: set[Model] = set()
        self._generation = 0
        self._ticks = 0

    # ---- requests ----

    def acquire(self, name: str, version: str | None = None) -> Model:
        """Return a ready model and count a request of it, which `release` ends.

        Raises:
            NotFound: There is no such component or version.
            ModelUnavailable: The model is not ready.
        """
        with self._lock:
            model = self._chosen(name, version)
            if model.state is not State.READY:
                raise _unavailable(model)
            model.in_flight += 1
            self._ticks += 1
            model.used = self._ticks
            return model

    def release(self, model: Model, started: float, error: BaseException | None = None) -> None:
        """End a request that began at `started`, of `time.perf_counter()`."""
        seconds = time.perf_counter() - started
        with self._lock:
            model.in_flight -= 1
            model.calls += 1
            model.last_call = time.time()
            model.latencies.append(seconds)
            if error is None:
                model.success_ns += int(seconds * 1e9)
            else:
                model.failures += 1
                model.failure_ns += int(seconds * 1e9)
            if not model.in_flight and model.state is State.DRAINING:
                self._idle.notify_all()

    def find(self, name: str, version: str | None = None) -> Model:
        """Return the model that a request would get, in any state."""
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
            ready = [each for each, model in versions.items() if model.state is State.READY or model.on_demand]
            if chosen := routing.weighted(ready):
                return versions[chosen]
        return versions[self._default(component)]

    def _component(self, name: str) -> str:
        if name in self._models:
            return name
        if component := self._owner(name):
            return component
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
        usable = [each for each, model in versions.items() if model.state is State.READY or model.on_demand]
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

    # ---- changes; the caller makes one at a time ----

    def new(self, component: str, version: str, what: Version) -> Model:
        """Return a new generation, and show it as loading if its place is free."""
        with self._lock:
            self._generation += 1
            model = Model(Handle(component, version, self._generation), what)
            versions = self._models.setdefault(component, {})
            self._routing.setdefault(component, Routing())
            shown = versions.get(version)
            if shown is None or shown.state in (State.FAILED, State.UNLOADED):
                model.before = shown
                versions[version] = model
            return model

    def fail(self, model: Model, reason: str) -> None:
        with self._lock:
            model.state = State.FAILED
            model.reason = reason

    def restore(self, model: Model) -> None:
        """Show again what was in the place of a model that did not become ready."""
        with self._lock:
            versions = self._models.get(model.handle.component, {})
            if versions.get(model.handle.version) is not model:
                return
            if model.before is not None:
                versions[model.handle.version] = model.before
            else:
                self._remove(model)

    def switch(self, ready: Iterable[Model], removed: Iterable[Model] = (), *, forget: bool = True) -> list[Model]:
        """Make models ready and take others away, in one step that no request can see half done.

        Returns:
            The models that drain now: those that were replaced, and those of `removed`.
        """
        draining = []
        with self._lock:
            for model in ready:
                versions = self._models.setdefault(model.handle.component, {})
                self._routing.setdefault(model.handle.component, Routing())
                old = versions.get(model.handle.version)
                if old is not None and old is not model:
                    draining += self._drain(old)
                versions[model.handle.version] = model
                model.state, model.reason, model.on_demand, model.before = State.READY, "", False, None
                self._ticks += 1
                model.used = self._ticks
            for model in removed:
                draining += self._drain(model)
                if forget and self._models.get(model.handle.component, {}).get(model.handle.version) is model:
                    self._remove(model)
        return draining

    def _drain(self, model: Model) -> list[Model]:
        if model.state is not State.READY:
            if model.state is not State.FAILED:
                model.state = State.UNLOADED
            model.on_demand = False
            return []
        model.state = State.DRAINING
        self._draining.add(model)
        return [model]

    def _remove(self, model: Model) -> None:
        versions = self._models[model.handle.component]
        del versions[model.handle.version]
        if not versions:
            del self._models[model.handle.component]
            del self._routing[model.handle.component]

    def wait_idle(self, model: Model, timeout: float | None) -> bool:
        """Wait until the last request of a draining model has ended; return whether it has."""
        with self._idle:
            return self._idle.wait_for(lambda: not model.in_flight, timeout)

    def unloaded(self, model: Model, *, on_demand: bool = False) -> hami.Pipe | None:
        """Mark a drained model as unloaded, and return its pipe, which the caller closes."""
        with self._lock:
            pipe, model.pipe = model.pipe, None
            model.state, model.on_demand = State.UNLOADED, on_demand
            self._draining.discard(model)
            return pipe

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
            for alias in aliases or ():
                owner = alias if alias in self._models else self._owner(alias)
                if owner not in (None, component) or alias in self._models:
                    raise hami.AlreadyExists(f'the alias "{alias}" of "{component}" is a name of "{owner}" already')
            if default is not None:
                routing.default = default
            if weights is not None:
                routing.weights, routing.credits = dict(weights), {}
            if aliases is not None:
                routing.aliases = frozenset(aliases)

    def least_recently_used(self, keep: Iterable[Model]) -> Model | None:
        """Return the ready model whose last request began first."""
        kept = set(keep)
        with self._lock:
            ready = [
                model
                for versions in self._models.values()
                for model in versions.values()
                if model.state is State.READY and model not in kept
            ]
        return min(ready, key=lambda model: model.used, default=None)


def natural(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts versions as people do: 9 before 10."""
    parts = re.findall(r"\d+|\D+", version)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def _unavailable(model: Model) -> ModelUnavailable:
    name = f'"{model.handle.component}" version "{model.handle.version}"'
    if model.state is State.FAILED:
        return ModelUnavailable(f"{name} failed to load: {model.reason}")
    what = {
        State.LOADING: "is loading; try again later",
        State.DRAINING: "is being removed",
        State.UNLOADED: "is unloaded; load it first",
    }[model.state]
    return ModelUnavailable(f"{name} {what}")
