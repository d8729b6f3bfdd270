"""What a Python backend reaches of its pipe, backends as values, and what a pipe gives the program."""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest
from running import TIMEOUT, Gate, backend, each, gated


def register(name: str, forward: Any, init: Any = None, **attributes: Any) -> None:
    """Register a backend whose methods are these functions of the object."""
    body = {"forward": forward, **({"init": init} if init else {}), **attributes}
    hami.register(name)(type(name, (hami.Backend,), body))


def finder(name: str, target: str, kept: list[Any], **attributes: Any) -> None:
    """Register a backend that finds an instance in `init`, keeps the handle and forwards its batches to it."""

    def init(self: Any, options: Any) -> None:
        self.found = self.find(target)
        kept.append(self.found)

    register(name, lambda self, batch: self.found.forward(batch), init, **attributes)


def nodes(**backends: str) -> dict[str, Any]:
    return {**{name: {"backend": text} for name, text in backends.items()}, "dag_entrypoint": "Forward[node.a]"}


def error_of(use: Any) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as raised:  # noqa: PT011 (the caller compares type and message)
        use()
    return type(raised.value), str(raised.value)


# ---- find


@pytest.mark.parametrize("target", ["node.b", "b", "b.0"])
def test_a_backend_finds_an_instance_that_is_built_later(target: str) -> None:
    kept: list[hami.types.BackendHandle] = []
    each(lambda number: number + 1, "TestPlusOne", max=5)
    finder("TestFinds", target, kept)
    with hami.pipe(nodes(a="TestFinds", b="TestPlusOne")) as pipe:
        assert pipe({"data": 1})["result"] == 2
        assert (kept[0].label, repr(kept[0])) == (target, f"<hami.types.BackendHandle {target}>")
        assert (kept[0].min, kept[0].max) == (1, 5)


def test_an_instance_that_is_never_registered_fails_the_construction() -> None:
    finder("TestFinds", "node.c", [])
    with pytest.raises(hami.NotFound) as raised:
        hami.pipe(nodes(a="TestFinds", b="Identity"))
    assert str(raised.value).splitlines()[0] == 'instance "node.c" not found; did you mean node.a or node.b?'


