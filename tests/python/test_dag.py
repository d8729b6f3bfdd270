"""Graphs of nodes as users write them, with Python backends."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from running import each


@pytest.fixture(autouse=True)
def backends() -> None:
    each(lambda number: number + 1, "TestAddOne")
    each(lambda number: number * 10, "TestTimesTen")
    each(lambda number: [number, number + 1], "TestPair")


def test_nodes_follow_each_other() -> None:
    config = {"a": {"backend": "TestAddOne", "next": "b"}, "b": {"backend": "TestTimesTen"}}
    with hami.pipe(config) as pipe:
        assert pipe({"data": 1, "kept": True}) == {"data": 1, "kept": True, "result": 20}
        assert pipe({"data": 1, "node_name": "b"})["result"] == 10
        assert [one["result"] for one in pipe([{"data": 1}, {"data": 2}])] == [20, 30]


def test_branches_join_through_a_map() -> None:
    config: dict[str, dict[str, Any]] = {
        "start": {"backend": "TestAddOne", "next": "left,right"},
        "left": {"backend": "TestTimesTen", "next": "join"},
        "right": {"backend": "TestAddOne", "next": "join"},
        "join": {"backend": "TestJoins", "map": "left[result:data],right[result:other]"},
    }

    class Joins(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = (item["data"], item["other"], sorted(item.keys()))

    hami.register("TestJoins")(Joins)
    with hami.pipe(config) as pipe:
        assert pipe({"data": 1, "req_id": "r"})["result"] == (20, 3, ["data", "other", "req_id"])


def test_several_last_nodes_give_a_dict_by_name() -> None:
    config = {
        "a": {"backend": "TestAddOne", "next": ["b", "c"]},
        "b": {"backend": "TestTimesTen"},
        "c": {"backend": "TestPair"},
    }
    with hami.pipe(config) as pipe:
        assert pipe({"data": 1})["result"] == {"b": 20, "c": [2, 3]}


def test_an_error_names_its_node_and_stops_the_rest() -> None:
    started: list[int] = []

    def fail(_: Any) -> Any:
        raise LookupError("lost")

    each(fail, "TestFails")
    each(lambda number: started.append(number), "TestStarted")
    config = {"a": {"backend": "TestFails", "next": "b"}, "b": {"backend": "TestStarted"}}
    with hami.pipe(config) as pipe:
        request = {"data": 1}
        with pytest.raises(LookupError, match="lost") as raised:
            pipe(request)
        assert "".join(getattr(raised.value, "__notes__", [str(raised.value)])).endswith('node "a"')
        assert request == {"data": 1}
        assert started == []


def test_a_list_fans_out_to_another_node() -> None:
    config = {
        "pages": {"backend": "S[TestPair,FanOut[Forward[node.lines]]]", "next": []},
        "lines": {"backend": "TestTimesTen", "max": 8},
    }
    with hami.pipe({**config, "entrypoint": "Forward[node.pages]", "dag_entrypoint": "Forward[node.pages]"}) as pipe:
        assert pipe({"data": 1})["result"] == [10, 20]
