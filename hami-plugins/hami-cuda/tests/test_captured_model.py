"""CapturedModel on the fake driver: it runs batches of device tensors with the graphs of another backend."""

from __future__ import annotations

import ctypes
import gc
import threading
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


class ExchangeApi(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export_tensor", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))),
        ("import_tensor", ctypes.c_void_p),
        ("view_tensor", ctypes.c_void_p),
        (
            "current_stream",
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)),
        ),
    )


BITS_OFFSET = 53  # of the element type in DLManagedTensorVersioned


class Exported:
    """A tensor of another package, whose type has DLPack's C functions."""

    requires_grad = False
    negated = False
    fails = False
    exports_nothing = False
    bits = 32
    stream = 0  # the current one of the package
    log: list[tuple[str, bool]] = []  # noqa: RUF012  # how each was read, and whether on the main thread

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def note(self, how: str) -> None:
        Exported.log.append((how, threading.current_thread() is threading.main_thread()))

    def is_conj(self) -> bool:
        return False

    def is_neg(self) -> bool:
        return self.negated

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: int, **_: Any) -> Any:
        self.note(f"on {stream}")
        return self.tensor.__dlpack__(stream=-1)


class Subclass(Exported):
    """May export something else."""


def export_tensor(given: Exported, out: Any) -> int:
    if given.fails:
        return -1
    if given.exports_nothing:
        return 0
    given.note("at once")
    capsule = given.tensor.__dlpack__(stream=-1, max_version=(1, 0))
    out[0] = ctypes.pythonapi.PyCapsule_GetPointer(ctypes.py_object(capsule), b"dltensor_versioned")
    ctypes.c_uint8.from_address(out[0] + BITS_OFFSET).value = given.bits
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), USED)
    return 0


def current_stream(_type: int, _device: int, out: Any) -> int:
    out[0] = Exported.stream
    return 0


USED = ctypes.c_char_p(b"used_dltensor_versioned")
NAME = ctypes.c_char_p(b"dlpack_exchange_api")
API = ExchangeApi(
    major=1,
    minor=3,
    export_tensor=ExchangeApi._fields_[4][1](export_tensor),
    current_stream=ExchangeApi._fields_[7][1](current_stream),
)
ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
Exported.__dlpack_c_exchange_api__ = ctypes.pythonapi.PyCapsule_New(ctypes.byref(API), NAME, None)


@pytest.fixture
def exported(fake):
    """exported(value, …) -> one device tensor of another package for each value"""
    Exported.log.clear()
    with hami.pipe("GpuTensor") as pipe:
        yield lambda *values, of=Exported: [of(pipe({"data": rows(value)})["result"]) for value in values]


def test_tensors_of_other_packages_are_read_at_once_and_wait_for_the_default_stream_once(fake, doubled, exported):
    doubled(exported(0), chain="S[Doubles,CpuTensor]")  # later ones are read when the pipe is called
    Exported.log.clear()
    before = fake.fake_stream_waits()
    (results,) = doubled(exported(1, 2, 3, 4), chain="S[Doubles,CpuTensor]")
    assert lists(results) == [[2], [4], [6], [8]]
    assert Exported.log == [("at once", True)] * 4
    assert fake.fake_stream_waits() == before + 1


@pytest.mark.parametrize(
    "change",
    [{"requires_grad": True}, {"fails": True}, {"exports_nothing": True}, {"bits": 4}, {"stream": 4096}],
    ids=["gradient", "failure", "nothing", "elements of 4 bits", "another stream"],
)
def test_tensors_that_the_c_functions_do_not_describe_are_read_by_dlpack(doubled, exported, monkeypatch, change):
    for name, value in change.items():
        monkeypatch.setattr(Exported, name, value)
    for _ in range(2):
        (results,) = doubled(exported(1, 2), chain="S[Doubles,CpuTensor]")
        assert lists(results) == [[2], [4]]
    assert [how for how, _ in Exported.log if how != "at once"] == ["on 1"] * 4


def is_neg_by_element(_: Exported) -> Any:
    return np.array([True, False])  # has no truth value


def fails_to_answer(_: Exported) -> bool:
    raise RuntimeError("no answer today")


@pytest.mark.parametrize(
    "change",
    [{"bits": 4}, {"is_neg": is_neg_by_element}, {"is_neg": fails_to_answer}],
    ids=["bits", "element", "raises"],
)
def test_a_tensor_that_nothing_reads_passes_though_other_pipes_read_theirs(doubled, exported, monkeypatch, change):
    doubled(exported(0), chain="S[Doubles,CpuTensor]")  # later ones are read when the pipe is called
    (given,) = exported(1)
    for name, value in change.items():
        monkeypatch.setattr(Exported, name, value)
    with hami.pipe("Identity") as pipe:
        assert pipe({"data": given})["result"] is given


def test_a_subclass_is_read_by_its_own_dlpack(doubled, exported):
    (results,) = doubled(exported(1, 2, of=Subclass), chain="S[Doubles,CpuTensor]")
    assert lists(results) == [[2], [4]]
    assert [how for how, _ in Exported.log] == ["on 1"] * 2


def test_negated_tensors_are_left(doubled, exported, monkeypatch):
    monkeypatch.setattr(Exported, "negated", True)
    for _ in range(2):
        assert doubled(exported(1, 2), chain="S[Doubles]") == [[0, 0]]
    assert Exported.log == []


def test_objects_that_are_no_tensors_on_the_device_are_left(doubled):
    (results,) = doubled([rows(1), object(), "text"], chain="S[Doubles]")
    assert results == [0, 0, 0]


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
