"""Rules of the backends from Sequential to Identity and Pass, and of scheduling: reference/backends.md."""

from __future__ import annotations

import threading
from typing import Any

import hami
import pytest
from conftest import Run
from rows import answer, answers, counting, failure, happened, in_register, noting, refused, sizing
from running import PATIENCE, backend, each, gated


def test_sequential_runs_children_in_order_and_makes_them_right_to_left() -> None:
    """Children in order, initialised right to left. Between two children `result` becomes `data`."""
    journal = noting("A", "B", "C")
    assert answer("Sequential[A,B,C]", []) == ["A", "B", "C"]
    assert (happened(journal, "init"), happened(journal, "run")) == (["C", "B", "A"], ["A", "B", "C"])
    assert answer("S[C,A]", []) == ["C", "A"]


def answering_odd(name: str = "Odd") -> None:
    def forward(batch: list[Any]) -> None:
        for item in batch:
            if item["data"] < 0:
                item.fail(ValueError("negative"))
            elif item["data"] % 2:
                item["result"] = item["data"]

    backend(forward, name, max=8)


def test_sequential_a_request_without_result_has_failed_and_the_others_go_on() -> None:
    """A request without `result` has failed (`NoResult`) and goes no further, the others do."""
    answering_odd()
    sizes = sizing(max=8)
    with hami.pipe("S[Odd,Sizes]") as pipe:
        requests = [{"data": number} for number in (1, 2, 3)]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
    assert [(index, type(error)) for index, error in raised.value.errors] == [(1, hami.NoResult)]
    assert [request.get("result") for request in requests] == [1, None, 3]
    assert sizes == [2]


def test_sequential_or_runs_on_requests_without_result_and_without_error() -> None:
    """`(or)X` runs X only on requests that have no result and no error; before it a missing result is allowed."""
    answering_odd()
    each(lambda number: number * 100, "Rescue", max=8)
    assert answers("S[Odd,(or)Rescue]", 1, 2, 3) == [1, 200, 3]
    assert answers("S[Odd,(or)Rescue,Rescue]", 1, 2) == [100, 20000]
    assert failure("S[Odd,(or)Rescue]", ValueError, -1) == "negative"


def test_ioc_makes_items_in_order_and_destroys_them_in_reverse() -> None:
    """Items before `;` are created and initialised in order … Destroyed in reverse order."""
    journal = noting("A", "B", "C")
    assert answer("IoC[A,B;C]", []) == ["C"]
    assert happened(journal, "init") == ["A", "B", "C"]
    assert happened(journal, "close") == ["C", "B", "A"]


def test_ioc_names_and_aliases_are_the_same_instances_in_every_later_item() -> None:
    """Their names (or aliases) are visible, as the same instances, in every later item and in F."""
    counting()
    assert answer("S[Count,Count]") == [1, 1]
    assert answer("IoC[Count;S[Count,Count]]") == [1, 2]
    assert answer("IoC[c:=Count,pair:=S[c,c];S[pair,c]]") == [1, 2, 3]
    assert answer("IoC[a:=Count,b:=Count;S[a,b,a]]") == [1, 1, 2]


def test_ioc_is_lexical() -> None:
    """Lexical: generated bodies and values looked up by `Reflect` do not see them."""
    counting()
    hami.generate("CountsInBody", "S[Count]")
    assert answer("IoC[Count;S[Count,CountsInBody]]") == [1, 1]
    assert answer({"backend": "IoC[Count;S[Count,Reflect[other]]]", "other": "Count"}) == [1, 1]


@pytest.mark.parametrize("name", ["DI", "Aspect", "Block"])
def test_di_injects_each_item_into_the_one_before_and_runs_the_first(name: str) -> None:
    """`DI[a,b,c]` (`Aspect`, `Block`) injects b into a, c into b; runs a."""
    sizes = sizing(max=4)
    config = {"backend": "Sizes", "node_entrypoint": in_register(f"{name}[Batching, InstanceDispatcher]")}
    assert answers(config, 1, 2, 3) == [1, 2, 3]
    assert sizes == [3]
    third = {**config, "node_entrypoint": in_register(f"{name}[Batching, InstanceDispatcher, Identity]")}
    assert "InstanceDispatcher takes no dependency" in refused(third)
    assert answer(f"{name}[Identity]", 5) == 5


