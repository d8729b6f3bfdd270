"""CapturedModel on the fake driver: it runs batches of device tensors with the graphs of another backend."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import hami
import pytest
from hami_tensor import Device

from hami_cuda import captured
from hami_cuda.memory import InstanceStream

np = pytest.importorskip("numpy", reason="numpy is not installed")
DEVICE = Device("cuda:0")
SIZES = (2, 4)
COLUMNS = 3


class Doubles(hami.Backend):
    """Doubles rows of three numbers by graphs of 2 and 4 rows. It answers the requests that it gets itself with 0."""

    thread = "serialized"
    max = 4
    pads: bool = True
    watch_every: int = 0

    def init(self, options: Any) -> None:
        fake = ctypes.CDLL("libcuda.so.1")
        self.stream = InstanceStream(options, DEVICE, "Doubles")
        self.own: list[int] = []
        with self.stream:
            self.input = self.stream.empty("float32", (4, COLUMNS))
            self.outputs = [self.stream.empty("float32", (size, COLUMNS)) for size in SIZES]
        self.captured = captured.CapturedModel(
            DEVICE,
            captured.Region(self.input.address, "float32", (4, COLUMNS), (COLUMNS, 1)),
            pads=self.pads,
            takes_rows=True,
            watch_every=self.watch_every,
            owner="Doubles",
        )
        self.kept = []
        for size, output in zip(SIZES, self.outputs, strict=True):
            work = self._work(size, output.address)
            graph = self.stream.capture(lambda handle, work=work: fake.fake_record(ctypes.c_size_t(handle), work))
            self.kept += [work, graph]
            with self.captured.using(self.stream.handle):
                region = captured.Region(output.address, "float32", (size, COLUMNS), (COLUMNS, 1))
                self.captured.add(graph._handle, size, region)
        self.delegate(captured.BACKEND, model=self.captured.number)

    def _work(self, size: int, output: int) -> Any:
        count = size * COLUMNS

        @ctypes.CFUNCTYPE(None)
        def work() -> None:
            read, written = (
                np.ctypeslib.as_array(ctypes.cast(each, ctypes.POINTER(ctypes.c_float)), (count,))
                for each in (self.input.address, output)
            )
            written[:] = read * 2

        return work

    def forward(self, batch: list[hami.Request]) -> None:
        with self.captured.using(self.stream.handle) as joined:
            for item in batch:
                item["joined"], item["batch"], item["result"] = joined, len(batch), 0

    def close(self) -> None:
        self.captured.close()
        self.stream.close()


@pytest.fixture
def doubled(fake):
    """doubled(arrays, **parameters) -> the requests, sent as one batch of device tensors."""
    opened = []

    def run(*batches: list[Any], chain: str = "S[GpuTensor,Doubles,CpuTensor]", **parameters: Any) -> list[list[Any]]:
        hami.register(Doubles)
        pipe = hami.pipe({"backend": chain, "batching": "greedy", "batching_timeout": "1s", "max": 4, **parameters})
        opened.append(pipe)
        return [[request["result"] for request in pipe([{"data": each} for each in batch])] for batch in batches]

    run.opened = opened
    yield run
    for pipe in opened:
        pipe.close()


def rows(*values: float) -> Any:
    return np.array([[value] * COLUMNS for value in values], np.float32)


def lists(results: list[Any]) -> list[Any]:
    return [hami.to_numpy(each)[..., 0].tolist() for each in results]


def test_a_batch_runs_with_one_launch_and_each_request_gets_its_rows(fake, doubled):
    before = fake.fake_graph_launches()
    ((one, two, three, four),) = doubled([rows(1), rows(2), rows(3), rows(4)])
    assert lists([one, two, three, four]) == [[2], [4], [6], [8]]
    assert fake.fake_graph_launches() == before + 1
    assert doubled.opened[0].stats()["default"].counters == {"graph_runs": 1, "graph_padding": 0}


def test_small_results_share_one_block_of_memory(fake, doubled):
    doubled([rows(1), rows(2), rows(3), rows(4)], chain="S[GpuTensor,Doubles]")
    gc.collect()
    before = fake.fake_allocations()
    (results,) = doubled([rows(1), rows(2), rows(3), rows(4)], chain="S[GpuTensor,Doubles]")
    doubled.opened.pop().close()
    used = fake.fake_allocations() - before
    last = results.pop()
    results.clear()
    assert fake.fake_allocations() - before == used
    assert last.shape == (1, COLUMNS)
    del last
    assert fake.fake_allocations() - before == used - 1


def test_a_smaller_batch_is_padded_with_zeros(doubled):
    first, second = doubled([rows(1), rows(2), rows(3), rows(4)], [rows(5), rows(6), rows(7)])
    assert lists(second) == [[10], [12], [14]]
    assert lists(first) == [[2], [4], [6], [8]]  # an earlier result is not overwritten
    assert doubled.opened[0].stats()["default"].counters["graph_padding"] == 1


def test_a_row_without_the_batch_axis_has_a_result_without_it(doubled):
    ((one, two),) = doubled([rows(1)[0], rows(2)])
    assert (one.shape, two.shape) == ((COLUMNS,), (1, COLUMNS))


def test_rows_are_read_by_their_strides(doubled):
    transposed = np.arange(6, dtype=np.float32).reshape(COLUMNS, 2)
    ((result,),) = doubled([transposed.T], chain="S[GpuTensor,Doubles,CpuTensor]")
    assert hami.to_numpy(result).tolist() == (transposed.T * 2).tolist()


@pytest.mark.parametrize(
    "data",
    [rows(1).astype(np.float64), np.zeros((1, COLUMNS + 1), np.float32), rows(1, 2, 3, 4, 5)],
    ids=["another type", "another shape", "too many rows"],
)
def test_other_data_goes_to_the_backend_that_captured_the_model(doubled, data):
    (results,) = doubled([data], chain="S[GpuTensor,Doubles]")
    assert results == [0]


def test_requests_that_fit_run_also_beside_one_that_does_not(doubled):
    ((one, other, two),) = doubled(
        [rows(1), np.zeros((1, COLUMNS + 1), np.float32), rows(2)], chain="S[GpuTensor,Doubles]"
    )
    assert other == 0
    assert [one.device, two.device] == ["cuda:0", "cuda:0"]


def test_without_padding_only_captured_sizes_run(doubled):
    (two, one) = doubled([rows(1), rows(2)], [rows(3)], chain="S[GpuTensor,Doubles]", pads=False)
    assert one == [0]
    assert two[0].shape == (1, COLUMNS)


def test_one_of_so_many_joined_batches_is_left_to_be_watched(doubled):
    batch = [rows(1), rows(2)]
    results = doubled(batch, batch, batch, batch, [rows(1)], chain="S[GpuTensor,Doubles]", watch_every=2)
    assert [isinstance(each[0], int) for each in results] == [False, True, False, True, False]


def test_a_closed_model_leaves_all_requests(fake):
    model = captured.CapturedModel(
        DEVICE, captured.Region(256, "float32", (4, 2), (2, 1)), pads=True, takes_rows=True, owner="Test"
    )
    model.close()
    with pytest.raises(hami.RequestError, match="no captured model has the number"):
        model.close()


def test_an_input_with_gaps_is_rejected(fake):
    with pytest.raises(hami.RequestError, match="the rows of the input of a captured model must be dense in memory"):
        captured.CapturedModel(
            DEVICE, captured.Region(256, "float32", (4, 2), (3, 1)), pads=True, takes_rows=True, owner="Test"
        )
