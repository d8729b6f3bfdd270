"""SyncTensor, StreamGuard and StreamPool on the CPU: their brackets, their order, and streams as a fake sees them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import hami
import helpers
import pytest
import torch
from fake_cuda import DEVICE
from helpers import message

from hami_torch import _streams
from hami_torch._stream_handoff import hand_off_results, run_on_stream
from hami_torch._rows import Rows
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
def test_every_form_gives_what_is_in_it(pipe, backend, instance_num):
    guarded = pipe(backend, factory="helpers:Double", max=4, instance_num=instance_num)
    requests = guarded([{"data": torch.full((1, 1), float(i))} for i in range(20)])
    assert [request["result"].item() for request in requests] == [2 * i for i in range(20)]


@pytest.mark.parametrize("backend", GUARDED)
def test_a_request_that_fails_inside_fails_alone(pipe, backend):
    guarded = pipe(backend, factory="helpers:TableLookup", max=4, batching="max")
    requests = [{"data": torch.tensor([row])} for row in (0, 3, 2)]
    with pytest.raises(hami.BatchError) as raised:
        guarded(requests)
    assert [index for index, _ in raised.value.errors] == [1]


class UpToThree(hami.Backend):
    """Tells each request how many ran together."""

    min, max, thread = 1, 3, "any"

    def forward(self, batch):
        for item in batch:
            item["result"] = torch.tensor(len(batch))


@pytest.mark.parametrize("backend", [each.replace("TorchModel", "TestUpToThree") for each in GUARDED])
def test_a_guard_takes_as_many_as_what_is_in_it(pipe, backend):
    hami.register("TestUpToThree")(UpToThree)
    requests = pipe(backend, batching="max")([{"data": torch.ones(1)} for _ in range(5)])
    assert [request["result"].item() for request in requests] == [3, 3, 3, 2, 2]
    with pytest.raises(hami.ConfigError, match="takes at most 3"):
        pipe(backend, max=4)


def test_a_pool_has_at_least_one_stream(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("With[StreamPool(0),Identity]")
    assert message(raised) == 'StreamPool: "n" is 1 or more, got 0'


def test_a_pool_lets_so_many_calls_run_at_once():
    """Each call waits inside until a second one is there; a third has to wait outside."""
    pool = StreamPool()
    pool.n, pool.device = 2, "cpu"
    pool.init({})
    both, lock = threading.Barrier(2), threading.Lock()

    class Meets:
        inside = most = 0

        def forward(self, batch):
            with lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            both.wait(60)
            both.wait(60)
            with lock:
                self.inside -= 1

    meets = Meets()
    with ThreadPoolExecutor(4) as threads:
        for call in [threads.submit(pool.forward_with_dep, [{}], meets) for _ in range(4)]:
            call.result()
    pool.close()
    assert meets.most == 2


def test_nobody_gets_a_stream_that_another_has_and_those_given_back_come_first(cuda):
    held = [_streams.lease(DEVICE) for _ in range(32)]
    assert len({stream.cuda_stream for stream in held}) == 32
    _streams.release(held[7])
    assert _streams.lease(DEVICE) is held[7]
    # All are lent: torch has no more, so this one is shared.
    assert _streams.lease(DEVICE).cuda_stream in {stream.cuda_stream for stream in held}


def test_a_stream_waits_for_tensors_from_outside_and_not_for_its_own(cuda, held):
    stream = _streams.lease(DEVICE)
    tensor = cuda.tensor()
    _streams.wait_for_inputs([tensor], DEVICE)
    assert cuda.log == []  # on the default stream everything is in order
    with torch.cuda.stream(stream):
        _streams.wait_for_inputs([tensor], DEVICE)
        assert cuda.log == ["1 waits for 0"]
        held.clear()
        _streams.wait_for_inputs([cuda.made(stream)], DEVICE)
        cuda.default.idle = True
        _streams.wait_for_inputs([tensor], DEVICE)  # whatever was done on it is done
    assert cuda.log == ["1 waits for 0"]


@pytest.fixture
def held(cuda):
    """What arrives on this thread is held, as in a guard."""
    tensors = []
    before = _streams.swap_held_inputs(tensors)
    yield tensors
    _streams.swap_held_inputs(before)


def test_what_arrives_in_a_guard_is_held_until_it_hands_over(cuda, held):
    stream = _streams.lease(DEVICE)
    data = {"first": [cuda.tensor()], "second": cuda.tensor()}
    with torch.cuda.stream(stream):
        _streams.wait_for_inputs([data, data], DEVICE)
        assert cuda.log == ["1 waits for 0"]
        assert held == [[data, data]]
        hand_off_results([], stream, cuda.default, None)
    assert cuda.log == ["1 waits for 0", "0 waits for 1"]
    assert held == []


def test_what_a_failed_batch_left_behind_is_recorded_and_not_held_for_ever(cuda, held):
    with torch.cuda.stream(_streams.lease(DEVICE)):
        for _ in range(2):
            _streams.wait_for_inputs([cuda.tensor(), cuda.tensor()], DEVICE)
        later = cuda.tensor()
        _streams.wait_for_inputs([later], DEVICE)
    assert cuda.log == ["1 waits for 0"] * 3 + ["memory kept for 1"] * 4
    assert held == [[later]]


@pytest.fixture
def cuda_everywhere(cuda, monkeypatch):
    """The fake's current stream counts for backends on the CPU too."""
    for module in ("_streams", "_tensor"):
        monkeypatch.setattr(f"hami_torch.{module}.current_handle", lambda device: cuda.current.cuda_stream)
    return cuda


