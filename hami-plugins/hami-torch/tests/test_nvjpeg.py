"""What DecodeTensor asks of nvJPEG: by a stand-in, and by the real library as far as it goes without a GPU."""

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
from hami_torch._nvjpeg import Decoders, Header

CPU = torch.device("cpu")
BATCH = {"max": 16, "batching": "max"}


@pytest.fixture
def files(encode, picture):
    """Files by what they are; two sizes among those that are decoded together."""
    exif = Image.Exif()
    exif[0x0112] = 6
    cmyk = io.BytesIO()
    Image.fromarray(picture).convert("CMYK").save(cmyk, "JPEG")
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    return {
        "rgb": encode("JPEG"),
        "other size": encode("JPEG", pixels=picture[:20, :10]),
        "turned": encode("JPEG", exif=exif),
        "gray": encode("JPEG", pixels=picture[:, :, 0].copy()),
        "progressive": encode("JPEG", progressive=True),
        "cmyk": cmyk.getvalue(),
        "png": encode("PNG"),
        "again": encode("JPEG"),
        "broken": encode("JPEG", pixels=noise)[:4000],
    }


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
@pytest.mark.parametrize("exif", [True, False])
def test_files_decoded_by_nvjpeg_give_what_the_cpu_gives(pipe, files, nvjpeg, monkeypatch, color, exif):
    on_gpu = {name: {"data": file} for name, file in files.items()}
    with pytest.raises(hami.BatchError) as raised:
        pipe("DecodeTensor", **BATCH, color=color, exif=exif)(list(on_gpu.values()))
    ((index, error),) = raised.value.errors
    assert index == list(files).index("broken")
    assert str(error).startswith(f"DecodeTensor: the JPEG picture in {len(files['broken'])} bytes cannot be decoded (")
    assert nvjpeg.batches == [6]  # all that engines decode, with the broken one
    assert nvjpeg.alone == 6 + 2  # since one was broken; and the progressive and CMYK ones
    monkeypatch.undo()
    for name, file in files.items():
        if name != "broken":
            on_cpu = {"data": file}
            pipe("DecodeTensor", color=color, exif=exif)(on_cpu)
            assert torch.equal(on_gpu[name]["result"], on_cpu["result"]), name
            assert on_gpu[name]["color"] == color


def test_a_batch_of_one_size_stays_one_tensor(pipe, files, nvjpeg):
    requests = [{"data": files["rgb"]} for _ in range(5)]
    pipe("DecodeTensor", **BATCH)(requests)
    assert nvjpeg.batches == [5]
    assert nvjpeg.alone == 0
    first, *others = (request["result"] for request in requests)
    assert all(each.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() for each in others)


def test_a_batch_without_jpeg_files_waits_for_no_decoder(pipe, files, nvjpeg):
    decode = pipe("DecodeTensor", **BATCH)
    with nvjpeg.decoders.lend():  # the only one
        assert decode({"data": files["png"]}, timeout=20)["result"].shape == (1, 3, 30, 40)


def test_a_picture_over_the_limit_is_refused_before_it_is_decoded(pipe, files, nvjpeg):
    requests = [{"data": files["other size"]}, {"data": files["rgb"]}]
    with pytest.raises(hami.BatchError) as raised:
        pipe("DecodeTensor", **BATCH, max_pixels=1199)(requests)
    ((index, error),) = raised.value.errors
    assert index == 1
    assert str(error) == 'DecodeTensor: the JPEG picture has 40 x 30 pixels, more than "max_pixels" = 1199'
    assert nvjpeg.batches == [1]


def test_what_others_may_write_to_is_copied_before_it_is_read(pipe, files, nvjpeg):
    """nvJPEG writes as many pixels as the file says at that moment."""
    seen = []
    parse = nvjpeg.nvjpegJpegStreamParseHeader
    nvjpeg.nvjpegJpegStreamParseHeader = lambda *arguments: seen.append(arguments[1]) or parse(*arguments)
    decode = pipe("DecodeTensor")
    for kind in (bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)):
        assert decode({"data": kind(files["rgb"])})["result"].shape == (1, 3, 30, 40)
    assert [type(each) for each in seen] == [bytes] * 3
    decode({"data": files["rgb"]})
    assert seen[-1] is files["rgb"]


