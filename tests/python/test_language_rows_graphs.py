"""Rules of graphs: reference/configuration.md, "Graphs"."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from rows import answer, answers, failure, noting, refused, sizing
from running import PATIENCE, Gate, backend, each


def graph(**nodes: Any) -> dict[str, Any]:
    """Nodes that append their name to `data`; a str is their `next`."""
    noting(*(name.upper() for name in nodes), max=8)
    return {
        name: {"backend": name.upper(), **({"next": keys} if isinstance(keys, str) else keys)}
        for name, keys in nodes.items()
    }


def test_graph_next_gives_each_branch_a_shallow_copy_and_several_sinks_a_dict() -> None:
    """`next = "b,c"`; each branch gets a shallow copy. One sink: its `result`; several: a dict by node name."""
    assert answer(graph(a="b", b={}), []) == ["A", "B"]
    assert answer(graph(a="b,c", b={}, c={}), []) == {"b": ["A", "B"], "c": ["A", "C"]}


def test_graph_map_starts_a_fresh_dict() -> None:
    """`map` starts a fresh dict from the named keys (plus the reserved ones)."""
    config = graph(a="b,c", b="d", c="d", d={"map": "b[result:data],c[result:boxes]"})
    seen: list[Any] = []

    def look(batch: list[Any]) -> None:
        for item in batch:
            seen.append(sorted(item.keys()))
            item["result"] = (item["data"], item["boxes"])

    backend(look, "D")
    assert answer(config, [], req_id="r", other=1) == (["A", "B"], ["A", "C"])
    assert seen == [["boxes", "data", "req_id"]]


def test_graph_or_runs_on_requests_left_without_result_and_error() -> None:
    """`or = true` runs the node only on requests its predecessor left without result and without error."""
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


def test_graph_filter_of_a_node() -> None:
    """`filter = "F"` as `Filter[F, …]`."""
    each(lambda number: number > 2, "Large", max=8)
    each(lambda number: number * 10, "TimesTen", max=8)
    assert answers({"backend": "TimesTen", "filter": "Large"}, 1, 2, 3, 4) == [1, 2, 30, 40]
    nodes = {"a": {"backend": "Identity", "next": "b"}, "b": {"backend": "TimesTen", "filter": "Large"}}
    assert [answer(nodes, 1), answer(nodes, 5)] == [1, 50]
    assert failure({"backend": "Large", "filter": "TimesTen"}, hami.DataTypeError, 1) == (
        "Filter takes a bool from TimesTen, got int"
    )


def test_graph_priority_is_carried_through_every_node_copy_and_retry() -> None:
    """`priority`: request key, carried through every node, copy and retry."""
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
    assert seen["B"] == seen["C"] == [7, 9, 7, 9]
    assert set(seen["D"]) == {7, 9}


def test_graph_batches_stay_batches_between_nodes() -> None:
    """Batches stay batches between nodes."""
    first, second = sizing("First", max=8), sizing("Second", max=8)
    nodes: dict[str, Any] = {"a": {"backend": "First", "next": "b"}, "b": {"backend": "Second"}}
    assert answers(nodes, 1, 2, 3) == [1, 2, 3]
    assert (first, second) == ([3], [3])


def test_graph_later_errors_are_attached_as_notes() -> None:
    """First error wins, later ones are attached as notes."""
    config = graph(start="left,right", left="join", right="join", join={"map": "left[result:data],right[result:more]"})
    journal = noting("JOIN")
    gate = Gate()
    config["left"]["backend"] = "Raise('from the left')"  # quick: over before the right is begun

    def late(_: Any) -> Any:
        gate.enter()
        raise LookupError("from the right")

    each(late, "RIGHT")
    with hami.pipe(config) as pipe:
        future = pipe.submit({"data": []})
        gate.wait_for_arrival()
        gate.open()
        with pytest.raises(hami.RequestError) as raised:
            future.result(PATIENCE)
    told = [str(raised.value), *getattr(raised.value, "__notes__", [])]
    assert told[0].splitlines()[0] == "from the left"
    assert "also failed: LookupError: from the right" in "\n".join(told)
    assert ("run", "JOIN") not in journal


def test_graph_the_first_error_wins_and_nothing_further_is_started() -> None:
    """First error wins …; nothing further is started."""
    config = graph(a="b", b="c", c={})
    journal = noting("A", "C")
    each(lambda data: data[5], "B")
    assert failure(config, IndexError, []) == "list index out of range"
    assert ("run", "A") in journal
    assert ("run", "C") not in journal


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ({"a": "b", "b": "a"}, 'node "a" is its own successor'),
        ({"a": "a"}, 'node "a" is its own successor'),
        ({"a": "b", "b": {}, "c": "d", "d": "c"}, 'node "c" is its own successor'),
        ({"a": "nobody"}, 'node "nobody" does not exist'),
        ({"a": "b,c", "b": "d", "c": "d", "d": {}}, 'node "d" has 2 predecessors and no map'),
        ({"a": "b", "b": {"map": "nobody[result:data]"}}, 'node "nobody" does not exist'),
        ({"a": "b", "b": {"map": "c[result:data]"}, "c": {}}, 'node "c" has not run when "b" starts'),
    ],
)
def test_graph_is_checked_at_build(nodes: dict[str, Any], told: str) -> None:
    """Checked at build, also for a single node: cycles, unknown or unreachable nodes, two predecessors without map."""
    assert refused(graph(**nodes)).splitlines()[0] == told


def test_graph_with_several_roots_each_request_names_its_start() -> None:
    """Several roots (then each request must name its start)."""
    config = graph(a="c", b={}, c={})
    assert answer(config, [], node_name="a") == ["A", "C"]
    assert "node_name" in failure(config, hami.RequestError, [])


def test_graph_a_start_from_which_a_later_node_lacks_a_source() -> None:
    """Checked per request: a start node from which some later node lacks a source; its own `map` is ignored."""
    config = graph(a="b,c", b="d", c="d", d={"map": "b[result:data],c[result:boxes]"})
    assert '"d"' in failure(config, hami.RequestError, [], node_name="b")
    assert answer(config, [], node_name="d") == ["D"]
