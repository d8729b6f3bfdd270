"""A kept result keeps its own rows, not the batch in which they were computed."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from hami_torch._rows import own_rows, owned

WIDTH = 1000
TOGETHER = {"max": 8, "batching": "greedy", "batched": True}


def memory_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def test_rows_are_copies_unless_they_are_at_least_half():
    whole = torch.arange(40.0).reshape(8, 5)
    parts = own_rows(whole, [1, 5, 2])
    assert [part.tolist() for part in parts] == [part.tolist() for part in whole.split([1, 5, 2])]
    assert [memory_of(part) == memory_of(whole) for part in parts] == [False, True, False]
    assert all(memory_of(part) == part.nbytes for part in own_rows(whole, [1] * 8))


@pytest.mark.parametrize("rows", [[1, 1, 1, 1], [2, 2], [3, 1]])
def test_copied_rows_keep_their_memory_format(rows):
    images = torch.rand(4, 3, 8, 8).to(memory_format=torch.channels_last)
    for part, expected in zip(own_rows(images, rows), images.split(rows), strict=True):
        assert part.equal(expected)
        assert part.is_contiguous(memory_format=torch.channels_last)


def test_a_part_of_another_tensor_is_copied():
    whole = torch.arange(40.0).reshape(8, 5)
    assert memory_of(owned(whole[:, 0])) == 8 * 4
    assert owned(whole[:4]).data_ptr() == whole.data_ptr()


class Dict(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x * 2, "first": x[:, :1] + 1}


class FirstColumn(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2)[:, :1]


@pytest.mark.parametrize(
    "backend",
    [
        'TorchModel(factory="helpers:Double")',
        'TorchModel(factory="test_own_rows:Dict")',
        'S[TorchModel(factory="helpers:Double"),CpuTensor]',
        'S[TorchModel(factory="helpers:Double"),SyncTensor]',
    ],
)
def test_a_kept_result_keeps_its_own_rows_only(pipe, backend):
    running = pipe(backend, **TOGETHER)
    kept = []
    for start in range(5):
        requests = [{"data": torch.full((1, WIDTH), float(start + i))} for i in range(8)]
        running(requests)
        kept.append(requests[3]["result"])
    for start, result in enumerate(kept):
        for tensor in result.values() if isinstance(result, dict) else [result]:
            assert memory_of(tensor) == tensor.nbytes
        y = result["y"] if isinstance(result, dict) else result
        assert y.tolist() == [[2.0 * (start + 3)] * WIDTH]


def test_a_result_that_is_a_part_of_what_the_model_computed_keeps_that_part_only(pipe):
    result = pipe("TorchModel", factory="test_own_rows:FirstColumn")({"data": torch.ones(4, WIDTH)})["result"]
    assert memory_of(result) == result.nbytes == 16


def test_a_kept_request_does_not_keep_the_batch(pipe, monkeypatch):
    import helpers

    seen = []
    forward = helpers.Double.forward

    def spied(self, x):
        seen.append(weakref.ref(result := forward(self, x)))
        return result

    monkeypatch.setattr(helpers.Double, "forward", spied)
    requests = [{"data": torch.full((1, WIDTH), float(i))} for i in range(8)]
    pipe("TorchModel", factory="helpers:Double", **TOGETHER)(requests)
    kept = requests[3]
    del requests
    gc.collect()
    assert kept["result"].tolist() == [[6.0] * WIDTH]
    assert [whole() for whole in seen] == [None] * len(seen)
