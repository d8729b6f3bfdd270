"""Pad: requests of unequal length run together where that pays, and get the result that they get alone."""

from __future__ import annotations

import re
import threading
from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")

MANY = 10_000  # positions that a run costs: padding always pays

runs: list[tuple[int, int]] = []  # requests and padded length of each run


class Engine(hami.Backend):
    """Runs requests of one shape together. Its result is a vector for each position, and their mean by the mask."""

    max = "auto"

    def forward(self, batch: list[Any]) -> None:
        groups: dict[tuple[int, ...], list[Any]] = {}
        for item in batch:
            groups.setdefault(hami.to_numpy(item["data"]["input_ids"]).shape, []).append(item)
        for shape, items in groups.items():
            runs.append((len(items), shape[-1]))
            self.run(items)

    def run(self, items: list[Any]) -> None:
        for item in items:
            data = item["data"]
            ids, mask = (hami.to_numpy(data[name]) for name in ("input_ids", "attention_mask"))
            item["result"] = self.compute(ids.astype(np.float32), mask)

    def compute(self, ids: Any, mask: Any) -> Any:
        if -1 in ids:
            raise ValueError("a token below 0")
        hidden = np.stack([ids, 2 * ids], -1) * mask[..., None]
        return {"hidden": hidden, "mean": hidden.sum(1) / mask.sum(1, keepdims=True)}


@hami.register("TestMasked")
class Masked(Engine):
    pass


@hami.register("TestUnmasked")
class Unmasked(Engine):
    """A model that looks at the padding, such as one that is quantized dynamically."""

    def compute(self, ids: Any, mask: Any) -> Any:
        return super().compute(ids + np.float32(0.02) * ids.shape[1], mask)


@hami.register("TestMixesLong")
class MixesLong(Engine):
    """A model that treats the padding of long requests wrongly, and that of short ones right."""

    def compute(self, ids: Any, mask: Any) -> Any:
        shift = 0.1 * (ids.shape[1] - mask.sum()) if mask.sum() > 20 else 0
        return super().compute(ids + np.float32(shift), mask)


@hami.register("TestQuantized")
class Quantized(Engine):
    """A layer with one scale for all positions of a run, as `quantize_dynamic` of onnxruntime makes it."""

    def run(self, items: list[Any]) -> None:
        ids = np.concatenate([hami.to_numpy(item["data"]["input_ids"]) for item in items]).astype(np.float32)
        mask = np.concatenate([hami.to_numpy(item["data"]["attention_mask"]) for item in items])
        for row, item in zip(self.hidden(ids), items, strict=True):
            item["result"] = {"hidden": row[None], "mean": (row[None] * mask[:1, :, None]).sum(1) / mask.sum()}

    def hidden(self, ids: Any) -> Any:
        embedded = np.sin(ids[..., None] * np.float32([1, 2])) * np.where(ids[..., None] > 0, 1, 40)
        scale = np.abs(embedded).max() / 127
        return np.round(embedded / scale) * scale

    def compute(self, ids: Any, mask: Any) -> Any:
        hidden = self.hidden(ids)
        return {"hidden": hidden, "mean": (hidden * mask[..., None]).sum(1) / mask.sum()}


@hami.register("TestFlat")
class Flat(Engine):
    """A model whose result has another number of axes if it is padded."""

    def compute(self, ids: Any, mask: Any) -> Any:
        return ids if mask.all() else ids[0]


@hami.register("TestOneByOne")
class OneByOne(Engine):
    max = 1


@hami.register("TestFailsTogether")
class FailsTogether(Engine):
    def run(self, items: list[Any]) -> None:
        if len(items) > 1:
            raise MemoryError("too large")
        super().run(items)


@pytest.fixture(autouse=True)
def _no_runs():
    runs.clear()


