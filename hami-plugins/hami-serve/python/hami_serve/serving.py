"""What a server serves: an `AllRounder`, and the configuration that its models come from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import hami
import hami.config
from prometheus_client.metrics_core import Metric

from hami_serve import describing
from hami_serve import metrics as prometheus
from hami_serve.budget import Budget, default_limit
from hami_serve.errors import ControlDisabled, ModelUnavailable, load_failed, reason_of, text_of, with_text
from hami_serve.failures import line_of, of_load
from hami_serve.model import Model
from hami_serve.peers import Peers
from hami_serve.rounder import AllRounder
from hami_serve.shared_memory import Regions
from hami_serve.source import INDEX, NAME, ComponentSpec, read_components, read_each
from hami_serve.threads import Outcome, Threads

MAX_CHANGES = 32  # of components, at a time; a load that hangs keeps its thread
log = logging.getLogger("hami.serve")


class Serving:
    """The models of one source. A source that the caller has not loaded is loaded by `start`."""

    def __init__(
        self,
        source: Any,
        *,
        allow_control: bool = False,
        shared_memory: bool = False,
        peers: Peers | None = None,
        max_open: int | None = None,
        make: Callable[..., AllRounder] = AllRounder,
        **options: Any,
    ) -> None:
        self.budget = Budget(max_open or default_limit())  # of the memory of open requests
        self._own = not isinstance(source, AllRounder)
        self._make = make
        self._source = source
        self._options = options
        self._allow_control = allow_control
        self.regions = Regions(shared_memory)
        self._rounder: AllRounder | None = None if self._own else source
        self._load: Outcome[None] | None = None
        self._lock = threading.Lock()  # of the two above
        self._threads = Threads("hami-serve-change", MAX_CHANGES)
        self._peers = peers
        self._drain_until: float | None = None  # of time.monotonic()
        self._changed: Callable[[], None] = lambda: None
        self._count: Callable[[], None] = lambda: None

    def watch(self, changed: Callable[[], None], count: Callable[[], None]) -> None:
        """Let the native door know of changes of the models, and count its requests before statistics are read."""
        self._changed, self._count = changed, count
        if self._rounder is not None:
            self._rounder.registry.changed = changed

    @property
    def draining(self) -> bool:
        return self._drain_until is not None

    @property
    def begun(self) -> bool:
        return self._load is not None

    @property
    def loaded(self) -> bool:
        """Whether the models are there; each has its own state from then on."""
        return not self._own or (self._load is not None and self._load.done() and self._load.exception() is None)

    @property
    def rounder(self) -> AllRounder:
        if not self.loaded or self._rounder is None:
            raise hami.PipeClosed(f"the server is starting: {', '.join(self.loading()) or 'it has no models yet'}")
        return self._rounder

    @property
    def ready(self) -> bool:
        return self.loaded and not self.draining and not self.rounder.closed

    def loading(self) -> list[str]:
        """Return the names of the models that still load, for the first time."""
        return self._names(lambda model: model.is_loading)

    def usable(self) -> list[str]:
        """Return the names of the models whose requests are answered."""
        return self._names(lambda model: model.usable)

    def _names(self, of: Callable[[Model], bool]) -> list[str]:
        models = self._rounder.registry.models() if self._rounder is not None else []
        return list(dict.fromkeys(each.handle.component for each in models if of(each)))

    def begin(self) -> Outcome[None]:
        """Begin to load all models, if that has not begun; return a future of the end of that.

        After a failure, this begins again.
        """
        with self._lock:
            if self._load is None or (self._load.done() and self._load.exception() is not None):
                self._load = self._threads.start(self._load_all)
            return self._load

    def _load_all(self) -> None:
        if not self._own:
            return
        components = components_of(self._source)
        rounder = self._make(**self._options)
        rounder.registry.changed = lambda: self._changed()
        with self._lock:
            self._rounder = rounder
        if self.draining:  # `stop` did not see it
            rounder.close()
        try:
            rounder.fill(components, partly=True)
        except BaseException:
            rounder.close()
            raise

    def start(self) -> None:
        """Load all models."""
        self.begin().result()

    async def started(self) -> None:
        """Load all models, or wait until they are loaded."""
        if not self.loaded:
            load = self.begin()
            await load.wait()
            load.result()

    async def started_for_request(self) -> None:
        """Do the same for a request, whose client is not to blame for a failure."""
        try:
            await self.started()
        except Exception as error:
            log.error("the models cannot be loaded: %s", line_of(error))
            unavailable = ModelUnavailable(f"the models cannot be loaded: {text_of(error)}")
            raise with_text(unavailable, f"the models {load_failed(reason_of(error))}") from error

    def drain(self, seconds: float) -> None:
        """Be not ready from now on, and let `stop` wait at most for the rest of the time."""
        if self._drain_until is None:
            self._drain_until = time.monotonic() + seconds

    def drain_left(self) -> float | None:
        """Return the seconds that open requests have left to end; None if `drain` was not called."""
        return None if self._drain_until is None else max(0.0, self._drain_until - time.monotonic())

    def stop(self) -> None:
        """Close the models that this has loaded. It does not wait for those that still load."""
        self.regions.close()
        left = self.drain_left()
        self.drain(0.0)
        with self._lock:
            rounder = self._rounder
        if self._own and rounder is not None:
            rounder.close(left)

    # ---- what the workers of a server know only together ----

    @contextlib.asynccontextmanager
    async def answering_peers(self) -> AsyncIterator[None]:
        """Answer what the other workers ask."""
        if self._peers is None:
            yield
            return
        answers = {
            "metrics": lambda: prometheus.packed(self._families()),
            "statistics": lambda: [describing.statistics(model) for model in self.rounder.registry.models()],
        }
        async with await self._peers.listen(answers):
            yield

    async def metrics(self) -> bytes:
        """Return the metrics of all workers in the text format of Prometheus."""
        if self._peers is None:
            return await asyncio.to_thread(lambda: prometheus.text(self._families()))
        return prometheus.text(prometheus.of_workers(await self._peers.ask("metrics"), self._peers.count))

    def _families(self) -> list[Metric]:
        self._count()
        return [] if self._rounder is None else prometheus.families(self._rounder)

    async def statistics(self, models: Collection[Model]) -> list[dict[str, Any]]:
        """Return the statistics of models: their sums over all workers."""
        self._count()
        if self._peers is None:
            return [describing.statistics(model) for model in models]
        wanted = {(model.handle.component, model.handle.version) for model in models}
        found = describing.summed_statistics((await self._peers.ask("statistics")).values())
        return [each for each in found if (each["name"], each["version"]) in wanted]

    # ---- changes ----

    def reload(self, busy: Collection[str] = ()) -> dict[str, Future[None]]:
        """Begin to make each component what the folder describes now; return a future for each.

        A component that cannot be built, or whose description is wrong, stays as it is.

        Args:
            busy: Components that are left as they are.

        Raises:
            ConfigError: The folder cannot be read. All models stay as they are.
        """
        if not Path(self._source).is_dir():
            raise hami.ConfigError(f'"{self._source}" is not a folder any more; the models stay as they are')
        described, errors = read_each(Path(self._source))
        begun: dict[str, Future[None]] = {}
        for name, spec in described.items():
            if name not in busy:
                begun[name] = self._threads.start(self.rounder.apply, name, spec, key=name)
        for name, error in errors.items():
            if name not in busy:
                begun[name] = Outcome()
                begun[name].set_exception(error)
        for name in self.rounder.components():
            if name not in described and name not in errors and name not in busy:
                begun[name] = self._threads.start(self.rounder.remove, name, key=name)
        return begun

    async def load(self, name: str) -> None:
        """Load a component for a client, as the source describes it now; it may be new, and is always built again."""
        self._check_control("load")
        await self._change(self._load_again, name)

    def _load_again(self, name: str) -> None:
        with of_load(name):
            if self._own and _is_stored(self._source):
                described = components_of(self._source)
                if name in described:
                    self.rounder.apply(name, described[name], build=True)
                    return
            self.rounder.load(name)

    async def unload(self, name: str) -> None:
        """Unload a component for a client."""
        self._check_control("unload")
        await self._change(self.rounder.unload, name)

    async def _change(self, change: Callable[[str], None], name: str) -> None:
        """Make a change of a component on a thread. One that hangs delays only those of the same component."""
        future = self._threads.start(change, name, key=name)
        await future.wait()
        future.result()

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
        return read_components({_name_of(path): {"source": str(source)}})
    raise hami.ConfigError(
        "a server takes a folder, a file, an expression, a mapping of components or an AllRounder, "
        f"got {type(source).__name__}"
    )


def with_settings(source: str, settings: Sequence[str]) -> Mapping[str, Any]:
    """Return one component: a pipeline with KEY=VALUE settings, as those of `hami run`."""
    config, problems = hami.config.read_source(source, settings)
    if problems:
        raise hami.ConfigError("\n\n".join(map(str, problems)))
    return {_name_of(Path(source)): {"source": config}}


def _name_of(source: Path) -> str:
    """Return the name of the component for a file, a packaged pipeline or an expression."""
    if source.suffix == ".toml" or hami.config.model_file(source):
        return source.stem
    return str(source) if NAME.fullmatch(str(source)) else "default"
