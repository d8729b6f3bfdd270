"""The results of a batch are rows of one tensor, which the next backend takes whole without changing results."""

from __future__ import annotations

import hami
import helpers
import pytest
import torch

from hami_torch._rows import Rows

CHAIN = "S[DecodeTensor,ResizeTensor(rounded=false),CvtColorTensor(color=bgr),hami-torch::NormalizeTensor,TorchModel]"
PARAMS = {"width": 9, "height": 7, "mean": [1, 2, 3], "std": [2], "factory": "helpers:Double", "batched": True}
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


def test_a_chain_gives_the_same_results_in_a_batch_as_alone(pipe, encode, image):
    files = [encode("PNG", pixels=image[:, shift:]) for shift in (0, 0, 3, 0)]
    requests = pipe(CHAIN, **PARAMS, **TOGETHER)([{"data": file} for file in files])
    alone = pipe(CHAIN, **PARAMS, max=1)
    for file, request in zip(files, requests, strict=True):
        torch.testing.assert_close(request["result"], alone({"data": file})["result"])
        assert request["color"] == "bgr"


def test_a_batch_stays_one_tensor_between_the_backends_of_a_chain(pipe, encode, image, monkeypatch):
    reads = []
    getitem = Rows.__getitem__
    monkeypatch.setattr(
        Rows, "__getitem__", lambda self, index: reads.append(self.tensor.shape) or getitem(self, index)
    )
    pipe(f"S[{CHAIN},SyncTensor,CpuTensor]", **PARAMS, **TOGETHER)([{"data": encode("PNG")} for _ in range(4)])
    assert reads == [torch.Size([4, 3, 7, 9])] * 4


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
    steps = (
        'S[hami-torch::ContiguousTensor,TorchModel(factory="helpers:Clone"),TorchModel(factory="helpers:TableLookup")]'
    )
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


def test_a_request_without_rows_fails_alone(pipe, monkeypatch, chw):
    monkeypatch.setattr(Between, "change", staticmethod(lambda index, tensor: tensor[:0] if index == 2 else tensor))
    requests = [{"data": chw[None]} for _ in range(3)]
    with pytest.raises(hami.BatchError) as raised:
        pipe("S[ResizeTensor,Between,ResizeTensor]", width=9, height=7, **TOGETHER)(requests)
    ((index, error),) = raised.value.errors
    assert index == 2
    assert "the image is empty" in str(error)


def test_an_image_that_the_next_backend_rejects_fails_alone(pipe, chw):
    requests = [{"data": chw}, {"data": chw, "color": "cmyk"}, {"data": chw}]
    with pytest.raises(hami.BatchError) as raised:
        pipe("S[ResizeTensor,CvtColorTensor(color=gray)]", width=9, height=7, **TOGETHER)(requests)
    assert [index for index, _ in raised.value.errors] == [1]
    assert requests[0]["result"].shape == requests[2]["result"].shape == (1, 7, 9)