def test_without_a_guard_work_is_on_the_default_stream_and_in_order_with_the_callers(
    pipe, cuda_everywhere, monkeypatch
):
    cuda, seen = cuda_everywhere, []
    monkeypatch.setattr(helpers.Double, "forward", lambda self, x: seen.append(cuda.current.cuda_stream) or x * 2)
    with torch.cuda.stream(torch.cuda.Stream(DEVICE)):
        pipe("TorchModel", factory="helpers:Double")({"data": torch.ones(1, 1)})
        run_on_stream(_streams.lease(DEVICE), [{"data": cuda.tensor()}], Makes(cuda))
        assert cuda.current.cuda_stream == 1
    assert seen == [0]
    inside = ["2 waits for 0", "memory kept for 0", "0 waits for 2"]
    assert cuda.log == ["0 waits for 1", "1 waits for 0", "0 waits for 1", *inside, "1 waits for 0"]


def test_a_box_on_the_gpu_is_waited_for(pipe, cuda_everywhere, held):
    cuda = cuda_everywhere
    stream = _streams.lease(DEVICE)
    picture = torch.zeros(1, 3, 4, 4).as_subclass(type(cuda.tensor()))
    _streams.mark_stream(picture, stream.cuda_stream)
    box = torch.tensor([0.0, 0.0, 2.0, 2.0]).as_subclass(type(picture))
    with torch.cuda.stream(stream):
        pipe("CropTensor")({"data": picture, "box": box})
    assert cuda.log == ["1 waits for 0"]


NESTED = {
    "TorchModel": {"factory": "helpers:Double"},
    "GpuTensor": {},
    "hami-torch::CatTensor": {},
    "hami-torch::SplitTensor": {},
    "hami-torch::FixTensor": {"dtype": "float32"},
    "hami-torch::ContiguousTensor": {},
}
TAKING = NESTED | {
    "ResizeTensor": {"width": 2, "height": 2},
    "CropTensor": {"box": [0, 0, 2, 2]},
    "CvtColorTensor": {"color": "bgr", "source": "rgb"},
    "hami-torch::NormalizeTensor": {"mean": [0.0], "std": [1.0]},
}


@pytest.mark.parametrize(
    ("backend", "form"),
    [(each, "alone") for each in TAKING] + [(each, form) for each in NESTED for form in ("list", "dict")],
)
def test_every_backend_waits_for_what_was_made_outside_its_guard(pipe, cuda_everywhere, held, backend, form):
    cuda = cuda_everywhere
    tensor = torch.zeros(1, 3, 4, 4).as_subclass(type(cuda.tensor()))
    tensor.log = cuda.log
    node = pipe(backend, **TAKING[backend])
    with torch.cuda.stream(_streams.lease(DEVICE)):
        node({"data": {"alone": tensor, "list": [tensor], "dict": {"x": tensor}}[form]})
    assert cuda.log == ["1 waits for 0"]
    assert any(each is tensor for each in _streams.cuda_tensors_in(held))


HANDED = [(_streams.wait_spinning, "the CPU waits for 1"), (_streams.wait_sleeping, "the CPU waits for 1"), (None, "0 waits for 1")]


class Makes:
    def __init__(self, cuda) -> None:
        self.cuda = cuda

    def forward(self, batch):
        for item in batch:
            item["result"] = [self.cuda.made(self.cuda.current)]


@pytest.mark.parametrize(("wait", "handed"), HANDED)
def test_what_leaves_a_guard_is_in_order_outside(cuda, held, wait, handed):
    stream = _streams.lease(DEVICE)
    batch = [{"data": cuda.tensor()}]
    run_on_stream(stream, batch, Makes(cuda), wait)
    assert cuda.log == ["1 waits for 0", "memory kept for 0", handed]
    # It may have been worked on outside: coming back, it is a stranger again.
    cuda.log.clear()
    with torch.cuda.stream(stream):
        _streams.wait_for_inputs(batch[0]["result"], DEVICE)
    assert cuda.log == ["1 waits for 0"]


def test_what_a_backend_leaves_behind_that_fails_in_a_guard_is_recorded(cuda):
    class Fails:
        def forward(self, batch):
            _streams.wait_for_inputs([cuda.tensor()], DEVICE)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_on_stream(_streams.lease(DEVICE), [{"data": cuda.tensor()}], Fails())
    assert cuda.log == ["1 waits for 0", "1 waits for 0", "memory kept for 1", "memory kept for 1"]
    assert _streams.swap_held_inputs(None) is None


