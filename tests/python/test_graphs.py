"""Graphs of nodes: reference/configuration.md, "Graphs"."""

from __future__ import annotations

import re
from typing import Any

import hami
import pytest
from rows import answer, answers, failure, noting, refused, sizing
from running import TIMEOUT, Gate, backend, each, gated


def graph(**nodes: Any) -> dict[str, Any]:
    """Return nodes that append their name to `data`; a str is the value of their `next`."""
    noting(*(name.upper() for name in nodes), max=8)
    return {
        name: {"backend": name.upper(), **({"next": keys} if isinstance(keys, str) else keys)}
        for name, keys in nodes.items()
    }


def test_next_gives_each_branch_a_shallow_copy_and_several_sinks_give_a_dict() -> None:
    """One sink: the result is that of the sink. Several sinks: the result is a dict by node name."""
    assert answer(graph(a="b", b={}), []) == ["A", "B"]
    assert answer(graph(a="b,c", b={}, c={}), []) == {"b": ["A", "B"], "c": ["A", "C"]}


def test_map_starts_a_new_dict_with_the_mapped_and_the_reserved_keys() -> None:
    config = graph(a="b,c", b="d", c="d", d={"map": "b[result:data],c[result:boxes]"})
    seen: list[Any] = []

    def look(batch: list[Any]) -> None:
        for item in batch:
            seen.append(sorted(item.keys()))
            item["result"] = (item["data"], item["boxes"])

    backend(look, "D")
    assert answer(config, [], req_id="r", other=1) == (["A", "B"], ["A", "C"])
    assert seen == [["boxes", "data", "req_id"]]


def test_or_runs_a_node_only_on_requests_that_have_neither_result_nor_error() -> None:
    config = graph(a="b", b={"or": True})

    def odd(batch: list[Any]) -> None:
        for item in batch:
            if item["data"] < 0:
                item.fail(ValueError("negative"))
            elif item["data"] % 2:
                item["result"] = item["data"]

    backend(odd, "A", max=8)
    each(lambda number: number * 100, "B", max=8)
    assert answers(config, 1, 2, 3) == [1, 200, 3]
    assert failure(config, ValueError, -1) == "negative"
    assert "or" in refused(graph(a="b", b={"or": True, "map": "a[result:data]"}))


def test_the_key_filter_works_like_the_backend_filter() -> None:
    each(lambda number: number > 2, "Large", max=8)
    each(lambda number: number * 10, "TimesTen", max=8)
    assert answers({"backend": "TimesTen", "filter": "Large"}, 1, 2, 3, 4) == [1, 2, 30, 40]
    nodes = {"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "TimesTen", "filter": "Large"}}
    assert [answer(nodes, 1), answer(nodes, 5)] == [1, 50]
    assert failure({"backend": "Large", "filter": "TimesTen"}, hami.DataTypeError, 1) == (
        "Filter takes a bool from TimesTen, got int"
    )


def test_priority_is_carried_through_every_node_copy_and_retry() -> None:
    config = graph(a="b,c", b="d", c="d", d={"map": "b[result:data],c[result:more]"})
    config["global"] = {"batching": "greedy"}
    seen: dict[str, list[int]] = {}

    def look_in(name: str) -> None:
        def look(batch: list[Any]) -> None:
            seen.setdefault(name, []).extend(item["priority"] for item in batch)
            if len(batch) > 1:
                raise ValueError("each alone")
            for item in batch:
                item["result"] = item["data"]

        backend(look, name, max=8)

    for name in "BCD":
        look_in(name)
    with hami.pipe(config) as pipe:
        pipe([{"data": [], "priority": priority} for priority in (7, 9)])
    assert seen["B"] == seen["C"] == [9, 7, 9, 7]  # the larger number first
    assert set(seen["D"]) == {7, 9}


def test_a_batch_stays_a_batch_between_nodes() -> None:
    first, second = sizing("First", max=8), sizing("Second", max=8)
    nodes: dict[str, Any] = {"a": {"backend": "First", "next": "b"}, "b": {"backend": "Second"}}
    assert answers(nodes, 1, 2, 3) == [1, 2, 3]
    assert (first, second) == ([3], [3])


def test_later_errors_of_other_branches_are_attached_as_notes() -> None:
    config = graph(start="left,right", left="join", right="join", join={"map": "left[result:data],right[result:more]"})
    journal = noting("JOIN")
    gate = Gate()
    config["left"]["backend"] = "Raise('from the left')"  # non-blocking: ends before the right branch starts

    def late(_: Any) -> Any:
        gate.enter()
        raise LookupError("from the right")

    each(late, "RIGHT")
    with hami.pipe(config) as pipe:
        future = pipe.submit({"data": []})
        gate.wait_for_arrival()
        gate.open()
        with pytest.raises(hami.RequestError) as raised:
            future.result(TIMEOUT)
    message = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert message.splitlines()[0] == "from the left"
    assert "also failed: LookupError: from the right" in message
    assert ("run", "JOIN") not in journal


def test_after_an_error_no_further_node_starts() -> None:
    config = graph(a="b", b="c", c={})
    journal = noting("A", "C")
    each(lambda data: data[5], "B")
    assert failure(config, IndexError, []) == "list index out of range"
    assert ("run", "A") in journal
    assert ("run", "C") not in journal


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"a": "b", "b": "a"}, 'node "a" is its own successor'),
        ({"a": "a"}, 'node "a" is its own successor'),
        ({"a": "b", "b": {}, "c": "d", "d": "c"}, 'node "c" is its own successor'),
        ({"a": "missing"}, 'node "missing" does not exist'),
        ({"a": "b,c", "b": "d", "c": "d", "d": {}}, 'node "d" has 2 predecessors and no map'),
        ({"a": "b", "b": {"map": "missing[result:data]"}}, 'node "missing" does not exist'),
        ({"a": "b", "b": {"map": "c[result:data]"}, "c": {}}, 'node "c" has not run when "b" starts'),
    ],
)
def test_a_graph_is_checked_when_the_pipe_is_built(nodes: dict[str, Any], message: str) -> None:
    """The checks find cycles, unknown or unreachable nodes and two predecessors without a map, also for one node."""
    assert refused(graph(**nodes)).splitlines()[0] == message


