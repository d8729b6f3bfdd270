"""CUDA graphs on a stand-in: sizes, padding, and whose the outputs are; tests/gpu has the real ones."""

from __future__ import annotations

import gc
import weakref

import hami
import pytest
import torch
from fake_cuda import DEVICE, FakeTensor
from helpers import message

from hami_torch import _device, _program, _streams
from hami_torch._graphs import Graphs, next_size


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, None)])
def test_a_batch_is_padded_to_the_next_captured_size(rows, size):
    assert next_size([1, 2, 4, 8], rows) == size


@pytest.fixture
def graphs(cuda):
    """Graphs of 1, 2 and 4 rows; what the model saw at each replay is in graphs.seen."""
    seen = []

    def model(x):
        output = torch.zeros_like(x)

        def step():
            seen.append(x.clone())
            output.copy_(x * 2)

        if cuda.capturing:
            cuda.capturing.steps.append(step)
        return {"double": output}

    made = Graphs(model, [4, 1, 2], torch.full((4, 2), 9.0), "TorchModel")
    made.seen, made.log = seen, cuda.log
    cuda.log.clear()
    yield made
    made.close()
    assert not any(_streams._lent.values())


def row(*values):
    return torch.tensor([[float(value)] * 2 for value in values])


def test_rows_that_pad_a_batch_are_zero_and_not_what_ran_before(graphs):
    graphs.run([row(1), row(2, 3)], 3)
    graphs.run([row(4)], 1)
    graphs.run([row(5), row(6), row(7)], 3)
    assert [seen[:, 0].tolist() for seen in graphs.seen] == [[1, 2, 3, 0], [4], [5, 6, 7, 0]]


def test_rows_of_one_tensor_are_not_gathered_again_and_all_are_cast_on_the_way(graphs, monkeypatch):
    whole = row(1, 2, 3).double()
    cat = torch.cat
    gathered = []
    monkeypatch.setattr(torch, "cat", lambda parts, **options: gathered.append(len(parts)) or cat(parts, **options))
    graphs.run(list(whole.split([1, 2])), 3)
    assert gathered == []
    graphs.run([row(4).double(), row(5).double()], 2)
    assert gathered == [2]
    assert [seen[:, 0].tolist() for seen in graphs.seen] == [[1, 2, 3, 0], [4, 5]]


def test_outputs_belong_to_the_caller_and_have_his_rows_only(graphs):
    first = graphs.run([row(1), row(2, 3)], 3)
    graphs.run([row(7, 8, 9, 10)], 4)
    assert first["double"][:, 0].tolist() == [2, 4, 6]


@pytest.mark.parametrize("other", [lambda x: x.mean(), lambda x: torch.arange(4.0)])
def test_a_batch_is_not_padded_where_an_output_is_not_per_row(cuda, other):
    """It would be computed over the padding too; four classes are four rows of the largest size by chance."""
    made = Graphs(lambda x: [x, other(x)], [2, 4], torch.zeros(4, 2), "TorchModel")
    assert [made.fits(torch.Size([2]), torch.float32, rows) for rows in (1, 2, 3, 4)] == [False, True, False, True]
    made.close()


def of_four_rows_only(x):
    if len(x) != 4:
        raise ValueError("four rows")
    return x


@pytest.mark.parametrize(
    ("model", "pads"),
    [
        (lambda x: [x, x * 2], True),
        (lambda x: [x, torch.arange(4.0)], False),
        (of_four_rows_only, True),
    ],
)
def test_a_single_size_is_padded_where_outputs_have_the_rows_of_another_too(cuda, model, pads):
    made = Graphs(model, [4], torch.zeros(4, 2), "TorchModel")
    assert [made.fits(torch.Size([2]), torch.float32, rows) for rows in (1, 3, 4)] == [pads, pads, True]
    made.close()


class Positions(torch.nn.Module):
    """Keeps a tensor for each shape, the batch included, as some detectors keep their anchors."""

    def forward(self, x):
        if getattr(self, "shape", None) != x.shape:
            self.shape = x.shape
            self.positions = torch.arange(float(len(x)))[:, None].as_subclass(FakeTensor)
        return x + self.positions


