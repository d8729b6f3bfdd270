"""CatTensor, SplitTensor and ContiguousTensor: the core chooses these backends for tensors on a device."""

from __future__ import annotations

from typing import Any

import hami
import pytest
from native import GATHERED

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("fake")


def run(backend: str, *requests: dict[str, Any]) -> list[Any]:
    """Run requests as one batch and return their results as arrays."""
    config = {"backend": f"S[GpuTensor,{backend},hami-cuda::CpuTensor]", "max": len(requests), "batching": "greedy"}
    with hami.pipe(config) as pipe:
        pipe(list(requests) if len(requests) > 1 else requests[0])
    return [request["result"] for request in requests]


def arrays(*rows: int) -> list[Any]:
    random = np.random.default_rng(7)
    return [random.integers(0, 256, (count, 3, 5), np.uint8) for count in rows]


def test_a_batch_is_concatenated_with_one_launch_and_split_without_a_copy(fake):
    parts = arrays(2, 1, 4)
    before = fake.fake_launches()
    results = run("CatTensor", *({"data": part} for part in parts))
    assert fake.fake_launches() == before + 1 + GATHERED
    for result in results:
        assert (hami.to_numpy(result) == np.concatenate(parts)).all()
    before = fake.fake_launches()
    results = run("CatTensor,SplitTensor", *({"data": part} for part in parts))
    assert fake.fake_launches() == before + 1 + GATHERED
    for part, result in zip(parts, results, strict=True):
        assert (hami.to_numpy(result) == part).all()


def test_tensors_are_stacked(fake):
    parts = [part[0] for part in arrays(1, 1, 1)]
    for result in run("CatTensor(stack=true)", *({"data": part} for part in parts)):
        assert (hami.to_numpy(result) == np.stack(parts)).all()
    results = run("CatTensor(stack=true),SplitTensor(stack=true)", *({"data": part} for part in parts))
    for part, result in zip(parts, results, strict=True):
        assert (hami.to_numpy(result) == part).all()


def test_lists_and_dicts_are_concatenated_by_name():
    one, other = arrays(2, 3)
    requests = [{"data": {"a": one, "b": one.astype(float)}}, {"data": {"a": other, "b": other.astype(float)}}]
    for result in run("CatTensor", *requests):
        assert (hami.to_numpy(result["a"]) == np.concatenate([one, other])).all()
        assert (hami.to_numpy(result["b"]) == np.concatenate([one, other])).all()
    first, second = run("CatTensor,SplitTensor", {"data": [one, one]}, {"data": [other, other]})
    assert (hami.to_numpy(first[1]) == one).all()
    assert (hami.to_numpy(second[0]) == other).all()


def test_a_request_that_does_not_fit_fails_alone():
    (good,) = arrays(2)
    requests = [{"data": good}, {"data": good, "request_size": 3}, {"data": good[:, :2]}, {"data": good}]
    with pytest.raises(hami.BatchError) as raised:
        run("CatTensor", *requests)
    errors = {index: str(error).split("\n")[0] for index, error in raised.value.errors}
    assert errors == {1: "CatTensor: uint8 [2, 3, 5] must have request_size rows along axis 0, which is 3"}
    with pytest.raises(hami.RequestError, match=r"SplitTensor cannot split uint8 \[2, 3, 5\]: the requests of this"):
        run("SplitTensor", {"data": good})


def test_views_become_contiguous(fake):
    with hami.pipe("GpuTensor") as move, hami.pipe("S[ContiguousTensor,hami-cuda::CpuTensor]") as pipe:
        array = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
        tensor = move({"data": array})["result"]
        for index in ((slice(None), 1), (Ellipsis, slice(1, 4, 2)), (slice(None),)):
            assert (hami.to_numpy(pipe({"data": tensor[index]})["result"]) == array[index]).all()


def test_rows_keep_the_memory_of_the_whole(fake):
    before = fake.fake_allocations()
    with hami.pipe({"backend": "S[GpuTensor,CatTensor,SplitTensor]", "max": 2, "batching": "greedy"}) as pipe:
        requests = [{"data": part} for part in arrays(2, 3)]
        pipe(requests)
        rows = [request.pop("result") for request in requests]
        del requests
        assert rows[1].shape == (3, 3, 5)
        del rows[0]
        assert fake.fake_allocations() == before + 1
        assert "dltensor" in repr(rows[0].__dlpack__(stream=1))
        del rows
        assert fake.fake_allocations() == before