def test_with_several_roots_each_request_must_name_its_start() -> None:
    config = graph(a="c", b={}, c={})
    assert answer(config, [], node_name="a") == ["A", "C"]
    assert "node_name" in failure(config, hami.RequestError, [])


def test_a_start_node_from_which_a_later_node_lacks_a_source_fails_the_request() -> None:
    """The `map` of the start node itself is ignored."""
    config = graph(a="b,c", b="d", c="d", d={"map": "b[result:data],c[result:boxes]"})
    assert '"d"' in failure(config, hami.RequestError, [], node_name="b")
    assert answer(config, [], node_name="d") == ["D"]


def test_a_request_may_name_its_start_node_and_keeps_its_other_keys() -> None:
    each(lambda number: number + 1, "AddOne")
    each(lambda number: number * 10, "TimesTen")
    config = {"a": {"backend": "AddOne", "next": "b"}, "b": {"backend": "TimesTen"}}
    with hami.pipe(config) as pipe:
        assert pipe({"data": 1, "kept": True}) == {"data": 1, "kept": True, "result": 20}
        assert pipe({"data": 1, "node_name": "b"})["result"] == 10
        assert [one["result"] for one in pipe([{"data": 1}, {"data": 2}])] == [20, 30]


def test_an_error_names_its_node() -> None:
    def fail(_: Any) -> Any:
        raise LookupError("lost")

    each(fail, "Fails")
    config = {"a": {"backend": "Fails", "next": "b"}, "b": {"backend": "Identity"}}
    with hami.pipe(config) as pipe:
        request = {"data": 1}
        with pytest.raises(LookupError, match="lost") as raised:
            pipe(request)
    assert "".join(getattr(raised.value, "__notes__", [str(raised.value)])).endswith('node "a"')
    assert request == {"data": 1}


def test_a_list_fans_out_to_another_node() -> None:
    each(lambda number: [number, number + 1], "Pair")
    each(lambda number: number * 10, "TimesTen")
    config = {
        "pages": {"backend": "S[Pair,FanOut[Forward[node.lines]]]", "next": []},
        "lines": {"backend": "TimesTen", "max": 8},
    }
    with hami.pipe({**config, "entrypoint": "Forward[node.pages]", "dag_entrypoint": "Forward[node.pages]"}) as pipe:
        assert pipe({"data": 1})["result"] == [10, 20]


