"""`hami_tools.timer` and `hami_tools.inspector`: measurements of code of the program."""

from __future__ import annotations

import asyncio
import mmap
import sys
import types
from collections.abc import AsyncIterator, Iterator
from typing import Any

import hami
import pytest

import hami_tools
from hami_tools import timers, user_code


def count(name: str) -> int:
    found = timers().get(name)
    return found.count if found else 0


def test_a_block_and_the_calls_of_a_function_are_counted_even_if_they_raise() -> None:
    @hami_tools.timer("calls")
    def divide(number: int) -> float:
        """Divide."""
        return 12 / number

    with hami_tools.timer("block"):
        assert divide(3) == 4
    with pytest.raises(ZeroDivisionError):
        divide(0)
    with pytest.raises(ZeroDivisionError), hami_tools.timer("block"):
        divide(0)
    assert (count("calls"), count("block")) == (3, 2)
    assert (divide.__name__, divide.__doc__) == ("divide", "Divide.")


def test_a_recursive_function_is_counted_for_each_call() -> None:
    @hami_tools.timer("recursive")
    def depth(number: int) -> int:
        return 0 if number == 0 else 1 + depth(number - 1)

    assert depth(3) == 3
    assert count("recursive") == 4


def test_an_async_function_is_counted_when_it_has_returned() -> None:
    @hami_tools.timer("async")
    async def wait(event: asyncio.Event) -> str:
        await event.wait()
        return "done"

    async def main() -> tuple[int, str]:
        event = asyncio.Event()
        task = asyncio.create_task(wait(event))
        await asyncio.sleep(0)
        running = count("async")
        event.set()
        return running, await task

    assert asyncio.run(main()) == (0, "done")
    assert count("async") == 1


def test_a_generator_is_measured_without_its_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(0, 10_000_000_000, 1_000_000))  # each look at the clock is 1 ms later
    monkeypatch.setattr("hami_tools.user_code.time.monotonic_ns", lambda: next(moments))

    @hami_tools.timer("generator")
    def numbers() -> Iterator[int]:
        yield from range(3)

    seen = []
    for number in numbers():
        seen.append(number)
        for _ in range(50):
            next(moments)  # the consumer
    monkeypatch.undo()
    assert seen == [0, 1, 2]
    assert timers()["generator"].sum == 4  # three items and the end


def test_values_exceptions_and_the_result_pass_through_a_measured_generator() -> None:
    @hami_tools.timer("echo")
    def echo() -> Iterator[Any]:
        got: Any = "first"
        while True:
            try:
                got = yield got
            except KeyError:
                got = "caught"
            if got == "end":
                return "result"

    generator: Any = echo()
    assert next(generator) == "first"
    assert generator.send("second") == "second"
    assert generator.throw(KeyError()) == "caught"
    with pytest.raises(StopIteration) as ended:
        generator.send("end")
    assert ended.value.value == "result"
    closed: Any = echo()
    next(closed)
    closed.close()
    assert count("echo") == 2


def test_an_async_generator_is_counted_once_also_if_its_consumer_leaves() -> None:
    @hami_tools.timer("async generator")
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    async def main() -> list[int]:
        found = [number async for number in numbers()]
        leaving: Any = numbers()
        async for _ in leaving:
            break
        await leaving.aclose()
        return found

    assert asyncio.run(main()) == [0, 1, 2]
    assert count("async generator") == 2


def test_wrong_use_of_a_timer_is_an_error() -> None:
    with pytest.raises(hami.DataTypeError, match="the name of a timer is a str, got function"):
        hami_tools.timer(lambda: None)  # type: ignore[arg-type]
    running = hami_tools.timer("twice")
    with running, pytest.raises(RuntimeError, match="this timer is running"), running:
        pass


def test_an_inspector_runs_a_function_several_times_and_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []
    inspected = hami_tools.inspector("append", repeat=4, gpu=False)
    assert inspected(calls.append)(7) is None
    assert calls == [7] * 4
    table = capsys.readouterr().err
    assert table == f"{inspected}\n"
    assert [line.split("  ")[0] for line in table.splitlines()] == ["append: 4 runs", "time ms", "cpu ms", "memory KiB"]
    assert [len(runs) for runs in inspected.runs.values()] == [4, 4, 4]
    assert count("append") == 4


def test_an_inspector_sees_memory_that_stays() -> None:
    with hami_tools.inspector("allocate", cpu=False, gpu=False) as inspected:
        kept = mmap.mmap(-1, 32 << 20)  # bytes may lie in memory that was freed before
        kept.write(b"x" * len(kept))
    assert inspected.runs["memory KiB"][0] > len(kept) / 1024 / 2
    assert set(inspected.runs) == {"time ms", "memory KiB"}


def test_a_run_that_raises_is_measured_and_ends_the_repetition() -> None:
    inspected = hami_tools.inspector("raises", repeat=3, cpu=False, memory=False, gpu=False)
    with pytest.raises(ZeroDivisionError):
        inspected(lambda: 1 / 0)()
    assert len(inspected.runs["time ms"]) == 1


def test_wrong_use_of_an_inspector_is_an_error() -> None:
    async def function() -> None: ...

    with pytest.raises(hami.ConfigError, match="repeat is an int of at least 1, got 0"):
        hami_tools.inspector("none", repeat=0)
    with pytest.raises(hami.DataTypeError, match=r"measure async functions with hami_tools\.timer"):
        hami_tools.inspector("async")(function)


def test_the_memory_of_gpus_is_a_column_where_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [5 << 20, 3 << 20]
    fake: Any = types.ModuleType("pynvml")
    fake.NVMLError = RuntimeError
    fake.nvmlInit = fake.nvmlShutdown = lambda: None
    fake.nvmlDeviceGetCount = lambda: 2
    fake.nvmlDeviceGetHandleByIndex = lambda index: index
    fake.nvmlDeviceGetMemoryInfo = lambda index: types.SimpleNamespace(used=used[index])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    with hami_tools.inspector("gpu") as inspected:
        used[1] += 2 << 20
    assert inspected.runs["gpu MiB"] == [2.0]


def test_without_a_driver_there_is_no_column_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = types.ModuleType("pynvml")
    fake.NVMLError = RuntimeError

    def missing() -> None:
        raise RuntimeError("NVML Shared Library Not Found")

    fake.nvmlInit = missing
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert user_code.gpu_memory_used() is None
    assert "gpu MiB" not in hami_tools.inspector("no gpu").runs
