"""Backends written in Python: arguments, order and threads of their methods, and their exceptions."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import hami
import pytest
from rows import answers, noting, refused, sizing
from running import TIMEOUT, backend, each, threads_end, threads_of_process


def test_parameters_arrive_typed_before_init() -> None:
    seen: dict[str, Any] = {}

    class Every(hami.Backend):
        model: Path
        flag: bool = False
        names: list[str] = []  # noqa: RUF012
        wait: hami.types.Duration = "5ms"  # type: ignore[assignment]
        room: hami.types.ByteSize = "1KiB"  # type: ignore[assignment]
        missing: int | None = None

        def init(self, options: Any) -> None:
            seen.update({name: getattr(self, name) for name in ("model", "flag", "names", "wait", "room", "missing")})

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("TestEvery")(Every)
    hami.pipe({"backend": "TestEvery", "model": "a/b.onnx", "flag": "yes", "TestEvery.names": "x, y"}).close()
    assert seen == {
        "model": Path("a/b.onnx"), "flag": True, "names": ["x", "y"], "wait": 0.005, "room": 1024, "missing": None,
    }  # fmt: skip


class Keyed(hami.Backend):
    most: Annotated[int | None, hami.types.Key("max"), "the most rows"] = None
    cache: Annotated[Path, hami.types.Key("model::cache")] = Path("none")

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = (self.most, self.cache)


@pytest.mark.parametrize(
    "config",
    [
        {"backend": "TestKeyed", "max": 4, "model::cache": "a.trt"},
        {"backend": "TestKeyed", "TestKeyed.max": 4, "TestKeyed.model::cache": "a.trt"},
        {"backend": "TestKeyed(max=4)", "model::cache": "a.trt"},
        {"node": {"backend": "TestKeyed", "TestKeyed": {"max": 4, "model::cache": "a.trt"}}},
    ],
    ids=["node", "backend", "expression", "table"],
)
def test_a_parameter_may_have_a_name_that_is_not_an_attribute_name(config: dict[str, Any]) -> None:
    hami.register("TestKeyed")(Keyed)
    with hami.pipe(config) as pipe:
        assert pipe({"data": 1})["result"] == (4, Path("a.trt"))
    assert [(param["name"], param["text"], param["help"]) for param in hami.backends()["TestKeyed"].params or ()] == [
        ("max", "max: int = None", "the most rows"),
        ("model::cache", 'model::cache: path = "none"', ""),
    ]
    with pytest.raises(hami.ConfigError, match=r'parameter "max" of TestKeyed takes int, got "four"'):
        hami.pipe({"backend": "TestKeyed", "TestKeyed.max": "four"})


def test_a_class_with_inject_dependency_may_be_the_first_item_of_di() -> None:
    class Outer(hami.Backend):
        def inject_dependency(self, dependency: Any) -> None:
            self._inner = dependency

        def forward(self, batch: list[Any]) -> None:
            self._inner.forward(batch)
            for item in batch:
                item["result"] = -item["result"]

    hami.register("TestOuter")(Outer)
    each(lambda number: number + 1, "TestAddOne")
    with hami.pipe("DI[TestOuter,TestAddOne]") as pipe:
        assert pipe({"data": 1})["result"] == -2
    with hami.pipe("DI[TestOuter,TestOuter,TestAddOne]") as pipe:
        assert pipe({"data": 1})["result"] == 2
    with pytest.raises(hami.ConfigError, match="TestAddOne takes no dependency; to accept one, define a method"):
        hami.pipe("DI[TestAddOne,TestOuter]")


def test_init_forward_and_close_of_a_dedicated_backend_run_on_one_thread() -> None:
    threads: list[int] = []

    class Own(hami.Backend):
        def init(self, options: Any) -> None:
            threads.append(threading.get_ident())

        def forward(self, batch: list[Any]) -> None:
            threads.append(threading.get_ident())
            for item in batch:
                item["result"] = None

        def close(self) -> None:
            threads.append(threading.get_ident())

    hami.register("TestOwn")(Own)
    with hami.pipe("TestOwn") as pipe:
        pipe({"data": 1})
        pipe({"data": 2})
    assert len(threads) == 4
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_thread_local_data_of_a_dedicated_backend_persists() -> None:
    local = threading.local()

    class Local(hami.Backend):
        def init(self, options: Any) -> None:
            local.count = 10

        def forward(self, batch: list[Any]) -> None:
            local.count += 1
            for item in batch:
                item["result"] = local.count

    hami.register("TestLocal")(Local)
    with hami.pipe("TestLocal") as pipe:
        assert [pipe({"data": 0})["result"] for _ in range(3)] == [11, 12, 13]


def test_an_error_in_init_is_raised_by_hami_pipe_and_leaves_no_threads() -> None:
    calls: list[str] = []

    class Fails(hami.Backend):
        def init(self, options: Any) -> None:
            calls.append("init")
            raise FileNotFoundError("model.onnx")

        def forward(self, batch: list[Any]) -> None: ...

        def close(self) -> None:
            calls.append("close")  # not called: init has failed

    hami.register("TestFailsInit")(Fails)
    before = threads_of_process()
    with pytest.raises(FileNotFoundError, match=r"model\.onnx"):
        hami.pipe({"backend": "S[Identity,TestFailsInit]", "instance_num": 2})
    assert calls == ["init"]
    assert threads_end(before)


def test_a_request_is_a_mutable_mapping() -> None:
    seen: dict[str, Any] = {}

    def forward(batch: list[Any]) -> None:
        (item,) = batch
        seen["keys"], seen["len"], seen["in"] = item.keys(), len(item), ("data" in item, "x" in item, 3 in item)
        seen["get"] = item.get("x"), item.get("x", 5), item.get("x", default=6), item.get("data")
        for given, named in (((), {}), (("x", 1, 2), {}), (("x", 1), {"default": 2}), (("x",), {"other": 1})):
            with pytest.raises(TypeError, match=r"get\(\) takes a key and an optional default"):
                item.get(*given, **named)
        with pytest.raises(TypeError, match="objects of this class are created only by hami-core"):
            len(type(item).__new__(type(item)))
        with pytest.raises(KeyError, match="'x'"):
            item["x"]
        with pytest.raises(KeyError, match="'x'"):
            del item["x"]
        with pytest.raises(hami.DataTypeError, match=r"^the keys of a request must be str, got 3$"):
            item[3] = 1
        item["x"] = 1
        seen["pop"] = item.pop("x"), item.pop("x", None), item.setdefault("y", 2), item.setdefault("y", 3)
        item.update({"z": 3})
        del item["z"]
        seen["items"], seen["values"], seen["iter"] = item.items(), item.values(), list(item)
        seen["item"] = item
        item["result"] = None

    backend(forward, "TestMapping")
    with hami.pipe("TestMapping") as pipe:
        pipe({"data": 1})
    kept = seen.pop("item")
    assert seen == {
        "keys": ["data"], "len": 1, "in": (True, False, False), "get": (None, 5, 6, 1), "pop": (1, None, 2, 2),
        "items": [("data", 1), ("y", 2)], "values": [1, 2], "iter": ["data", "y"],
    }  # fmt: skip
    with pytest.raises(hami.RequestError) as raised:
        kept["data"]
    assert str(raised.value) == "this request is no longer valid: the backend's forward has returned"


def test_one_request_can_be_failed_alone() -> None:
    def forward(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"]
        batch[0].fail(ValueError("not this one"))
        with pytest.raises(hami.DataTypeError, match=r"^fail\(\) takes an exception, got 5$"):
            batch[1].fail(5)

    backend(forward, "TestFailsOne", max=8)
    with hami.pipe("TestFailsOne") as pipe:
        requests: list[Any] = [{"data": 1}, {"data": 2}]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
        assert [(index, str(error).splitlines()[0]) for index, error in raised.value.errors] == [(0, "not this one")]
        assert requests == [{"data": 1}, {"data": 2, "result": 2}]


@pytest.mark.parametrize(
    ("given", "raised_type", "text"),
    [
        (KeyboardInterrupt("stop"), hami.BackendExit, "the backend raised KeyboardInterrupt(stop)"),
        (MemoryError("full"), MemoryError, "full"),
        (SystemExit(3), hami.BackendExit, "the backend raised SystemExit(3)"),
        (GeneratorExit("odd"), hami.BackendExit, "the backend raised GeneratorExit(odd)"),
    ],
)
def test_exceptions_that_do_not_derive_from_exception(
    given: BaseException, raised_type: type[BaseException], text: str
) -> None:
    def fail(_: Any) -> Any:
        raise given

    each(fail, "TestRaises")
    with hami.pipe("TestRaises") as pipe:
        with pytest.raises(raised_type) as raised:
            pipe({"data": 1})
        assert str(raised.value).splitlines()[0] == text
        with pytest.raises(raised_type):
            pipe.submit({"data": 1}).result(TIMEOUT)


def test_an_exception_whose_str_fails_is_still_raised() -> None:
    class Unshowable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fail(_: Any) -> Any:
        raise Unshowable

    each(fail, "TestRaises")
    with hami.pipe("TestRaises") as pipe, pytest.raises(Unshowable):
        pipe({"data": 1})


def test_children_are_initialised_first_and_run_by_forward() -> None:
    order: list[str] = []

    class Outer(hami.Backend):
        child_count = (1, 2)

        def init(self, options: Any) -> None:
            order.append(f"outer of {len(self.children)}, max {self.children[0].max}")

        def forward(self, batch: list[Any]) -> None:
            self.children[0].forward(batch)
            for item in batch:
                item["result"] = item["result"] * 2

    class Inner(hami.Backend):
        max = 4

        def init(self, options: Any) -> None:
            order.append("inner")

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = item["data"] + 1

    hami.register("TestOuter")(Outer)
    hami.register("TestInner")(Inner)
    with hami.pipe("TestOuter[TestInner]") as pipe:
        assert pipe({"data": 1})["result"] == 4
    assert order == ["inner", "outer of 1, max 4"]
    assert "TestOuter" in refused("TestOuter")
    assert "TestOuter" in refused("TestOuter[TestInner,TestInner,TestInner]")


def test_registering_a_name_again_replaces_it_for_new_pipes() -> None:
    each(lambda _: "old", "TestReplaced")
    with hami.pipe("TestReplaced") as old:
        each(lambda _: "new", "TestReplaced")
        with hami.pipe("TestReplaced") as new:
            assert (old({"data": 1})["result"], new({"data": 1})["result"]) == ("old", "new")


@pytest.mark.skipif(
    sys.version_info < (3, 14) and not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="free-threaded CPython 3.13 never frees classes after a second thread has started",
)
def test_a_class_may_register_another_while_it_is_destroyed() -> None:
    class Meta(type):
        pass

    def again(_: Any) -> None:
        each(lambda data: data, "TestRegisteredLate")

    cls = Meta("Gone", (hami.Backend,), {"forward": lambda self, batch: None})
    reference = weakref.ref(cls, again)
    hami.register("TestGone")(cls)
    del cls
    each(lambda data: data, "TestGone")
    gc.collect()
    assert reference() is None
    with hami.pipe("TestRegisteredLate") as pipe:
        assert pipe({"data": 1})["result"] == 1


def test_a_backend_and_its_objects_are_freed_with_the_pipe() -> None:
    class Thing:
        pass

    things: list[weakref.ref[Thing]] = []

    class Holds(hami.Backend):
        def init(self, options: Any) -> None:
            self.thing = options["thing"] = Thing()
            things.append(weakref.ref(self.thing))

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = 1

    hami.register("TestHolds")(Holds)
    pipe = hami.pipe({"backend": "TestHolds", "instance_num": 2})
    pipe({"data": 1})
    pipe.close()
    with hami.pipe("Identity") as other:
        other({"data": 1})  # frees objects that threads without the GIL could not release
    gc.collect()
    assert [thing() for thing in things] == [None, None]


class AnyNumber(hami.Backend):
    """The result is the size of the batch."""

    max: Any = "auto"

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = len(batch)


def sizes_of(backend: str, requests: int, **keys: Any) -> list[int]:
    with hami.pipe({"backend": backend, **keys}) as pipe:
        return [result["result"] for result in pipe([{"data": 0} for _ in range(requests)])]


def test_max_auto_batches_requests_without_a_key_of_the_node() -> None:
    hami.register("TestAnyNumber")(AnyNumber)
    assert sizes_of("TestAnyNumber", 64) == [64] * 64
    assert max(sizes_of("TestAnyNumber", 100)) == 64
    assert max(sizes_of("TestAnyNumber", 100, max=100)) == 100
    assert max(sizes_of("TestAnyNumber", 100, max=8)) == 8
    assert hami.backends()["TestAnyNumber"].range == "1 to auto"


def test_a_backend_without_max_still_runs_one_request_at_a_time_until_the_node_says_auto() -> None:
    hami.register("TestUndeclared")(type("Undeclared", (AnyNumber,), {"max": None}))
    assert sizes_of("TestUndeclared", 8) == [1] * 8
    assert sizes_of("TestUndeclared", 8, max="auto") == [8] * 8


@pytest.mark.parametrize("limit", ["auto", lambda self: "auto", property(lambda self: "auto")])
def test_max_auto_may_be_an_attribute_a_method_or_a_property(limit: Any) -> None:
    hami.register("TestAnyNumber")(type("Declared", (AnyNumber,), {"max": limit}))
    assert sizes_of("TestAnyNumber", 8) == [8] * 8


def test_max_auto_of_a_node_whose_backend_takes_a_number_is_an_error() -> None:
    hami.register("TestEight")(type("Eight", (AnyNumber,), {"max": 8}))
    with pytest.raises(hami.ConfigError, match=r'max is "auto"; .* takes at most 8: remove max, or give a number'):
        hami.pipe({"backend": "TestEight", "max": "auto"})


def test_an_invalid_range_is_a_config_error() -> None:
    for attributes, message in [
        ({"max": lambda self: 0}, 'TestRange.max must be an int of at least 1 or "auto", got 0'),
        ({"max": lambda self: -(10**30)}, f'TestRange.max must be an int of at least 1 or "auto", got {-(10**30)}'),
        ({"max": lambda self: "x"}, "TestRange.max must be an int of at least 1 or \"auto\", got 'x'"),
        ({"min": lambda self: 3, "max": 2}, "TestRange.min is 3, greater than its max, 2"),
    ]:
        each(lambda data: data, "TestRange", **attributes)
        with pytest.raises(hami.ConfigError) as raised:
            hami.pipe("TestRange")
        assert str(raised.value).splitlines()[0] == message
    each(lambda data: data, "TestRange", max=10**30)
    with hami.pipe("TestRange") as pipe:
        assert pipe({"data": 1})["result"] == 1


def test_an_exception_shared_by_several_callers_has_one_note() -> None:
    class Fails(hami.Backend):
        max = 8
        idempotent = False

        def forward(self, batch: list[Any]) -> None:
            raise ValueError("all of them")

    hami.register("TestFailsForAll")(Fails)
    found: set[tuple[str, ...]] = set()

    def call() -> None:
        for _ in range(200):
            with pytest.raises(ValueError, match="all of them") as raised:
                pipe({"data": 1})
            found.add(tuple(getattr(raised.value, "__notes__", ())) or raised.value.args)

    config = {"backend": "TestFailsForAll", "batching": "greedy", "batching_timeout": "2ms"}
    with hami.pipe(config) as pipe, ThreadPoolExecutor(8) as callers:
        for done in [callers.submit(call) for _ in range(8)]:
            done.result(TIMEOUT)
    assert len(found) == 1
    assert next(iter(found))[-1].count("in backend TestFailsForAll") == 1


def test_init_and_close_run_once_per_instance_and_forward_once_per_batch() -> None:
    journal = noting("A", max=8)
    assert answers({"backend": "A", "instance_num": 2}, [], []) == [["A"], ["A"]]
    assert sorted(journal) == [("close", "A")] * 2 + [("init", "A")] * 2 + [("run", "A")]


@pytest.mark.parametrize("most", [3, lambda self: 3])
def test_max_is_an_int_or_a_method(most: Any) -> None:
    sizes = sizing(max=most)
    assert answers("Sizes", *range(6)) == list(range(6))
    assert sizes == [3, 3]


def test_a_delegate_gets_batches_first_and_leaves_some_requests() -> None:
    """Its results are read as the type that the backend chooses; other backends read the tensor itself."""
    numpy = pytest.importorskip("numpy")
    converted: list[Any] = []

    class SoftmaxOfArrays(hami.Backend):
        max = 4

        def init(self, options: Any) -> None:
            self.softmax = hami.pipe("SoftmaxTensor")

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                if not isinstance(item["data"], str):
                    item["result"] = self.softmax({"data": item["data"]})["result"]

        def close(self) -> None:
            self.softmax.close()

    class Delegating(hami.Backend):
        max = 4

        def init(self, options: Any) -> None:
            self.delegate("TestSoftmaxOfArrays", convert=self.convert)

        def convert(self, tensor: hami.Tensor) -> list[Any]:
            converted.append(tensor)
            return tensor.tolist()

        def forward(self, batch: list[Any]) -> None:
            self.delegate(None)
            for item in batch:
                item["result"] = len(batch)

    hami.register("TestSoftmaxOfArrays")(SoftmaxOfArrays)
    hami.register("TestDelegating")(Delegating)
    node = {"backend": "TestDelegating", "max": 4, "batching": "greedy", "batching_timeout": "1s"}
    row = numpy.zeros((1, 2))
    with hami.pipe(node) as pipe:
        results = [request["result"] for request in pipe([{"data": each} for each in (row, "text", row, row)])]
        assert results == [[[0.5, 0.5]], 1, [[0.5, 0.5]], [[0.5, 0.5]]]
        assert pipe({"data": row})["result"] == 1  # no longer
    assert [type(each) for each in converted] == [hami.Tensor] * 3
    with hami.pipe("S[TestDelegating,SoftmaxTensor]") as chain:
        assert isinstance(chain({"data": row})["result"], hami.Tensor)
    assert len(converted) == 3


def test_a_delegate_that_does_not_exist_is_an_error_of_the_backend() -> None:
    class Wrong(hami.Backend):
        name: str = "hami-core::Identity"

        def init(self, options: Any) -> None:
            self.delegate(self.name, speed=3)

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("TestWrongDelegate")(Wrong)
    with pytest.raises(hami.ConfigError, match='Identity has no parameter "speed"'):
        hami.pipe("TestWrongDelegate")
    with pytest.raises(hami.BackendNotFound):
        hami.pipe({"backend": "TestWrongDelegate", "name": "hami-core::Nothing"})
    with pytest.raises(hami.ConfigError, match=r"Wrong\.delegate works from `init` on"):
        Wrong().delegate(None)