def request(length: int, first: int = 1, rows: int = 1) -> dict[str, Any]:
    ids = np.arange(first, first + length)[None].repeat(rows, 0)
    return {"data": {"input_ids": ids, "attention_mask": np.ones_like(ids)}}


def expected(engine: type[Engine], given: dict[str, Any]) -> Any:
    return engine().compute(given["data"]["input_ids"].astype(np.float32), given["data"]["attention_mask"])


def check(engine: type[Engine], given: list[dict[str, Any]], found: list[dict[str, Any]]) -> None:
    for one, answer in zip(given, found, strict=True):
        wanted = expected(engine, one)
        for name, array in wanted.items():
            np.testing.assert_allclose(hami.to_numpy(answer["result"][name]), array, rtol=1e-6)
        assert {key: value.shape for key, value in answer["data"].items()} == {
            key: value.shape for key, value in one["data"].items()
        }


def padding(backend: str, **config: Any) -> hami.Pipe:
    # Without a cost, the node gives all waiting requests to Pad, which divides them itself.
    return hami.pipe({"backend": backend, "max": 64, "batching": "greedy", "request_cost": "", **config})


LENGTHS = [3, 9, 5, 5, 1, 30, 9, 0]


def test_requests_of_unequal_length_run_together_and_get_their_own_results():
    with padding(f"Pad(run_cost={MANY})[TestMasked]") as pipe:
        for _ in range(8):
            given = [request(length) for length in LENGTHS if length]
            check(Masked, given, pipe(given))
        counters = pipe.stats()["default"].counters
    alone = [(1, length) for length in sorted(LENGTHS) if length]
    assert runs == [*alone, (7, 30)] * 4 + [(7, 30)] * 4  # four comparisons are evidence
    assert counters["runs"] == 8
    assert counters["padding_compared"] == 4 * 7
    assert counters["padding"] == 4 * (7 * 30 - sum(LENGTHS))
    assert counters["positions"] == 4 * sum(LENGTHS)
    assert "padding_differences" not in counters


def test_evidence_of_short_requests_does_not_count_for_longer_ones():
    with padding(f"Pad(run_cost={MANY})[TestMasked]") as pipe:
        for lengths in ([5, 6], [5, 7], [7, 8], [5, 8]):
            pipe([request(length) for length in lengths])
        runs.clear()
        for lengths, alone in (([6, 8], []), ([7, 9], [7, 9]), ([3, 8], [3]), ([5, 30], [5, 30])):
            given = [request(length) for length in lengths]
            check(Masked, given, pipe(given))
            assert runs == [*((1, length) for length in alone), (2, max(lengths))]
            runs.clear()


def test_requests_beside_one_that_is_compared_do_not_run_alone():
    with padding(f"Pad(run_cost={MANY})[TestMasked]") as pipe:
        for _ in range(4):
            pipe([request(length) for length in (5, 6, 8)])
        runs.clear()
        given = [request(length) for length in (3, 5, 6, 6, 7, 8)]
        check(Masked, given, pipe(given))
        assert runs == [(1, 3), (6, 8)]
        assert pipe.stats()["default"].counters["positions"] == 32
        given[3] = request(6, first=-1)
        pending = [pipe.submit(each) for each in given]
        assert [str(each.exception(30)) for each in pending] == ["None"] * 3 + ["a token below 0"] + ["None"] * 2
        check(Masked, given[:3], [each.result() for each in pending[:3]])
        assert "padding_differences" not in pipe.stats()["default"].counters


def test_a_difference_beside_requests_with_evidence_is_in_no_result():
    with padding(f"Pad(run_cost={MANY})[TestMixesLong]") as pipe:
        for _ in range(4):
            pipe([request(length) for length in (17, 18, 20)])
        given = [request(length) for length in (17, 18, 20, 21, 24)]
        check(MixesLong, given, pipe(given))
        assert pipe.stats()["default"].counters["padding_differences"] == 1