def switch(**merge: Any) -> dict[str, Any]:
    """Return a graph with two branches: one for even numbers, one for numbers below 10."""
    each(lambda number: number % 2 == 0, "Even", max=8)
    each(lambda number: number < 10, "Small", max=8)
    each(lambda number: f"even {number}", "NameEven", max=8)
    each(lambda number: f"small {number}", "NameSmall", max=8)

    def collect(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = [item[key] for key in ("even", "small") if key in item]

    backend(collect, "Collect", max=8)
    return {
        "start": {"backend": "Identity", "next": "even,small"},
        "even": {"backend": "NameEven", "filter": "Even", "otherwise": "skip", "next": "merge"},
        "small": {"backend": "NameSmall", "filter": "Small", "otherwise": "skip", "next": "merge"},
        "merge": {"backend": "Collect", "map": "even[result:even],small[result:small]", **merge},
    }


def outcomes(config: dict[str, Any], *data: Any) -> list[Any]:
    """Return the result of each request, or the class of its error; all are submitted together."""
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": one}) for one in data]
        errors = [future.exception(TIMEOUT) for future in futures]
        return [
            type(error) if error else future.result()["result"] for future, error in zip(futures, errors, strict=True)
        ]


def test_otherwise_passes_skips_or_redirects_requests_for_which_the_filter_is_false() -> None:
    switch()
    node = {"backend": "NameEven", "filter": "Even"}
    assert outcomes(node, 1, 2) == [1, "even 2"]
    assert outcomes({**node, "otherwise": "pass"}, 1, 2) == [1, "even 2"]
    assert outcomes({**node, "otherwise": "skip"}, 1, 2) == [hami.NoResult, "even 2"]
    assert outcomes({**node, "otherwise": "NameSmall"}, 1, 2) == ["small 1", "even 2"]


def test_a_skipped_branch_delivers_nothing_to_a_merge_unless_the_merge_accepts_that() -> None:
    assert outcomes(switch(), 2, 1, 12, 11) == [["even 2", "small 2"], hami.NoResult, hami.NoResult, hami.NoResult]
    assert outcomes(switch(accept_skipped=True), 2, 1, 12, 11) == [
        ["even 2", "small 2"],
        ["small 1"],
        ["even 12"],
        hami.NoResult,
    ]


def test_of_several_last_nodes_the_result_has_those_that_ran() -> None:
    config = switch()
    del config["merge"], config["even"]["next"], config["small"]["next"]
    assert outcomes(config, 2, 1, 11) == [{"even": "even 2", "small": "small 2"}, {"small": "small 1"}, hami.NoResult]


def test_a_skipped_request_names_its_node_and_what_to_set() -> None:
    with hami.pipe(switch(accept_skipped=True)) as pipe, pytest.raises(hami.NoResult) as raised:
        pipe({"data": 11})
    assert str(raised.value).splitlines()[0] == (
        'the request was skipped and has no `result`; to give it one, set `otherwise` to "pass" or to an expression'
    )
    shown = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert shown.endswith(('in node "even"', 'in node "small"'))


def test_an_error_in_a_branch_is_not_a_skip() -> None:
    config = switch(accept_skipped=True)
    each(lambda number: [][number], "NameSmall", max=8)
    assert outcomes(config, 2, 12, 11) == [IndexError, ["even 12"], hami.NoResult]


def test_otherwise_is_a_key_of_nodes_only() -> None:
    switch()
    assert refused({"global": {"otherwise": "skip"}, "a": {"backend": "Identity", "filter": "Even"}}).startswith(
        'nothing uses the key "otherwise"'
    )


def test_a_timeout_names_the_node_the_limit_and_the_time_waited_and_run() -> None:
    slow = gated("TestSlow")
    time = r"[0-9.]+(us|ms|s)"
    with hami.pipe({"quick": {"backend": "Identity", "next": "slow"}, "slow": {"backend": "TestSlow"}}) as pipe:
        running = pipe.submit({"data": 1}, timeout=2)
        slow.gate.wait_for_arrival()
        waiting = pipe.submit({"data": 2}, timeout=1)
        for future, limit in ((waiting, "1s"), (running, "2s")):
            error = future.exception(TIMEOUT)
            assert isinstance(error, hami.DeadlineExceeded)
            assert re.fullmatch(
                f'the request timed out: its limit of {limit} passed at node "slow" '
                rf"\(reached after {time}, waited {time}, ran {time}\)",
                str(error).splitlines()[0],
            )
        slow.gate.open()


def test_a_node_runs_the_graph_from_another_node_on() -> None:
    """DagDispatcher in a backend, also before the nodes that it runs are built; a cycle of such calls ends."""

    class Start(hami.Backend):
        child_count = (1, 1)
        at: str

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["node_name"] = self.at
            self.children[0].forward(batch)

    hami.register("Start", Start)
    nodes = graph(part="b,c", b="d", c="d", d={"map": "b[result:data],c[result:other]"})
    whole = {"whole": {"backend": "FanOut[Start(part)[DagDispatcher]]", "next": "end"}, "end": {"backend": "Identity"}}
    expected = [[name, "PART", "B", "D"] for name in "xy"]
    assert answer({**whole, **nodes}, [["x"], ["y"]], node_name="whole") == expected
    assert answer({**nodes, **whole}, [["x"], ["y"]], node_name="whole") == expected
    nodes["d"]["backend"] = "Start(part)[DagDispatcher]"
    assert "nested calls would deadlock" in failure(nodes, hami.ReentrantCall, [], node_name="part")
