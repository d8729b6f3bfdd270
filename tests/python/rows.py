"""Helpers of tests that call a pipe once: expect a result or an error, record the calls of backends."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from running import TIMEOUT

INSTANCES = "InstancesRegister[Reflect[backend]]"


def answer(config: Any, data: Any = 0, **keys: Any) -> Any:
    """Build a pipe, call it once, close it and return `result`."""
    with hami.pipe(config) as pipe:
        return pipe({"data": data, **keys}, timeout=TIMEOUT)["result"]


def answers(config: Any, *data: Any) -> list[Any]:
    """Build a pipe, call it with one list of requests, close it and return the results."""
    with hami.pipe(config) as pipe:
        return [request["result"] for request in pipe([{"data": one} for one in data], timeout=TIMEOUT)]


def refused(config: Any, expected: type[hami.Error] = hami.ConfigError) -> str:
    """Return the text of the error that `hami.pipe` raises for this configuration."""
    with pytest.raises(expected) as caught:
        hami.pipe(config)
    return str(caught.value)


def failure(config: Any, expected: type[Exception], data: Any = 0, **keys: Any) -> str:
    """Call a pipe once, check that the request has no `result`, and return the first line of the error."""
    with hami.pipe(config) as pipe:
        request = {"data": data, "result": "stale", **keys}
        with pytest.raises(expected) as caught:
            pipe(request, timeout=TIMEOUT)
        assert "result" not in request
    return str(caught.value).splitlines()[0]


def in_register(expression: str) -> str:
    """Return an init expression that registers the instances, then this expression."""
    return f"List[{INSTANCES}, Register[{expression}]]"


def noting(*names: str, **attributes: Any) -> list[tuple[str, str]]:
    """Register backends that append their name to `data`, and return a journal of their init, run and close calls."""
    journal: list[tuple[str, str]] = []

    def body(name: str) -> dict[str, Any]:
        def init(self: Any, options: Any) -> None:
            journal.append(("init", name))

        def forward(self: Any, batch: list[Any]) -> None:
            journal.append(("run", name))
            for item in batch:
                item["result"] = [*(item["data"] or []), name]

        def close(self: Any) -> None:
            journal.append(("close", name))

        return {"init": init, "forward": forward, "close": close, **attributes}

    for name in names:
        hami.register(name)(type(name, (hami.Backend,), body(name)))
    return journal


def happened(journal: list[tuple[str, str]], kind: str) -> list[str]:
    """Return the names of the backends with this kind of entry, in order."""
    return [name for entry, name in journal if entry == kind]


def counting(name: str = "Count") -> None:
    """Register a backend that appends to `data` the number of requests that this instance has run."""

    class Counts(hami.Backend):
        def init(self, options: Any) -> None:
            self.runs = 0

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                self.runs += 1
                item["result"] = [*(item["data"] or []), self.runs]

    hami.register(name)(Counts)


def sizing(name: str = "Sizes", **attributes: Any) -> list[int]:
    """Register a backend that returns `data`, and return the list of its batch sizes."""
    sizes: list[int] = []

    def forward(self: Any, batch: list[Any]) -> None:
        sizes.append(len(batch))
        for item in batch:
            item["result"] = item["data"]

    hami.register(name)(type(name, (hami.Backend,), {"forward": forward, **attributes}))
    return sizes