def test_without_engines_the_gpu_decodes_by_its_other_means(cuda, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    library = FakeNvjpeg()
    library.engines = False
    Decoders(library, CPU)
    assert library.backends == [_nvjpeg_library.BACKEND_HARDWARE, _nvjpeg_library.BACKEND_DEFAULT]


def test_without_memory_torch_gives_back_what_it_keeps_and_then_the_cpu_decodes(pipe, files, nvjpeg, monkeypatch):
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
        "what it did not decode is decoded on the CPU"
    }


@pytest.mark.parametrize(
    ("guarded", "idle", "log"),
    [
        (True, True, []),  # nothing reads memory of this stream
        (True, False, ["9 waits for 1", "memory kept for 9"]),
        (False, True, ["0 waits for 1", "memory kept for 0"]),  # other threads work on the default stream too
    ],
)
def test_nvjpeg_writes_only_into_memory_that_nothing_reads(nvjpeg, cuda, files, guarded, idle, log):
    if guarded:
        cuda.current = FakeStream(9, cuda.log)
    cuda.current.idle = idle
    with nvjpeg.decoders.lend() as decoder:
        ((members, pictures, orientation),) = decoder.decode({3: (files["rgb"], Header(40, 30, 1, True))}, "rgb")
    assert (members, pictures.shape, orientation) == ([3], (1, 3, 30, 40), 1)
    assert cuda.log == log


def test_memory_that_the_allocator_gives_in_the_order_of_the_stream_is_waited_for(nvjpeg, cuda, files, monkeypatch):
    """As cudaMallocAsync does: on a stream that was idle it waits for those who had the memory before."""
    cuda.current = stream = FakeStream(9, cuda.log)
    empty = torch.empty

    def in_order(*arguments, **options):
        stream.idle = False
        return empty(*arguments, **options)

    monkeypatch.setattr(torch, "empty", in_order)
    with nvjpeg.decoders.lend() as decoder:
        decoder.decode({3: (files["rgb"], Header(40, 30, 1, True))}, "rgb")
        assert cuda.log == ["the CPU waits for 9"]
        stream.idle = True
        cuda.log.clear()
        decoder.decode({3: (files["progressive"], Header(40, 30, 1, False))}, "rgb")
        assert cuda.log == ["the CPU waits for 9"]


def test_a_decoder_waits_for_what_it_did_before(nvjpeg, cuda, files):
    """Its buffers are read until that is done, on whatever stream."""
    for idle, log in ((True, []), (False, ["the CPU waits for 9"])):
        cuda.current = FakeStream(9, cuda.log)
        with nvjpeg.decoders.lend() as decoder:
            header = decoder.read_header(files["rgb"])
            assert header == (40, 30, 1, True)
            decoder.decode({3: (files["rgb"], header)}, "rgb")
        cuda.current.idle = idle
        cuda.current = FakeStream(10, cuda.log)
        with nvjpeg.decoders.lend() as decoder:
            decoder.decode({}, "rgb")
        assert cuda.log == log


def test_each_instance_has_a_decoder_until_there_are_enough(nvjpeg):
    decoders = nvjpeg.decoders
    for _ in range(3):  # closed and opened again
        decoders.join()
        decoders.leave()
    assert nvjpeg.handles == 1
    for _ in range(Decoders.MOST + 3):
        decoders.join()
    assert nvjpeg.handles == Decoders.MOST


def test_a_decoder_comes_back_from_who_fails_and_goes_to_who_waits(nvjpeg):
    decoders = nvjpeg.decoders
    served = threading.Event()

    def wait_for_it() -> None:
        with decoders.lend():
            served.set()

    waiting = threading.Thread(target=wait_for_it)

    def fail() -> None:
        with decoders.lend():
            waiting.start()
            assert not served.is_set()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    waiting.join(20)
    assert served.is_set()


