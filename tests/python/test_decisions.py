"""Decisions, loops and utilities: reference/backends.md, "ModelLoader", "Decisions and loops" and "Utilities"."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import hami
import pytest
from rows import answer, answers, failure, happened, noting, refused
from running import backend, each


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
def test_model_loader_builds_only_the_child_whose_suffix_matches(name: str, keys: dict[str, str], made: str) -> None:
    """`model_type` has precedence over the suffix of `model`."""
    journal = noting("A", "B")
    assert answer({"backend": f"{name}[(.onnx)A,(.trt)B]", **keys}, []) == [made]
    assert happened(journal, "init") == [made]


def test_model_loader_without_a_match_names_the_suffixes_that_it_has() -> None:
    noting("A", "B")
    message = refused({"backend": "ModelLoader[(.onnx)A,(.trt)B]", "model": "c.pt"})
    assert 'ModelLoader has no item for "c.pt"' in message
    assert "it has items for .onnx, .trt" in message


def test_has_key_and_not_has_key_run_one_of_two_backends() -> None:
    """Without a second backend, `result` is `data`."""
    noting("A", "B")
    assert answer("HasKey(k)[A,B]", [], k=1) == ["A"]
    assert answer("HasKey(k)[A,B]", []) == ["B"]
    assert answer("HasKey(k)[A]", []) == []
    assert answer("NotHasKey(k)[A]", []) == ["A"]
    assert answer("NotHasKey(k)[A]", [], k=None) == []
    assert "NotHasKey" in refused("NotHasKey(k)[A,B]")


def test_filter_runs_its_backend_on_the_original_request_if_the_decision_is_true() -> None:
    """If the decision is false, `result` is `data`."""

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


def test_loop_condition_repeats_while_a_key_is_true() -> None:
    """The key is `again` by default; in each repetition `result` becomes `data`."""

    def add(batch: list[Any]) -> None:
        for item in batch:
            item["result"] = item["data"] + 1
            item["again"] = item["more"] = item["result"] < 5

    backend(add, "AddUntilFive", max=8)
    assert answers("LoopCondition[AddUntilFive]", 0, 3, 9) == [5, 5, 10]
    assert answer("LoopCondition(key=more)[AddUntilFive]", 0) == 5
    assert answer("LoopCondition(key=other)[AddUntilFive]", 0) == 1


def test_count_and_time_both_end_a_loop_and_the_last_result_is_kept() -> None:
    runs: list[int] = []

    def add(batch: list[Any]) -> None:
        runs.append(len(batch))
        for item in batch:
            item["result"], item["again"] = item["data"] + 1, True

    backend(add, "AddForever")
    assert answer("LoopCondition(count=7)[AddForever]", 0) == 7
    assert answer("LoopCondition[AddForever]", 0) == 1000
    runs.clear()
    begin = time.monotonic()
    assert answer("LoopCondition(count=1000000000,time=20ms)[AddForever]", 0) == len(runs)
    assert time.monotonic() - begin >= 0.02


def test_loop_condition_repeats_until_its_time_is_up() -> None:
    each(lambda number: number + 1, "AddOne")
    begin = time.monotonic()
    assert answer("LoopCondition(until=time,time=20ms,count=1000000000)[AddOne]", 0) > 1
    assert time.monotonic() - begin >= 0.02
    assert answer("LoopCondition(until=time,count=3)[AddOne]", 0) == 3


def test_loop_condition_repeats_until_an_instance_is_free() -> None:
    each(lambda number: number + 1, "AddOne")
    node = {"backend": "LoopCondition(until=instance,count=7)[AddOne]"}
    assert answer({**node, "instance_num": 1}) == 7  # the loop itself occupies the only instance
    assert answer({**node, "instance_num": 2}) == 1


def test_log_sets_result_and_logs_its_message(caplog: pytest.LogCaptureFixture) -> None:
    assert answer("Log('page read')", 4) == 4
    [record] = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == ("hami.node.default", "WARNING", "page read")


def test_the_core_logs_what_the_logger_accepts_when_a_pipe_is_built(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("ERROR", logger="hami"):
        assert answer("Log('page read')", 4) == 4
    assert caplog.records == []


def test_without_a_handler_messages_go_to_standard_error() -> None:
    program = "import hami\nwith hami.pipe(\"Log('page %s read')\") as pipe: pipe({'data': 1})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "hami default: page %s read\n"


def test_add_and_remove_change_keys() -> None:
    with hami.pipe("S[Add(a=1,b=true,c='1',d=x),Remove(gone,also)]") as pipe:
        request = pipe({"data": 5, "gone": 1})
    assert {key: request[key] for key in "abcd"} == {"a": 1, "b": True, "c": "1", "d": "x"}
    assert request["result"] == 5


def test_sleep_waits_and_raise_fails() -> None:
    begin = time.monotonic()
    assert answer("Sleep(20ms)", 5) == 5
    assert time.monotonic() - begin >= 0.02
    assert failure("Raise('no page')", hami.RequestError) == "no page"


def test_identity_returns_data_and_pass_always_fails() -> None:
    value = object()
    assert answer("Identity", value) is value
    assert failure("Pass", hami.RequestError) == "Pass fails every request"
