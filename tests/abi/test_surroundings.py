"""Services of the core for native plugins: events, queues, the store, counters, instances by name, the log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import hami
import pytest
from conftest import HERE, Toolchain

DEADLINE_EXCEEDED = 4


@pytest.fixture
def plugin(build: Callable[..., Path], toolchain: Toolchain) -> str:
    hami.native.register_plugin(build(toolchain, HERE / "plugins" / "surroundings.cpp"))
    return toolchain.prefix


def test_a_plugin_completes_an_event_of_python(plugin: str) -> None:
    good, bad = hami.Event(), hami.Event()
    with hami.pipe(f"{plugin}Notify") as pipe:
        out = pipe({"data": good})
        assert (out["result"], out["again"], out["done"]) == (True, False, True)
        assert (good.value(), good.exception()) == ("done", None)
        assert pipe({"data": bad, "why": "it is gone"})["result"] is True
        assert (type(bad.exception()), str(bad.exception()).splitlines()[0]) == (hami.NotFound, "it is gone")
        with pytest.raises(hami.DataTypeError, match=r"\Aexpected Event, got int"):
            pipe({"data": 3})


def test_a_plugin_waits_for_an_event_and_gets_its_callback(plugin: str) -> None:
    with hami.pipe(f"{plugin}Await") as pipe:
        out = pipe({"data": [1, "two"]})
    assert (out["result"], out["called"], out["late"]) == ([1, "two"], [1, "two"], DEADLINE_EXCEEDED)


def test_a_plugin_uses_a_queue_of_the_pipe(plugin: str) -> None:
    with hami.pipe(f"{plugin}Through") as pipe:
        out = pipe({"data": "frame"})
        assert (out["result"], out["empty"]) == ("frame", DEADLINE_EXCEEDED)
        assert repr(out["queue"]) == '<hami.Queue "frames": 0 of 1024>'
    with pytest.raises(
        ValueError,
        match=r'\Athe queue "n.queue" belongs to a node; to send to it, write Send\(n.queue\) in an expression',
    ):
        hami.pipe({"n": {"backend": f"{plugin}Through(name=n.queue)"}})


def test_a_plugin_keeps_values_in_the_store_of_the_pipe(plugin: str) -> None:
    with hami.pipe(f"S[{plugin}Keep]") as pipe:

        def keep(data: Any, request: Any = "r", **more: Any) -> Any:
            return pipe({"data": data, "request": request, "key": 7, **more})["result"]

        assert keep("first") is None
        assert keep("other", request=7) is None
        assert keep("second") == "first"
        assert keep("third", end=True) == "second"
        assert keep("fourth") is None
        with pytest.raises(hami.DataTypeError, match=r"\Aids and keys of the store must be int or str, got float"):
            keep("fifth", request=0.5)


def test_a_plugin_knows_its_instance_and_keeps_counters(plugin: str) -> None:
    name = f"{plugin}Which"
    assert hami.backends()[name].range == "1 to 6"
    assert hami.backends()[f"{plugin}Fours"].range == "4 or more"
    assert hami.backends()[f"{plugin}Log"].range == ""
    assert hami.backends()[f"{plugin}Fail"].range == hami.backends()["Sequential"].range
    with hami.pipe({"det": {"backend": name, "instance_num": 2}}) as pipe:
        for i in range(3):
            out = pipe({"data": i})
            assert out["result"] in (0, 1)
            assert out["calls"] in (1, 2, 3)
        assert pipe.stats()["det"].counters == {"calls": 3, "sum": 3}
    with hami.pipe({"backend": f"{plugin}Fours", "max": 4}) as pipe:
        assert {item["result"] for item in pipe([{"data": i} for i in range(4)])} == {4}


def test_a_plugin_finds_an_instance_that_is_built_later(plugin: str) -> None:
    nodes = {"first": {"backend": f"{plugin}Find(node.second)"}, "second": {"backend": f"{plugin}Which"}}
    with hami.pipe({**nodes, "entrypoint": "Forward[node.first]"}) as pipe:
        assert pipe({"data": 1})["result"] == 0
    with pytest.raises(hami.NotFound, match=r"node\.third"):
        hami.pipe({"first": {"backend": f"{plugin}Find(node.third)"}})


def test_a_plugin_injects_a_child_into_another(plugin: str) -> None:
    @hami.register
    class AbiOuter(hami.Backend):
        def inject_dependency(self, dependency: Any) -> None:
            self.inner = dependency

        def forward(self, batch: list[Any]) -> None:
            self.inner.forward(batch)

    with hami.pipe(f"{plugin}Inject[AbiOuter,{plugin}Which]") as pipe:
        assert pipe({"data": 1})["calls"] == 1


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (1, "CancelledError"),
        (2, "Error"),
        (3, "ValueError"),
        (4, "DeadlineExceeded"),
        (5, "NotFound"),
        (6, "AlreadyExists"),
        (8, "MemoryError"),
        (9, "ConfigError"),
        (12, "Error"),
        (13, "Error"),
        (14, "PluginError"),
        (100, "DataTypeError"),
        (101, "RequestError"),
    ],
)
def test_each_error_code_becomes_its_exception_class(plugin: str, code: int, raised: str) -> None:
    with hami.pipe(f"{plugin}Fail(code={code})") as pipe:
        with pytest.raises((Exception, CancelledError), match=r"\Aas requested") as caught:
            pipe({"data": 0})
        assert type(caught.value).__name__ == raised


def test_a_parameter_that_does_not_fit_its_type_is_rejected(plugin: str) -> None:
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe(f"{plugin}Fail(code={2**32 + 2})")
    assert "parameter `code` must be from -2147483648 to 2147483647, got 4294967298" in str(error.value)


def test_a_plugin_gets_the_exception_of_a_python_child(plugin: str) -> None:
    reason = KeyError("mine")

    @hami.register
    class AbiRaisesKey(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            raise reason

    with hami.pipe(f"{plugin}Fail[AbiRaisesKey]") as pipe:
        assert pipe({"data": 0})["result"] is reason
    with hami.pipe(f"{plugin}Fail[{plugin}Fail]") as pipe:
        assert pipe({"data": 0})["result"] is None


def test_a_class_that_declares_it_runs_with_the_gil(plugin: str) -> None:
    with hami.pipe(f"{plugin}Free") as pipe:
        assert pipe({"data": 0})["result"] is False
    with hami.pipe(f"{plugin}Locked") as pipe:
        assert pipe({"data": 0})["result"] is True


LOG = """
import sys
import hami
hami.native.register_plugin(sys.argv[1])
print(hami.pipe(sys.argv[2])({"data": 0})["result"])
"""


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        ("debug", ["a detail", "news", "beware", "broken"]),
        ("info", ["news", "beware", "broken"]),
        ("", ["beware", "broken"]),
        ("error", ["broken"]),
    ],
)
def test_hami_log_selects_the_levels_of_the_log(
    toolchain: Toolchain, build: Callable[..., Path], level: str, lines: list[str]
) -> None:
    library = build(toolchain, HERE / "plugins" / "surroundings.cpp")
    command = [sys.executable, "-c", LOG, str(library), f"{toolchain.prefix}Log"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "HAMI_LOG": level})
    assert done.stderr.splitlines() == [f"hami default: {line}" for line in lines]
    assert done.stdout == f"{level in ('debug', 'info')}\n"
