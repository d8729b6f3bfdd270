"""Images on the GPU: nvJPEG, and the same results as on the CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hami
import numpy as np
import pytest
import torch
from PIL import Image

from hami_torch import _nvjpeg, _nvjpeg_library
from hami_torch._nvjpeg import Decoder

EXPRESSION = "Sequential[DecodeTensor,ResizeTensor,CvtColorTensor,SyncTensor]"

needs_nvjpeg = pytest.mark.skipif(_nvjpeg_library.find_library() is None, reason="nvJPEG is not installed")


@pytest.fixture
def big() -> np.ndarray:
    """A smooth image of 500 x 375."""
    rows, columns = np.mgrid[0:375, 0:500]
    return np.dstack([rows // 2, columns // 2, (rows + columns) // 4]).astype(np.uint8)


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_the_pipeline_gives_the_same_result_as_on_the_cpu(pipe, encode, big, format, color):
    config = {"width": 224, "height": 160, "color": color}
    file = encode(format, pixels=big)
    on_gpu = pipe(EXPRESSION, **config)({"data": file})["result"]
    on_cpu = pipe(EXPRESSION, **config, device="cpu")({"data": file})["result"]
    assert on_gpu.device == torch.device("cuda:0")
    assert on_gpu.shape == on_cpu.shape == (1, 1 if color == "gray" else 3, 160, 224)
    assert (on_gpu.cpu().int() - on_cpu.int()).abs().max() <= 4  # two decoders round differently


@pytest.fixture
def decoded(monkeypatch):
    """A list with the number of images that nvJPEG decoded in each call."""
    calls = []
    decode = Decoder.decode

    def counting(self, files, color):
        groups = decode(self, files, color)
        calls.append(sum(len(group.indexes) for group in groups))
        return groups

    monkeypatch.setattr(Decoder, "decode", counting)
    return calls


@needs_nvjpeg
def test_jpeg_files_are_decoded_by_nvjpeg(pipe, encode, big, decoded):
    files = [*(encode("JPEG", pixels=big[: 300 + i]) for i in range(4)), encode("PNG", pixels=big)]
    requests = [{"data": file} for file in files]
    pipe("S[DecodeTensor,SyncTensor]", max=8, batching="greedy")(requests)
    assert decoded == [4]
    assert [request["result"].shape[-2] for request in requests] == [300, 301, 302, 303, 375]


@needs_nvjpeg
@pytest.mark.parametrize("hardware", [True, False])
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_every_kind_of_jpeg_gives_the_same_result_as_on_the_cpu(
    pipe, encode, big, decoded, monkeypatch, hardware, color
):
    """Each kind is twice in the batch, so that single files alternate with files that are decoded together."""
    if not hardware:  # as on a GPU without hardware decoders
        monkeypatch.setattr(_nvjpeg_library, "BACKEND_HARDWARE", _nvjpeg_library.BACKEND_HYBRID)
        monkeypatch.setattr(_nvjpeg, "_pools", {})
    kinds = [
        encode("JPEG", pixels=big),
        *(encode("JPEG", pixels=big, subsampling=subsampling) for subsampling in (0, 1, 2)),
        encode("JPEG", pixels=big, progressive=True),
        encode("JPEG", pixels=big, restart_marker_blocks=4),
        encode("JPEG", pixels=big, optimize=True),
        encode("JPEG", pixels=big[:, :, 0].copy()),
        encode("JPEG", pixels=big, progressive=True, quality=90),
        encode("JPEG", pixels=big[:33, :17]),
    ]
    requests = [{"data": file} for file in kinds * 2]
    decode = pipe("S[DecodeTensor,SyncTensor]", max=32, batching="greedy", color=color)
    on_cpu = pipe("DecodeTensor", device="cpu", color=color)
    for _ in range(3):
        decode(requests)
        for request, file in zip(requests, kinds * 2, strict=True):
            expected = on_cpu({"data": file})["result"]
            assert request["result"].shape == expected.shape
            # Pillow interpolates subsampled chroma, nvJPEG does not.
            assert (request["result"].cpu().int() - expected.int()).abs().float().mean() < 2
            request["data"] = file
    assert decoded == [len(requests)] * 3


@pytest.mark.parametrize("end", ["SyncTensor", "StreamGuard", "hami-torch::ContiguousTensor"])
def test_images_are_not_decoded_into_memory_that_is_still_in_use(pipe, encode, end):
    """Many images of one color each at once; a mixed result means that memory was overwritten."""
    decode = pipe(f"S[DecodeTensor,ResizeTensor,{end}]", width=8, height=8, max=8, instance_num=2)
    files = [encode("JPEG", pixels=np.full((400, 400, 3), value, np.uint8)) for value in range(0, 256, 16)]

    def wrong(number: int) -> bool:
        result = decode({"data": files[number % 16]})["result"]
        return (result.float() - number % 16 * 16).abs().max().item() > 2

    with ThreadPoolExecutor(12) as threads:
        assert not any(threads.map(wrong, range(800)))


@needs_nvjpeg
def test_decoders_are_correct_with_many_callers_sizes_and_kinds(pipe, encode, decoded):
    """Files of one color each and many sizes, every fifth progressive; more instances than decoders."""
    decode = pipe("S[DecodeTensor,SyncTensor]", max=8, batching="greedy", batching_timeout=1.0, instance_num=6)
    random = np.random.default_rng(0)
    files = []
    for number in range(60):
        value, height, width = (int(n) for n in random.integers((0, 8, 8), (256, 700, 700)))
        pixels = np.full((height, width, 3), value, np.uint8)
        files.append((encode("JPEG", pixels=pixels, progressive=number % 5 == 0), value, (1, 3, height, width)))

    def wrong(number: int) -> bool:
        file, value, shape = files[number % len(files)]
        result = decode({"data": file})["result"]
        return result.shape != shape or (result.float() - value).abs().max().item() > 2

    with ThreadPoolExecutor(48) as threads:
        assert not any(threads.map(wrong, range(3000)))
    assert sum(decoded) == 3000


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_rotated_as_its_exif_orientation_says(pipe, encode, big, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encode("JPEG", pixels=big, exif=exif)
    on_gpu = pipe("S[DecodeTensor,SyncTensor]")({"data": file})["result"]
    on_cpu = pipe("DecodeTensor", device="cpu")({"data": file})["result"]
    assert on_gpu.shape == on_cpu.shape
    assert (on_gpu.cpu().int() - on_cpu.int()).abs().max() <= 4


@pytest.mark.parametrize("order", ["big", "little"])
def test_exif_is_found_in_both_byte_orders_and_after_other_segments(pipe, encode, big, order):
    entry = [
        n.to_bytes(size, order)
        for n, size in ((42, 2), (8, 4), (1, 2), (0x0112, 2), (3, 2), (1, 4), (6, 2), (0, 2), (0, 4))
    ]
    exif = b"Exif\0\0" + (b"MM" if order == "big" else b"II") + b"".join(entry)
    file = encode("JPEG", pixels=big)
    icc = b"ICC_PROFILE\0\1\1" + bytes(500)
    segments = [
        b"\xff" + marker + (len(body) + 2).to_bytes(2, "big") + body
        for marker, body in ((b"\xe2", icc), (b"\xe1", exif))
    ]
    at = 4 + int.from_bytes(file[4:6], "big")  # after the JFIF segment
    file = file[:at] + b"".join(segments) + file[at:]
    on_gpu = pipe("S[DecodeTensor,SyncTensor]")({"data": file})["result"]
    on_cpu = pipe("DecodeTensor", device="cpu")({"data": file})["result"]
    assert on_gpu.shape == on_cpu.shape == (1, 3, 500, 375)
    assert (on_gpu.cpu().int() - on_cpu.int()).abs().max() <= 4


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs; this machine has one")
def test_two_gpus_decode_at_the_same_time(pipe, encode, decoded):
    config = {"width": 8, "height": 8, "color": "rgb", "max": 8, "instance_num": 2}
    decode = [pipe(EXPRESSION, device=f"cuda:{index}", **config) for index in (0, 1)]
    files = [encode("JPEG", pixels=np.full((400, 400, 3), value, np.uint8)) for value in range(0, 256, 16)]

    def wrong(number: int) -> bool:
        result = decode[number % 2]({"data": files[number % 16]})["result"]
        value = number % 16 * 16
        return result.device.index != number % 2 or (result.float() - value).abs().max().item() > 2

    with ThreadPoolExecutor(24) as threads:
        assert not any(threads.map(wrong, range(800)))
    assert sum(decoded) == 800


def test_broken_files_fail_alone(pipe, encode, big):
    good = encode("JPEG", pixels=big)
    requests = [{"data": data} for data in (good, good[: len(good) // 2][:-7] + b"\0" * 5, b"\xff\xd8\xff", good, b"x")]
    with pytest.raises(hami.BatchError) as raised:
        pipe("S[DecodeTensor,SyncTensor]", max=8, batching="greedy")(requests)
    wrong = {index for index, _ in raised.value.errors}
    assert {2, 4} <= wrong <= {1, 2, 4}  # nvJPEG fills the missing part of a truncated file
    assert torch.equal(requests[0]["result"], requests[3]["result"])


def test_cmyk_files_are_decoded(pipe, big):
    import io

    file = io.BytesIO()
    Image.fromarray(big).convert("CMYK").save(file, "JPEG")
    assert pipe("S[DecodeTensor,SyncTensor]")({"data": file.getvalue()})["result"].shape == (1, 3, 375, 500)


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic", "area"])
def test_resizing_gives_the_same_result_as_on_the_cpu(pipe, interpolation):
    data = torch.rand(2, 3, 50, 40)
    config = {"width": 23, "height": 31, "interpolation": interpolation}
    on_gpu = pipe("S[GpuTensor,ResizeTensor,SyncTensor]", **config)({"data": data, "request_size": 2})["result"]
    torch.testing.assert_close(
        on_gpu.cpu(), pipe("ResizeTensor", **config, device="cpu")({"data": data, "request_size": 2})["result"]
    )


def test_normalization_gives_the_same_result_as_on_the_cpu(pipe):
    data = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    config = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], "scale": 1 / 255, "dtype": "float16"}
    on_gpu = pipe("S[GpuTensor,hami-torch::NormalizeTensor,SyncTensor]", **config)({"data": data})["result"]
    on_cpu = pipe("hami-torch::NormalizeTensor", **config, device="cpu")({"data": data})["result"]
    torch.testing.assert_close(on_gpu.cpu(), on_cpu)