def test_evidence_is_watched_with_requests_drawn_at_random():
    with padding(f"Pad(run_cost={MANY})[TestMasked]") as pipe:
        given = [request(length) for length in (3, 4, 5, 6)]
        for _ in range(4 + 64 * 8):
            pipe(given)
        counters = pipe.stats()["default"].counters
    watched = [length for count, length in runs[4 * 5 :] if count == 1]
    assert len(watched) == 8
    assert len(set(watched)) > 1
    assert counters["padding_compared"] == 4 * 4 + 8


def test_a_difference_ends_padding_in_all_instances(caplog):
    mixes = threading.Event()

    @hami.register("TestMixesLater")
    class MixesLater(Engine):
        def compute(self, ids: Any, mask: Any) -> Any:
            late = np.float32(0.1 if mixes.is_set() else 0.0)
            return super().compute(ids + late * (ids.shape[1] - mask.sum()), mask)

    def differences() -> int:
        return pipe.stats()["default"].counters.get("padding_differences", 0)

    with padding(f"Pad(run_cost={MANY})[TestMixesLater]", instance_num=3) as pipe:

        def call(count: int) -> None:
            for _ in range(count):
                pipe([request(3), request(9)])
                if differences():
                    break

        for event, count in ((None, 30), (mixes, 1000)):
            if event:
                event.set()
            threads = [threading.Thread(target=call, args=(count,)) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        runs.clear()
        for _ in range(12):
            given = [request(3), request(9)]
            check(Masked, given, pipe(given))
        assert differences() == 1
    assert caplog.text.count("does not pad any more") == 1
    assert {count for count, _ in runs} == {1}


def test_evidence_counts_in_all_instances():
    both = threading.Barrier(2)
    waits = threading.Event()

    @hami.register("TestRunsTwice")
    class RunsTwice(Engine):
        def run(self, items: list[Any]) -> None:
            if waits.is_set():
                both.wait(60)  # until the other instance runs
            super().run(items)

    with padding(f"Pad(run_cost={MANY})[TestRunsTwice]", instance_num=2, max=2) as pipe:
        for _ in range(4):
            pipe([request(3), request(9)])
        runs.clear()
        waits.set()
        given = [request(3), request(9), request(3), request(9)]
        check(RunsTwice, given, pipe(given))
    assert runs == [(2, 9), (2, 9)]


def test_pipes_have_evidence_of_their_own():
    for _ in range(2):
        with padding(f"Pad(run_cost={MANY})[TestMasked]") as pipe:
            for _ in range(4):
                pipe([request(3), request(9)])
            assert pipe.stats()["default"].counters["padding_compared"] == 8


def test_evidence_of_requests_with_a_mask_does_not_count_for_those_without_one():
    @hami.register("TestMaskIfGiven")
    class MaskIfGiven(Engine):
        def run(self, items: list[Any]) -> None:
            for item in items:
                ids = hami.to_numpy(item["data"]["input_ids"]).astype(np.float32)
                mask = item["data"].get("attention_mask")
                item["result"] = self.compute(ids, np.ones_like(ids) if mask is None else hami.to_numpy(mask))

    lengths = (17, 20, 24, 30)
    with padding(f"Pad(run_cost={MANY})[TestMaskIfGiven]") as pipe:
        for _ in range(6):
            pipe([request(length) for length in lengths])
        given = [request(length) for length in lengths]
        for each in given:
            del each["data"]["attention_mask"]
        means = [float(hami.to_numpy(answer["result"]["mean"])[0, 0]) for answer in pipe(given)]
    assert means == [(length + 1) / 2 for length in lengths]


def test_requests_of_several_forms_share_runs():
    @hami.register("TestDoubles")
    class Doubles(hami.Backend):
        max = 64

        def forward(self, batch: list[Any]) -> None:
            runs.append((len(batch), 0))
            for item in batch:
                item["result"] = 2 * hami.to_numpy(item["data"])

    with padding(f"Pad(run_cost={MANY})[TestDoubles]") as pipe:
        for _ in range(6):
            given = [np.ones(3), np.ones((2, 9)), np.ones(7, np.float32)]
            runs.clear()
            found = [hami.to_numpy(answer["result"]) for answer in pipe([{"data": each} for each in given])]
            assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in given]
    assert runs == [(3, 0)]


