"""Requests and options that backends use from several threads or after `forward` has returned."""

from __future__ import annotations

import weakref
from typing import Any

import hami
import pytest
from running import backend, check_clean, run_script


def test_threads_of_a_backend_may_use_a_request_and_the_options_concurrently() -> None:
    script = """
        from concurrent.futures import ThreadPoolExecutor
        import hami

        def use(mapping, own):
            for number in range(2000):
                mapping[own] = [number]
                mapping.update({own + "-too": number})
                assert mapping[own] == [number] and mapping.get(own + "-too") == number and own in mapping
                assert own in mapping.keys() and (own + "-too", number) in mapping.items() and mapping.values()
                assert mapping.pop(own + "-too") == number and len(mapping) >= 2
                mapping.setdefault(own + "-last", number)
                del mapping[own]

        @hami.register
        class Many(hami.Backend):
            def init(self, options):
                self.options = options

            def forward(self, batch):
                with ThreadPoolExecutor(4) as pool:
                    for mapping in (self.options, batch[0]):
                        list(pool.map(lambda own: use(mapping, own), "abcd"))
                batch[0]["result"] = {name: self.options[name + "-last"] for name in "abcd"}

        with hami.pipe("Many") as pipe:
            request = pipe({"data": 1})
        assert request == {"data": 1, "result": dict.fromkeys("abcd", 0), **{name + "-last": 0 for name in "abcd"}}
        print("done")
    """
    check_clean(run_script(script), "done")


def test_each_backend_of_an_instance_may_use_the_options_from_threads() -> None:
    script = """
        from concurrent.futures import ThreadPoolExecutor
        import hami

        seen = []

        @hami.register
        class Keeps(hami.Backend):
            def init(self, options):
                seen.append(options)

            def forward(self, batch):
                batch[0]["result"] = batch[0]["data"]

        def use(number):
            mine = seen[number % 2]
            for turn in range(5000):
                mine[f"{number}-{turn % 7}"] = [turn]
                assert mine.pop(f"{number}-{turn % 7}") == [turn]
                mine.items()

        with hami.pipe("S[Keeps,Keeps]"), ThreadPoolExecutor(4) as pool:
            list(pool.map(use, range(4)))
        print("done")
    """
    check_clean(run_script(script), "done")


def test_a_request_may_be_updated_from_a_dict_that_other_threads_change() -> None:
    script = """
        import threading
        import hami

        changing, ended = {}, threading.Event()

        def change(own):
            number = 0
            while not ended.is_set():
                number += 1
                changing[f"{own}{number % 50}"] = [number]
                changing.pop(f"{own}{number * 7 % 50}", None)

        @hami.register
        class Updates(hami.Backend):
            def forward(self, batch):
                for _ in range(5000):
                    batch[0].update(changing)
                batch[0]["result"] = "done"

        threads = [threading.Thread(target=change, args=(own,)) for own in "ab"]
        for thread in threads:
            thread.start()
        try:
            with hami.pipe("Updates") as pipe:
                print(pipe({"data": 1})["result"])
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    """
    check_clean(run_script(script), "done")


def test_threads_that_use_a_request_after_forward_get_an_error() -> None:
    script = """
        import sys, threading
        import hami

        sys.setswitchinterval(1e-4)  # seconds; with the default, each call waits for threads that never stop
        kept, ended, messages = [], threading.Event(), set()

        def look():
            while not ended.is_set():
                for item in list(kept):
                    try:
                        item["late"] = [item["data"], len(item), item.cancelled]
                    except hami.RequestError as error:
                        messages.add(str(error))

        @hami.register
        class Keeps(hami.Backend):
            def forward(self, batch):
                kept[:] = batch
                batch[0]["result"] = 1

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        with hami.pipe({"backend": "Keeps"}) as pipe:
            for number in range(1000):
                assert pipe({"data": [number]})["result"] == 1
        ended.set()
        for thread in threads:
            thread.join()
        assert messages <= {"this request is no longer valid: the backend's forward has returned"}
        print("done")
    """
    check_clean(run_script(script), "done")


def test_the_destructor_of_a_value_sees_the_request_without_it() -> None:
    seen: list[list[str]] = []

    class Dies:
        def __init__(self, item: Any) -> None:
            self.item = item

        def __del__(self) -> None:
            seen.append(self.item.keys())
            self.item.update({f"new{number}": number for number in range(20)})

    def forward(batch: list[Any]) -> None:
        item = batch[0]
        item["a"] = Dies(item)
        item["b"] = "kept"
        del item["a"]
        item["result"] = item["b"]

    backend(forward, "TestValueDies")
    with hami.pipe("TestValueDies") as pipe:
        request = pipe({"data": 1})
    assert seen == [["data", "b"]]
    assert request == {"data": 1, "b": "kept", "result": "kept", **{f"new{number}": number for number in range(20)}}


def test_views_of_earlier_batches_never_show_a_later_request() -> None:
    kept: list[Any] = []
    lost: list[Any] = []

    def forward(batch: list[Any]) -> None:
        kept.append(batch[0])
        lost.append(weakref.ref(batch[1]))
        for item in batch:
            item["result"] = [id(item) == id(each) for each in kept]

    backend(forward, "TestKeptViews", max=2)
    with hami.pipe({"backend": "TestKeptViews", "max": 2}) as pipe:
        for number in range(3):
            requests = [{"data": number}, {"data": number}]
            pipe(requests)
            assert requests[1]["result"] == [False] * (number + 1)
    for view in kept:
        with pytest.raises(hami.RequestError, match="this request is no longer valid"):
            view["data"]
    assert [reference() for reference in lost] == [None] * 3
