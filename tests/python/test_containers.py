"""Containers: reference/backends.md, "Containers"."""

from __future__ import annotations

import threading
from typing import Any

import hami
import pytest
from rows import answer, answers, counting, failure, happened, in_register, noting, refused, sizing
from running import backend, each


def test_sequential_runs_children_in_order_and_initialises_them_in_reverse() -> None:
    """Between two children, `result` becomes `data`."""
    journal = noting("A", "B", "C")
    assert answer("Sequential[A,B,C]", []) == ["A", "B", "C"]
    assert (happened(journal, "init"), happened(journal, "run")) == (["C", "B", "A"], ["A", "B", "C"])
    assert answer("S[C,A]", []) == ["C", "A"]


def odd_only(name: str = "Odd") -> None:
    def forward(batch: list[Any]) -> None:
        for item in batch:
            if item["data"] < 0:
                item.fail(ValueError("negative"))
            elif item["data"] % 2:
                item["result"] = item["data"]

    backend(forward, name, max=8)


def test_in_sequential_a_request_without_result_fails_and_the_others_continue() -> None:
    odd_only()
    sizes = sizing(max=8)
    with hami.pipe("S[Odd,Sizes]") as pipe:
        requests = [{"data": number} for number in (1, 2, 3)]
        with pytest.raises(hami.BatchError) as raised:
            pipe(requests)
    assert [(index, type(error)) for index, error in raised.value.errors] == [(1, hami.NoResult)]
    assert [request.get("result") for request in requests] == [1, None, 3]
    assert sizes == [2]


def test_or_in_sequential_runs_on_requests_that_have_neither_result_nor_error() -> None:
    odd_only()
    each(lambda number: number * 100, "Rescue", max=8)
    assert answers("S[Odd,(or)Rescue]", 1, 2, 3) == [1, 200, 3]
    assert answers("S[Odd,(or)Rescue,Rescue]", 1, 2) == [100, 20000]
    assert failure("S[Odd,(or)Rescue]", ValueError, -1) == "negative"


def test_ioc_initialises_items_in_order_and_closes_them_in_reverse() -> None:
    journal = noting("A", "B", "C")
    assert answer("IoC[A,B;C]", []) == ["C"]
    assert happened(journal, "init") == ["A", "B", "C"]
    assert happened(journal, "close") == ["C", "B", "A"]


def test_names_and_aliases_of_ioc_refer_to_the_same_instances_in_every_later_item() -> None:
    counting()
    assert answer("S[Count,Count]") == [1, 1]
    assert answer("IoC[Count;S[Count,Count]]") == [1, 2]
    assert answer("IoC[c:=Count,pair:=S[c,c];S[pair,c]]") == [1, 2, 3]
    assert answer("IoC[a:=Count,b:=Count;S[a,b,a]]") == [1, 1, 2]


def test_names_of_ioc_are_lexical() -> None:
    """Bodies of generated backends and expressions that `Reflect` builds do not see them."""
    counting()
    hami.generate("CountsInBody", "S[Count]")
    assert answer("IoC[Count;S[Count,CountsInBody]]") == [1, 1]
    assert answer({"backend": "IoC[Count;S[Count,Reflect[other]]]", "other": "Count"}) == [1, 1]


@pytest.mark.parametrize("name", ["DI", "Aspect", "Block"])
def test_di_injects_each_item_into_the_one_before_and_runs_the_first(name: str) -> None:
    sizes = sizing(max=4)
    config = {"backend": "Sizes", "node_entrypoint": in_register(f"{name}[Batching, InstanceDispatcher]")}
    assert answers(config, 1, 2, 3) == [1, 2, 3]
    assert sizes == [3]
    third = {**config, "node_entrypoint": in_register(f"{name}[Batching, InstanceDispatcher, Identity]")}
    assert "InstanceDispatcher takes no dependency" in refused(third)
    assert answer(f"{name}[Identity]", 5) == 5


def test_di_takes_names_bound_by_an_enclosing_ioc() -> None:
    sizes = sizing(max=4)
    bound = "IoC[d:=InstanceDispatcher, b:=Batching; DI[b,d]]"
    assert answers({"backend": "Sizes", "node_entrypoint": in_register(bound)}, 1, 2, 3) == [1, 2, 3]
    assert sizes == [3]


def test_background_thread_initialises_runs_and_closes_its_item_on_one_thread() -> None:
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


def test_list_initialises_its_items_and_has_no_forward() -> None:
    journal = noting("A", "B")
    assert failure("List[A,B]", hami.ConfigError) == "List has no forward; it only initialises its items"
    assert (happened(journal, "init"), happened(journal, "run")) == (["A", "B"], [])


def test_with_passes_its_second_item_to_forward_with_dep_of_the_first() -> None:

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


def concatenating(journal: list[str], seen: list[Any]) -> None:
    """Register Cat, which gives all requests one list, Infer, which negates it, and Split, which takes it apart."""

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


def test_cat_split_concatenates_a_batch_runs_it_once_and_splits_the_result() -> None:
    """The range is that of the middle item, which is initialised first."""
    journal: list[str] = []
    seen: list[Any] = []
    concatenating(journal, seen)
    assert answers("CatSplit[Cat,Infer,Split]", 1, 2, 3, 4, 5, 6) == [-1, -2, -3, -4, -5, -6]
    assert journal == ["Infer", "Cat", "Split"]
    assert sorted(seen) == [[[1, 2, 3, 4]], [[5, 6]]]
    assert "takes at most 4" in refused({"backend": "CatSplit[Cat,Infer,Split]", "max": 5})
