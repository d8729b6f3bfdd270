"""`AllRounder`: many models in one process, which change while requests run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import hami

from hami_serve import access_log
from hami_serve.capacity import Limits
from hami_serve.changes import Changes
from hami_serve.component import Component
from hami_serve.errors import ModelUnavailable, unknown_component
from hami_serve.failures import of_model
from hami_serve.model import Handle, Model, ModelInfo, devices
from hami_serve.registry import Registry, unavailable
from hami_serve.source import (
    ComponentSpec,
    check_routing,
    checked_name,
    component_of,
    read_components,
    version_of,
    with_device,
)
from hami_serve.table import table_of

DRAIN_S = 30.0  # time that the requests of a model have to end after it was replaced or removed

EVERY = "*"  # not a name of a component: what changes all components takes it too


class AllRounder:
    """Many models in one process: added, replaced and removed while requests run, without losing one.

    >>> with AllRounder({"echo": "Identity"}) as rounder:
    ...     rounder.infer({"data": 1})
    {'echo': {'data': 1, 'result': 1}}

    A component is a named model with one or more versions, each a pipe. Any number of threads may run requests and
    change the models. A change builds the new pipes first, then switches in one step, then waits for the requests of
    the old pipes, then closes these. If a pipe cannot be built, nothing changes. The changes of one component are made
    one at a time.
    """

    def __init__(
        self,
        source: Any = None,
        *,
        max_loaded: int | None = None,
        memory_budget: int | None = None,
        drain_timeout: float = DRAIN_S,
        lazy: bool = False,
    ) -> None:
        """Load all components of a source.

        Args:
            source: The path of a file such as "models.toml", the folder of a model repository, or a mapping from the
                name of a component to what `hami.pipe` takes.
            max_loaded: Maximum number of models that are loaded at a time. An idle model, the least recently used
                one, is unloaded for a new one, and loaded again by the next request for it. Of more models in a source,
                the first are loaded.
            memory_budget: Maximum sum of the `memory` of the loaded models, in bytes, in the same way.
            drain_timeout: Time limit in seconds for the requests of a model that is replaced or removed.
            lazy: Load each model by the first request for it.

        Raises:
            ConfigError: The source is wrong.
            Exception: As for `hami.pipe`, if a model cannot be built. No model is left running.
        """
        if max_loaded is not None and max_loaded < 1:
            raise hami.ConfigError(f"max_loaded is None or at least 1, got {max_loaded}")
        limits = Limits(max_loaded, memory_budget)
        self.registry = Registry(limits)
        self._changes = Changes(self.registry, limits, drain_timeout)
        self._lazy = lazy
        try:
            self.fill(read_components(source))
        except BaseException:
            self.close()
            raise

    def fill(self, components: Mapping[str, ComponentSpec], *, partly: bool = False) -> None:
        """Take the first components: load them, or only describe them if the AllRounder is lazy. For servers.

        Args:
            components: The components.
            partly: Whether a model that cannot be built fails alone, as long as another one is or can be built.
        """
        if not self._lazy:
            self._update(components, partly=partly)
            return
        check_routing(components)
        models = [
            self.registry.new(name, version, what)
            for name, spec in components.items()
            for version, what in spec.versions.items()
        ]
        self.registry.switch((), described=models, routing=components)

    # ---- requests ----

    def infer(
        self,
        request: Mapping[str, Any],
        components: Iterable[str] | None = None,
        version: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Run one request in several components at the same time, and wait for all of them.

        >>> with AllRounder({"echo": "Identity", "size": "Add"}) as rounder:
        ...     rounder.infer({"data": 1}, components=["echo"], version="1")
        {'echo': {'data': 1, 'result': 1}}

        Args:
            request: The request; each component gets a copy of its keys.
            components: Names or aliases; by default every component that is ready.
            version: The version of each; by default the version that is set as default, or chosen by weight.
            timeout: Time limit in seconds for each.

        Returns:
            The completed request of each component, by the name that was asked for.

        Raises:
            NotFound: There is no such component or version.
            ModelUnavailable: A model is not ready.
            Exception: The exception of the first component that failed. The requests of the others are cancelled.
        """
        until = _deadline(timeout)
        if components is None:
            joined = {name: self._loading(*counted) for name, counted in self.registry.acquire_usable().items()}
        else:
            joined = self._joined(components, version)
        started: dict[str, Future[dict[str, Any]]] = {}
        names = list(joined)
        try:
            # Ready models begin; then those that load, in the order in which they become ready: each may have to end
            # and leave before the next one can load.
            while joined:
                loads = {joined[name].loaded for name in joined}
                wait(loads, _left(until), FIRST_COMPLETED)
                for name in [name for name, model in joined.items() if model.loaded.done() or _is_over(until)]:
                    model = joined.pop(name)
                    if self._is_ready(model):
                        started[name] = self._submit(model, dict(request), _left(until))
                        continue
                    try:
                        joined[name] = self._join(name, version)
                    except hami.NotFound:  # it was removed meanwhile
                        if components is not None:
                            raise
            return {name: _result(name, started[name]) for name in names if name in started}
        except BaseException:
            for model in joined.values():
                self.registry.leave(model)
            for future in started.values():
                future.cancel()
            raise

    def _joined(self, components: Iterable[str], version: str | None) -> dict[str, Model]:
        joined: dict[str, Model] = {}
        try:
            for name in dict.fromkeys(components):
                joined[name] = self._join(name, version)
        except BaseException:
            for model in joined.values():
                self.registry.leave(model)
            raise
        return joined

    def submit_request(
        self, component: str, request: dict[str, Any], version: str | None = None, timeout: float | None = None
    ) -> Future[dict[str, Any]]:
        """Start a request of one component; return a future of the completed request.

        This waits while the component must be loaded first, at most for `timeout`.
        """
        until = _deadline(timeout)
        while True:
            model = self._join(component, version)
            try:
                wait([model.loaded], _left(until))
            except BaseException:  # a signal
                self.registry.leave(model)
                raise
            if self._is_ready(model):
                return self._submit(model, request, _left(until))

    def _submit(self, model: Model, request: dict[str, Any], timeout: float | None) -> Future[dict[str, Any]]:
        """Start a request of a model that was acquired; it is released at the end."""
        started = time.perf_counter()
        try:
            future = model.running_pipe().submit(request, timeout)
        except BaseException as error:
            self.registry.release(model, started, error)
            raise

        def done(future: Future[dict[str, Any]]) -> None:
            failed = None if not future.cancelled() and future.exception() is None else ModelUnavailable()
            self.registry.release(model, started, failed)

        future.add_done_callback(done)
        return future

    async def acall(
        self, component: str, request: dict[str, Any], version: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run a request of one component from a task of an asyncio loop. Cancelling the task cancels the request."""
        model, left = await self.acquire_async(component, version, timeout)
        return await self.acall_model(model, request, left)

    async def astream(
        self, component: str, request: dict[str, Any], version: str | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """Run a request of one component, and yield the parts of its result, as `astream` of a pipe.

        Cancelling the task, or leaving the loop and closing the iterator, cancels the request.
        """
        model, left = await self.acquire_async(component, version, timeout)
        async with aclosing(self.astream_model(model, request, left)) as parts:
            async for part in parts:
                yield part

    async def acquire_async(
        self, component: str, version: str | None = None, timeout: float | None = None, drawn: str | None = None
    ) -> tuple[Model, float | None]:
        """Choose the model of one request, and wait while it is loaded. For servers.

        Args:
            component: A component or an alias.
            version: The version that the request asks for.
            timeout: Time limit in seconds.
            drawn: The version that `Registry.draw` has chosen.

        Returns:
            A ready model with one more request, which the caller must run or release; and the rest of `timeout`.
        """
        until = _deadline(timeout)
        while True:
            model = self._join(component, version, drawn)
            if not model.loaded.done():
                try:
                    await model.loaded.wait(_left(until))
                except BaseException:
                    self.registry.leave(model)
                    raise
            if self._is_ready(model):
                return model, _left(until)

    async def acall_model(self, model: Model, request: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Run a request of a model that the caller has acquired, and release it."""
        started = time.perf_counter()
        failed: BaseException | None = None
        try:
            with access_log.of_model(model, request):
                return await model.running_pipe().acall(request, timeout)
        except BaseException as error:
            failed = error
            raise
        finally:
            self.registry.release(model, started, failed)

    async def acall_rows(
        self, model: Model, requests: Sequence[dict[str, Any]], timeout: float | None
    ) -> list[hami.Error | None]:
        """Run requests of a model that the caller has acquired once, at the same time, and release it.

        Returns:
            The error of each request, or None.
        """
        started = time.perf_counter()
        failed: BaseException | None = None

        async def call(request: dict[str, Any]) -> hami.Error | None:
            try:
                with of_model():
                    await model.running_pipe().acall(request, timeout)
            except hami.Error as error:
                return error
            return None

        try:
            with access_log.of_model(model, *requests):
                errors = await asyncio.gather(*map(call, requests))
            failed = next((error for error in errors if error is not None), None)
            if failed is None:
                self.registry.count_rows(model, len(requests))
            return errors
        except BaseException as error:
            failed = error
            raise
        finally:
            self.registry.release(model, started, failed)

    async def astream_model(
        self, model: Model, request: dict[str, Any], timeout: float | None
    ) -> AsyncGenerator[Any, None]:
        """Yield the parts of a request of a model that the caller has acquired, and release it at the end."""
        started = time.perf_counter()
        failed: BaseException | None = None
        try:
            async with aclosing(model.running_pipe().astream(request, timeout)) as parts:
                with access_log.of_model(model, request):
                    async for part in parts:
                        yield part
        except BaseException as error:
            failed = error
            raise
        finally:
            self.registry.release(model, started, failed)

    def _join(self, component: str, version: str | None, drawn: str | None = None) -> Model:
        """Return the model of one request, which is counted; it is ready, or loads."""
        return self._loading(*self.registry.acquire(component, version, drawn))

    def _loading(self, model: Model, starts: bool) -> Model:
        if starts:
            self._changes.load(model)
        return model

    def _is_ready(self, model: Model) -> bool:
        """Return whether a model that a request has waited for is ready; if not, the request leaves it.

        Raises:
            DeadlineExceeded: It still loads.
            ModelUnavailable: It could not be loaded.
        """
        ready = False
        try:
            if not model.loaded.done():
                raise hami.DeadlineExceeded(f'the request timed out while the model "{model.handle}" was loaded')
            if (error := model.loaded.exception()) is not None:
                raise unavailable(model) from error
            ready = model.loaded.result()
        finally:
            if not ready:
                self.registry.leave(model)
        return ready

    # ---- changes ----

    def submit(self, component: str, source: Any, version: str | None = None) -> Handle:
        """Build a model, and then make it visible: a new component, a new version, or the replacement of a version.

        >>> with AllRounder() as rounder:
        ...     handle = rounder.submit("echo", "Identity", version="2")
        ...     print(handle, rounder.infer({"data": 1}, ["echo"]))
        echo:2#1 {'echo': {'data': 1, 'result': 1}}

        Args:
            component: The name of the component.
            source: What `hami.pipe` takes, or a table with `source` and options such as `inputs`.
            version: The version; by default the default version of the component, "1" for a new one.

        Returns:
            The handle of the new model.

        Raises:
            Exception: As for `hami.pipe`, if the model cannot be built. What ran before runs on.
        """
        checked_name(component)
        with self._changes.of(lambda: [component]):
            if version is None:
                known = component in self.registry.components()
                version = self.registry.default(component) if known else "1"
            place = (component, checked_name(str(version), "version"))
            return self._changes.replace({place: version_of(component, source)})[0].handle

    def update(self, components: Any) -> None:
        """Make the components exactly these: load what is new or changed, then switch, then remove the others.

        >>> with AllRounder({"a": "Identity", "b": "Identity"}) as rounder:
        ...     rounder.update({"b": "Identity", "c": "Identity"})
        ...     rounder.components()
        ['b', 'c']

        Models with an unchanged description run on. If one model cannot be built, nothing changes.

        Args:
            components: As the source of `AllRounder`.

        Raises:
            ConfigError: The description is wrong.
            Exception: As for `hami.pipe`, if a model cannot be built.
        """
        self._update(read_components(components))

    def _update(self, wanted: Mapping[str, ComponentSpec], *, partly: bool = False) -> None:
        check_routing(wanted)
        with self._changes.of(lambda: [*wanted, *self.registry.components(), EVERY]):
            current = {
                (name, version): model
                for name in self.registry.components()
                for version, model in self.registry.versions(name).items()
            }
            places = {(name, key): what for name, spec in wanted.items() for key, what in spec.versions.items()}
            changed = {
                place: what
                for place, what in places.items()
                if place not in current or current[place].version != what or not current[place].usable
            }
            removed = [model for place, model in current.items() if place not in places]
            self._changes.replace(changed, removed, wanted, partly=partly)

    def apply(self, component: str, value: Any, *, build: bool = False) -> None:
        """Make one component exactly what `value` describes, with all its versions; the others stay as they are.

        Args:
            component: The name of the component.
            value: What describes it.
            build: Build also what has not changed.
        """
        spec = component_of(checked_name(component), value)
        check_routing({component: spec})
        with self._changes.of(lambda: [component]):
            self.registry.check_aliases(component, spec.aliases)
            known = component in self.registry.components()
            current = self.registry.versions(component) if known else {}
            changed = {
                (component, key): what
                for key, what in spec.versions.items()
                if build or key not in current or current[key].version != what or not current[key].usable
            }
            removed = [model for key, model in current.items() if key not in spec.versions]
            self._changes.replace(changed, removed, {component: spec})

    def remove(self, component: str, version: str | None = None) -> None:
        """Remove a component, or one version of it: new requests fail, those that run end, then its pipe is closed.

        Args:
            component: The name of the component.
            version: The version; by default all versions.

        Raises:
            NotFound: There is no such component or version.
        """
        with self._changes.of(lambda: [self.registry.component(component)]):
            self._changes.end(self.registry.switch((), self._models(component, version)))

    def unload(self, component: str, version: str | None = None) -> None:
        """Close the pipes of a component, or of one version, and keep its description: `load` builds them again."""
        with self._changes.of(lambda: [self.registry.component(component)]):
            self._changes.end(self.registry.switch((), self._models(component, version), forget=False))

    def load(self, component: str, version: str | None = None) -> None:
        """Build a component, or one version of it, again; one that runs is replaced. Its description stays the same."""
        with self._changes.of(lambda: [self.registry.component(component)]):
            models = self._models(component, version)
            self._changes.replace({(each.handle.component, each.handle.version): each.version for each in models})

    def route(
        self,
        component: str,
        *,
        default: str | None = None,
        weights: Mapping[str, float] | None = None,
        aliases: Iterable[str] | None = None,
    ) -> None:
        """Change which version a request without a version gets, and under which other names.

        Args:
            component: The name of the component.
            default: Its default version. If none is set, the newest version that is ready.
            weights: Shares of the requests by version, such as {"1": 9, "2": 1}; an empty dict ends the split.
            aliases: Other names of the component.

        Raises:
            NotFound: There is no such component or version.
            AlreadyExists: An alias is in use.
        """
        with self._changes.of(lambda: [self.registry.component(component)]):
            self.registry.route(component, default=default, weights=weights, aliases=aliases)

    def move(self, component: str, device: Any, version: str | None = None) -> None:
        """Build the models of a component on another device, switch to them, and close the old ones."""
        with self._changes.of(lambda: [self.registry.component(component)]):
            places = {}
            for model in self._models(component, version):
                nodes = devices(model.description.get("nodes", {}))
                if not nodes:
                    raise hami.ConfigError(
                        f'"{component}" version "{model.handle.version}" cannot move to {device}: '
                        "no backend of it has the parameter device"
                    )
                old = model.version
                source = with_device(old.source, nodes, str(device).strip())
                what = replace(old, source=source)
                places[model.handle.component, model.handle.version] = what
            self._changes.replace(places)

    def _models(self, component: str, version: str | None) -> list[Model]:
        versions = self.registry.versions(component)
        if version is None:
            return list(versions.values())
        return [self.registry.find(component, version)]

    # ---- looking ----

    def __getitem__(self, component: str) -> Component:
        """Return a view of a component. It keeps no model alive."""
        if component not in self:
            raise unknown_component(component, self.registry.components())
        return Component(component, self.registry, self.submit_request, self.move)

    def __contains__(self, component: object) -> bool:
        try:
            return isinstance(component, str) and bool(self.registry.component(component))
        except hami.NotFound:
            return False

    def components(self) -> list[str]:
        """Return the names of all components."""
        return self.registry.components()

    def models(self) -> list[ModelInfo]:
        """Return a snapshot of every model, those that still drain included."""
        return [model.info() for model in self.registry.models()]

    def table(self) -> str:
        """Return the models as a table of text."""
        return table_of(self.models())

    def close(self, timeout: float | None = None) -> None:
        """Remove all models: new requests fail, those that run end within the drain timeout.

        This does not wait for models that still load: their pipes are closed when they have been built.

        Args:
            timeout: Another drain timeout, in seconds.
        """
        until = _deadline(self._changes.drain_timeout if timeout is None else timeout)
        self._changes.end(self.registry.close(), _left(until))
        self.registry.wait_drained(_left(until))

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.registry.closed

    def __enter__(self) -> AllRounder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hami_serve.AllRounder {', '.join(self.components()) or 'without components'}>"


def _result(name: str, future: Future[dict[str, Any]]) -> dict[str, Any]:
    try:
        return future.result()
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(f'in component "{name}"')
        raise


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until