def test_a_note_that_another_instance_has_taken_away_is_no_error(cuda):
    tensor = cuda.made(_streams.lease(DEVICE))
    _streams.clear_stream_mark(tensor)
    _streams.clear_stream_mark(tensor)


def test_what_came_in_is_handed_back_where_nothing_is_left_on_the_gpu(cuda):
    class Counts:
        def forward(self, batch):
            for item in batch:
                item["result"] = len(batch)

    run_on_stream(_streams.lease(DEVICE), [{"data": cuda.tensor()}], Counts())
    assert cuda.log == ["1 waits for 0", "0 waits for 1"]


@pytest.mark.parametrize(("wait", "handed"), HANDED)
@pytest.mark.parametrize("looked", [False, True])
def test_rows_of_one_tensor_come_and_leave_as_one(cuda, wait, handed, looked):
    stream, seen, apart = _streams.lease(DEVICE), [], []

    class Doubles:
        def forward(self, batch):
            parts = hami.scattered(batch)
            parts.arrive(DEVICE)  # once more, now on the guard's stream
            given = Rows((parts.whole * 2).as_subclass(type(parts.whole)), parts.counts, cuda.current.cuda_stream)
            given.whole.log = cuda.log
            seen.extend([given, *(given if looked else ())])
            hami.scatter(batch, given)

    @hami.register("GuardsRows")
    class GuardsRows(hami.Backend):
        max = 3

        def forward(self, batch):
            hami.scatter(batch, Rows(cuda.tensor().expand(3), [1, 1, 1], 0), key="data")
            hami.scattered(batch).whole.log = cuda.log
            run_on_stream(stream, batch, Doubles(), wait)
            apart.append(bool(seen[0]._views))

    with hami.pipe({"backend": "GuardsRows", "max": 3}) as guarded:
        guarded([{"data": None} for _ in range(3)])
    assert cuda.log == [
        "1 waits for 0",
        "1 waits for 0",
        "memory kept for 0",
        handed,
    ]
    assert seen[0].made_on == 0
    assert apart == [looked or wait is not None]  # while the work goes on, not while callers wait
    assert not any(hasattr(view, _streams._STREAM_MARK) for view in seen[0])


def test_inside_another_guard_the_outer_stream_is_waited_for(cuda, held):
    outer, inner = _streams.lease(DEVICE), _streams.lease(DEVICE)
    outer.idle = False
    with torch.cuda.stream(outer):
        batch = [{"data": cuda.made(outer)}]
        run_on_stream(inner, batch, Makes(cuda))
    assert cuda.log == ["2 waits for 1", "memory kept for 1", "1 waits for 2"]


@pytest.fixture
def on_cuda(cuda, monkeypatch):
    """The guards take the fake device for the one that they asked for."""
    for module in ("_guard", "stream_pool"):
        monkeypatch.setattr(f"hami_torch.{module}.device_of", lambda name, owner: DEVICE)
    return cuda


@pytest.mark.parametrize(
    ("guard", "handed"), [(SyncTensor, "the CPU waits for 1"), (StreamGuard, "0 waits for 1")], ids=["sync", "guard"]
)
def test_a_bare_guard_makes_its_stream_the_current_one_until_it_is_closed(on_cuda, guard, handed):
    bare = guard()
    bare.children = []
    bare.init({})
    assert on_cuda.current.cuda_stream == 1
    assert _streams._thread.held_inputs == []
    batch = [{"data": on_cuda.made(on_cuda.current)}]
    bare.forward(batch)
    assert batch[0]["result"] is batch[0]["data"]
    assert on_cuda.log == ["memory kept for 0", handed]
    bare.close()
    assert _streams._thread.held_inputs is None
    assert on_cuda.current is on_cuda.default
    assert not _streams._leased[DEVICE]


@pytest.mark.parametrize("guard", [SyncTensor, StreamGuard])
def test_a_guard_around_a_backend_leaves_the_threads_stream_alone(on_cuda, guard):
    around = guard()
    around.children = [Makes(on_cuda)]
    around.init({})
    assert on_cuda.current is on_cuda.default
    batch = [{"data": 0}]
    around.forward(batch)
    assert not hasattr(batch[0]["result"][0], _streams._STREAM_MARK)
    assert on_cuda.current is on_cuda.default
    around.close()
    assert not _streams._leased[DEVICE]


def test_a_pool_runs_each_call_on_one_of_its_streams(on_cuda):
    pool = StreamPool()
    pool.n, pool.device = 2, "cuda"
    pool.init({})
    for _ in range(3):
        pool.forward_with_dep([{"data": 0}], Makes(on_cuda))
    waits = [line for line in on_cuda.log if "waits" in line]
    assert waits == ["0 waits for 1", "0 waits for 2", "0 waits for 1"]
    pool.close()
    assert not _streams._leased[DEVICE]