def test_two_of_one_node_have_evidence_of_their_own():
    @hami.register("TestRoutes")
    class Routes(hami.Backend):
        child_count = (2, 2)
        max = 64

        def forward(self, batch: list[Any]) -> None:
            first = hami.to_numpy(batch[0]["data"]["input_ids"])[0, 0]
            self.children[first - 1].forward(batch)

    engines = ",".join(f"Pad(run_cost={MANY})[{engine}]" for engine in ("TestMasked", "TestUnmasked"))
    with padding(f"TestRoutes[{engines}]") as pipe:
        for _ in range(6):
            pipe([request(length) for length in (17, 20, 24, 30)])
        given = [request(length, first=2) for length in (17, 18, 20, 30)]
        check(Unmasked, given, pipe(given))


def test_without_a_gain_only_equal_lengths_run_together():
    with padding("Pad(run_cost=0)[TestMasked]") as pipe:
        given = [request(length) for length in (3, 9, 3, 5)]
        check(Masked, given, pipe(given))
        assert "padding" not in pipe.stats()["default"].counters
    assert sorted(runs) == [(1, 5), (1, 9), (2, 3)]


def test_a_division_takes_the_least_time():
    """One more run costs as much as 5 positions: 9 and 10 are joined, 1 and 10 are not, nor 10 and 200."""
    with padding("Pad(run_cost=5)[TestMasked]") as pipe:
        given = [request(length) for length in (1, 9, 10, 200, 199)]
        check(Masked, given, pipe(given))
    alone = [(1, length) for length in (9, 10, 199, 200)]  # to be compared
    assert sorted(runs) == sorted([(1, 1), (2, 10), (2, 200), *alone])


@pytest.mark.parametrize("engine", [Unmasked, Flat, Quantized, MixesLong])
def test_padding_that_changes_a_result_ends_and_no_request_gets_such_a_result(engine, caplog):
    with padding(f"Pad(run_cost={MANY})[Test{engine.__name__}]") as pipe:
        for i in range(12):
            given = [request(length) for length in ((3, 25, 40, 26, 27) if i > 5 else (3, 9, 5))]
            for one, answer in zip(given, pipe(given), strict=True):
                wanted, result = expected(engine, one), answer["result"]
                pairs = [(wanted, result)] if engine is Flat else [(wanted[name], result[name]) for name in wanted]
                for array, found in pairs:
                    np.testing.assert_array_equal(hami.to_numpy(found), array)
        assert pipe.stats()["default"].counters["padding_differences"] == 1
    assert "does not pad any more" in caplog.text
    together = 7 if engine is MixesLong else 1  # short requests, and the run whose comparison failed
    assert sum(count > 1 for count, _ in runs) == together


def test_an_engine_that_does_not_join_requests_gets_no_padding():
    with padding(f"Pad(run_cost={MANY})[TestOneByOne]") as pipe:
        given = [request(length) for length in (3, 9)]
        check(OneByOne, given, pipe(given))
    assert sorted(runs) == [(1, 3), (1, 9)]


def test_a_request_that_fails_does_not_fail_those_beside_it():
    with padding(f"Pad(run_cost={MANY})[TestMasked]") as pipe:
        pending = [pipe.submit(each) for each in (request(3), request(4, first=-1), request(9))]
        errors = [each.exception(30) for each in pending]
        assert [error is None for error in errors] == [True, False, True]
        assert "a token below 0" in str(errors[1])


