"""CUDA graphs on a fake: sizes, padding and ownership of the outputs; tests/gpu uses real ones."""

from __future__ import annotations

import gc
import weakref

import hami
import pytest
import torch
from fake_cuda import DEVICE, FakeTensor
from helpers import message

from hami_torch import _device, _program, _streams
from hami_torch._graphs import Graphs, smallest_size_for


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, None)])
def test_a_batch_is_padded_to_the_next_captured_size(rows, size):
    assert smallest_size_for([1, 2, 4, 8], rows) == size


@pytest.fixture
def graphs(cuda):
    """Graphs of 1, 2 and 4 rows; graphs.seen has the input of each replay."""
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
    assert not any(_streams._leased.values())


def row(*values):
    return torch.tensor([[float(value)] * 2 for value in values])


def test_padding_rows_are_zero(graphs):
    graphs.run([row(1), row(2, 3)], 3)
    graphs.run([row(4)], 1)
    graphs.run([row(5), row(6), row(7)], 3)
    assert [seen[:, 0].tolist() for seen in graphs.seen] == [[1, 2, 3, 0], [4], [5, 6, 7, 0]]


def test_rows_of_one_tensor_are_not_concatenated_again(graphs, monkeypatch):
    whole = row(1, 2, 3).double()
    cat = torch.cat
    concatenations = []
    monkeypatch.setattr(
        torch, "cat", lambda parts, **options: concatenations.append(len(parts)) or cat(parts, **options)
    )
    graphs.run(list(whole.split([1, 2])), 3)
    assert concatenations == []
    graphs.run([row(4).double(), row(5).double()], 2)
    assert concatenations == [2]
    assert [seen[:, 0].tolist() for seen in graphs.seen] == [[1, 2, 3, 0], [4, 5]]


def test_outputs_are_copies_without_the_padding_rows(graphs):
    first = graphs.run([row(1), row(2, 3)], 3)
    graphs.run([row(7, 8, 9, 10)], 4)
    assert first["double"][:, 0].tolist() == [2, 4, 6]


@pytest.mark.parametrize("other", [lambda x: x.mean(), lambda x: torch.arange(4.0)])
def test_a_batch_is_not_padded_if_an_output_is_not_per_row(cuda, other):
    """The output would include the padding. In one case it has as many elements as the largest size by chance."""
    made = Graphs(lambda x: [x, other(x)], [2, 4], torch.zeros(4, 2), "TorchModel")
    assert [made.fits(torch.Size([2]), torch.float32, rows) for rows in (1, 2, 3, 4)] == [False, True, False, True]
    made.close()


def takes_four_rows_only(x):
    if len(x) != 4:
        raise ValueError("four rows")
    return x


@pytest.mark.parametrize(
    ("model", "pads"),
    [
        (lambda x: [x, x * 2], True),
        (lambda x: [x, torch.arange(4.0)], False),
        (takes_four_rows_only, True),
    ],
)
def test_a_single_size_is_padded_if_outputs_follow_another_number_of_rows(cuda, model, pads):
    made = Graphs(model, [4], torch.zeros(4, 2), "TorchModel")
    assert [made.fits(torch.Size([2]), torch.float32, rows) for rows in (1, 3, 4)] == [pads, pads, True]
    made.close()


class Positions(torch.nn.Module):
    """Caches a tensor for the last shape, batch axis included, as some detectors cache their anchors."""

    def forward(self, x):
        if getattr(self, "shape", None) != x.shape:
            self.shape = x.shape
            self.positions = torch.arange(float(len(x)))[:, None].as_subclass(FakeTensor)
        return x + self.positions


def test_tensors_that_a_graph_reads_live_as_long_as_the_graph(cuda):
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
    assert [size for size, tensor in read.items() if tensor() is not None] == [
        2
    ]  # the module itself still holds this one


def test_a_replay_on_another_stream_waits_for_the_previous_stream(graphs, cuda):
    graphs.run([row(1)], 1)
    graphs.run([row(2)], 1)
    assert graphs.log == []
    with torch.cuda.stream(torch.cuda.Stream("cpu")):
        graphs.run([row(3)], 1)
    assert graphs.log == ["2 waits for 0"]