def test_find_in_forward_needs_an_instance_that_exists() -> None:
    def forward(self: Any, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = self.find(item["data"])({"data": 1})["result"]

    register("TestFindsLate", forward)
    each(lambda number: number + 1, "TestPlusOne")
    with hami.pipe(nodes(a="TestFindsLate", b="TestPlusOne")) as pipe:
        assert pipe({"data": "node.b"})["result"] == 2
        with pytest.raises(hami.NotFound, match=r'\Ainstance "node.x" not found'):
            pipe({"data": "node.x"})


def test_a_handle_is_an_error_after_its_pipe_was_closed() -> None:
    kept: list[Any] = []
    finder("TestFinds", "node.b", kept)
    backend(lambda batch: kept[0].forward(batch), "TestUsesKept")
    with hami.pipe(nodes(a="TestFinds", b="Identity")) as pipe:
        pipe({"data": 1})
    closed = (hami.PipeClosed, "the pipe is closed")
    assert error_of(lambda: kept[0]({"data": 1})) == closed
    kind, text = error_of(lambda: kept[0].forward([]))
    assert (kind, text.splitlines()[0]) == closed  # before Python 3.11, the text ends with the note
    assert (kept[0].min, kept[0].max, kept[0].label) == (1, None, "node.b")
    with hami.pipe("TestUsesKept") as other, pytest.raises(hami.PipeClosed, match="the pipe is closed"):
        other({"data": 1})


def test_find_is_an_error_after_the_pipe_was_closed() -> None:
    kept: list[Any] = []
    register("TestKeepsItself", lambda self, batch: None, lambda self, options: kept.append(self))
    hami.pipe("TestKeepsItself").close()
    assert error_of(lambda: kept[0].find("node.b")) == (hami.PipeClosed, "the pipe is closed")


def test_a_cycle_of_calls_through_handles_is_a_reentrant_call() -> None:
    for name, target in (("TestCallsB", "node.b"), ("TestCallsA", "node.a")):

        def init(self: Any, options: Any, target: str = target) -> None:
            self.found = self.find(target)

        def forward(self: Any, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = self.found({"data": item["data"]})["result"]

        register(name, forward, init)
    with hami.pipe(nodes(a="TestCallsB", b="TestCallsA")) as pipe, pytest.raises(hami.ReentrantCall):
        pipe({"data": 1}, timeout=TIMEOUT)


def test_a_handle_that_another_thread_uses_delays_the_close() -> None:
    kept: list[Any] = []
    child = gated("TestGatedChild")
    finder("TestFinds", "b.0", kept)
    borrowed, closed = threading.Event(), threading.Event()

    def forward(batch: list[Any]) -> None:
        running.append(threads.submit(kept[0].forward, batch))
        child.gate.wait_for_arrival()
        borrowed.set()

    backend(forward, "TestLends")
    running: list[Any] = []
    with ThreadPoolExecutor(2) as threads:
        pipe = hami.pipe(nodes(a="S[TestFinds]", b="TestGatedChild"))
        other = hami.pipe("TestLends")
        future = other.submit({"data": 1})
        assert borrowed.wait(TIMEOUT)
        closing = threads.submit(pipe.close)
        closing.add_done_callback(lambda _: closed.set())
        assert not closed.is_set()
        child.gate.open()
        assert future.result(TIMEOUT)["result"] == 101
        closing.result(TIMEOUT)
        other.close()


def test_many_threads_use_a_handle_while_its_pipe_closes() -> None:
    kept: list[Any] = []
    each(lambda number: number, "TestSame", max=4)
    finder("TestFinds", "node.b", kept)
    outcomes: list[Any] = []
    started = threading.Barrier(5)

    def call_until_closed() -> None:
        started.wait(TIMEOUT)
        while True:
            try:
                assert kept[0]({"data": 7})["result"] == 7
            except hami.PipeClosed as error:
                outcomes.append(str(error))
                return

    pipe = hami.pipe(nodes(a="TestFinds", b="TestSame"))
    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(call_until_closed) for _ in range(4)]
        started.wait(TIMEOUT)
        pipe({"data": 1})
        pipe.close()
        for future in running:
            future.result(TIMEOUT)
    assert set(outcomes) <= {"the pipe is closed", "the pipe was closed"}


# ---- calls of a handle


def container(name: str, forward: Any) -> None:
    register(name, forward, child_count=(1, 1))


def test_a_child_runs_requests_of_the_backend() -> None:
    def forward(self: Any, batch: list[Any]) -> None:
        for item in batch:
            parts = self.children[0]([{"data": part, "result": "stale"} for part in item["data"]])
            item["result"] = [part["result"] for part in parts]

    container("TestParts", forward)
    each(lambda number: 2 * number, "TestDouble", max=2)
    with hami.pipe("TestParts[TestDouble]") as pipe:
        assert pipe({"data": [1, 2, 3]})["result"] == [2, 4, 6]


def test_errors_of_own_requests_are_raised() -> None:
    def fails_on_odd(number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number

    each(fails_on_odd, "TestEven")
    backend(lambda batch: None, "TestNoResult")
    seen: list[Any] = []

    def forward(self: Any, batch: list[Any]) -> None:
        child = self.children[0]
        with pytest.raises(hami.BatchError) as raised:
            child([{"data": 1}, {"data": 2}])
        seen.extend((index, str(error).splitlines()[0]) for index, error in raised.value.errors)
        for wrong in (
            lambda: child({"data": 1}),
            lambda: child(5),
            lambda: child([{"data": 2}, 5]),
            lambda: child([{"data": 2}] * 2),
            lambda: child({"data": 2, "event": hami.Event()}),
            lambda: child({1: 2}),
            lambda: child({"data": 2, "request_size": 0}),
        ):
            kind, text = error_of(wrong)
            seen.append((kind.__name__, text.splitlines()[0]))
        batch[0]["result"] = 0

    container("TestChecks", forward)
    with hami.pipe("TestChecks[TestEven]") as pipe:
        pipe({"data": 0})
    assert seen == [
        (0, "1 is odd"),
        ("ValueError", "1 is odd"),
        ("DataTypeError", 'a backend takes a dict such as {"data": …}, or a list of dicts, got int'),
        ("DataTypeError", 'a backend takes a dict such as {"data": …}, or a list of dicts, got a list of int'),
        ("DataTypeError", "the same dict appears twice in the list; pass a separate dict for each request"),
        ("RequestError", 'a call of a backend is not asynchronous; remove "event", or call the pipe'),
        ("DataTypeError", "the keys of a request must be str, got 1"),
        ("RequestError", "request_size is 0; it must be at least 1"),
    ]

    def no_result(self: Any, batch: list[Any]) -> None:
        self.children[0]({"data": 1})

    container("TestCallsNoResult", no_result)
    with hami.pipe("TestCallsNoResult[TestNoResult]") as pipe, pytest.raises(hami.NoResult) as raised:
        pipe({"data": 0})
    assert str(raised.value).splitlines()[0] == "TestNoResult left no `result`"


def test_a_call_of_an_instance_has_a_time_limit() -> None:
    kept: list[Any] = []
    slow = gated("TestSlow")
    finder("TestFinds", "node.b", kept)
    with hami.pipe(nodes(a="TestFinds", b="TestSlow")):
        with pytest.raises(hami.DeadlineExceeded):
            kept[0]({"data": 1}, timeout=0.01)
        slow.gate.open()


def test_a_backend_is_a_value_of_a_request() -> None:
    kept: list[Any] = []
    finder("TestFinds", "node.b", kept)
    each(lambda number: 2 * number, "TestDouble")
    backend(lambda batch: [item["model"].forward([item]) for item in batch] and None, "TestUsesModel")
    with hami.pipe(nodes(a="TestFinds", b="TestDouble")), hami.pipe("S[Identity,TestUsesModel]") as other:
        request = {"data": 4, "model": kept[0], "all": [kept[0]]}
        assert other(request)["result"] == 8
        assert request["model"] is kept[0]
        with hami.pipe("Identity") as same:
            assert same({"data": [kept[0]]})["result"][0] is kept[0]


def test_a_handle_runs_a_batch_with_a_dependency() -> None:
    class Outer(hami.Backend):
        def forward_with_dep(self, batch: list[Any], dependency: hami.types.BackendHandle) -> None:
            dependency.forward(batch)
            for item in batch:
                item["result"] += 100

    def forward(self: Any, batch: list[Any]) -> None:
        self.children[0].forward_with_dep(batch, self.children[1])

    hami.register("TestCallsPairs")(Outer)
    each(lambda number: 2 * number, "TestDouble")
    register("TestPairs", forward, child_count=(2, 2))
    with hami.pipe("TestPairs[TestCallsPairs,TestDouble]") as pipe:
        assert pipe({"data": 1})["result"] == 102
    with (
        hami.pipe("TestPairs[TestDouble,TestDouble]") as pipe,
        pytest.raises(hami.RequestError, match=r"\ATestDouble has no forward_with_dep"),
    ):
        pipe({"data": 1})


def test_threads_call_a_child_one_at_a_time() -> None:
    running, most = [0], [0]

    class Counts(hami.Backend):
        thread = "serialized"

        def forward(self, batch: list[Any]) -> None:
            running[0] += 1
            most[0] = max(most[0], running[0])
            gate.enter()
            running[0] -= 1

    gate = Gate()
    hami.register("TestCounts")(Counts)

    def forward(self: Any, batch: list[Any]) -> None:
        uses = [threads.submit(self.children[0].forward, []) for _ in range(4)]
        gate.wait_for_arrival()
        gate.open()
        for use in uses:
            use.result(TIMEOUT)
        batch[0]["result"] = most[0]

    container("TestUsesThreads", forward)
    with ThreadPoolExecutor(4) as threads, hami.pipe("TestUsesThreads[TestCounts]") as pipe:
        assert pipe({"data": 0})["result"] == 1


# ---- queue, store, log, count


def test_a_backend_and_the_program_share_queues_and_the_store() -> None:
    def forward(self: Any, batch: list[Any]) -> None:
        for item in batch:
            self.queue("seen").put(item["data"])
            self.store.insert_or_assign("r", "last", item["data"])
            item["result"] = self.store.get("r", "last")

    register("TestShares", forward, lambda self, options: self.store.create("r"))
    with hami.pipe("TestShares") as pipe:
        assert pipe({"data": 5})["result"] == 5
        queue, store = pipe.queue("seen"), pipe.store
        assert queue.get(timeout=TIMEOUT) == 5
        assert pipe.queue("seen") is queue
        assert pipe.store is store
        for use in (lambda: pipe.queue("default.queue"), lambda: pipe.queue("default.queue.0")):
            kind, text = error_of(use)
            assert kind is ValueError
            assert "belongs to a node; to send to it, write Send(default.queue" in text
    assert store.get("r", "last") == 5  # also after the close


def test_send_reaches_the_queue_of_the_program() -> None:
    with hami.pipe("Send(frames)") as pipe:
        pipe({"data": "page"})
        assert pipe.queue("frames").get(timeout=TIMEOUT) == "page"


def test_the_log_of_a_backend_is_that_of_its_node(caplog: pytest.LogCaptureFixture) -> None:
    register("TestLogs", lambda self, batch: self.log.warning("seen %d", len(batch)) or batch[0].update({"result": 1}))
    with caplog.at_level(logging.WARNING), hami.pipe({"detect": {"backend": "TestLogs"}}) as pipe:
        pipe({"data": 1})
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("hami.node.detect", "seen 1")]


def test_counters_of_a_backend_are_in_the_statistics() -> None:
    def forward(self: Any, batch: list[Any]) -> None:
        self.count("batches_seen")
        self.count("bytes", 10)
        batch[0]["result"] = 0

    register("TestCountsItself", forward)
    with hami.pipe("TestCountsItself") as pipe:
        pipe({"data": 1})
        pipe({"data": 1})
        assert pipe.stats()["default"].counters == {"batches_seen": 2, "bytes": 20}


def test_a_backend_outside_of_a_pipe_says_so() -> None:
    class Alone(hami.Backend):
        def forward(self, batch: list[Any]) -> None: ...

    alone = Alone()
    for name, use in (
        ("find", lambda: alone.find("node.b")),
        ("queue", lambda: alone.queue("frames")),
        ("store", lambda: alone.store),
        ("log", lambda: alone.log),
        ("count", lambda: alone.count("seen")),
    ):
        message = f"Alone.{name} works from `init` on, in a backend that hami.pipe has created"
        assert error_of(use) == (hami.ConfigError, message)


def test_a_backend_may_use_the_names_for_itself() -> None:
    class Own(hami.Backend):
        count: int = 3  # type: ignore[assignment]

        def init(self, options: hami.types.DictView) -> None:
            self.store = {"own": 1}  # type: ignore[misc, assignment]
            self.log = []  # type: ignore[misc, assignment]

        def forward(self, batch: list[Any]) -> None:
            batch[0]["result"] = [self.count, self.store, self.log]

    hami.register("TestOwn")(Own)
    with hami.pipe("TestOwn(count=4)") as pipe:
        assert pipe({"data": 1})["result"] == [4, {"own": 1}, []]


# ---- describe


def test_a_description_has_nodes_backends_parameters_batching_and_graph() -> None:
    @hami.register
    class TestDescribed(hami.Backend):
        limit: hami.types.Duration = 0.5
        names: list[str] = ["x"]  # noqa: RUF012
        child_count = (0, 1)

        def forward(self, batch: list[Any]) -> None: ...

    config = {
        "a": {"backend": "S[TestDescribed(limit=20ms)[Identity],Identity]", "max": 8, "instance_num": 2, "next": "b"},
        "b": {"backend": "Identity", "batching_timeout": 5, "map": "a[result:data]"},
    }
    with hami.pipe(config) as pipe:
        described = pipe.describe()
    assert json.loads(json.dumps(described)) == described
    assert pipe.describe() == described  # also after the close
    of_core = {"distribution": "hami-core", "params": {}, "absorbed": False}
    identity = {"name": "Identity", "class": "Identity", **of_core, "children": []}
    a, b = described["nodes"]["a"], described["nodes"]["b"]
    assert a["backends"] == [
        {
            "name": "S",
            "class": "Sequential",
            **of_core,
            "children": [
                {
                    "name": "TestDescribed",
                    "class": "TestDescribed",
                    "distribution": None,
                    "params": {"limit": 0.02, "names": ["x"]},
                    "absorbed": False,
                    "children": [identity],
                },
                identity,
            ],
        }
    ]
    assert a["batching"] == {
        "instance_num": 2,
        "init_timeout": None,
        "batching": "adaptive",
        "batching_timeout": 0.0,
        "max": 8,
        "min": None,
        "max_queue_size": 1024,
        "on_full": "block",
        "aging": 2.0,
        "max_wait": 0.0,
        "memory_limit": None,
        "reserve": 0,
        "admission": "all",
        "request_cost": None,
        "on_batch_error": "isolate",
        "shared_device": None,
        "timeout": None,
    }
    assert (a["next"], a["map"], a["or"], a["accept_skipped"]) == (["b"], [], False, False)
    assert (b["batching"]["batching_timeout"], b["backends"], b["next"]) == (0.005, [identity], [])
    assert b["map"] == [{"node": "a", "from": "result", "to": "data"}]
    entry = {"name": "DagDispatcher", "class": "DagDispatcher", **of_core, "children": []}
    assert described["entrypoint"] == {"expression": "DagDispatcher", "backends": [entry]}


# ---- subclasses of dict


def test_what_a_pipe_sets_goes_through_the_item_assignment_of_a_subclass_of_dict() -> None:
    class Request(dict[str, Any]):
        def __setitem__(self, name: str, value: Any) -> None:
            if name == "result" and value < 0:
                raise hami.DataTypeError("a result is not negative")
            super().__setitem__(name, value)
            written.append((name, value))

    written: list[tuple[str, Any]] = []
    each(lambda data: data * 2, "TestDouble")
    with hami.pipe("TestDouble") as pipe:
        request = Request(data=1)
        assert pipe(request) is request
        assert pipe.submit(request).result(TIMEOUT) is request
        assert pipe([request])[0] is request
        assert written == [("result", 2)] * 3
        with pytest.raises(hami.DataTypeError, match=r"\Aa result is not negative"):
            pipe(Request(data=-1))
