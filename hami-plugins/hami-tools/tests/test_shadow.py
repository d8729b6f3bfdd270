"""`hami shadow` and the backend Shadow: differences, tolerances, kept requests, and B that fails or hangs."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

import hami
import pytest

from hami_tools.differences import Tolerance, compare
from hami_tools.shadow.backend import Shadow
from hami_tools.shadow.record import Answer, Record
from hami_tools.shadow.snapshot import snapshot

TIMEOUT = 30.0


@hami.register
class AddOne(hami.Backend):
    """Adds one, and something to odd numbers."""

    extra: float = 0.0

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            if item["data"] < 0:
                raise ValueError("negative")
            item["result"] = item["data"] + 1.0 + (self.extra if item["data"] % 2 else 0.0)


@hami.register
class Together(hami.Backend):
    """Answers with the size of the batch."""

    min = max = 4

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = len(batch)


def shadowed(b: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {
        "a": {"backend": "Shadow(b=candidate)[AddOne]", "AddOne.extra": 0.0, "share": 1.0, **keys},
        "candidate": b,
        "dag_entrypoint": "Forward[node.a]",
    }


def counters_when(pipe: hami.Pipe, **expected: int) -> dict[str, int]:
    """Return the counters once these have at least these values. A thread of Shadow counts."""
    done = threading.Event()
    for _ in range(int(TIMEOUT / 0.01)):
        counters = pipe.stats()["a"].counters
        if all(counters.get(name, 0) >= least for name, least in expected.items()):
            return dict(counters)
        done.wait(0.01)
    raise AssertionError(f"{counters}, expected {expected}")


def test_the_caller_gets_the_answer_of_a_and_differences_are_counted_and_kept(tmp_path: Path) -> None:
    config = shadowed({"backend": "AddOne", "extra": 0.5}, keep=2, folder=str(tmp_path))
    with hami.pipe(config) as pipe:
        answers = [pipe({"data": number}, timeout=TIMEOUT)["result"] for number in range(8)]
        counters = counters_when(pipe, compared=8)
    assert answers == [number + 1.0 for number in range(8)]
    assert (counters["compared"], counters["differ"]) == (8, 4)
    assert {"a_us", "b_us"} <= counters.keys()
    kept = [json.loads((tmp_path / f"difference-{n}" / "difference.json").read_text("utf-8")) for n in (1, 2)]
    assert sorted(one["keys"]["data"] for one in kept) == ["1", "3"]  # 0.5 is most of the smallest numbers
    assert [one["largest_difference"] for one in kept] == [0.5, 0.5]
    assert not (tmp_path / "difference-3").exists()


def test_a_part_of_the_requests_is_compared() -> None:
    with hami.pipe(shadowed({"backend": "AddOne"}, share=0.25)) as pipe:
        for number in range(40):
            pipe({"data": number}, timeout=TIMEOUT)
        assert counters_when(pipe, compared=10)["compared"] == 10


def test_a_batch_stays_one_batch() -> None:
    config = {**shadowed({"backend": "AddOne"}), "a": {"backend": "Shadow(b=candidate)[Together]"}}
    config["a"]["batching_timeout"] = f"{TIMEOUT:g}s"
    with hami.pipe(config) as pipe:
        sizes = [future.result(TIMEOUT)["result"] for future in [pipe.submit({"data": None}) for _ in range(4)]]
    assert sizes == [4, 4, 4, 4]


def test_b_that_fails_is_counted_and_a_that_fails_is_not_compared() -> None:
    with hami.pipe(shadowed({"backend": "Raise(broken)"})) as pipe:
        assert pipe({"data": 1}, timeout=TIMEOUT)["result"] == 2.0
        counters = counters_when(pipe, compared=1)
        assert (counters["differ"], counters["b_failed"]) == (1, 1)
        with pytest.raises(ValueError, match="negative"):
            pipe({"data": -1}, timeout=TIMEOUT)
        assert counters_when(pipe, a_failed=1)["compared"] == 1


def test_b_that_hangs_costs_a_nothing_and_what_waits_for_it_is_bounded() -> None:
    entered, release = threading.Event(), threading.Event()

    @hami.register
    class Hangs(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            entered.set()
            release.wait(TIMEOUT)
            for item in batch:
                item["result"] = None

    try:
        with hami.pipe(shadowed({"backend": "Hangs"}, max_waiting=2, timeout="20ms")) as pipe:
            for _ in range(int(TIMEOUT / 0.02)):  # on a busy machine, b may get a request too late
                pipe({"data": 0}, timeout=TIMEOUT)
                if entered.wait(0.02):
                    break
            assert entered.is_set()
            for number in range(20):
                assert pipe({"data": number}, timeout=TIMEOUT)["result"] == number + 1.0
            counters = counters_when(pipe, b_failed=1, not_compared=1)
            assert counters["b_failed"] == counters["compared"]
            release.set()
    finally:
        release.set()


def test_a_pipe_closes_while_b_hangs() -> None:
    entered, release = threading.Event(), threading.Event()

    @hami.register
    class Stuck(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            entered.set()
            while not (release.is_set() or all(item.cancelled for item in batch)):
                release.wait(0.001)

    pipe = hami.pipe(shadowed({"backend": "Stuck"}, timeout="50ms"))
    for _ in range(int(TIMEOUT / 0.05)):  # on a busy machine, b may get a request too late
        pipe({"data": 1}, timeout=TIMEOUT)
        if entered.wait(0.05):
            break
    assert entered.is_set()
    pipe.close()
    release.set()


def test_a_node_that_does_not_exist_and_a_wrong_share_are_refused() -> None:
    with pytest.raises(hami.NotFound, match="candidate"):
        hami.pipe({"backend": "Shadow(b=candidate)[AddOne]"})
    with pytest.raises(hami.ConfigError, match='"share" must be above 0 and at most 1, got 2'):
        hami.pipe(shadowed({"backend": "AddOne"}, share=2.0))


@pytest.mark.parametrize(
    ("dtype", "apart", "differs"),
    [
        ("float16", 5e-3, False),
        ("float16", 2e-2, True),
        ("float32", 5e-5, False),
        ("float32", 1e-3, True),
        ("float64", 1e-5, True),
        ("uint8", 1, True),
    ],
)
def test_the_tolerance_depends_on_the_type_of_the_numbers(dtype: str, apart: float, differs: bool) -> None:
    numpy = pytest.importorskip("numpy")
    one = numpy.array([1, 2], dtype)
    other = numpy.array([1 + apart, 2], dtype)
    assert compare(one, other, Tolerance()).differs is differs
    assert compare(one, other, Tolerance(rtol=1e-9, atol=0.0)).differs is True
    assert compare(one, one.copy(), Tolerance()) == (0.0, 0.0, "")


def test_infinite_and_missing_numbers_differ_from_numbers_and_not_from_each_other() -> None:
    numpy = pytest.importorskip("numpy")
    one = numpy.array([numpy.nan, numpy.inf, 1.0])
    assert not compare(one, one.copy(), Tolerance()).differs
    for other in ([numpy.nan, numpy.inf, numpy.nan], [0.0, numpy.inf, 1.0], [numpy.nan, -numpy.inf, 1.0]):
        assert compare(one, numpy.array(other), Tolerance()).differs
    big = 2**53
    assert compare(numpy.array([big + 1]), numpy.array([big]), Tolerance()).differs


def test_an_array_and_another_value_are_compared() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.array([1.0, 2.0], "float32")
    for one, other, reason in (
        (array, None, "ndarray and NoneType"),
        ({"a": [1]}, array, "dict and ndarray"),
        (array, [1.0, 2.0, 3.0], "lengths 2 and 3"),
    ):
        assert compare(one, other, Tolerance()).reason == reason
    assert not compare(array, [1.0, 2.0 + 1e-5], Tolerance()).differs
    assert not compare(2.0 + 1e-5, array[1], Tolerance()).differs
    assert compare([1.0, 2.0 + 1e-2], array, Tolerance()).differs
    assert not compare(numpy.str_("text"), "text", Tolerance()).differs


def test_memory_without_the_type_of_its_elements_is_compared_as_a_whole() -> None:
    one, same, other = memoryview(b"abc"), memoryview(b"abc"), memoryview(b"abd")
    assert (compare(one, same).differs, compare(one, other).differs) == (False, True)
    assert compare([1, 2], array("i", [1, 2])).differs
    assert not compare(array("i", [1, 2]), array("i", [1, 2])).differs


def test_values_that_cannot_be_compared_differ() -> None:
    class Table:
        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

    assert compare(Table(), Table()).differs


def test_the_kept_requests_can_be_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    record = Record(Tolerance(), 3, tmp_path)
    (tmp_path / "1").mkdir()  # of the user
    record.add({"data": b"jpeg"}, Answer(numpy.zeros(2), 0.1), Answer(numpy.ones(2), 0.2), "a.jpg")
    record.add({"data": "text"}, Answer(ValueError("no"), 0.1), Answer("yes", 0.2))
    assert (tmp_path / "difference-1" / "data.bin").read_bytes() == b"jpeg"
    assert numpy.load(tmp_path / "difference-1" / "b.npy").tolist() == [1.0, 1.0]
    facts = json.loads((tmp_path / "difference-2" / "difference.json").read_text("utf-8"))
    assert (facts["reason"], facts["a"]["answer"]) == ("ValueError and a result", "ValueError: no")
    assert record.as_dict()["ms"]["b"]["p50"] == 200.0
    assert sorted(os.listdir(tmp_path)) == ["1", "difference-1", "difference-2"]
    assert not os.listdir(tmp_path / "1")


def test_a_request_that_cannot_be_kept_is_counted_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    record = Record(Tolerance(), 2, tmp_path / "file")  # no folder can be in it, as on a full disk
    for _ in range(2):
        assert record.add({"data": 1}, Answer("a", 0.1), Answer("b", 0.1)).differs
    figures = record.as_dict()
    assert (figures["compared"], figures["differ"], figures["not_kept"]) == (2, 2, 2)
    assert caplog.text.count("cannot be kept in") == 1


def test_a_text_with_half_a_character_is_kept(tmp_path: Path) -> None:
    record = Record(Tolerance(), 1, tmp_path)
    assert record.add({"data": "\ud800"}, Answer("a\ud800", 0.1), Answer("b", 0.1)).differs
    assert record.as_dict()["not_kept"] == 0
    kept = (tmp_path / "difference-1" / "a.txt").read_bytes()
    assert kept.decode("utf-8", "surrogatepass") == "a\ud800"


def test_the_thread_of_b_ends_if_its_pipe_closes_while_it_gathers_requests() -> None:
    class Closing(queue.Queue[Any]):
        def get_nowait(self) -> Any:
            shadow.close()
            return super().get_nowait()

    shadow: Any = object.__new__(Shadow)
    shadow._paid_at, shadow.budget = 0.0, 1.0
    shadow._closed, shadow._waiting, shadow._compare = threading.Event(), Closing(), lambda pairs: None
    shadow._waiting.put(({}, Answer(1, 0.1)))
    thread = threading.Thread(target=shadow._run, daemon=True)
    thread.start()
    thread.join(TIMEOUT / 10)
    assert not thread.is_alive()


@hami.register
class Doubles(hami.Backend):
    """Doubles an array in place, and answers with it."""

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["data"] *= 2
            item["result"] = item["data"]


def test_nothing_that_a_b_or_the_caller_writes_into_an_array_is_seen_by_the_others(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    release = threading.Event()

    @hami.register
    class DoublesLater(Doubles):
        def forward(self, batch: list[Any]) -> None:
            release.wait(TIMEOUT)
            super().forward(batch)
            for item in batch:
                item["result"] = item["result"] + item["extra"]["more"][0]

    with hami.pipe(
        {
            "a": {"backend": "Shadow(b=candidate,share=1)[Doubles]", "folder": str(tmp_path)},
            "candidate": {"backend": "DoublesLater"},
            "dag_entrypoint": "Forward[node.a]",
        }
    ) as pipe:
        for extra in (0.0, 1.0):
            release.clear()
            data, more = numpy.array([1.0, 2.0]), numpy.array([extra])
            result = pipe({"data": data, "extra": {"more": [more]}}, timeout=TIMEOUT)["result"]
            assert result is data  # A is not slowed by a copy of its answer
            data[:], more[:] = 7.0, 8.0  # the caller uses its memory again
            release.set()
            counters = counters_when(pipe, compared=1 + int(extra))
            assert counters.get("differ", 0) == extra
            assert data.tolist() == [7.0, 7.0]
    assert numpy.load(tmp_path / "difference-1" / "data.npy").tolist() == [1.0, 2.0]
    assert numpy.load(tmp_path / "difference-1" / "a.npy").tolist() == [2.0, 4.0]
    assert numpy.load(tmp_path / "difference-1" / "b.npy").tolist() == [3.0, 5.0]


def test_snapshots_keep_types_and_share_no_memory() -> None:
    numpy = pytest.importorskip("numpy")
    with hami.pipe("SoftmaxTensor") as pipe:
        tensor = pipe({"data": numpy.zeros((1, 2))})["result"]
    whole = numpy.arange(12, dtype="int16").reshape(3, 4)
    given = [whole[:, ::2], bytearray(b"ab"), memoryview(whole), (whole[0], "text"), {"a": [1, 2], "b": [whole]}]
    copies = snapshot([*given, tensor, numpy.float32(2)])
    whole[:], given[1][:] = 99, b"__"
    hami.to_numpy(tensor)[:] = 99
    assert [type(each) for each in copies[:5]] == [type(each) for each in given]
    assert copies[0].tolist() == [[0, 2], [4, 6], [8, 10]]
    assert copies[1] == b"ab"
    assert (copies[2].format, copies[2].tolist()[2]) == ("h", [8, 9, 10, 11])
    assert copies[3][0].tolist() == copies[4]["b"][0][0].tolist() == [0, 1, 2, 3]
    assert copies[5].tolist() == [[0.5, 0.5]]
    assert copies[6] == 2


def test_what_is_not_compared_is_not_copied_and_what_cannot_be_copied_is_not_compared() -> None:
    entered, release = threading.Event(), threading.Event()
    copied: list[int] = []

    class Array:
        dtype, shape = "float32", (1,)

        def __init__(self, number: int) -> None:
            self.number = number

        def copy(self) -> Any:
            copied.append(self.number)
            if self.number == 1:
                raise MemoryError
            return self

    @hami.register
    class AnswersOne(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = 1

    @hami.register
    class Waits(hami.Backend):
        def forward(self, batch: list[Any]) -> None:
            entered.set()
            release.wait(TIMEOUT)
            for item in batch:
                item["result"] = None

    config = {
        "a": {"backend": "Shadow(b=candidate,share=1,max_waiting=1)[AnswersOne]"},
        "candidate": {"backend": "Waits"},
        "dag_entrypoint": "Forward[node.a]",
    }
    with hami.pipe(config) as pipe:
        try:
            assert pipe({"data": Array(1)}, timeout=TIMEOUT)["result"] == 1
            assert counters_when(pipe, not_compared=1)["not_compared"] == 1
            pipe({"data": Array(2)}, timeout=TIMEOUT)
            assert entered.wait(TIMEOUT)
            for number in (3, 4, 5):
                pipe({"data": Array(number)}, timeout=TIMEOUT)
            assert copied == [1, 2, 3]
            assert counters_when(pipe, not_compared=3)["not_compared"] == 3
        finally:
            release.set()


def test_the_command_compares_inputs_and_says_which_differ(tmp_path: Path) -> None:
    module = tmp_path / "lengths.py"
    module.write_text(
        "import hami\n\n\n@hami.register\nclass Length(hami.Backend):\n    most: int = 9\n\n"
        "    def forward(self, batch):\n        for item in batch:\n"
        "            item['result'] = min(len(item['data']), self.most)\n"
    )
    for name in ("a", "bbbb"):
        (tmp_path / name).write_text(name)
    command = [sys.executable, "-m", "hami", "shadow", "Length", "Length(most=3)", "--import", str(module)]
    inputs = ["--input", str(tmp_path / "a"), "--input", str(tmp_path / "bbbb"), "--folder", str(tmp_path / "worst")]
    done = subprocess.run([*command, *inputs, "--json"], capture_output=True, text=True, timeout=60)
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["compared"], facts["differ"], facts["largest_difference"]) == (1, 2, 1, 1.0)
    assert [Path(each["input"]).name for each in facts["differing"]] == ["bbbb"]
    assert (tmp_path / "worst" / "difference-1" / "data.bin").read_bytes() == b"bbbb"
    same = subprocess.run([*command[:5], "Length", *command[6:], *inputs], capture_output=True, text=True, timeout=60)
    assert same.returncode == 0
    assert "0 of 2 answers differ by more than the tolerance" in same.stdout


def test_copies_take_no_more_than_the_budget_of_comparing() -> None:
    numpy = pytest.importorskip("numpy")
    with hami.pipe(shadowed({"backend": "AddOne"}, budget=1e-9)) as pipe:
        for number in range(5):
            pipe({"data": number, "more": numpy.zeros(9)}, timeout=TIMEOUT)
        assert counters_when(pipe, not_compared=4, compared=1)["not_compared"] == 4


def test_comparing_takes_no_more_than_its_budget() -> None:
    with hami.pipe(shadowed({"backend": "AddOne"}, budget=1e-9, max_waiting=1)) as pipe:
        for number in range(5):
            pipe({"data": number}, timeout=TIMEOUT)
        assert counters_when(pipe, not_compared=1).get("compared", 0) < 5  # none yet, if the thread of B is late
