"""Backends as plugin authors write them: test_typing.py expects mypy --strict and pyright to find no error here."""

# pyright: strict

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Literal

import hami
from hami.observe import PipeDescription
from typing_extensions import assert_type


@hami.register
class FixedRange(hami.Backend):
    """`max` and `min` are ints, and parameters have every supported type."""

    model: Path
    size: Annotated[int, "edge length in pixels"] = 224
    share: float | None = None
    mode: Literal["fast", "exact"] = "fast"
    wait: hami.types.Duration = 0.005
    cache: hami.types.ByteSize = 1 << 20
    limit: Annotated[int, hami.types.Key("max")] = 4

    max = 8
    min = 2
    thread = "serialized"
    non_blocking = True
    idempotent = False
    child_count = (1, None)

    def init(self, options: hami.types.DictView) -> None:
        self.instance = int(options["instance"])
        assert_type(self.children, tuple[hami.types.BackendHandle, ...])
        self.other = self.find("node.other")
        assert_type(self.other({"data": 1}), dict[str, Any])
        assert_type(self.children[0]([{"data": 1}]), list[dict[str, Any]])
        assert_type(self.queue("frames"), hami.Queue)
        assert_type(self.store, hami.types.RequestStore)
        assert_type(self.log, logging.Logger)
        self.count("seen")

    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            if item.cancelled:
                item.fail(hami.RequestError("cancelled"))
            item["result"] = item["data"]
        self.children[0].forward(batch)

    def close(self) -> None:
        del self.instance


@hami.register("typing-annotated")
class AnnotatedRange(hami.Backend):
    """`max` has an annotation of its own, `min` is None, and `child_count` is a pair of ints."""

    max: int = 8
    min = None
    thread = "concurrent"
    child_count = (0, 2)

    def forward(self, batch: list[hami.Request]) -> None:
        hami.batching.scatter(batch, [self.max for _ in batch])


class MethodRange(hami.Backend):
    """`max` and `min` are methods; `min` may return None."""

    def max(self) -> int:
        return 8

    def min(self) -> int | None:
        return None

    def forward(self, batch: list[hami.Request]) -> None:
        assert_type(self.max(), int)


class DerivedRange(MethodRange):
    """A subclass overrides a method of its base."""

    def max(self) -> int:
        return super().max() // 2


class PropertyRange(hami.Backend):
    """`max` and `min` are properties."""

    @property
    def max(self) -> int:
        return 8

    @property
    def min(self) -> int | None:
        return None

    def forward(self, batch: list[hami.Request]) -> None:
        assert_type(self.max, int)


class WithPartner(hami.Backend):
    """Receives a partner from `With` or `DI`."""

    def inject_dependency(self, dependency: hami.types.BackendHandle) -> None:
        self.partner = dependency

    def forward_with_dep(self, batch: list[hami.Request], dependency: hami.types.BackendHandle) -> None:
        dependency.forward(batch)


def calls(pipe: hami.Pipe) -> None:
    """Every call of a pipe has a precise type."""
    request = {"data": 1, "name": "one"}
    assert_type(pipe({"data": 1}), dict[str, Any])
    assert_type(pipe([{"data": 1}]), list[dict[str, Any]])
    assert_type(pipe.submit(request).result(), dict[str, Any])
    assert_type(list(pipe.map([request])), list[dict[str, Any]])
    assert_type(pipe.stats(), dict[str, hami.observe.NodeStats])
    assert_type(pipe.queue("frames"), hami.Queue)
    assert_type(pipe.store, hami.types.RequestStore)
    assert_type(pipe.describe(), PipeDescription)
    node = pipe.stats()["default"]
    assert_type(node.batch_items / node.batches, float)
    assert_type(node, hami.observe.NodeStats)
    assert_type(node.batches, int)
    assert_type(node.compute_ms, float)
    assert_type(node.target_batch_size, int | None)
    assert_type(node.per_item_ms, float | None)
    assert_type(node.counters, dict[str, int])


async def awaits(pipe: hami.Pipe) -> None:
    assert_type(await pipe.acall({"data": 1}), dict[str, Any])
