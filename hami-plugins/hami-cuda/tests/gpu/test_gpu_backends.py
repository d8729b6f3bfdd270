"""The backends on a GPU: the same results as torch on the CPU, DLPack with torch in both directions, memory, errors."""

from __future__ import annotations

import gc
import io
import os
import threading
from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
torch = pytest.importorskip("torch", reason="torch, the reference of these tests, is not installed")

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMALIZE = "hami-cuda::NormalizeTensor(mean='0.485,0.456,0.406',std='0.229,0.224,0.225',scale=0.00392156862745098)"


def run(backend: str, *data: Any, **keys: Any) -> list[dict[str, Any]]:
    """Run requests as one batch and return them."""
    requests = [{"data": each, **keys} for each in data]
    with hami.pipe({"backend": backend, "max": len(data), "batching": "greedy"}) as pipe:
        pipe(requests if len(requests) > 1 else requests[0])
    return requests


def on_cpu(backend: str, *data: Any, **keys: Any) -> list[Any]:
    return [
        hami.to_numpy(request["result"])
        for request in run(f"S[GpuTensor,{backend},hami-cuda::CpuTensor]", *data, **keys)
    ]


def pictures(*sizes: tuple[int, int]) -> list[Any]:
    random = np.random.default_rng(11)
    return [random.integers(0, 256, (1, 3, *size), np.uint8) for size in sizes]


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4), (1000, 1000)])
def test_tensors_come_back_from_the_device_as_they_were(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    (result,) = on_cpu("Identity", array)
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    assert (result == array).all()


def test_tensors_that_are_not_contiguous_come_back_in_row_major_order():
    array = np.arange(24000).reshape(20, 30, 40)
    for view in (array.transpose(2, 0, 1), array[:, ::2], array[..., 1]):
        assert (on_cpu("Identity", view)[0] == view).all()
    device = torch.arange(24000, device="cuda").reshape(20, 30, 40)
    for view in (device.permute(2, 0, 1), device[:, ::2], device[..., 1], device.expand(2, 20, 30, 40)):
        assert (hami.to_numpy(run("hami-cuda::CpuTensor", view)[0]["result"]) == view.cpu().numpy()).all()


@pytest.mark.parametrize(("width", "height"), [(224, 224), (64, 48), (1, 1), (1301, 7)])
def test_a_batch_of_different_sizes_is_resized_as_torch_does(width, height):
    images = pictures((480, 640), (1, 1), (31, 17), (224, 224), (600, 13), (1080, 1920))
    for image, result in zip(images, on_cpu(f"ResizeTensor(width={width},height={height})", *images), strict=True):
        expected = torch.nn.functional.interpolate(torch.from_numpy(image).float(), (height, width), mode="bilinear")
        assert (torch.from_numpy(result).float() - expected.round()).abs().max() <= 1


MODES = [("nearest", "nearest-exact"), ("linear", "bilinear"), ("cubic", "bicubic"), ("area", "area")]


@pytest.mark.parametrize(("interpolation", "mode"), MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_floats_are_resized_as_torch_does(interpolation, mode, dtype):
    image = torch.rand((2, 3, 50, 70)).to(dtype)
    backend = f"S[ResizeTensor(width=33,height=44,interpolation={interpolation}),SyncTensor]"
    result = torch.from_dlpack(run(backend, image.cuda())[0]["result"])
    expected = torch.nn.functional.interpolate(image.float(), (44, 33), mode=mode).to(dtype)
    tolerance = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize(("interpolation", "mode"), MODES[1:3])
def test_antialias_and_align_corners_are_those_of_torch(interpolation, mode, antialias, align_corners):
    image = torch.rand((1, 3, 50, 70))
    parameters = f"antialias={str(antialias).lower()},align_corners={str(align_corners).lower()}"
    for width, height in ((33, 44), (7, 5), (100, 90)):
        backend = f"ResizeTensor(width={width},height={height},interpolation={interpolation},{parameters})"
        result = torch.from_dlpack(run(f"S[{backend},SyncTensor]", image.cuda())[0]["result"])
        expected = torch.nn.functional.interpolate(
            image, (height, width), mode=mode, antialias=antialias, align_corners=align_corners
        )
        torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=1e-5)


def test_colors_and_normalization_are_those_of_torch():
    images = pictures((48, 64), (31, 17))
    for image, result in zip(images, on_cpu("CvtColorTensor(color=bgr)", *images), strict=True):
        assert (result == image[:, ::-1]).all()
    weights = np.array([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)
    for image, result in zip(images, on_cpu("CvtColorTensor(color=gray)", *images), strict=True):
        assert np.abs(result - np.rint((image * weights).sum(1, keepdims=True))).max() <= 1
    for image, result in zip(images, on_cpu(NORMALIZE, *images), strict=True):
        expected = (image / 255 - np.reshape(MEAN, (1, 3, 1, 1))) / np.reshape(STD, (1, 3, 1, 1))
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.fixture
def slow_work():
    """Keep the current stream busy for about 0.1 s, so that a reader that does not wait sees the old data."""
    return lambda: torch.cuda._sleep(200_000_000)


def test_data_of_torch_is_complete_before_it_is_read(slow_work):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        image = torch.zeros((1, 3, 40, 40), dtype=torch.uint8, device="cuda")
        slow_work()
        image.fill_(77)
        (request,) = run("S[ResizeTensor(width=20,height=20),SyncTensor]", image)
    assert torch.from_dlpack(request["result"]).eq(77).all()


def test_results_are_complete_before_torch_reads_them(slow_work):
    image = torch.full((8, 3, 1080, 1920), 9, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    slow_work()  # on the default stream: the instance's stream does not wait for it
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            (request,) = run("ResizeTensor(width=1900,height=1000)", image)
            assert torch.from_dlpack(request["result"]).eq(9).all()


@pytest.mark.parametrize("wait", ["auto", "spin", "sleep"])
def test_sync_tensor_returns_after_the_work_of_another_package(slow_work, wait):
    tensor = torch.zeros(1000, device="cuda")
    slow_work()
    tensor += 1
    end = torch.cuda.Event()
    end.record()
    run(f"SyncTensor(wait={wait})", tensor)
    assert end.query()


def test_images_of_one_size_are_concatenated_without_a_copy():
    requests = run(f"S[GpuTensor,ResizeTensor(width=32,height=16),{NORMALIZE},CatTensor]", *pictures((20, 30), (9, 9)))
    whole = torch.from_dlpack(requests[0]["result"])
    parts = [on_cpu(f"ResizeTensor(width=32,height=16),{NORMALIZE}", image)[0] for image in pictures((20, 30), (9, 9))]
    np.testing.assert_array_equal(whole.cpu().numpy(), np.concatenate(parts))


@pytest.mark.parametrize("fuse", ["true", "false"])
def test_a_fused_chain_is_that_of_torch(fuse):
    images = pictures((20, 30), (480, 640), (64, 5))
    chain = f"ResizeTensor(width=32,height=16,fuse={fuse}),CvtColorTensor(color=bgr,fuse={fuse}),{NORMALIZE}"
    mean, std = (torch.tensor(numbers).reshape(1, 3, 1, 1) for numbers in (MEAN, STD))
    for image, result in zip(images, on_cpu(chain, *images), strict=True):
        pixels = torch.from_numpy(image).float()
        resized = torch.nn.functional.interpolate(pixels, (16, 32), mode="bilinear").round().flip(1)
        expected = (resized / 255 - mean) / std
        # One level of the bytes between the steps.
        np.testing.assert_allclose(result, expected.numpy(), rtol=0, atol=1.01 / 255 / min(STD))


@pytest.mark.parametrize("color", ["bgr", "gray"])
@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic", "area"])
def test_a_fused_chain_gives_the_bits_of_its_single_steps(interpolation, color):
    """The single steps run on the kernel for images of bytes, except those that resize with a window."""
    images = pictures((20, 30), (480, 640), (64, 5), (1, 1), (224, 224))

    def results(fuse: str) -> list[Any]:
        resize = f"ResizeTensor(width=224,height=112,interpolation={interpolation},fuse={fuse})"
        chain = f"{resize},CvtColorTensor(color={color},fuse={fuse}),hami-cuda::NormalizeTensor(mean=117.3,std=57.1)"
        return on_cpu(chain, *images)

    for one, other in zip(results("true"), results("false"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_memory_is_not_reused_while_torch_reads_it(slow_work):
    with hami.pipe("S[GpuTensor,SyncTensor]") as pipe:
        wrong = []
        for value in range(20):
            tensor = torch.from_dlpack(pipe({"data": np.full((1 << 20,), value, np.uint8)})["result"])
            slow_work()
            wrong.append((tensor != value).sum())
            del tensor  # before the default stream has read it
            pipe({"data": np.full((1 << 20,), 99, np.uint8)})
        assert torch.stack(wrong).sum() == 0


def test_inputs_of_torch_are_kept_until_they_are_read():
    results = []
    with hami.pipe("ResizeTensor(width=700,height=700)") as pipe:
        for value in range(50):
            image = torch.full((1, 3, 1400, 1400), value, dtype=torch.uint8, device="cuda")
            results.append(pipe({"data": image})["result"])
            del image
            torch.full((1, 3, 1400, 1400), 255, dtype=torch.uint8, device="cuda")  # takes its memory, if it is free
        for value, result in enumerate(results):
            assert torch.from_dlpack(result).eq(value).all()


def jpeg(width: int, height: int, format: str = "JPEG", **options: Any) -> tuple[bytes, Any]:
    """Return a smooth picture as a file, and as Pillow decodes it."""
    pillow = pytest.importorskip("PIL.Image")
    row, column = np.mgrid[:height, :width]
    picture = np.stack([row * 255 // height, column * 255 // width, (row + column) % 256 // 4], -1).astype(np.uint8)
    file = io.BytesIO()
    pillow.fromarray(picture).convert(options.pop("mode", "RGB")).save(file, format, **options)
    return file.getvalue(), np.asarray(pillow.open(io.BytesIO(file.getvalue())).convert("RGB")).transpose(2, 0, 1)


def needs_nvjpeg():
    params = {param["name"]: param["default"] for param in hami.backends(load=True)["DecodeTensor"].params}
    if not params["library"]:
        pytest.skip("needs nvJPEG")


def test_a_batch_of_jpeg_files_is_decoded():
    needs_nvjpeg()
    pictures = [jpeg(640, 480), jpeg(17, 31, subsampling=0), jpeg(640, 480, subsampling=0)]
    pictures += [jpeg(300, 200, progressive=True), jpeg(64, 64, mode="L"), *(jpeg(500, 375) for _ in range(12))]
    for _ in range(3):
        requests = run("S[DecodeTensor,SyncTensor]", *(file for file, _ in pictures))
        for (_, expected), request in zip(pictures, requests, strict=True):
            result = torch.from_dlpack(request["result"]).cpu().numpy()
            assert result.shape == (1, *expected.shape)
            assert np.abs(result[0].astype(int) - expected).mean() < 2


def test_the_whole_chain_from_threads_gives_what_one_request_gives():
    needs_nvjpeg()
    files = [jpeg(640 + 8 * i, 480 - 8 * i)[0] for i in range(16)]
    config = {"backend": "S[DecodeTensor,ResizeTensor,CvtColorTensor,SyncTensor]", "width": 224, "height": 224}
    config |= {"color": "bgr", "max": 16, "instance_num": 3}
    with hami.pipe({**config, "max": 1, "instance_num": 1}) as single:
        expected = [torch.from_dlpack(single({"data": file})["result"]).cpu() for file in files]
    errors: list[Any] = []

    def call(number: int) -> None:
        for turn in range(30):
            index = (number + turn) % len(files)
            result = torch.from_dlpack(pipe({"data": files[index]})["result"]).cpu()
            if (result.int() - expected[index].int()).abs().max() > 1:
                errors.append((number, turn))

    with hami.pipe(config) as pipe:
        threads = [threading.Thread(target=call, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


def test_bad_files_fail_alone():
    needs_nvjpeg()
    good, expected = jpeg(64, 48)
    files = [good, good[: len(good) // 2], b"\xff\xd8 no jpeg", b"\x89PNG no picture", good]
    requests = [{"data": file} for file in files]
    config = {"backend": "S[DecodeTensor,SyncTensor]", "max": 5, "batching": "greedy"}
    with hami.pipe(config) as pipe, pytest.raises(hami.BatchError) as raised:
        pipe(requests)
    assert {2, 3} <= {index for index, _ in raised.value.errors} <= {1, 2, 3}
    for request in (requests[0], requests[4]):
        result = torch.from_dlpack(request["result"]).cpu().numpy()[0]
        assert np.abs(result.astype(int) - expected).mean() < 2


def test_out_of_memory_fails_the_batch_and_the_pipe_lives():
    (image,) = pictures((64, 64))
    with hami.pipe("S[GpuTensor,ResizeTensor(width=8000,height=8000),SyncTensor]") as pipe:
        with pytest.raises(MemoryError, match="ResizeTensor: cannot allocate"):
            pipe({"data": np.repeat(image, 1000, 0)})  # 192 GB
        assert pipe({"data": image})["result"].shape == (1, 3, 8000, 8000)


def free_memory() -> int:
    gc.collect()
    torch.cuda.synchronize()
    return int(torch.cuda.mem_get_info()[0])


def test_device_memory_is_flat():
    images = pictures((480, 640), (300, 200))
    config = {"backend": "S[GpuTensor,ResizeTensor(width=224,height=224),SyncTensor]", "max": 2, "batching": "greedy"}

    def cycle(batches: int) -> None:
        with hami.pipe(config) as pipe:
            for _ in range(batches):
                pipe([{"data": image} for image in images])

    cycle(50)
    before = free_memory()
    cycle(500)
    for _ in range(50):
        cycle(2)
    assert before - free_memory() <= 16 << 20


def test_a_forked_process_gets_an_error_instead_of_a_crash():
    run("S[GpuTensor,SyncTensor]", np.zeros(3))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = "no error"
        try:
            hami.pipe("GpuTensor")
        except BaseException as error:
            text = str(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as text:
        assert "CUDA does not work in a process that was forked after CUDA was in use" in text.read()
    os.waitpid(child, 0)


def test_a_second_device_has_tensors_of_its_own():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    (image,) = pictures((48, 64))
    backend = "S[GpuTensor(device=cuda:1),ResizeTensor(device=cuda:1,width=9,height=7),SyncTensor(device=cuda:1)]"
    result = run(backend, image)[0]["result"]
    assert result.device == "cuda:1"
    expected = on_cpu("ResizeTensor(width=9,height=7)", image)[0]
    assert (torch.from_dlpack(result).cpu().numpy() == expected).all()


def test_a_device_that_does_not_exist_is_an_error_of_the_build():
    with pytest.raises(hami.ConfigError, match="this process sees cuda:0"):
        hami.pipe("GpuTensor(device=cuda:99)")