def test_di_takes_names_bound_by_an_enclosing_ioc() -> None:
    """Items: backends, or names bound by an enclosing IoC, or instances."""
    sizes = sizing(max=4)
    bound = "IoC[d:=InstanceDispatcher, b:=Batching; DI[b,d]]"
    assert answers({"backend": "Sizes", "node_entrypoint": in_register(bound)}, 1, 2, 3) == [1, 2, 3]
    assert sizes == [3]


def test_proxy_stands_for_a_named_instance() -> None:
    """`Proxy[instance]` runs a named instance."""
    counting()
    config = {
        "backend": "Count",
        "instance_num": 2,
        "entrypoint": "S[Proxy[default.0],Proxy[default.1],Proxy[default.0]]",
    }
    assert answer(config) == [1, 1, 2]
    assert "default.7" in refused({**config, "entrypoint": "Proxy[default.7]"}, hami.NotFound)


def test_backend_proxy_stands_for_the_parameter_backend() -> None:
    """`BackendProxy`: for the backend that parameter `backend` holds."""
    each(lambda number: number + 1, "AddOne")
    made = "List[InstancesRegister[BackendProxy], Register[DI[Batching, InstanceDispatcher]]]"
    assert answer({"backend": "AddOne", "node_entrypoint": made}, 1) == 2


@pytest.mark.parametrize("name", ["Reflect", "ProxyFromParam"])
def test_reflect_builds_the_value_of_a_parameter_or_identity(name: str) -> None:
    """Builds the expression that is the value of parameter `key`; no X: `Identity`."""
    each(lambda number: number + 1, "AddOne")
    assert answer({"backend": f"{name}[post]", "post": "S[AddOne,AddOne]"}, 1) == 3
    assert answer(f"{name}[post]", 1) == 1


def test_reflect_without_a_key_is_the_backend() -> None:
    """Bare `Reflect`: key `backend`."""
    each(lambda number: number + 1, "AddOne")
    made = "List[InstancesRegister[Reflect], Register[DI[Batching, InstanceDispatcher]]]"
    assert answer({"backend": "AddOne", "node_entrypoint": made}, 1) == 2


@pytest.mark.parametrize("default", ["Reflect[post, {}]", "Reflect[post, default={}]"])
def test_reflect_absent_is_x_a_key_of_the_node_or_an_expression(default: str) -> None:
    """Absent: X, where X is another key of the node's parameters if there is one of that name, else an expression."""
    each(lambda number: number + 1, "AddOne")
    each(lambda number: number * 10, "TimesTen")
    assert answer({"backend": default.format("other"), "other": "TimesTen"}, 5) == 50
    assert answer({"backend": default.format("AddOne")}, 5) == 6
    assert answer({"backend": default.format("AddOne"), "AddOne": "TimesTen"}, 5) == 50
    assert answer({"backend": default.format("AddOne"), "post": "TimesTen"}, 5) == 50


def test_reflect_looks_names_up_in_this_process_and_in_the_core() -> None:
    """This is where names are looked up: this process, the core, installed plugins."""
    each(lambda _: "of this process", "OfThisProcess")
    assert answer({"backend": "Reflect[post]", "post": "OfThisProcess"}) == "of this process"
    assert answer({"backend": "Reflect[post]", "post": "Identity"}, 4) == 4
    with pytest.raises(hami.BackendNotFound, match="OfNobody"):
        hami.pipe({"backend": "Reflect[post]", "post": "OfNobody"})