def test_a_run_that_fails_as_a_whole_is_repeated_one_by_one():
    with padding(f"Pad(run_cost={MANY})[TestFailsTogether]") as pipe:
        given = [request(length) for length in (3, 9, 5)]
        check(FailsTogether, given, pipe(given))


def test_runs_have_at_most_max_positions():
    with padding(f"Pad(run_cost={MANY},max_positions=40)[TestMasked]") as pipe:
        given = [request(length) for length in (10, 9, 10, 8, 10, 100)]
        check(Masked, given, pipe(given))
    assert all(count * length <= 40 or count == 1 for count, length in runs)
    assert (1, 100) in runs


def test_the_length_is_a_multiple():
    with padding("Pad(multiple=8)[TestMasked]") as pipe:
        given = [request(length) for length in (3, 9, 16)]
        check(Masked, given, pipe(given))
    assert {length for _, length in runs} == {8, 16, 3, 9}  # 3 and 9 run alone to be compared


def test_runs_have_the_lengths_of_buckets():
    with padding(f"Pad(run_cost={MANY},buckets='4,16,40')[TestMasked]", max=4) as pipe:
        for _ in range(8):
            given = [request(length) for length in (1, 3, 4, 4)]
            check(Masked, given, pipe(given))
            given = [request(length) for length in (5, 30, 16, 40)]
            check(Masked, given, pipe(given))
    assert runs[-2:] == [(4, 4), (4, 40)]


def test_requests_of_one_bucket_share_batches_and_runs_from_the_start():
    with hami.pipe({"backend": "Pad(run_cost=0,buckets='8,64')[TestMasked]", "max": 64, "batching": "greedy"}) as pipe:
        for _ in range(3):  # the node has not learned yet that joining the buckets might be faster
            given = [request(length) for length in (3, 9, 5, 64, 8, 10, 4, 33)]
            check(Masked, given, pipe(given))
        assert pipe.stats()["default"].counters["runs"] == 6
        policy = pipe.stats()["default"].policy
    assert {length for count, length in runs if count > 1} == {8, 64}
    assert policy.padding == 0  # each costs as much as its bucket


def test_a_request_longer_than_the_largest_bucket_fails_alone():
    with padding("Pad(buckets='4,16')[TestMasked]") as pipe:
        pending = [pipe.submit(each) for each in (request(3), request(17), request(16))]
        errors = [each.exception(30) for each in pending]
        assert [error is None for error in errors] == [True, False, True]
        assert isinstance(errors[1], hami.RequestError)
        assert "int64 [1, 17], longer than the largest bucket, 16; add a larger one" in str(errors[1])


@pytest.mark.parametrize("buckets", ["0", "-4", "8,4", "4,4", "4,8x", "4.5"])
def test_buckets_of_another_form(buckets):
    with pytest.raises(
        hami.ConfigError, match='"buckets" of Pad takes lengths from 1 on, each larger than the one before'
    ):
        padding(f"Pad(buckets='{buckets}')[TestFirst]")


def test_buckets_exclude_a_multiple():
    with pytest.raises(hami.ConfigError, match='takes "buckets" or "multiple", got both'):
        padding("Pad(buckets='4,8',multiple=4)[TestFirst]")


def test_several_rows_and_a_tensor_alone():
    with padding(f"Pad(run_cost={MANY})[TestMasked]") as pipe:
        given = [request(3, rows=2), request(9, rows=3)]
        check(Masked, given, pipe(given))


@hami.register("TestFirst")
class First(hami.Backend):
    max = "auto"

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = hami.to_numpy(item["data"])


