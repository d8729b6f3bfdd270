"""A native class declares what its requests cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import HERE, Toolchain

Build = Callable[..., Path]


@pytest.fixture
def prefix(toolchain: Toolchain, build: Build) -> str:
    hami.native.register_plugin(build(toolchain, HERE / "plugins" / "request_cost.cpp"))
    return toolchain.prefix


def ask(backend: str, sizes: list[float], **config: Any) -> list[int]:
    """Return the number of requests in the batch of each request of one call."""
    with hami.pipe({"backend": backend, "max": 8, **config}) as pipe:
        found = [request["result"] for request in pipe([{"data": 0, "size": size} for size in sizes])]
        assert pipe.stats()["default"].inline_batches == (config.get("request_cost") == "" or "Unsized" in backend)
    return found


def test_requests_of_equal_cost_share_a_batch(prefix: str) -> None:
    assert ask(f"{prefix}Sized", [3.0, 9.0, 3.0]) == [2, 1, 2]
    assert ask(f"S[{prefix}Sized, Identity]", [3.0, 9.0, 3.0]) == [2, 1, 2]


def test_without_a_declaration_all_cost_the_same(prefix: str) -> None:
    assert ask(f"{prefix}Unsized", [3.0, 9.0, 3.0]) == [3, 3, 3]
    assert ask(f"{prefix}Sized", [3.0, 9.0, 3.0], request_cost="") == [3, 3, 3]


@pytest.mark.parametrize(
    ("times", "keys", "error", "message"),
    [
        (0.0, {"size": 1.0}, hami.RequestError, "must be a positive number, got 0.000000"),
        (-1.0, {"size": 1.0}, hami.RequestError, "must be a positive number, got -1.000000"),
        (1.0, {"size": float("nan")}, hami.RequestError, "must be a positive number, got nan"),
        (1.0, {"size": float("inf")}, hami.RequestError, "must be a positive number, got inf"),
        (1.0, {}, hami.DataTypeError, "no size"),
        (1.0, {"size": "long"}, hami.DataTypeError, "str"),
    ],
)
def test_a_wrong_cost_fails_its_request_alone(
    prefix: str, times: float, keys: dict[str, Any], error: type[Exception], message: str
) -> None:
    with hami.pipe({"backend": f"{prefix}Sized(times={times})", "max": 8}) as pipe:
        wrong = pipe.submit({"data": 0, **keys})
        beside = pipe.submit({"data": 0, "size": 2.0})
        with pytest.raises(error, match=message):
            wrong.result(60)
        if times > 0:
            assert beside.result(60)["result"] == 1
        else:
            assert isinstance(beside.exception(60), hami.RequestError)


def test_a_cost_without_measure_is_bounded(prefix: str) -> None:
    with hami.pipe({"backend": f"{prefix}Sized", "max": 8}) as pipe:
        pipe([{"data": 0, "size": 1e308}, {"data": 0, "size": 1e308}])
        assert pipe.stats()["default"].policy.batch_cost == 2e12