def test_register_and_instances_register_give_names() -> None:
    """Registers X as `node.<node_name>`; `instance_num` copies as `<node_name>.<i>`."""
    journal = noting("A")
    nodes = {"one": {"backend": "A", "instance_num": 3}, "two": {"backend": "Identity"}}
    entry = "S[Forward[node.one],Forward[one.2],Forward[node.two]]"
    assert answer({**nodes, "dag_entrypoint": entry}, []) == ["A", "A"]
    assert happened(journal, "init") == ["A", "A", "A"]
    assert "one.3" in refused({**nodes, "dag_entrypoint": "Forward[one.3]"}, hami.NotFound)


def test_register_names_belong_to_the_pipe() -> None:
    """Names belong to the pipe: two pipes never collide, a closed pipe frees its names."""
    config = {"same": {"backend": "Identity", "instance_num": 2}}
    with hami.pipe(config) as first, hami.pipe(config) as second:
        assert (first({"data": 1})["result"], second({"data": 2})["result"]) == (1, 2)
    assert answer(config, 3) == 3


def test_instance_dispatcher_hooks_before_and_after_gathering() -> None:
    """PreCat runs on each request before it is gathered, CatedHandle on the gathered batch before the instance."""
    before, gathered, sizes = (sizing(name, max=8) for name in ("PreCat", "CatedHandle", "Sizes"))
    made = in_register("DI[Batching, InstanceDispatcher[PreCat, CatedHandle]]")
    assert answers({"backend": "Sizes", "node_entrypoint": made}, 1, 2, 3) == [1, 2, 3]
    assert (before, gathered, sizes) == ([1, 1, 1], [3], [3])


def test_instance_dispatcher_result_of_a_hook_is_the_data_of_what_follows() -> None:
    """`InstanceDispatcher[PreCat, CatedHandle]`, each on what the one before it left."""
    noting("P", "C", "A", max=8)
    made = in_register("DI[Batching, InstanceDispatcher[P,C]]")
    assert answer({"backend": "A", "node_entrypoint": made}, []) == ["P", "C", "A"]


def seen_while_busy(config: dict[str, Any], cls: Any) -> list[list[int]]:
    """One request occupies the only instance; three more come in two calls."""
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": 0})]
        cls.gate.wait_for_arrival()
        futures += [pipe.submit({"data": number}) for number in (1, 2, 3)]
        cls.gate.open()
        assert [future.result(PATIENCE)["result"] for future in futures] == [100, 101, 102, 103]
    return cls.seen


def test_instance_dispatcher_without_batching_a_batch_is_what_one_call_brought() -> None:
    """Without `Batching` in front a batch is exactly what one call brought."""
    made = in_register("InstanceDispatcher")
    assert seen_while_busy({"backend": "TestGated", "node_entrypoint": made}, gated(max=8)) == [[0], [1], [2], [3]]
    sizes = sizing(max=8)
    assert answers({"backend": "Sizes", "node_entrypoint": made}, 1, 2, 3) == [1, 2, 3]
    assert sizes == [3]


def test_batching_gathers_until_max() -> None:
    """The fill policy of the dispatcher it is injected with: gather until `max` or `batching_timeout`."""
    made = in_register("DI[Batching, InstanceDispatcher]")
    assert seen_while_busy({"backend": "TestGated", "node_entrypoint": made}, gated(max=8)) == [[0], [1, 2, 3]]
    assert seen_while_busy({"backend": "TestGated", "node_entrypoint": made, "max": 2}, gated(max=8)) == [
        [0],
        [1, 2],
        [3],
    ]
    assert "Batching takes an InstanceDispatcher, got Identity" in refused(
        {"backend": "Identity", "node_entrypoint": in_register("DI[Batching,Identity]")}
    )