@pytest.mark.parametrize("kind", [RuntimeError, AssertionError, ValueError])
def test_a_failed_capture_is_ended_in_torch(cuda, kind):
    def model(x):
        if cuda.capturing:
            raise kind("operation not permitted when stream is capturing\nmore")
        return x

    with pytest.raises(hami.ConfigError) as raised:
        Graphs(model, [2], torch.zeros(2, 2), "TorchModel")
    assert message(raised) == (
        "TorchModel: the model cannot be captured as a CUDA graph of 2 rows: operation not permitted when stream is "
        'capturing; remove "graphs" to run it without CUDA graphs'
    )
    assert cuda.ended == [(None, "pool")]
    assert cuda.captured == 2  # the failed one, and an empty one that resets the random number generators
    assert not any(_streams._leased.values())


def test_synchronization_and_cache_release_wait_for_a_capture_on_another_thread(cuda, monkeypatch):
    """Either of them would break the capture."""
    held = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: held.append(_device.capture_lock.locked()))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: held.append(_device.capture_lock.locked()))
    monkeypatch.setattr(_program, "_check_source", lambda source, owner: None)
    monkeypatch.setattr(_program, "_load", lambda source, owner: _program.Program(None))
    Graphs(lambda x: x, [2], torch.zeros(2, 2), "TorchModel").close()
    _program.open_program(_program.Source("", "m:f", (), "", DEVICE, None, False), "TorchModel")
    _device.out_of_memory(DEVICE, "TorchModel", "")
    assert held == [True] * 4


@pytest.mark.parametrize("act", ["open", "run out of memory"])
def test_a_model_that_synchronizes_during_its_capture_is_rejected(cuda, monkeypatch, act):
    """It would wait for the end of its own capture, that is forever."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(_program, "_check_source", lambda source, owner: None)
    monkeypatch.setattr(_program, "_load", lambda source, owner: _program.Program(None))

    def model(x):
        if act == "open":
            _program.open_program(_program.Source("", "m:f", (), "", DEVICE, None, False), "TorchModel")
        else:
            _device.out_of_memory(DEVICE, "TorchModel", "")
        return x

    with pytest.raises(hami.ConfigError) as raised:
        Graphs(model, [2], torch.zeros(2, 2), "TorchModel")
    assert message(raised) == (
        "TorchModel: the model cannot be captured as a CUDA graph of 2 rows: while a model is captured as a CUDA "
        'graph, it must not open or close a pipe or run out of memory; remove "graphs" to run it without CUDA graphs'
    )
    assert not _device.capture_lock.locked()
    model(None)  # allowed at any other time


def test_a_failed_close_still_frees_graphs_and_stream(cuda, monkeypatch):
    def synchronize(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    made = Graphs(lambda x: x, [2], torch.zeros(2, 2), "TorchModel")
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        made.close()
    assert not made.captured
    assert not any(_streams._leased.values())


def test_graphs_are_rejected_with_an_allocator_that_would_abort_the_process(cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: "cudaMallocAsync")
    with pytest.raises(hami.ConfigError) as raised:
        Graphs(lambda x: x, [2], torch.zeros(2, 2), "TorchModel")
    assert message(raised) == (
        'TorchModel: "graphs" needs torch\'s native allocator, but this process uses cudaMallocAsync; remove the '
        'backend from PYTORCH_CUDA_ALLOC_CONF, or remove "graphs"'
    )


@pytest.mark.parametrize(
    ("part", "fits"),
    [(row(1), True), (torch.zeros(1, 3), False), (torch.zeros(1, 2, dtype=torch.float64), False)],
)
def test_only_the_shape_and_dtype_of_the_buffer_fit(graphs, part, fits):
    assert graphs.fits(part.shape[1:], part.dtype, 2) is fits
    assert not graphs.fits(part.shape[1:], part.dtype, 5)
