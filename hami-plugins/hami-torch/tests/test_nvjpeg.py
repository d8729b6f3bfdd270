"""DecodeTensor with nvJPEG: on a fake library, and on the real one as far as possible without a GPU."""

from __future__ import annotations

import importlib.util
import io
import sys
import threading
from contextlib import nullcontext
from ctypes import byref, c_void_p

import hami
import numpy as np
import pytest
import torch
from fake_cuda import FakeStream
from fake_nvjpeg import ALLOCATOR_FAILURE, BAD_JPEG, FakeNvjpeg
from fake_nvjpeg import nvjpeg as nvjpeg  # a fixture
from PIL import Image

from hami_torch import _nvjpeg, _nvjpeg_library, plugin
from hami_torch._nvjpeg import DecoderPool, Header

CPU = torch.device("cpu")
BATCH = {"max": 16, "batching": "greedy"}


@pytest.fixture
def files(encode, image):
    """Files by kind; those that nvJPEG decodes together have two sizes."""
    exif = Image.Exif()
    exif[0x0112] = 6
    cmyk = io.BytesIO()
    Image.fromarray(image).convert("CMYK").save(cmyk, "JPEG")
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    return {
        "rgb": encode("JPEG"),
        "other size": encode("JPEG", pixels=image[:20, :10]),
        "rotated": encode("JPEG", exif=exif),
        "gray": encode("JPEG", pixels=image[:, :, 0].copy()),
        "progressive": encode("JPEG", progressive=True),
        "cmyk": cmyk.getvalue(),
        "png": encode("PNG"),
        "again": encode("JPEG"),
        "broken": encode("JPEG", pixels=noise)[:4000],
    }


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
@pytest.mark.parametrize("exif", [True, False])
def test_nvjpeg_gives_the_same_result_as_the_cpu(pipe, files, nvjpeg, monkeypatch, color, exif):
    on_gpu = {name: {"data": file} for name, file in files.items()}
    with pytest.raises(hami.BatchError) as raised:
        pipe("DecodeTensor", **BATCH, color=color, exif=exif)(list(on_gpu.values()))
    ((index, error),) = raised.value.errors
    assert index == list(files).index("broken")
    assert str(error).startswith(f"DecodeTensor: the JPEG image of {len(files['broken'])} bytes cannot be decoded (")
    assert nvjpeg.batches == [5]  # all files that can be decoded together
    assert nvjpeg.alone == 1  # the progressive file; nvJPEG does not get the CMYK file and that which ends early
    monkeypatch.undo()
    for name, file in files.items():
        if name != "broken":
            on_cpu = {"data": file}
            pipe("DecodeTensor", color=color, exif=exif)(on_cpu)
            assert torch.equal(on_gpu[name]["result"], on_cpu["result"]), name
            assert on_gpu[name]["color"] == color


def test_a_broken_file_does_not_change_how_its_neighbors_are_decoded(pipe, encode, image, nvjpeg):
    """nvJPEG decodes each of them as it does alone: in a batch."""
    files = [encode("JPEG", pixels=image[: 10 + number]) for number in range(8)]
    nvjpeg.broken.add(files[5])
    requests = [{"data": file} for file in files]
    pipe("DecodeTensor", **BATCH)(requests)
    assert nvjpeg.batches == [8, 4, 4, 2, 1, 1, 2]
    assert nvjpeg.alone == 1
    for file, request in zip(files, requests, strict=True):
        assert torch.equal(request["result"], pipe("DecodeTensor", **BATCH)({"data": file})["result"])


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_files_of_rgb_are_decoded_on_the_cpu(pipe, encode, nvjpeg, monkeypatch, color):
    """nvJPEG would take them for YCbCr."""
    files = [encode("JPEG", keep_rgb=True, progressive=progressive) for progressive in (False, True)]
    on_gpu = [{"data": file} for file in files]
    pipe("DecodeTensor", **BATCH, color=color)(on_gpu)
    assert (nvjpeg.batches, nvjpeg.alone) == ([], 0)
    monkeypatch.undo()
    for request, file in zip(on_gpu, files, strict=True):
        assert torch.equal(request["result"], pipe("DecodeTensor", color=color)({"data": file})["result"])


def test_the_files_are_kept_until_they_are_decoded(nvjpeg, cuda, files):
    """nvJPEG may read them after its call has returned."""
    with nvjpeg.decoders.borrow() as decoder:
        kept = [bytearray(files[name]) for name in ("rgb", "progressive")]
        encoded = [bytes(each) for each in kept]
        counts = [sys.getrefcount(each) for each in encoded]
        given = {0: (encoded[0], Header(40, 30, 1, True)), 1: (encoded[1], Header(40, 30, 1, False))}
        decoder.decode(given, "rgb")
        del given
        assert [sys.getrefcount(each) for each in encoded] == [count + 1 for count in counts]
        decoder.decode({}, "rgb")
        assert [sys.getrefcount(each) for each in encoded] == counts