def test_background_thread_inits_runs_and_closes_on_one_thread() -> None:
    """X is initialised, run and closed on one thread of its own."""
    threads: list[int] = []

    class Where(hami.Backend):
        thread = "serialized"

        def init(self, options: Any) -> None:
            threads.append(threading.get_ident())

        def forward(self, batch: list[Any]) -> None:
            threads.append(threading.get_ident())
            for item in batch:
                item["result"] = None

        def close(self) -> None:
            threads.append(threading.get_ident())

    hami.register("Where")(Where)
    with hami.pipe("Where") as pipe:
        pipe({"data": 1})
    assert set(threads) == {threading.get_ident()}
    threads.clear()
    answer("BackgroundThread[Where]")
    assert len(threads) == 3
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_dag_dispatcher_runs_a_graph_of_nodes() -> None:
    """Runs a graph of nodes."""
    noting("A", "B")
    nodes: dict[str, Any] = {"a": {"backend": "A", "next": "b"}, "b": {"backend": "B"}}
    assert answer(nodes, []) == ["A", "B"]
    assert answer({**nodes, "dag_entrypoint": "DagDispatcher"}, []) == ["A", "B"]
    assert answer({**nodes, "dag_entrypoint": "S[DagDispatcher,DagDispatcher]"}, []) == ["A", "B", "A", "B"]


def test_interpreter_makes_nodes_by_init_and_chooses_the_entrypoint_separately() -> None:
    """The init expression of each node with its own parameters, then the entrypoint, chosen separately."""
    journal = noting("A", "B")
    own = "List[Reflect[extra], InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]"
    node = {"backend": "A", "extra": "B", "init": own, "entrypoint": "S[Forward[node.{node_name}],Identity]"}
    assert answer(node, []) == ["A"]
    assert happened(journal, "init") == ["B", "A"]


@pytest.mark.parametrize("text", ["Interpreter", "S[Identity,Interpreter]"])
def test_interpreter_stands_in_no_expression(text: str) -> None:
    """`Interpreter`: config → nodes; it is the pipe itself."""
    assert "Interpreter is the pipe itself and is not allowed in an expression" in refused(text)
    assert "Interpreter is the pipe itself and is not allowed in an expression" in refused(
        {"backend": "Identity", "entrypoint": text}
    )


def test_instance_from_param_is_the_instance_that_a_parameter_names() -> None:
    """`InstanceFromParam[key]`: the instance that parameter `key` names."""
    noting("A", "B")
    nodes: dict[str, Any] = {
        "b": {"backend": "B"},
        "a": {"backend": "S[A,InstanceFromParam[target]]", "target": "node.b"},
        "dag_entrypoint": "Forward[node.a]",
    }
    assert answer(nodes, []) == ["A", "B"]
    del nodes["a"]["target"]
    assert "target" in refused(nodes)


def test_forward_goes_to_an_instance_safely() -> None:
    """`Forward[instance]`: safe forward to an instance."""
    noting("A", "B")
    nodes = {"b": {"backend": "B"}, "a": {"backend": "S[A,Forward[node.b]]"}, "dag_entrypoint": "Forward[node.a]"}
    assert answer(nodes, []) == ["A", "B"]
    assert "node.c" in refused({**nodes, "a": {"backend": "Forward[node.c]"}}, hami.NotFound)


def test_list_makes_each_child_and_has_no_forward() -> None:
    """Initialises each child; has no forward."""
    journal = noting("A", "B")
    assert failure("List[A,B]", hami.ConfigError) == "List has no forward; it only initialises its items"
    assert (happened(journal, "init"), happened(journal, "run")) == (["A", "B"], [])


def test_identity_and_pass() -> None:
    """`result = data`; always refuses to run."""
    value = object()
    assert answer("Identity", value) is value
    assert failure("Pass", hami.RequestError) == "Pass refuses to run"


def test_defaults_are_visible_and_replaceable(hami_command: Run) -> None:
    """Defaults, visible in `hami show-config`, replaceable in the configuration."""
    shown = hami_command("show-config", "Identity").stdout
    made = "List[InstancesRegister[Reflect[backend]], Register[DI[Batching, InstanceDispatcher]]]"
    assert f'node_entrypoint = "{made}"  default' in shown
    assert 'entrypoint = "Forward[node.{node_name}]"  default' in shown
    each(lambda number: number + 1, "AddOne")
    assert answer({"backend": "AddOne", "node_entrypoint": made, "entrypoint": "Forward[node.{node_name}]"}, 1) == 2
    assert answer({"backend": "AddOne", "entrypoint": "S[Forward[node.{node_name}],Identity]"}, 1) == 2