def test_the_value_of_the_padding():
    seen = []

    @hami.register("TestSees")
    class Sees(Engine):
        def compute(self, ids: Any, mask: Any) -> Any:
            seen.append((ids.tolist(), mask.tolist()))
            return super().compute(ids, mask)

    with padding(f"Pad(run_cost={MANY},values='input_ids=7')[TestSees]") as pipe:
        pipe([request(1), request(3)])
    assert ([[1, 7, 7]], [[1, 0, 0]]) in seen


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_an_axis(axis):
    with padding(f"Pad(run_cost={MANY},axis={axis})[TestFirst]") as pipe:
        given = [{"data": np.arange(6.0).reshape(2, 3)}, {"data": np.arange(20.0).reshape(4, 5)}]
        for one, answer in zip(given, pipe(given), strict=True):
            np.testing.assert_array_equal(hami.to_numpy(answer["result"]), one["data"])


@pytest.mark.parametrize(
    ("backend", "data", "message"),
    [
        ("Pad", {"a": np.ones((1, 2)), "b": np.ones((1, 3))}, "all tensors must have the same length along axis -1"),
        ("Pad(axis=2)", np.ones((1, 2)), "Pad works along axis 2, which float64 [1, 2] does not have"),
        ("Pad(values='data=300')", np.ones((1, 2), np.uint8), "`data` is uint8, which the padding 300"),
        ("Pad(values='data=0.5')", np.ones((1, 2), np.int64), "`data` is int64, which the padding 0.5"),
        ("Pad", "a text", "takes a tensor"),
    ],
)
def test_a_request_that_cannot_be_padded(backend, data, message):
    with padding(f"{backend}[TestFirst]") as pipe:
        with pytest.raises(hami.Error, match=re.escape(message)):
            pipe({"data": data})
        # The next request is answered.
        assert hami.to_numpy(pipe({"data": np.zeros((1, 2, 3, 4), np.float32)})["result"]).shape == (1, 2, 3, 4)


@pytest.mark.parametrize("values", ["x", "=1", "x=one"])
def test_values_of_another_form(values):
    with pytest.raises(hami.ConfigError, match='"values" of Pad takes entries such as "input_ids=1"'):
        padding(f"Pad(values='{values}')[TestFirst]")


def test_the_cost_of_runs_is_learned():
    """A run takes as long for any number of positions: after some batches, all requests of a batch run together."""

    @hami.register("TestFixedCost")
    class FixedCost(Engine):
        def run(self, items: list[Any]) -> None:
            threading.Event().wait(0.002)
            super().run(items)

    given = [request(length) for length in (1, 20, 40, 60, 80)]
    with padding("Pad[TestFixedCost]") as pipe:
        pipe(given)
        assert max(count for count, _ in runs) == 1  # nothing is known yet
        for _ in range(1000):
            runs.clear()
            check(FixedCost, given, pipe(given))
            if runs[0] == (5, 80):
                break
    assert runs[0] == (5, 80)


def test_many_callers_at_once():
    failures = []
    with padding(f"Pad(run_cost={MANY})[TestMasked]", instance_num=3) as pipe:

        def call(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(50):
                given = request(int(random.integers(1, 40)), first=int(random.integers(1, 1000)))
                try:
                    check(Masked, [given], [pipe(given)])
                except BaseException as error:
                    failures.append(error)

        threads = [threading.Thread(target=call, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not failures
    assert max(count for count, _ in runs) > 1


def test_the_length_is_the_cost_of_a_request():
    with padding("Pad[TestMasked]", request_cost=None) as pipe:
        given = [request(length) for length in (3, 9, 3, 9)]
        check(Masked, given, pipe(given))
        policy = pipe.stats()["default"].policy
    assert runs == [(2, 3), (2, 9)]  # the node divides them, until the times of batches are known
    assert (policy.padding, policy.batch_cost) == (0, 12)


def test_a_request_without_a_length_fails_before_the_queue_alone():
    with padding("Pad[TestMasked]", request_cost=None) as pipe:
        pending = [pipe.submit(each) for each in (request(3), {"data": "a text"}, request(3))]
        with pytest.raises(hami.Error, match="Pad takes a tensor"):
            pending[1].result(30)
        check(Masked, [request(3)] * 2, [pending[0].result(30), pending[2].result(30)])
