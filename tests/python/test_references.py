"""Backends that refer to instances and parameters: reference/backends.md, "References"."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from rows import answer, counting, noting, refused
from running import TIMEOUT, each, gated


def test_proxy_runs_a_named_instance() -> None:
    counting()
    config = {
        "backend": "Count",
        "instance_num": 2,
        "entrypoint": "S[Proxy[default.0],Proxy[default.1],Proxy[default.0]]",
    }
    assert answer(config) == [1, 1, 2]
    assert "default.7" in refused({**config, "entrypoint": "Proxy[default.7]"}, hami.NotFound)


def test_backend_proxy_is_the_backend_of_the_node() -> None:
    each(lambda number: number + 1, "AddOne")
    made = "List[InstancesRegister[BackendProxy], Register[DI[Batching, InstanceDispatcher]]]"
    assert answer({"backend": "AddOne", "node_entrypoint": made}, 1) == 2


@pytest.mark.parametrize("name", ["Reflect", "ProxyFromParam"])
def test_reflect_builds_the_expression_of_a_parameter_or_identity(name: str) -> None:
    each(lambda number: number + 1, "AddOne")
    assert answer({"backend": f"{name}[post]", "post": "S[AddOne,AddOne]"}, 1) == 3
    assert answer(f"{name}[post]", 1) == 1


def test_reflect_without_a_key_is_the_backend() -> None:
    each(lambda number: number + 1, "AddOne")
    made = "List[InstancesRegister[Reflect], Register[DI[Batching, InstanceDispatcher]]]"
    assert answer({"backend": "AddOne", "node_entrypoint": made}, 1) == 2


@pytest.mark.parametrize("default", ["Reflect[post, {}]", "Reflect[post, default={}]"])
def test_the_default_of_reflect_is_a_key_of_the_node_or_an_expression(default: str) -> None:
    """If the node has a key with the name of the default, the value of that key is used."""
    each(lambda number: number + 1, "AddOne")
    each(lambda number: number * 10, "TimesTen")
    assert answer({"backend": default.format("other"), "other": "TimesTen"}, 5) == 50
    assert answer({"backend": default.format("AddOne")}, 5) == 6
    assert answer({"backend": default.format("AddOne"), "AddOne": "TimesTen"}, 5) == 50
    assert answer({"backend": default.format("AddOne"), "post": "TimesTen"}, 5) == 50


def test_reflect_finds_names_of_this_process_and_of_the_core() -> None:
    each(lambda _: "of this process", "OfThisProcess")
    assert answer({"backend": "Reflect[post]", "post": "OfThisProcess"}) == "of this process"
    assert answer({"backend": "Reflect[post]", "post": "Identity"}, 4) == 4
    with pytest.raises(hami.BackendNotFound, match="Unknown"):
        hami.pipe({"backend": "Reflect[post]", "post": "Unknown"})


def test_instance_from_param_is_the_instance_that_a_parameter_names() -> None:
    noting("A", "B")
    nodes: dict[str, Any] = {
        "b": {"backend": "B"},
        "a": {"backend": "S[A,InstanceFromParam[target]]", "target": "node.b"},
        "dag_entrypoint": "Forward[node.a]",
    }
    assert answer(nodes, []) == ["A", "B"]
    del nodes["a"]["target"]
    assert "target" in refused(nodes)


def test_forward_passes_the_request_to_a_named_instance() -> None:
    noting("A", "B")
    nodes = {"b": {"backend": "B"}, "a": {"backend": "S[A,Forward[node.b]]"}, "dag_entrypoint": "Forward[node.a]"}
    assert answer(nodes, []) == ["A", "B"]
    assert "node.c" in refused({**nodes, "a": {"backend": "Forward[node.c]"}}, hami.NotFound)


def test_repost_submits_a_copy_to_a_named_instance_and_does_not_wait() -> None:
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
        assert request["reply"].wait(TIMEOUT)
        assert request["reply"].value() == 105
