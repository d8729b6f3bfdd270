"""`pipe.warmup`: batches before the first request."""

from __future__ import annotations

from typing import Any, ClassVar

import hami
import pytest


@hami.register
class WarmSizes(hami.Backend):
    """Notes the sizes of its batches."""

    max = 8
    sizes: ClassVar[list[int]] = []

    def forward(self, batch: list[hami.Request]) -> None:
        self.sizes.append(len(batch))
        for item in batch:
            item["result"] = 1 / item["data"]


@pytest.mark.parametrize(
    ("keys", "arguments", "sizes"),
    [
        ({"max": 8}, {}, [1, 1, 1, 8, 8, 8]),
        ({"max": 1}, {"n": 2}, [1, 1]),
        ({"max": 8}, {"sizes": [4, 2, 4], "n": 1}, [2, 4]),
    ],
)
def test_batches_of_each_size_run(keys: dict[str, int], arguments: dict[str, Any], sizes: list[int]) -> None:
    """The smallest first; the request is not changed."""
    WarmSizes.sizes.clear()
    request = {"data": 2}
    with hami.pipe({"backend": "WarmSizes", **keys}) as pipe:
        took = pipe.warmup(request, **arguments)
    assert WarmSizes.sizes == sizes
    assert list(took) == sorted(set(sizes))
    assert all(seconds > 0 for seconds in took.values())
    assert request == {"data": 2}


def test_the_first_failure_is_raised() -> None:
    """And the pipe serves the next request."""
    with hami.pipe({"backend": "WarmSizes", "max": 4}) as pipe:
        with pytest.raises(ZeroDivisionError):
            pipe.warmup({"data": 0})
        assert pipe({"data": 1})["result"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"), [({"n": 0}, "n must be at least 1, got 0"), ({"sizes": [0]}, "a size")]
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    """Nothing runs."""
    with hami.pipe("Identity") as pipe, pytest.raises(hami.ConfigError, match=message):
        pipe.warmup({"data": 1}, **arguments)
