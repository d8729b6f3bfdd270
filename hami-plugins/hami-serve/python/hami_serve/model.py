"""One version of a model: its state, its pipe, and the requests that use the pipe now.

    loading ──> ready ──> draining ──> unloaded
       ├──────> failed
       └──────> unloaded, if another model takes its place meanwhile

The registry guards every transition with its lock. A model that becomes ready makes the model that it replaces
draining. A draining model receives no new request; its pipe is closed when the last request that had begun has ended.

A model that has `on_demand` is loaded again, as a new generation, by the next request for it. Requests that come while
a model loads, for any reason, are counted in `in_flight` at once, and wait for `loaded`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import hami

from hami_serve.threads import Outcome

LATENCIES = 1024  # of the last requests; p50 and p99 are those of these requests


class State(str, Enum):
    """The state of a model."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    UNLOADED = "unloaded"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Handle:
    """Names one load of one version. It keeps nothing alive: a later load of the version has another generation."""

    component: str
    version: str
    generation: int

    def __str__(self) -> str:
        return f"{self.component}:{self.version}#{self.generation}"


@dataclass(frozen=True)
class TensorSpec:
    """An input or an output of a model: its name, its datatype in the Open Inference Protocol, its shape (-1: any)."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    labels: tuple[str, ...] = ()  # of the classes of an output
    is_text: bool = False  # BYTES that the pipe takes as `str`


@dataclass(frozen=True, eq=False)
class Stamp:
    """The state of a file. A file that was only touched has changed: files that it names may have changed.

    A copy of it with the same content has not, although it has another inode and another time.
    """

    digest: str
    inode: int
    mtime_ns: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stamp) or self.digest != other.digest:
            return False
        return self.inode != other.inode or self.mtime_ns == other.mtime_ns

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True)
class Version:
    """What a configuration says about one version of a model."""

    source: Any
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    memory: int = 0  # bytes that it is declared to take; 0: not declared
    stamp: Stamp | None = None  # of the file, if the source is one: a changed file is a changed version
    warmup: int = 0  # requests of zeros, in the shapes of the inputs, before the model is ready
    decoupled: bool = False  # that it answers in parts; only clients that ask for the configuration read this


@dataclass(frozen=True)
class ModelInfo:
    """A snapshot of a model, for programs that watch it."""

    handle: Handle
    state: State
    reason: str
    backends: str
    device: str
    memory: int
    created: float
    calls: int
    failures: int
    in_flight: int
    p50_ms: float | None
    p99_ms: float | None


@dataclass(eq=False)
class Model:
    """One generation of one version. All attributes are guarded by the lock of the registry."""

    handle: Handle
    version: Version
    state: State = State.LOADING
    reason: str = ""
    pipe: hami.Pipe | None = None
    on_demand: bool = False
    created: float = field(default_factory=time.time)
    in_flight: int = 0
    native_in_flight: int = 0  # requests of the native door, when it was last looked at
    calls: int = 0
    failures: int = 0
    success_ns: int = 0
    failure_ns: int = 0
    last_call: float = 0.0  # time.time()
    before: Model | None = None  # what its place showed, until it is ready
    used: int = 0  # ticks of the registry, for the least recently used
    slot: object = field(default_factory=object)  # models of one slot count as one for the limits of loaded models
    loaded: Outcome[bool] = field(default_factory=Outcome)  # whether it became ready; False: choose a model again
    again_at: float = 0.0  # time.monotonic() from which on a request loads it again after a failure
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    description: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[TensorSpec, ...] = ()  # those declared, else those of the engine
    outputs: tuple[TensorSpec, ...] = ()
    data_type: str | None = None  # of what the first backend takes, "bytes" or "text", if its plugin says it
    takes_keys: bool = False  # inputs that it does not declare are keys of the request
    takes_rows: bool = False  # its pipe takes one row of its only input: a request with several rows is split
    more_rows: int = 0  # rows of successful requests, beyond one for each

    def __post_init__(self) -> None:
        self.inputs, self.outputs = self.version.inputs, self.version.outputs

    @property
    def usable(self) -> bool:
        """Whether a request for it is answered: it is ready, or its first request loads it."""
        return self.state is State.READY or (self.on_demand and self.state is not State.FAILED)

    @property
    def is_loading(self) -> bool:
        """Whether it is not built yet, by a change that no request has started."""
        return self.state is State.LOADING and self.pipe is None and not self.on_demand

    def takes_text(self, name: str) -> bool | None:
        """Whether the pipe takes the elements of an input of BYTES as `str`; None if nothing says it."""
        spec = next((each for each in self.inputs if each.name == name), None)
        if spec is not None and spec.datatype:
            return spec.is_text
        return None if self.data_type is None else self.data_type == "text"

    def running_pipe(self) -> hami.Pipe:
        """Return the pipe for a request that was counted."""
        if self.pipe is None:  # the drain timeout has passed
            raise hami.PipeClosed(f"the model {self.handle} was removed")
        return self.pipe

    def info(self) -> ModelInfo:
        ordered = sorted(self.latencies)
        return ModelInfo(
            handle=self.handle,
            state=self.state,
            reason=self.reason,
            backends=", ".join(each["name"] for node in self._nodes().values() for each in node["backends"]),
            device=", ".join(devices(self._nodes()).values()) or "cpu",
            memory=self.version.memory,
            created=self.created,
            calls=self.calls,
            failures=self.failures,
            in_flight=self.in_flight + self.native_in_flight,
            p50_ms=_rank(ordered, 0.5),
            p99_ms=_rank(ordered, 0.99),
        )

    def _nodes(self) -> Mapping[str, Any]:
        nodes: Mapping[str, Any] = self.description.get("nodes", {})
        return nodes


def devices(nodes: Mapping[str, Any]) -> dict[str, str]:
    """Return the device of every node that has a backend with the parameter `device`."""
    found = {}
    for name, node in nodes.items():
        pending = list(node["backends"])
        while pending:
            backend = pending.pop()
            pending += backend["children"]
            if "device" in backend["params"]:
                found[name] = str(backend["params"]["device"])
    return found


def _rank(ordered: list[float], share: float) -> float | None:
    """Return the value in ms that the share of all values does not exceed."""
    if not ordered:
        return None
    return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]
