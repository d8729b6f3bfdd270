"""Nothing is used again before its work is done: on the fake driver, work runs as late as CUDA allows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hami
import pytest
from test_decode_tensor import UPRIGHT, jpeg, nvjpeg, pixels
from test_failures import run

np = pytest.importorskip("numpy", reason="numpy is not installed")
__all__ = ["nvjpeg"]  # a fixture


@pytest.fixture(autouse=True)
def late(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("FAKE_CUDA_LATE", "1")
    yield fake
    fake.cuCtxSynchronize()


def decoder(library: Any, tail: str = "hami-cuda::CpuTensor", **parameters: Any) -> str:
    given = ",".join(f"{key}={value}" for key, value in {"library": f"'{library._name}'", **parameters}.items())
    return f"S[DecodeTensor({given}),{tail}]"


def together(backend: str, *data: Any) -> list[Any]:
    """Run requests as one batch, and return their results as arrays."""
    requests = [{"data": each} for each in data]
    with hami.pipe({"backend": backend, "max": len(data), "batching": "greedy"}) as pipe:
        pipe(requests)
    return [hami.to_numpy(request["result"]) for request in requests]


def test_single_files_of_a_batch_do_not_share_a_state_in_use(nvjpeg):
    sizes = [(width, 3 + width % 5) for width in range(1, 12)]
    for size, result in zip(sizes, together(decoder(nvjpeg), *(jpeg(*size, kind="s") for size in sizes)), strict=True):
        np.testing.assert_array_equal(result, pixels(*size)[None], strict=True)


def test_files_of_all_kinds_are_right_beside_each_other(nvjpeg):
    sizes = [(2 + number % 7, 3 + number % 4) for number in range(24)]
    files = [jpeg(*size, orientation=1 + number % 8, kind="sbb"[number % 3]) for number, size in enumerate(sizes)]
    for number, result in enumerate(together(decoder(nvjpeg), *files)):
        np.testing.assert_array_equal(result[0], UPRIGHT[1 + number % 8](pixels(*sizes[number])), strict=True)


@pytest.mark.parametrize("broken", [0, 3, 6])
def test_a_broken_file_does_not_change_its_neighbors(nvjpeg, broken):
    sizes = [(2 + number, 3) for number in range(7)]
    requests = [
        {"data": jpeg(*size, kind="x" if number == broken else "sb"[number % 2 or number == broken])}
        for number, size in enumerate(sizes)
    ]
    with (
        hami.pipe({"backend": decoder(nvjpeg), "max": 7, "batching": "greedy"}) as pipe,
        pytest.raises(hami.BatchError) as raised,
    ):
        pipe(requests)
    assert [index for index, _ in raised.value.errors] == [broken]
    for number, request in enumerate(requests):
        if number != broken:
            np.testing.assert_array_equal(hami.to_numpy(request["result"]), pixels(*sizes[number])[None], strict=True)


@pytest.mark.parametrize("kind", ["s", "b"])
def test_a_decoder_does_not_overwrite_the_batch_before(nvjpeg, kind):
    """The results are read after all batches were submitted; between them, nothing waits for the device."""
    with hami.pipe(decoder(nvjpeg, "Identity")) as pipe, hami.pipe("hami-cuda::CpuTensor") as back:
        results = [pipe({"data": jpeg(width, 3, kind=kind)})["result"] for width in range(1, 20)]
        for width, result in enumerate(results, 1):
            array = hami.to_numpy(back({"data": result})["result"])
            np.testing.assert_array_equal(array, pixels(width, 3)[None], strict=True)


def test_callers_in_threads_get_the_pixels_of_their_files(nvjpeg):
    config = {"backend": decoder(nvjpeg), "max": 8, "instance_num": 3}
    with hami.pipe(config) as pipe, ThreadPoolExecutor(16) as threads:

        def is_right(number: int) -> bool:
            size = 1 + number % 9, 2 + number % 5
            request = {"data": jpeg(*size, kind="sbs"[number % 3])}
            pipe(request)
            return bool((hami.to_numpy(request["result"]) == pixels(*size)[None]).all())

        assert all(threads.map(is_right, range(600)))


CHAINS = [
    "S[GpuTensor,hami-cuda::CpuTensor]",
    "S[GpuTensor,hami-cuda::NormalizeTensor(scale=1),hami-cuda::CpuTensor]",
    "S[GpuTensor,ResizeTensor(width=6,height=4),hami-cuda::CpuTensor]",
    "S[GpuTensor,CropTensor(box='1,1,5,3'),ContiguousTensor,hami-cuda::CpuTensor]",
    "S[GpuTensor,CropTensor(box='1,1,5,3'),hami-cuda::CpuTensor]",
    "With[StreamPool(2),S[GpuTensor,hami-cuda::NormalizeTensor(scale=1),hami-cuda::CpuTensor]]",
    "S[StreamGuard[GpuTensor],SyncTensor[hami-cuda::NormalizeTensor(scale=1)],hami-cuda::CpuTensor]",
]


@pytest.mark.parametrize("backend", CHAINS)
@pytest.mark.parametrize("is_view", [False, True])
def test_what_a_chain_reads_and_writes_is_not_used_again_early(backend, is_view):
    """Inputs that are not contiguous go through pinned memory, which the batches share."""
    with hami.pipe({"backend": backend, "max": 4, "instance_num": 2}) as pipe, ThreadPoolExecutor(8) as threads:

        def is_right(number: int) -> bool:
            image = np.full((1, 4, 6, 3) if is_view else (1, 3, 4, 6), number, np.uint8)
            request = {"data": image.transpose(0, 3, 1, 2) if is_view else image}
            pipe(request)
            return bool((hami.to_numpy(request["result"]) == number).all())

        assert all(threads.map(is_right, range(200)))


def test_results_on_the_device_outlive_the_batches_after_them():
    with (
        hami.pipe("S[GpuTensor,hami-cuda::NormalizeTensor(scale=1)]") as pipe,
        hami.pipe("hami-cuda::CpuTensor") as back,
    ):
        results = [pipe({"data": np.full((1, 3, 4, 6), number, np.uint8)})["result"] for number in range(30)]
        for number, result in enumerate(results):
            assert (hami.to_numpy(back({"data": result})["result"]) == number).all()


def test_a_failed_copy_does_not_return_the_pinned_memory_that_it_writes(late):
    """CpuTensor finds no memory for a view, after it has submitted the copy of another tensor."""
    text = run(
        late,
        """
with (
    hami.pipe("GpuTensor") as there,
    hami.pipe("hami-cuda::CropTensor(box='0,0,60,60')") as crop,
    hami.pipe("hami-cuda::CpuTensor") as back,
    hami.pipe("hami-cuda::CpuTensor") as other,
):
    whole = there({"data": np.full((1, 3, 64, 64), 7, np.uint8)})["result"]
    view = crop({"data": there({"data": np.full((1, 3, 64, 64), 8, np.uint8)})["result"]})["result"]
    nine = there({"data": np.full((1, 3, 80, 80), 9, np.uint8)})["result"]
    fake.cuCtxSynchronize()
    try:
        back({"data": [whole, view]})
    except MemoryError as error:
        print("of 45000 bytes" in str(error))
    result = other({"data": nine})["result"]  # has a block of the same size
    fake.cuCtxSynchronize()
    print((hami.to_numpy(result) == 9).all())
""",
        HAMI_CUDA_MEMORY_LIMIT="45000",
    )
    assert text.split() == ["True", "True"]
