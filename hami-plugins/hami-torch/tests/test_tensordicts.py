"""TensorDictRequest: every way of calling writes what the pipe sets into the TensorDict."""

from __future__ import annotations

import asyncio

import hami
import pytest
import torch
from tensordict import TensorDict

from hami_torch.tensordicts import TensorDictRequest

TIMEOUT = 30


@hami.register
class TensorDictDouble(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"] * 2


@hami.register
class TensorDictText(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item.update({"result": "text", "size": 2})


@hami.register
class TensorDictWrongSize(hami.Backend):
    def forward(self, batch):
        for item in batch:
            item["result"] = torch.zeros(2)


@hami.register
class TensorDictRaises(hami.Backend):
    def forward(self, batch):
        raise ZeroDivisionError


def sample(number: float, **more) -> TensorDict:
    return TensorDict({"data": torch.full((2,), number), **more}, batch_size=[])


def test_every_way_of_calling_writes_the_result_into_the_tensordict():
    with hami.pipe("TensorDictDouble") as pipe:

        async def acall(request):
            return await pipe.acall(request)

        for call in (
            pipe,
            lambda request: pipe([request, {"data": 3}])[0],
            lambda request: pipe.submit(request).result(TIMEOUT),
            lambda request: next(pipe.map([request])),
            lambda request: asyncio.run(acall(request)),
        ):
            source = sample(2)
            request = TensorDictRequest(source)
            assert call(request) is request
            assert request["result"].tolist() == source["result"].tolist() == [4, 4]


def test_a_value_that_is_not_a_tensor_is_kept_as_it_is():
    with hami.pipe("TensorDictText") as pipe:
        source = sample(1)
        pipe(TensorDictRequest(source))
    assert source["result"] == "text"
    assert int(source["size"]) == 2


def test_a_tensor_of_the_core_becomes_a_torch_tensor():
    with hami.pipe("SoftmaxTensor") as pipe:
        source = TensorDict({"data": torch.zeros(1, 2)}, batch_size=[])
        pipe(TensorDictRequest(source))
    assert source["result"].tolist() == [[0.5, 0.5]]


def test_a_stale_result_is_removed_also_if_the_request_fails():
    source = sample(1, result=torch.zeros(2), extra="words")
    with hami.pipe("TensorDictRaises") as pipe, pytest.raises(ZeroDivisionError):
        pipe(TensorDictRequest(source))
    assert "result" not in source.keys()  # noqa: SIM118 (a TensorDict iterates over its samples)


def test_a_result_of_another_batch_size_is_an_error():
    source = TensorDict({"data": torch.zeros(3, 1)}, batch_size=[3])
    wrong = r'\A"result" cannot be set in a TensorDict of batch_size \[3\]: '
    with hami.pipe("TensorDictWrongSize") as pipe, pytest.raises(hami.DataTypeError, match=wrong):
        pipe(TensorDictRequest(source))
