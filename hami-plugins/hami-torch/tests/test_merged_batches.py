"""The results of a batch are rows of one tensor, which the next backend takes whole without changing results."""

from __future__ import annotations

import hami
import helpers
import pytest
import torch

from hami_torch._rows import Rows

TOGETHER = {"max": 4, "batching": "greedy"}


@hami.register
class Between(hami.Backend):
    """Applies the change that a test sets to each result of a chain."""

    change = staticmethod(lambda index, tensor: tensor)

    def forward(self, batch):
        for index, item in enumerate(batch):
            item["result"] = self.change(index, item["data"])


@pytest.fixture
def calls(monkeypatch):
    """For each call of the model: the number of rows, and whether its input is an earlier output, not a copy."""
    seen = []
    forward = helpers.Double.forward

    def spied(self, x):
        result = forward(self, x)
        seen.append((len(x), any(x.data_ptr() == before for *_, before in seen), result.data_ptr()))
        kept.append((x, result))  # so that memory is not reused
        return result

    kept = []
    monkeypatch.setattr(helpers.Double, "forward", spied)
    return seen


def test_a_batch_stays_one_tensor_between_the_backends_of_a_chain(pipe, monkeypatch):
    reads = []
    getitem = Rows.__getitem__
    monkeypatch.setattr(
        Rows, "__getitem__", lambda self, index: reads.append(self.tensor.shape) or getitem(self, index)
    )
    chain = pipe("S[TorchModel,TorchModel,SyncTensor,CpuTensor]", factory="helpers:Double", batched=True, **TOGETHER)
    requests = chain([{"data": torch.full((1, 3), float(number))} for number in range(4)])
    assert reads == [torch.Size([4, 3])] * 4
    assert [request["result"].tolist() for request in requests] == [[[4.0 * number] * 3] for number in range(4)]


def ask(pipe, expression, sizes=(1, 2, 1)):
    """Send the rows 0 | 1, 2 | 3 as three requests, and return the result of each."""
    rows = iter(torch.arange(float(sum(sizes)))[:, None].split(list(sizes)))
    requests = [{"data": next(rows).clone(), "request_size": size} for size in sizes]
    pipe(expression, factory="helpers:Double", batched=True, **TOGETHER)(requests)
    return [request["result"].flatten().tolist() for request in requests]


def test_a_batch_goes_from_model_to_model_without_a_copy(pipe, calls):
    """The first run of a model gets a copy, so the model runs once before."""
    model = pipe("TorchModel", factory="helpers:Double", batched=True, **TOGETHER)
    model({"data": torch.zeros(1, 1)})
    calls.clear()
    assert ask(pipe, "S[TorchModel,TorchModel]") == [[0], [4, 8], [12]]
    assert [call[:2] for call in calls] == [(4, False), (4, True)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda index, tensor: tensor.add_(index), [[0], [6, 10], [16]]),
        (lambda index, tensor: tensor if index != 1 else tensor.flip(0), [[0], [8, 4], [12]]),
        (lambda index, tensor: tensor.double() if index == 1 else tensor, [[0], [4, 8], [12]]),
        (lambda index, tensor: tensor.numpy() if index == 1 else tensor, [[0], [4, 8], [12]]),
        (lambda index, tensor: tensor.unsqueeze_(2) if index == 1 else tensor, [[0], [4, 8], [12]]),
        (lambda index, tensor: tensor.as_strided_((1, 1), (1, 1), 0) if index == 2 else tensor, [[0], [4, 8], [12]]),
    ],
)
def test_changes_that_a_backend_between_makes_to_a_row_are_kept(pipe, monkeypatch, change, expected):
    monkeypatch.setattr(Between, "change", staticmethod(change))
    assert ask(pipe, "S[TorchModel,Between,TorchModel]") == expected


def test_only_the_row_that_fails_the_batch_fails(pipe):
    requests = [{"data": torch.tensor([[row]])} for row in (0, 3, 2)]
    steps = 'S[GpuTensor,TorchModel(factory="helpers:Clone"),TorchModel(factory="helpers:TableLookup")]'
    with pytest.raises(hami.BatchError) as raised:
        pipe(steps, batched=True, **TOGETHER)(requests)
    ((index, error),) = raised.value.errors
    assert index == 1
    assert str(error).splitlines()[0].startswith("TorchModel: the model failed on int64 [1, 1]: ")
    assert [requests[at]["result"].flatten().tolist() for at in (0, 2)] == [[0, 1], [4, 5]]


def test_a_request_with_the_wrong_number_of_rows_fails_alone(pipe, monkeypatch):
    monkeypatch.setattr(Between, "change", staticmethod(lambda index, tensor: tensor[:1] if index == 1 else tensor))
    with pytest.raises(hami.BatchError) as raised:
        ask(pipe, "S[TorchModel,Between,TorchModel]")
    assert [index for index, _ in raised.value.errors] == [1]
