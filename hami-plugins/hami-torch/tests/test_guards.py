"""SyncTensor, StreamGuard and StreamPool: on the CPU, and with fake CUDA streams that log the order of work."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import hami
import helpers
import pytest
import torch
from fake_cuda import DEVICE, FakeStream
from helpers import message

from hami_torch import _streams
from hami_torch._rows import Rows
from hami_torch._stream_handoff import hand_off_results, run_on_stream
from hami_torch.backend import TensorBackend
from hami_torch.stream_guard import StreamGuard
from hami_torch.stream_pool import StreamPool
from hami_torch.sync_tensor import SyncTensor

GUARDED = [
    "SyncTensor[TorchModel]",
    "S[TorchModel,SyncTensor]",
    "StreamGuard[TorchModel]",
    "S[TorchModel,StreamGuard]",
    "With[StreamPool(2),TorchModel]",
    "SyncTensor[S[TorchModel,SyncTensor]]",
]


@pytest.mark.parametrize("backend", GUARDED)
@pytest.mark.parametrize("instance_num", [1, 3])
def test_every_guard_returns_the_result_of_its_item(pipe, backend, instance_num):
    guarded = pipe(backend, factory="helpers:Double", batched=True, max=4, instance_num=instance_num)
    requests = guarded([{"data": torch.full((1, 1), float(i))} for i in range(20)])
    assert [request["result"].item() for request in requests] == [2 * i for i in range(20)]


@pytest.mark.parametrize("backend", GUARDED)
def test_a_request_that_fails_inside_a_guard_fails_alone(pipe, backend):
    guarded = pipe(backend, factory="helpers:TableLookup", batched=True, max=4, batching="greedy")
    requests = [{"data": torch.tensor([row])} for row in (0, 3, 2)]
    with pytest.raises(hami.BatchError) as raised:
        guarded(requests)
    assert [index for index, _ in raised.value.errors] == [1]


class UpToThree(hami.Backend):
    """Returns the size of the batch; takes at most 3 requests."""

    min, max, thread = 1, 3, "serialized"

    def forward(self, batch):
        for item in batch:
            item["result"] = torch.tensor(len(batch))


@pytest.mark.parametrize("backend", [each.replace("TorchModel", "TestUpToThree") for each in GUARDED])
def test_a_guard_has_the_batch_limits_of_its_item(pipe, backend):
    hami.register("TestUpToThree")(UpToThree)
    requests = pipe(backend, batching="greedy")([{"data": torch.ones(1)} for _ in range(5)])
    assert [request["result"].item() for request in requests] == [3, 3, 3, 2, 2]
    with pytest.raises(hami.ConfigError, match="takes at most 3"):
        pipe(backend, max=4)


def test_a_pool_needs_at_least_one_stream(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("With[StreamPool(0),Identity]")
    assert message(raised) == 'StreamPool: "n" must be at least 1, got 0'


def test_a_pool_limits_the_number_of_concurrent_calls():
    """Each call waits inside for a second one; a third call waits outside."""
    pool = StreamPool()
    pool.n, pool.device = 2, "cpu"
    pool.init({})
    both, lock = threading.Barrier(2), threading.Lock()

    class MeetsAnotherCall:
        inside = peak = 0

        def forward(self, batch):
            with lock:
                self.inside += 1
                self.peak = max(self.peak, self.inside)
            both.wait(60)
            both.wait(60)
            with lock:
                self.inside -= 1

    meets = MeetsAnotherCall()
    with ThreadPoolExecutor(4) as threads:
        for call in [threads.submit(pool.forward_with_dep, [{}], meets) for _ in range(4)]:
            call.result()
    pool.close()
    assert meets.peak == 2


def test_a_stream_has_one_holder_and_released_streams_are_reused_first(cuda):
    leased = [_streams.lease(DEVICE) for _ in range(32)]
    assert len({stream.cuda_stream for stream in leased}) == 32
    _streams.release(leased[7])
    assert _streams.lease(DEVICE) is leased[7]
    # All 32 streams of torch are leased, so this one is shared.
    assert _streams.lease(DEVICE).cuda_stream in {stream.cuda_stream for stream in leased}


def test_a_stream_waits_for_tensors_from_outside_but_not_for_its_own(cuda, held):
    stream = _streams.lease(DEVICE)
    tensor = cuda.tensor()
    _streams.wait_for_inputs([tensor], DEVICE)
    assert cuda.log == []  # tensors from outside are ordered with the default stream
    with torch.cuda.stream(stream):
        _streams.wait_for_inputs([tensor], DEVICE)
        assert cuda.log == ["1 waits for 0"]
        held.clear()
        _streams.wait_for_inputs([cuda.made(stream)], DEVICE)
        cuda.default.idle = True
        _streams.wait_for_inputs([tensor], DEVICE)  # the default stream is idle, so there is nothing to wait for
    assert cuda.log == ["1 waits for 0"]


@pytest.fixture
def held(cuda):
    """The list in which this thread holds inputs, as inside a guard."""
    tensors = []
    before = _streams.swap_held_inputs(tensors)
    yield tensors
    _streams.swap_held_inputs(before)


def test_inputs_of_a_guard_are_held_until_it_hands_off_the_results(cuda, held):
    stream = _streams.lease(DEVICE)
    data = {"first": [cuda.tensor()], "second": cuda.tensor()}
    with torch.cuda.stream(stream):
        _streams.wait_for_inputs([data, data], DEVICE)
        assert cuda.log == ["1 waits for 0"]
        assert held == [[data, data]]
        hand_off_results([], stream, cuda.default, None)
    assert cuda.log == ["1 waits for 0", "0 waits for 1"]
    assert held == []


def test_held_inputs_of_a_failed_batch_are_recorded_on_the_stream_and_dropped(cuda, held):
    with torch.cuda.stream(_streams.lease(DEVICE)):
        for _ in range(2):
            _streams.wait_for_inputs([cuda.tensor(), cuda.tensor()], DEVICE)
        later = cuda.tensor()
        _streams.wait_for_inputs([later], DEVICE)
    assert cuda.log == ["1 waits for 0"] * 3 + ["memory kept for 1"] * 4
    assert held == [[later]]


@pytest.fixture
def cuda_everywhere(cuda, monkeypatch):
    """Make backends on the CPU see the current stream of the fake."""
    for module in ("_streams", "_tensor"):
        monkeypatch.setattr(f"hami_torch.{module}.current_handle", lambda device: cuda.current.cuda_stream)
    return cuda


def test_without_a_guard_work_runs_on_the_default_stream_ordered_with_the_callers(pipe, cuda_everywhere, monkeypatch):
    cuda, seen = cuda_everywhere, []
    monkeypatch.setattr(helpers.Double, "forward", lambda self, x: seen.append(cuda.current.cuda_stream) or x * 2)
    with torch.cuda.stream(torch.cuda.Stream(DEVICE)):
        pipe("TorchModel", factory="helpers:Double")({"data": torch.ones(1, 1)})
        run_on_stream(_streams.lease(DEVICE), [{"data": cuda.tensor()}], MakesTensor(cuda))
        assert cuda.current.cuda_stream == 1
    assert seen == [0]
    guarded = ["2 waits for 0", "memory kept for 0", "0 waits for 2"]
    assert cuda.log == ["0 waits for 1", "1 waits for 0", "0 waits for 1", *guarded, "1 waits for 0"]


WITH_INPUT: dict[str, dict[str, str]] = {"TorchModel": {"factory": "helpers:Double"}, "GpuTensor": {}}


@pytest.mark.parametrize("structure", ["tensor", "list", "dict"])
@pytest.mark.parametrize("backend", WITH_INPUT)
def test_every_backend_waits_for_inputs_from_outside_its_guard(pipe, cuda_everywhere, held, backend, structure):
    cuda = cuda_everywhere
    tensor = torch.zeros(1, 3, 4, 4).as_subclass(type(cuda.tensor()))
    tensor.log = cuda.log
    node = pipe(backend, **WITH_INPUT[backend])
    with torch.cuda.stream(_streams.lease(DEVICE)):
        node({"data": {"tensor": tensor, "list": [tensor], "dict": {"x": tensor}}[structure]})
    assert cuda.log == ["1 waits for 0"]
    assert any(each is tensor for each in _streams.cuda_tensors_in(held))


HAND_OFFS = [
    (_streams.wait_spinning, "the CPU waits for 1"),
    (_streams.wait_sleeping, "the CPU waits for 1"),
    (None, "0 waits for 1"),
]


class MakesTensor:
    def __init__(self, cuda) -> None:
        self.cuda = cuda

    def forward(self, batch):
        for item in batch:
            item["result"] = [self.cuda.made(self.cuda.current)]


@pytest.mark.parametrize(("wait", "handoff"), HAND_OFFS)
def test_results_of_a_guard_are_ordered_with_the_stream_outside(cuda, held, wait, handoff):
    stream = _streams.lease(DEVICE)
    batch = [{"data": cuda.tensor()}]
    run_on_stream(stream, batch, MakesTensor(cuda), wait)
    assert cuda.log == ["1 waits for 0", "memory kept for 0", handoff]
    # Other streams may have used the result since, so the guard waits for it like for any input.
    cuda.log.clear()
    with torch.cuda.stream(stream):
        _streams.wait_for_inputs(batch[0]["result"], DEVICE)
    assert cuda.log == ["1 waits for 0"]


def test_inputs_of_a_backend_that_fails_in_a_guard_are_recorded_on_the_stream(cuda):
    class Fails:
        def forward(self, batch):
            _streams.wait_for_inputs([cuda.tensor()], DEVICE)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_on_stream(_streams.lease(DEVICE), [{"data": cuda.tensor()}], Fails())
    assert cuda.log == ["1 waits for 0", "1 waits for 0", "memory kept for 1", "memory kept for 1"]
    assert _streams.swap_held_inputs(None) is None


def test_clearing_a_stream_mark_twice_is_allowed(cuda):
    tensor = cuda.made(_streams.lease(DEVICE))
    _streams.clear_stream_mark(tensor)
    _streams.clear_stream_mark(tensor)


def test_inputs_are_released_in_order_if_no_result_is_on_the_gpu(cuda):
    class Counts:
        def forward(self, batch):
            for item in batch:
                item["result"] = len(batch)

    run_on_stream(_streams.lease(DEVICE), [{"data": cuda.tensor()}], Counts())
    assert cuda.log == ["1 waits for 0", "0 waits for 1"]


@pytest.mark.parametrize(("wait", "handoff"), HAND_OFFS)
@pytest.mark.parametrize("parts_read", [False, True])
def test_rows_of_one_tensor_enter_and_leave_a_guard_as_one(cuda, wait, handoff, parts_read):
    stream, seen, split = _streams.lease(DEVICE), [], []

    class Doubles:
        def forward(self, batch):
            rows = hami.batching.scattered(batch)
            rows.wait_for_inputs(DEVICE)  # again, now on the guard's stream
            result = Rows((rows.tensor * 2).as_subclass(type(rows.tensor)), rows.counts, cuda.current.cuda_stream)
            seen.extend([result, *(result if parts_read else ())])
            hami.batching.scatter(batch, result)

    @hami.register("GuardsRows")
    class GuardsRows(hami.Backend):
        max = 3

        def forward(self, batch):
            hami.batching.scatter(batch, Rows(cuda.tensor().expand(3), [1, 1, 1], 0), key="data")
            run_on_stream(stream, batch, Doubles(), wait)
            split.append(bool(seen[0]._parts))

    with hami.pipe({"backend": "GuardsRows", "max": 3}) as guarded:
        guarded([{"data": None} for _ in range(3)])
    assert cuda.log == [
        "1 waits for 0",
        "1 waits for 0",
        *["memory kept for 0"] * (4 if wait else 1),  # of the tensor and, with a wait, of the three parts
        handoff,
    ]
    assert seen[0].stream_handle == 0
    assert split == [parts_read or wait is not None]  # with a wait, parts are made while the GPU works
    assert not any(hasattr(part, _streams._STREAM_MARK) for part in seen[0])


def test_a_nested_guard_waits_for_the_stream_of_the_outer_guard(cuda, held):
    outer, inner = _streams.lease(DEVICE), _streams.lease(DEVICE)
    outer.idle = False
    with torch.cuda.stream(outer):
        batch = [{"data": cuda.made(outer)}]
        run_on_stream(inner, batch, MakesTensor(cuda))
    assert cuda.log == ["2 waits for 1", "memory kept for 1", "1 waits for 2"]


@pytest.fixture
def on_cuda(cuda, monkeypatch):
    """Make the guards use the fake device."""
    for module in ("_guard", "stream_pool"):
        monkeypatch.setattr(f"hami_torch.{module}.device_of", lambda name, owner, **options: DEVICE)
    return cuda


@pytest.mark.parametrize(
    ("guard", "handoff"), [(SyncTensor, "the CPU waits for 1"), (StreamGuard, "0 waits for 1")], ids=["sync", "guard"]
)
def test_a_bare_guard_makes_its_stream_current_until_it_is_closed(on_cuda, guard, handoff):
    bare = guard()
    bare.children = []
    bare.init({})
    assert on_cuda.current.cuda_stream == 1
    assert _streams._thread.held_inputs == []
    batch = [{"data": on_cuda.made(on_cuda.current)}]
    bare.forward(batch)
    assert batch[0]["result"] is batch[0]["data"]
    assert on_cuda.log == ["memory kept for 0", handoff]
    bare.close()
    assert _streams._thread.held_inputs is None
    assert on_cuda.current is on_cuda.default
    assert not _streams._leased[DEVICE]


@pytest.mark.parametrize("guard", [SyncTensor, StreamGuard])
def test_a_guard_with_brackets_does_not_change_the_threads_current_stream(on_cuda, guard):
    guarding = guard()
    guarding.children = [MakesTensor(on_cuda)]
    guarding.init({})
    assert on_cuda.current is on_cuda.default
    batch = [{"data": 0}]
    guarding.forward(batch)
    assert not hasattr(batch[0]["result"][0], _streams._STREAM_MARK)
    assert on_cuda.current is on_cuda.default
    guarding.close()
    assert not _streams._leased[DEVICE]


def test_a_pool_runs_each_call_on_one_of_its_streams(on_cuda):
    pool = StreamPool()
    pool.n, pool.device = 2, "cuda"
    pool.init({})
    for _ in range(3):
        pool.forward_with_dep([{"data": 0}], MakesTensor(on_cuda))
    waits = [line for line in on_cuda.log if "waits" in line]
    assert waits == ["0 waits for 1", "0 waits for 2", "0 waits for 1"]
    pool.close()
    assert not _streams._leased[DEVICE]


class Doubles(TensorBackend):
    """Doubles its data, and logs the stream that is current meanwhile."""

    def __init__(self, cuda, options) -> None:
        self.cuda, self.seen = cuda, []
        self.device = "cuda"
        self.init(options)

    def run(self, batch):
        self.seen.append(self.cuda.current.cuda_stream)
        MakesTensor(self.cuda).forward(batch)


@pytest.fixture
def doubles(on_cuda, monkeypatch):
    """doubles(options) makes a backend on the fake device."""
    monkeypatch.setattr("hami_torch._tensor.device_of", lambda *given: DEVICE)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: FakeStream(handle, on_cuda.log, device))
    return lambda options: Doubles(on_cuda, options)


def test_a_backend_works_on_the_stream_of_its_instance_and_hands_its_results_to_the_default_stream(doubles, on_cuda):
    backend = doubles({"stream.cuda:0": 7})
    batch = [{"data": on_cuda.tensor()}]
    backend.forward(batch)
    assert backend.seen == [7]
    assert on_cuda.current is on_cuda.default
    assert on_cuda.log == ["7 waits for 0", "memory kept for 0", "0 waits for 7"]
    assert not hasattr(batch[0]["result"][0], _streams._STREAM_MARK)


def test_a_backend_finds_a_stream_that_the_instance_gets_later(doubles):
    options = {}
    backend = doubles(options)
    options["stream.cuda:0"] = 7  # as a native backend does that is initialized later
    backend.forward([{"data": 0}])
    assert backend.seen == [7]


def test_without_a_stream_of_the_instance_a_backend_works_on_the_default_stream(doubles, on_cuda):
    backend = doubles({"stream.cuda:1": 7})
    backend.forward([{"data": 0}])
    assert backend.seen == [0]
    assert on_cuda.log == []


@pytest.mark.parametrize("guard", [SyncTensor, StreamGuard])
def test_a_guard_takes_the_stream_of_the_instance(doubles, on_cuda, guard):
    options = {"stream.cuda:0": 7}
    guarding = guard()
    backend = doubles(options)
    guarding.children = [backend]
    guarding.init(options)
    guarding.forward([{"data": 0}])
    assert backend.seen == [7]
    assert on_cuda.log[-1] in ("the CPU waits for 7", "0 waits for 7")
    assert len([line for line in on_cuda.log if "waits" in line]) == 1
    guarding.close()
    assert not _streams._leased.get(DEVICE)


def test_a_guard_shares_its_stream_with_the_native_backends_of_the_instance(on_cuda):
    options = {}
    bare = SyncTensor()
    bare.children = []
    bare.init(options)
    assert options == {"stream.cuda:0": on_cuda.current.cuda_stream}
    bare.close()
