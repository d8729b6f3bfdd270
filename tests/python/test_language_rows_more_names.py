"""Rules of the backends from With to the utilities, and of `options`: reference/backends.md."""

from __future__ import annotations

import time
from typing import Any

import hami
import pytest
from rows import answer, answers, failure, happened, in_register, noting, refused
from running import PATIENCE, backend, each, gated


def test_with_runs_a_with_b_for_a_dependency() -> None:
    """`With[A,B]`: `A.forward_with_dep(batch, B)`."""

    @hami.register("Twice")
    class Twice(hami.Backend):
        def forward_with_dep(self, batch: list[Any], dep: Any) -> None:
            dep.forward(batch)
            for item in batch:
                item["data"] = item["result"]
            dep.forward(batch)

    each(lambda number: number + 1, "AddOne")
    assert answer("With[Twice,AddOne]", 1) == 3
    assert "With" in refused("With[Twice]")


def gathering(journal: list[str], seen: list[Any]) -> None:
    """Register Cat, Infer, Split: Cat gives all the same list, Infer negates it, Split gives each its own."""

    def noted(name: str, function: Any, **attributes: Any) -> None:
        body = {
            "init": lambda self, options: journal.append(name),
            "forward": lambda self, batch: function(batch),
            **attributes,
        }
        hami.register(name)(type(name, (hami.Backend,), body))

    def cat(batch: list[Any]) -> None:
        every = [item["data"] for item in batch]
        for place, item in enumerate(batch):
            item["place"], item["result"] = place, every

    def infer(batch: list[Any]) -> None:
        seen.append([item["data"] for item in batch])
        for item in batch:
            item["result"] = [-number for number in item["data"]]

    def split(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"][item["place"]]

    noted("Cat", cat)
    noted("Infer", infer, max=4)
    noted("Split", split)


def test_cat_split_gathers_runs_once_and_scatters() -> None:
    """Gather a batch into one, run once, scatter; init order infer, cat, split; range = infer's."""
    journal: list[str] = []
    seen: list[Any] = []
    gathering(journal, seen)
    assert answers("CatSplit[Cat,Infer,Split]", 1, 2, 3, 4, 5, 6) == [-1, -2, -3, -4, -5, -6]
    assert journal == ["Infer", "Cat", "Split"]
    assert sorted(seen) == [[[1, 2, 3, 4]], [[5, 6]]]
    assert "takes at most 4" in refused({"backend": "CatSplit[Cat,Infer,Split]", "max": 5})


@pytest.mark.parametrize("name", ["ModelLoader", "ModelLoadder"])
@pytest.mark.parametrize(
    ("keys", "made"),
    [
        ({"model": "a/b.onnx"}, "A"),
        ({"model": "b.trt"}, "B"),
        ({"model": "b.trt", "model_type": "onnx"}, "A"),
        ({"model_type": ".trt"}, "B"),
    ],
)
def test_model_loader_makes_only_the_child_of_the_suffix(name: str, keys: dict[str, str], made: str) -> None:
    """The child whose suffix matches `model` (or parameter `model_type`); only that one is built."""
    journal = noting("A", "B")
    assert answer({"backend": f"{name}[(.onnx)A,(.trt)B]", **keys}, []) == [made]
    assert happened(journal, "init") == [made]


def test_model_loader_without_a_match_says_which_there_are() -> None:
    """`ModelLoader[(.onnx)A,(.trt)B]`; no other suffix."""
    noting("A", "B")
    told = refused({"backend": "ModelLoader[(.onnx)A,(.trt)B]", "model": "c.pt"})
    assert 'ModelLoader has no item for "c.pt"' in told
    assert "it has items for .onnx, .trt" in told


def test_has_key_and_not_has_key_decide_two_ways() -> None:
    """Two-way decisions only; without B: `result = data`."""
    noting("A", "B")
    assert answer("HasKey(k)[A,B]", [], k=1) == ["A"]
    assert answer("HasKey(k)[A,B]", []) == ["B"]
    assert answer("HasKey(k)[A]", []) == []
    assert answer("NotHasKey(k)[A]", []) == ["A"]
    assert answer("NotHasKey(k)[A]", [], k=None) == []
    assert "NotHasKey" in refused("NotHasKey(k)[A,B]")


def test_filter_runs_a_on_the_original_request_if_f_says_true() -> None:
    """F leaves a bool in `result`; true runs A on the original request, false gives `result = data`."""

    def decide(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"] > 2
            item["data"] = item["seen"] = "of the decision"

    backend(decide, "Large", max=8)
    each(lambda number: number * 10, "TimesTen", max=8)
    assert answers("Filter[Large,TimesTen]", 1, 2, 3, 4) == [1, 2, 30, 40]
    with hami.pipe("Filter[Large,TimesTen]") as pipe:
        assert pipe({"data": 5}) == {"data": 5, "result": 50}
    assert failure("Filter[TimesTen,Large]", hami.DataTypeError, 1) == "Filter takes a bool from TimesTen, got int"


def test_loop_condition_goes_on_while_again_is_true() -> None:
    """While the request's `again` is true, `result` becomes `data` and X runs once more."""

    def add(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"] + 1
            item["again"] = item["more"] = item["result"] < 5

    backend(add, "AddUntilFive", max=8)
    assert answers("LoopCondition[AddUntilFive]", 0, 3, 9) == [5, 5, 10]
    assert answer("LoopCondition(key=more)[AddUntilFive]", 0) == 5
    assert answer("LoopCondition(key=other)[AddUntilFive]", 0) == 1


def test_loop_condition_always_ends_with_the_last_result() -> None:
    """Always ends: `count` and `time` both apply; the last result is kept."""
    runs: list[int] = []

    def add(batch: list[Any]) -> None:
        runs.append(len(batch))
        for item in batch:
            item["result"], item["again"] = item["data"] + 1, True

    backend(add, "AddForEver")
    assert answer("LoopCondition(count=7)[AddForEver]", 0) == 7
    assert answer("LoopCondition[AddForEver]", 0) == 1000
    runs.clear()
    begin = time.monotonic()
    assert answer("LoopCondition(count=1000000000,time=20ms)[AddForEver]", 0) == len(runs)
    assert time.monotonic() - begin >= 0.02


def test_loop_condition_until_time() -> None:
    """`until=time`: while time is left."""
    each(lambda number: number + 1, "AddOne")
    begin = time.monotonic()
    assert answer("LoopCondition(until=time,time=20ms,count=1000000000)[AddOne]", 0) > 1
    assert time.monotonic() - begin >= 0.02
    assert answer("LoopCondition(until=time,count=3)[AddOne]", 0) == 3


def test_loop_condition_until_an_instance_is_free() -> None:
    """`until=instance`: while no instance of the node is free."""
    each(lambda number: number + 1, "AddOne")
    node = {"backend": "LoopCondition(until=instance,count=7)[AddOne]"}
    assert answer({**node, "instance_num": 1}) == 7  # it runs in the only one itself
    assert answer({**node, "instance_num": 2}) == 1


def keeping_sums() -> None:
    def add(batch: list[Any]) -> None:
        for item in batch:
            item["state"] = item["result"] = (item["state"] or 0) + item["data"]

    backend(add, "Sums", max=4)


@pytest.mark.parametrize(
    ("name", "second"),
    [("StateFul", 3), ("StateFul(ttl=1h)", 3), ("StateFul(ttl=0)", 2)],
)
def test_stateful_keeps_state_per_req_id_until_a_ttl(name: str, second: int) -> None:
    """`DI[X,…]` with state kept per `req_id` between calls; X sees it as key `state`; the state ends with … a ttl."""
    keeping_sums()
    config = {"backend": "Sums", "node_entrypoint": in_register(f"{name}[Batching, InstanceDispatcher]")}
    with hami.pipe(config) as pipe:
        assert pipe({"data": 1, "req_id": "a"})["result"] == 1
        assert pipe({"data": 7, "req_id": "b"})["result"] == 7
        assert pipe({"data": 2, "req_id": "a"})["result"] == second


def test_stateful_needs_a_req_id_and_ends_with_finish_or_close() -> None:
    """`req_id` is required; the state ends with `finish = true`, a ttl or `close()`."""
    keeping_sums()
    config = {"backend": "Sums", "node_entrypoint": in_register("StateFul[Batching, InstanceDispatcher]")}
    with hami.pipe(config) as pipe:
        assert pipe({"data": 1, "req_id": 1})["result"] == 1
        assert pipe({"data": 1, "req_id": 1, "finish": True})["result"] == 2
        assert pipe({"data": 1, "req_id": 1})["result"] == 1
    assert answer(config, 1, req_id=1) == 1
    assert failure(config, hami.RequestError, 1) == "the request has no `req_id`, which selects its state"


def test_repost_posts_a_copy_and_does_not_wait() -> None:
    """Posts a copy to a named instance, puts an `Event` for its reply under `key`, `result = data`, does not wait."""
    cls = gated()
    nodes = {
        "a": {"backend": "Repost[node.z, reply]"},
        "z": {"backend": "TestGated"},
        "dag_entrypoint": "Forward[node.a]",
    }
    with hami.pipe(nodes) as pipe:
        request = pipe({"data": 5})
        assert request["result"] == 5
        assert isinstance(request["reply"], hami.Event)
        cls.gate.wait_for_arrival()
        assert not request["reply"].done()
        cls.gate.open()
        assert request["reply"].wait(PATIENCE)
        assert request["reply"].value() == 105


def test_options_of_an_instance_hold_an_event_that_is_done_when_the_node_is_ready() -> None:
    """`options["init_event"]` is an `Event` set when the node is ready."""
    seen: list[tuple[hami.Event, bool]] = []

    class Waits(hami.Backend):
        def init(self, options: Any) -> None:
            event = options["init_event"]
            seen.append((event, event.done()))

        def forward(self, batch: list[Any]) -> None: ...

    class Fails(Waits):
        def init(self, options: Any) -> None:
            raise ValueError("no model")

    hami.register("Waits")(Waits)
    hami.register("Fails")(Fails)
    with hami.pipe({"backend": "Waits", "instance_num": 2}):
        assert [(type(event), before, event.done()) for event, before in seen] == [(hami.Event, False, True)] * 2
        assert [event.exception() for event, _ in seen] == [None, None]
    seen.clear()
    with pytest.raises(ValueError, match="no model"):
        hami.pipe("S[Fails,Waits]")
    ((event, _),) = seen
    assert isinstance(event.exception(), ValueError)


def test_options_of_an_instance_hold_its_number() -> None:
    seen: list[int] = []

    class Numbered(hami.Backend):
        def init(self, options: Any) -> None:
            seen.append(options["instance"])

        def forward(self, batch: list[Any]) -> None: ...

    hami.register("Numbered")(Numbered)
    with hami.pipe({"backend": "Numbered", "instance_num": 3}):
        assert seen == [0, 1, 2]


def test_options_are_shared_by_the_backends_of_an_instance() -> None:
    """`options` is one dict per instance: an engine builder leaves its engine there for the inferer."""

    class Builds(hami.Backend):
        def init(self, options: Any) -> None:
            options["engine"] = ["engine"]

        def forward(self, batch: list[Any]) -> None: ...

    class Infers(hami.Backend):
        def init(self, options: Any) -> None:
            self.engine = options["engine"]
            self.engine.append("taken")

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = list(self.engine)

    hami.register("Builds")(Builds)
    hami.register("Infers")(Infers)
    # Each instance has its own: neither sees that the other has taken its engine.
    config = {"backend": "IoC[Builds,Infers;Infers]", "instance_num": 2, "entrypoint": "Forward[default.1]"}
    assert answer(config) == ["engine", "taken"]


def test_log_sets_result_and_writes_its_message(capfd: pytest.CaptureFixture[str]) -> None:
    """`Log(message)`: sets `result = data`."""
    assert answer("Log('page read')", 4) == 4
    assert capfd.readouterr().err == "hami default: page read\n"


def test_add_and_remove_change_keys() -> None:
    """`Add(k=v…)`, `Remove(k…)`: set `result = data`."""
    with hami.pipe("S[Add(a=1,b=true,c='1',d=x),Remove(gone,also)]") as pipe:
        request = pipe({"data": 5, "gone": 1})
    assert {key: request[key] for key in "abcd"} == {"a": 1, "b": True, "c": "1", "d": "x"}
    assert request["result"] == 5


def test_sleep_waits_and_raise_fails() -> None:
    """`Sleep(time)`, `Raise(message)`: all but `Raise` set `result = data`."""
    begin = time.monotonic()
    assert answer("Sleep(20ms)", 5) == 5
    assert time.monotonic() - begin >= 0.02
    assert failure("Raise('no page')", hami.RequestError) == "no page"
