"""What a server serves: an `AllRounder`, and the configuration that its models come from."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import hami

from hami_serve import describing
from hami_serve import metrics as prometheus
from hami_serve.errors import ControlDisabled
from hami_serve.model import Model
from hami_serve.peers import Peers
from hami_serve.rounder import AllRounder
from hami_serve.source import INDEX, NAME, ComponentSpec, read_components


class Serving:
    """The models of one source. A source that the caller has not loaded is loaded by `start`."""

    def __init__(
        self,
        source: Any,
        *,
        allow_control: bool = False,
        peers: Peers | None = None,
        make: Callable[..., AllRounder] = AllRounder,
        **options: Any,
    ) -> None:
        self._own = not isinstance(source, AllRounder)
        self._make = make
        self._source = source
        self._options = options
        self._allow_control = allow_control
        self._rounder: AllRounder | None = None if self._own else source
        self._peers = peers
        self._drain_until: float | None = None  # of time.monotonic()

    @property
    def draining(self) -> bool:
        return self._drain_until is not None

    @property
    def rounder(self) -> AllRounder:
        if self._rounder is None:
            raise hami.PipeClosed("the server is starting; try again later")
        return self._rounder

    @property
    def ready(self) -> bool:
        return self._rounder is not None and not self.draining and not self._rounder.closed

    def start(self) -> None:
        """Load all models."""
        if self._rounder is None:
            self._rounder = self._make(components_of(self._source), **self._options)

    def drain(self, seconds: float) -> None:
        """Be not ready from now on, and let `stop` wait at most for the rest of the time."""
        if self._drain_until is None:
            self._drain_until = time.monotonic() + seconds

    def drain_left(self) -> float | None:
        """Return the seconds that open requests have left to end; None if `drain` was not called."""
        return None if self._drain_until is None else max(0.0, self._drain_until - time.monotonic())

    def stop(self) -> None:
        """Close the models, if `start` has loaded them."""
        left = self.drain_left()
        self.drain(0.0)
        if self._own and self._rounder is not None:
            self._rounder.close(left)

    # ---- what the workers of a server know only together ----

    @contextlib.asynccontextmanager
    async def answering_peers(self) -> AsyncIterator[None]:
        """Answer what the other workers ask."""
        if self._peers is None:
            yield
            return
        answers = {
            "metrics": lambda: prometheus.packed(prometheus.families(self.rounder)),
            "statistics": lambda: [describing.statistics(model) for model in self.rounder.registry.models()],
        }
        async with await self._peers.listen(answers):
            yield

    async def metrics(self) -> bytes:
        """Return the metrics of all workers in the text format of Prometheus."""
        if self._peers is None:
            return await asyncio.to_thread(lambda: prometheus.text(prometheus.families(self.rounder)))
        return prometheus.text(prometheus.of_workers(await self._peers.ask("metrics"), self._peers.count))

    async def statistics(self, models: Collection[Model]) -> list[dict[str, Any]]:
        """Return the statistics of models: their sums over all workers."""
        if self._peers is None:
            return [describing.statistics(model) for model in models]
        wanted = {(model.handle.component, model.handle.version) for model in models}
        found = describing.summed_statistics((await self._peers.ask("statistics")).values())
        return [each for each in found if (each["name"], each["version"]) in wanted]

    # ---- changes ----

    def reload(self) -> dict[str, Exception]:
        """Make each component what the folder describes now; return the errors by component.

        A component that cannot be built stays as it is.

        Raises:
            ConfigError: The folder cannot be read. All models stay as they are.
        """
        if not Path(self._source).is_dir():
            raise hami.ConfigError(f'"{self._source}" is not a folder any more; the models stay as they are')
        errors: dict[str, Exception] = {}
        described = components_of(self._source)
        for name, spec in described.items():
            try:
                self.rounder.apply(name, spec)
            except Exception as error:
                errors[name] = error
        for name in self.rounder.components():
            if name not in described:
                self.rounder.remove(name)
        return errors

    def load(self, name: str) -> None:
        """Load a component for a client, as the source describes it now; it may be new."""
        self._check_control("load")
        if self._own and _is_stored(self._source):
            described = components_of(self._source)
            if name in described:
                self.rounder.apply(name, described[name])
                return
        self.rounder.load(name)

    def unload(self, name: str) -> None:
        """Unload a component for a client."""
        self._check_control("unload")
        self.rounder.unload(name)

    def _check_control(self, action: str) -> None:
        if not self._allow_control:
            raise ControlDisabled(
                f"a client asked to {action} a model, and this server does not let clients load and unload models; "
                "start it with --allow-control, or with app(…, allow_control=True)"
            )


def _is_stored(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) and Path(source).exists()


def components_of(source: Any) -> dict[str, ComponentSpec]:
    """Return the components of what a server is given: a repository, a mapping of components, or one pipeline."""
    if source is None or isinstance(source, Mapping):
        return read_components(source)
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir() or path.name == INDEX:
            return read_components(path)
        if path.suffix == ".toml":
            return read_components({path.stem: {"source": str(path)}})
        text = str(source)
        return read_components({text if NAME.fullmatch(text) else "default": {"source": text}})
    raise hami.ConfigError(
        "a server takes a folder, a file, an expression, a mapping of components or an AllRounder, "
        f"got {type(source).__name__}"
    )