def test_what_a_graph_reads_lives_as_long_as_the_graph(cuda):
    module, read = torch.nn.Sequential(Positions()), {}

    def call(x):
        output = module(x)
        if cuda.capturing:
            read[len(x)] = weakref.ref(module[0].positions)
        return output

    made = Graphs(call, [2, 4], torch.zeros(4, 2), "TorchModel", module)
    gc.collect()
    assert all(tensor() is not None for tensor in read.values())
    made.close()
    gc.collect()
    assert [size for size, tensor in read.items() if tensor() is not None] == [2]  # the module's own now


def test_who_replays_on_another_stream_waits_for_the_one_before(graphs, cuda):
    graphs.run([row(1)], 1)
    graphs.run([row(2)], 1)
    assert graphs.log == []
    with torch.cuda.stream(torch.cuda.Stream("cpu")):
        graphs.run([row(3)], 1)
    assert graphs.log == ["2 waits for 0"]


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError, ValueError])
def test_a_capture_that_fails_is_ended_for_torch_too(cuda, kind):
    def model(x):
        if cuda.capturing:
            raise kind("operation not permitted when stream is capturing\nmore")
        return x

    with pytest.raises(hami.ConfigError) as raised:
        Graphs(model, [2], torch.zeros(2, 2), "TorchModel")
    assert message(raised) == (
        "TorchModel: the model cannot be captured as a CUDA graph of 2 rows: operation not permitted when stream is "
        'capturing; leave "graphs" out to run it without'
    )
    assert cuda.ended == [(None, "pool")]
    assert cuda.captured == 2  # the one that failed, and an empty one after which random numbers can be made again
    assert not any(_streams._lent.values())


def test_nobody_waits_for_the_device_or_gives_memory_back_while_another_captures(cuda, monkeypatch):
    """The capture would be broken by it."""
    held = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: held.append(_device.capturing.locked()))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: held.append(_device.capturing.locked()))
    monkeypatch.setattr(_program, "_check", lambda source, owner: None)
    monkeypatch.setattr(_program, "_make", lambda source, owner: _program.Program(None))
    Graphs(lambda x: x, [2], torch.zeros(2, 2), "TorchModel").close()
    _program.open_program(_program.Source("", "m:f", (), "", DEVICE, None, False), "TorchModel")
    _device.out_of_memory(DEVICE, "TorchModel", "")
    assert held == [True] * 4


@pytest.mark.parametrize("act", ["open", "run out of memory"])
def test_a_model_that_waits_for_the_device_while_it_is_captured_is_refused(cuda, monkeypatch, act):
    """It would wait for the end of its own capture."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(_program, "_check", lambda source, owner: None)
    monkeypatch.setattr(_program, "_make", lambda source, owner: _program.Program(None))

    def model(x):
        if act == "open":
            _program.open_program(_program.Source("", "m:f", (), "", DEVICE, None, False), "TorchModel")
        else:
            _device.out_of_memory(DEVICE, "TorchModel", "")
        return x

    with pytest.raises(hami.ConfigError) as raised:
        Graphs(model, [2], torch.zeros(2, 2), "TorchModel")
    assert message(raised) == (
        "TorchModel: the model cannot be captured as a CUDA graph of 2 rows: a model that is being captured as a CUDA "
        'graph may neither open or close a pipe nor run out of memory; leave "graphs" out to run it without'
    )
    assert not _device.capturing.locked()
    model(None)  # which it may do at any other time


def test_a_close_that_fails_frees_what_it_holds(cuda, monkeypatch):
    def synchronize(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    made = Graphs(lambda x: x, [2], torch.zeros(2, 2), "TorchModel")
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        made.close()
    assert not made._graphs
    assert not any(_streams._lent.values())


def test_an_allocator_with_which_torch_would_end_the_process_is_refused(cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: "cudaMallocAsync")
    with pytest.raises(hami.ConfigError) as raised:
        Graphs(lambda x: x, [2], torch.zeros(2, 2), "TorchModel")
    assert message(raised) == (
        'TorchModel: "graphs" need torch\'s native allocator, and this process uses cudaMallocAsync: take it out of '
        'PYTORCH_CUDA_ALLOC_CONF, or leave "graphs" out'
    )


@pytest.mark.parametrize(
    ("part", "fits"),
    [(row(1), True), (torch.zeros(1, 3), False), (torch.zeros(1, 2, dtype=torch.float64), False)],
)
def test_only_what_the_buffer_was_made_for_fits(graphs, part, fits):
    assert graphs.fits(part.shape[1:], part.dtype, 2) is fits
    assert not graphs.fits(part.shape[1:], part.dtype, 5)