def test_a_state_is_not_used_again_before_its_work_is_done(nvjpeg, cuda, files):
    """The work of nvJPEG keeps the stream busy; each further call needs an idle one."""
    cuda.current = stream = FakeStream(9, cuda.log)
    busy_calls = []

    def work(status: int) -> int:
        busy_calls.append(not stream.idle)
        stream.idle = False
        return status

    alone, together = nvjpeg.nvjpegDecode, nvjpeg.nvjpegDecodeBatched
    nvjpeg.nvjpegDecode = lambda *arguments: work(alone(*arguments))
    nvjpeg.nvjpegDecodeBatched = lambda *arguments: work(together(*arguments))
    stream.synchronize = lambda: setattr(stream, "idle", True)
    with nvjpeg.decoders.borrow() as decoder:
        batch = {number: (files["rgb"], Header(40, 30, 1, True)) for number in range(3)}
        batch |= {number: (files["progressive"], Header(40, 30, 1, False)) for number in range(3, 8)}
        nvjpeg.broken.add(files["again"][:-2] + b"..")
        batch |= {9: (files["again"][:-2] + b"..", Header(40, 30, 1, True))}
        for _ in range(3):
            decoder.decode(batch, "rgb")
    assert len(busy_calls) > 3 * 6
    assert not any(busy_calls)


def test_nvjpeg_gives_the_layout_hwc(pipe, files, nvjpeg, monkeypatch):
    on_gpu = [{"data": files["rgb"]} for _ in range(3)]
    pipe("DecodeTensor", **BATCH, layout="hwc")(on_gpu)
    assert nvjpeg.batches == [3]
    monkeypatch.undo()
    on_cpu = {"data": files["rgb"]}
    pipe("DecodeTensor", layout="hwc")(on_cpu)
    assert on_cpu["result"].shape[2] == 3
    for request in on_gpu:
        assert torch.equal(request["result"], on_cpu["result"])
        assert request["data_format"] == "hwc"


def test_images_of_one_size_are_decoded_in_one_call_and_own_their_memory(pipe, files, nvjpeg):
    requests = [{"data": files["rgb"]} for _ in range(5)]
    pipe("DecodeTensor", **BATCH)(requests)
    assert nvjpeg.batches == [5]
    assert nvjpeg.alone == 0
    results = [request["result"] for request in requests]
    assert [result.untyped_storage().nbytes() for result in results] == [result.nbytes for result in results]


def test_a_batch_without_jpeg_files_does_not_wait_for_a_decoder(pipe, files, nvjpeg):
    decode = pipe("DecodeTensor", **BATCH)
    with nvjpeg.decoders.borrow():  # the only decoder
        assert decode({"data": files["png"]}, timeout=20)["result"].shape == (1, 3, 30, 40)


def test_an_image_over_max_pixels_is_rejected_before_it_is_decoded(pipe, files, nvjpeg):
    requests = [{"data": files["other size"]}, {"data": files["rgb"]}]
    with pytest.raises(hami.BatchError) as raised:
        pipe("DecodeTensor", **BATCH, max_pixels=1199)(requests)
    ((index, error),) = raised.value.errors
    assert index == 1
    assert str(error) == 'DecodeTensor: the JPEG image has 40 x 30 pixels, more than "max_pixels" = 1199'
    assert nvjpeg.batches == [1]


def test_mutable_data_is_copied_before_it_is_decoded(pipe, files, nvjpeg):
    """nvJPEG writes as many pixels as the header says while it decodes, so the header must not change."""
    seen = []
    parse = nvjpeg.nvjpegJpegStreamParseHeader
    nvjpeg.nvjpegJpegStreamParseHeader = lambda *arguments: seen.append(arguments[1]) or parse(*arguments)
    decode = pipe("DecodeTensor")
    for kind in (bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)):
        assert decode({"data": kind(files["rgb"])})["result"].shape == (1, 3, 30, 40)
    assert [type(each) for each in seen] == [bytes] * 3
    decode({"data": files["rgb"]})
    assert seen[-1] is files["rgb"]