def test_what_cannot_be_read_of_a_header_is_not_what_the_file_before_it_said(nvjpeg, files):
    with nvjpeg.decoders.lend() as decoder:
        assert decoder.read_header(files["turned"]).orientation == 6
        nvjpeg.nvjpegJpegStreamGetExifOrientation = lambda *arguments: BAD_JPEG
        assert decoder.read_header(files["rgb"]).orientation == 1
        nvjpeg.nvjpegJpegStreamGetFrameDimensions = lambda *arguments: BAD_JPEG
        assert decoder.read_header(files["rgb"]) is None


def test_where_nvjpeg_does_not_start_the_cpu_decodes_and_says_so(cuda, monkeypatch):
    library = FakeNvjpeg()
    library.start = 6
    monkeypatch.setattr(_nvjpeg_library, "find_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(_nvjpeg, "_decoders", {})
    with pytest.warns(RuntimeWarning) as warned:
        assert _nvjpeg.decoders_of(CPU) is None
    (warning,) = warned
    assert str(warning.message) == (
        "DecodeTensor decodes JPEG files on the CPU: nvJPEG 13.0.0 (libnvjpeg.so.13) does not start on cpu: "
        "NVJPEG_STATUS_EXECUTION_FAILED"
    )
    assert _nvjpeg.decoders_of(CPU) is None  # and not tried again for each instance
    library.start = ALLOCATOR_FAILURE
    with pytest.raises(MemoryError, match="nvJPEG could not be started"):
        Decoders(library, CPU)
    monkeypatch.setattr(_nvjpeg_library, "find_library", lambda: None)
    monkeypatch.setattr(_nvjpeg, "_decoders", {})
    assert _nvjpeg.decoders_of(CPU) is None


def test_a_status_that_is_not_known_is_shown_as_it_is():
    assert _nvjpeg_library.status_name(10) == "NVJPEG_STATUS_INCOMPLETE_BITSTREAM"
    assert _nvjpeg_library.status_name(11) == "status 11"


def test_the_library_is_looked_for_in_wheels_and_on_the_system(monkeypatch, tmp_path):
    for path in (
        "torchvision/__init__.py",
        "torchvision.libs/libnvjpeg.36e1.so.13",
        "torchvision.libs/libjpeg.so.8",
        "nvidia/nvjpeg/lib/libnvjpeg.so.12",
        "nvidia/cu13/lib/libnvjpeg.so.13",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"no library")
    if getattr(importlib.util.find_spec("nvidia"), "origin", None):  # older wheels make it a package like others
        (tmp_path / "nvidia" / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    places = list(_nvjpeg_library._places())
    ours = [place.rpartition("/")[2] for place in places if place.startswith(str(tmp_path))]
    assert ours == ["libnvjpeg.36e1.so.13", "libnvjpeg.so.12", "libnvjpeg.so.13"]
    assert places[-1] == "libnvjpeg.so.12"
    for place in places[:-1]:
        if place.startswith(str(tmp_path)):
            with pytest.raises(OSError, match=r"file too short|invalid ELF header"):
                _nvjpeg_library.Library(place)


def test_the_real_library_has_the_functions_that_are_called():
    library = _nvjpeg_library.find_library()
    if library is None:
        pytest.skip("needs libnvjpeg: pip install nvidia-nvjpeg")
    assert int(library.version.partition(".")[0]) in (11, 12, 13)
    assert plugin.hami_report()["nvJPEG"] == f"{library.version} ({library.path})"
    if not torch.cuda.is_available():
        status = library.nvjpegCreateEx(_nvjpeg_library.BACKEND_HARDWARE, None, None, 0, byref(c_void_p()))
        assert _nvjpeg_library.status_name(status) == "NVJPEG_STATUS_EXECUTION_FAILED"
