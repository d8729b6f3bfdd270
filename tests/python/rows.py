"""Helpers of the test_language_rows tests: call a pipe once, expect an error, record what happens to backends."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from running import PATIENCE

INSTANCES = "InstancesRegister[Reflect[backend]]"


def answer(config: Any, data: Any = 0, **keys: Any) -> Any:
    """Build a pipe, ask it once, close it; return `result`."""
    with hami.pipe(config) as pipe:
        return pipe({"data": data, **keys}, timeout=PATIENCE)["result"]


def answers(config: Any, *data: Any) -> list[Any]:
    """Build a pipe, ask it with one list of requests, close it."""
    with hami.pipe(config) as pipe:
        return [request["result"] for request in pipe([{"data": one} for one in data], timeout=PATIENCE)]


def refused(config: Any, expected: type[hami.Error] = hami.ConfigError) -> str:
    """Return the text of the error that this configuration is."""
    with pytest.raises(expected) as caught:
        hami.pipe(config)
    return str(caught.value)


def failure(config: Any, expected: type[Exception], data: Any = 0, **keys: Any) -> str:
    """Ask a pipe once; return the first line of the error that it raises. The request has no `result` then."""
    with hami.pipe(config) as pipe:
        request = {"data": data, "result": "stale", **keys}
        with pytest.raises(expected) as caught:
            pipe(request, timeout=PATIENCE)
        assert "result" not in request
    return str(caught.value).splitlines()[0]


def in_register(expression: str) -> str:
    """Return an init expression with this in Register, after the instances."""
    return f"List[{INSTANCES}, Register[{expression}]]"


def noting(*names: str, **attributes: Any) -> list[tuple[str, str]]:
    """Register backends that append their name to `data`, and return the journal of their inits, runs and ends."""
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


def happened(journal: list[tuple[str, str]], what: str) -> list[str]:
    """Return the names of the backends to which this happened, in order."""
    return [name for kind, name in journal if kind == what]


def counting(name: str = "Count") -> None:
    """Register a backend that appends to `data` how often this instance has run."""

    class Counts(hami.Backend):
        def init(self, options: Any) -> None:
            self.runs = 0

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                self.runs += 1
                item["result"] = [*(item["data"] or []), self.runs]

    hami.register(name)(Counts)


def sizing(name: str = "Sizes", **attributes: Any) -> list[int]:
    """Register a backend that answers `data`, and return the sizes of the batches that it saw."""
    sizes: list[int] = []

    def forward(self: Any, batch: list[Any]) -> None:
        sizes.append(len(batch))
        for item in batch:
            item["result"] = item["data"]

    hami.register(name)(type(name, (hami.Backend,), {"forward": forward, **attributes}))
    return sizes