def test_without_hardware_decoders_the_default_backend_is_used(cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    library = FakeNvjpeg()
    library.has_hardware = False
    DecoderPool(library, CPU)
    assert library.backends == [_nvjpeg_library.BACKEND_HARDWARE, _nvjpeg_library.BACKEND_HYBRID]


def test_without_memory_the_cache_is_released_and_then_the_cpu_decodes(pipe, files, nvjpeg, monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    decode = pipe("DecodeTensor", **BATCH)
    nvjpeg.out_of_memory = 1
    assert decode({"data": files["rgb"]})["result"].shape == (1, 3, 30, 40)
    assert emptied == [1]
    nvjpeg.out_of_memory = 100
    with pytest.warns(RuntimeWarning) as warned:
        assert decode({"data": files["rgb"]})["result"].shape == (1, 3, 30, 40)
    assert {str(warning.message) for warning in warned} == {
        "DecodeTensor: nvJPEG failed with NVJPEG_STATUS_ALLOCATOR_FAILURE on cpu; "
        "the files that it did not decode are decoded on the CPU"
    }


@pytest.mark.parametrize(
    ("guarded", "idle", "log"),
    [
        (True, True, []),  # the stream is idle, so its memory is not in use
        (True, False, ["9 waits for 1", "memory kept for 9"]),
        (False, True, ["0 waits for 1", "memory kept for 0"]),  # other threads use the default stream too
    ],
)
def test_nvjpeg_decodes_on_an_idle_stream(nvjpeg, cuda, files, guarded, idle, log):
    if guarded:
        cuda.current = FakeStream(9, cuda.log)
    cuda.current.idle = idle
    with nvjpeg.decoders.borrow() as decoder:
        ((indexes, images, orientation),) = decoder.decode({3: (files["rgb"], Header(40, 30, 1, True))}, "rgb")
    assert (indexes, images.shape, orientation) == ([3], (1, 3, 30, 40), 1)
    assert cuda.log == log


def test_the_cpu_waits_for_memory_that_a_stream_ordered_allocator_returns(nvjpeg, cuda, files, monkeypatch):
    """cudaMallocAsync makes an idle stream wait for the previous use of the memory."""
    cuda.current = stream = FakeStream(9, cuda.log)
    empty = torch.empty

    def stream_ordered(*arguments, **options):
        stream.idle = False
        return empty(*arguments, **options)

    monkeypatch.setattr(torch, "empty", stream_ordered)
    with nvjpeg.decoders.borrow() as decoder:
        decoder.decode({3: (files["rgb"], Header(40, 30, 1, True))}, "rgb")
        assert cuda.log == ["the CPU waits for 9"]
        stream.idle = True
        cuda.log.clear()
        decoder.decode({3: (files["progressive"], Header(40, 30, 1, False))}, "rgb")
        assert cuda.log == ["the CPU waits for 9"]


def test_a_decoder_waits_for_its_previous_batch(nvjpeg, cuda, files):
    """Its buffers are in use until then, also on another stream."""
    for idle, log in ((True, []), (False, ["the CPU waits for 9"])):
        cuda.current = FakeStream(9, cuda.log)
        with nvjpeg.decoders.borrow() as decoder:
            header = decoder.read_header(files["rgb"])
            assert header == (40, 30, 1, True)
            decoder.decode({3: (files["rgb"], header)}, "rgb")
        cuda.current.idle = idle
        cuda.current = FakeStream(10, cuda.log)
        with nvjpeg.decoders.borrow() as decoder:
            decoder.decode({}, "rgb")
        assert cuda.log == log


def test_each_instance_adds_a_decoder_up_to_the_maximum(nvjpeg):
    decoders = nvjpeg.decoders
    for _ in range(3):  # an instance is opened and closed
        decoders.add_user()
        decoders.remove_user()
    assert nvjpeg.handles == 1
    for _ in range(DecoderPool.MAX_DECODERS + 3):
        decoders.add_user()
    assert nvjpeg.handles == DecoderPool.MAX_DECODERS


def test_a_decoder_is_returned_after_a_failure_and_lent_to_the_waiting_thread(nvjpeg):
    decoders = nvjpeg.decoders
    served = threading.Event()

    def wait_for_decoder() -> None:
        with decoders.borrow():
            served.set()

    waiting = threading.Thread(target=wait_for_decoder)

    def fail() -> None:
        with decoders.borrow():
            waiting.start()
            assert not served.is_set()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    waiting.join(20)
    assert served.is_set()


def test_header_values_are_not_kept_from_the_previous_file(nvjpeg, files):
    with nvjpeg.decoders.borrow() as decoder:
        assert decoder.read_header(files["rotated"]).orientation == 6
        nvjpeg.nvjpegJpegStreamGetExifOrientation = lambda *arguments: BAD_JPEG
        assert decoder.read_header(files["rgb"]).orientation == 1
        nvjpeg.nvjpegJpegStreamGetFrameDimensions = lambda *arguments: BAD_JPEG
        assert decoder.read_header(files["rgb"]) is None


def test_if_nvjpeg_does_not_start_the_cpu_decodes_with_a_warning(cuda, monkeypatch):
    library = FakeNvjpeg()
    library.start_status = 6
    monkeypatch.setattr(_nvjpeg_library, "find_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(_nvjpeg, "_pools", {})
    with pytest.warns(RuntimeWarning) as warned:
        assert _nvjpeg.decoder_pool(CPU) is None
    (warning,) = warned
    assert str(warning.message) == (
        "DecodeTensor decodes JPEG files on the CPU: nvJPEG 13.0.0 (libnvjpeg.so.13) does not start on cpu: "
        "NVJPEG_STATUS_EXECUTION_FAILED"
    )
    assert _nvjpeg.decoder_pool(CPU) is None  # the second instance does not try again
    library.start_status = ALLOCATOR_FAILURE
    with pytest.raises(MemoryError, match="nvJPEG could not be started"):
        DecoderPool(library, CPU)
    monkeypatch.setattr(_nvjpeg_library, "find_library", lambda: None)
    monkeypatch.setattr(_nvjpeg, "_pools", {})
    assert _nvjpeg.decoder_pool(CPU) is None


def test_chroma_is_interpolated_unless_the_configuration_says_otherwise(cuda, monkeypatch):
    library = FakeNvjpeg()
    monkeypatch.setattr(_nvjpeg_library, "find_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(_nvjpeg, "_pools", {})
    assert _nvjpeg.decoder_pool(CPU) is not _nvjpeg.decoder_pool(CPU, interpolates=False)
    assert library.flags == [_nvjpeg_library.INTERPOLATE_CHROMA, 0]


@pytest.mark.parametrize("version", ["12.0.1", "11.9.0"])
def test_an_older_nvjpeg_repeats_chroma_and_says_so_once(cuda, monkeypatch, version):
    library = FakeNvjpeg()
    library.version = version
    monkeypatch.setattr(_nvjpeg_library, "find_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(_nvjpeg, "_pools", {})
    with pytest.warns(RuntimeWarning, match=f"nvJPEG {version} repeats subsampled chroma") as warned:
        assert _nvjpeg.decoder_pool(CPU) is _nvjpeg.decoder_pool(CPU)
    assert len(warned) == 1
    assert library.flags == [0]


def test_an_unknown_status_is_shown_as_a_number():
    assert _nvjpeg_library.status_name(10) == "NVJPEG_STATUS_INCOMPLETE_BITSTREAM"
    assert _nvjpeg_library.status_name(11) == "status 11"


def test_the_library_is_searched_in_wheels_and_on_the_system(monkeypatch, tmp_path):
    for path in (
        "torchvision/__init__.py",
        "torchvision.libs/libnvjpeg.36e1.so.13",
        "torchvision.libs/libjpeg.so.8",
        "nvidia/nvjpeg/lib/libnvjpeg.so.12",
        "nvidia/cu13/lib/libnvjpeg.so.13",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"not a library")
    if getattr(importlib.util.find_spec("nvidia"), "origin", None):  # older wheels have nvidia/__init__.py
        (tmp_path / "nvidia" / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    paths = list(_nvjpeg_library._candidate_paths())
    names = [path.rpartition("/")[2] for path in paths if path.startswith(str(tmp_path))]
    assert names == ["libnvjpeg.36e1.so.13", "libnvjpeg.so.12", "libnvjpeg.so.13"]
    assert paths[-1] == "libnvjpeg.so.12"
    for path in paths[:-1]:
        if path.startswith(str(tmp_path)):
            with pytest.raises(OSError, match=r"file too short|invalid ELF header"):
                _nvjpeg_library.Library(path)


def test_the_real_library_has_all_functions_that_are_used():
    library = _nvjpeg_library.find_library()
    if library is None:
        pytest.skip("needs libnvjpeg: pip install nvidia-nvjpeg")
    assert int(library.version.partition(".")[0]) in (11, 12, 13)
    assert plugin.hami_report()["nvJPEG"] == f"{library.version} ({library.path})"
    if not torch.cuda.is_available():
        status = library.nvjpegCreateEx(_nvjpeg_library.BACKEND_HARDWARE, None, None, 0, byref(c_void_p()))
        assert _nvjpeg_library.status_name(status) == "NVJPEG_STATUS_EXECUTION_FAILED"
