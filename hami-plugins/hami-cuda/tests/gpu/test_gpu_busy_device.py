"""DecodeTensor while the device has other work: memory that is still in use is not overwritten."""

from __future__ import annotations

from collections.abc import Iterator

import hami
import pytest
from test_gpu_backends import jpeg, needs_nvjpeg, run

np = pytest.importorskip("numpy", reason="numpy is not installed")
torch = pytest.importorskip("torch", reason="torch, which keeps the device busy, is not installed")


@pytest.fixture
def busy_device() -> Iterator[None]:
    """Keep all processors of the device busy for about a second, so that work on other streams is late."""
    matrix = torch.ones((8192, 8192), dtype=torch.float16, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(500):
            torch.matmul(matrix, matrix)
    yield
    stream.synchronize()


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("kind", [{"progressive": True}, {"progressive": True, "mode": "L"}, {}])
def test_single_files_are_right_on_a_busy_device(busy_device, kind, turn):
    needs_nvjpeg()
    large, _ = jpeg(2000, 1500)
    sizes = [(8 + number % 57, 64 - number % 50) for number in range(60)]
    given = [jpeg(*size, **kind) for size in sizes]
    requests = run("S[DecodeTensor,SyncTensor]", *[large] * 4, *(file for file, _ in given))
    for number, ((_, expected), request) in enumerate(zip(given, requests[4:], strict=True)):
        result = torch.from_dlpack(request["result"]).cpu().numpy()[0]
        assert np.abs(result.astype(int) - expected).max() <= 8, (number, sizes[number])


def test_results_without_a_wait_are_right_on_a_busy_device(busy_device):
    """The batches follow each other without a wait of the CPU, and use the same decoder."""
    needs_nvjpeg()
    given = [jpeg(20 + number, 30, progressive=number % 2 == 0) for number in range(40)]
    with hami.pipe({"backend": "DecodeTensor", "instance_num": 1}) as pipe:
        results = [pipe({"data": file})["result"] for file, _ in given]
        for (_, expected), result in zip(given, results, strict=True):
            pixels = torch.from_dlpack(result).cpu().numpy()[0]
            assert np.abs(pixels.astype(int) - expected).max() <= 8
