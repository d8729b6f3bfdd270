"""DecodeTensor with a fake nvJPEG on the fake driver: batches, single files, orientations, and files for the CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import hami
import pytest
from native import GATHERED, compiled
from test_failures import run

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("fake")


@pytest.fixture(scope="module")
def nvjpeg(tmp_path_factory) -> Any:
    """The fake nvJPEG, which may be loaded"""
    path = compiled("fake_nvjpeg.cpp", tmp_path_factory.mktemp("nvjpeg"))
    hami.native.allow_library(path)
    return ctypes.CDLL(str(path))


def jpeg(width: int, height: int, orientation: int = 1, kind: str = "b") -> bytes:
    return b"\xff\xd8" + bytes([width, height, orientation]) + kind.encode()


def pixels(width: int, height: int) -> Any:
    """Return the image 3 x H x W of a fake file."""
    channel, row, column = np.mgrid[:3, :height, :width]
    return (column + 16 * row + 64 * channel).astype(np.uint8)


def decode(nvjpeg: Any, *files: Any, tail: str = "", **parameters: Any) -> list[dict[str, Any]]:
    """Decode files as one batch and return the requests, with results as arrays."""
    given = ",".join(f"{key}={value}" for key, value in {"library": f"'{nvjpeg._name}'", **parameters}.items())
    requests = [{"data": file} for file in files]
    config = {"backend": f"S[DecodeTensor({given}){tail},hami-cuda::CpuTensor]"}
    with hami.pipe({**config, "max": len(files), "batching": "greedy"}) as pipe:
        pipe(requests if len(requests) > 1 else requests[0])
    return [{**request, "result": hami.to_numpy(request["result"])} for request in requests]


def test_files_of_different_sizes_are_decoded_in_one_call(nvjpeg):
    before = nvjpeg.fake_batches(), nvjpeg.fake_singles()
    sizes = [(3, 2), (8, 5), (3, 2)]
    for size, request in zip(sizes, decode(nvjpeg, *(jpeg(*size) for size in sizes)), strict=True):
        assert (request["result"] == pixels(*size)[None]).all()
        assert (request["color"], request["data_format"]) == ("rgb", "nchw")
    assert (nvjpeg.fake_batches(), nvjpeg.fake_singles()) == (before[0] + 1, before[1])


def test_files_of_a_batch_are_uploaded_from_pinned_memory(nvjpeg, fake):
    nvjpeg.fake_file.restype, fake.fake_is_pinned.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    decode(nvjpeg, jpeg(3, 2), jpeg(8, 5))
    assert fake.fake_is_pinned(nvjpeg.fake_file())


def test_a_file_that_only_decodes_alone_does_so(nvjpeg):
    before = nvjpeg.fake_singles()
    first, second = decode(nvjpeg, jpeg(3, 2, kind="s"), jpeg(8, 5))
    assert (first["result"] == pixels(3, 2)[None]).all()
    assert (second["result"] == pixels(8, 5)[None]).all()
    assert nvjpeg.fake_singles() == before + 1


def test_colors_and_layouts(nvjpeg):
    (request,) = decode(nvjpeg, jpeg(3, 2), color="bgr")
    assert (request["result"] == pixels(3, 2)[None, ::-1]).all()
    (request,) = decode(nvjpeg, jpeg(3, 2), color="gray")
    assert (request["result"] == pixels(3, 2)[None, :1]).all()
    (request,) = decode(nvjpeg, jpeg(3, 2), layout="hwc")
    assert (request["result"] == pixels(3, 2).transpose(1, 2, 0)).all()
    assert request["data_format"] == "hwc"


UPRIGHT = {
    1: lambda image: image,
    2: lambda image: image[:, :, ::-1],
    3: lambda image: image[:, ::-1, ::-1],
    4: lambda image: image[:, ::-1],
    5: lambda image: image.transpose(0, 2, 1),
    6: lambda image: image.transpose(0, 2, 1)[:, :, ::-1],
    7: lambda image: image.transpose(0, 2, 1)[:, ::-1, ::-1],
    8: lambda image: image.transpose(0, 2, 1)[:, ::-1],
}


def test_images_are_turned_upright_with_one_launch(nvjpeg, fake):
    before = fake.fake_launches()
    files = [jpeg(5, 3, orientation) for orientation in UPRIGHT]
    for turn, request in zip(UPRIGHT.values(), decode(nvjpeg, *files), strict=True):
        assert (request["result"][0] == turn(pixels(5, 3))).all()
    assert fake.fake_launches() == before + 1 + GATHERED
    (request,) = decode(nvjpeg, jpeg(5, 3, 6), exif="false")
    assert (request["result"][0] == pixels(5, 3)).all()


def test_bad_files_fail_alone(nvjpeg, fake):
    text = run(
        fake,
        """
hami.native.allow_library(sys.argv[2])
files = [b"\\xff\\xd8\\3\\2\\1" + kind for kind in (b"b", b"x")] + [b"\\x89PNG....", b"", "text"]
files += [b"\\xff\\xd8" + bytes(size) + b"b" for size in ((20, 20, 1), (0, 3, 1))]
requests = [{"data": file} for file in files]
config = {"backend": f"S[DecodeTensor(library='{sys.argv[2]}',max_pixels=100),hami-cuda::CpuTensor]"}
try:
    hami.pipe({**config, "max": len(files), "batching": "greedy"})(requests)
except hami.BatchError as error:
    for index, each in error.errors:
        print(index, str(each).split("\\n")[0])
print(hami.to_numpy(requests[0]["result"]).shape)
""",
        nvjpeg._name,
        HAMI_PLUGINS="no:image",
    )
    remedy = "hami-image decodes such files on the CPU: pip install hami-image"
    assert text.splitlines() == [
        f"1 DecodeTensor: nvJPEG cannot decode this file of 6 bytes; {remedy}",
        f"2 DecodeTensor: nvJPEG cannot decode this file of 8 bytes; {remedy}",
        "3 DecodeTensor takes the bytes of an image file, got 0 bytes",
        "4 DecodeTensor takes the bytes of an image file; convert other objects with bytes()",
        '5 DecodeTensor: the image has 20 x 20 pixels, more than "max_pixels" = 100',
        "6 DecodeTensor: the image has no pixels, its size is 0 x 3",
        "(1, 3, 2, 3)",
    ]


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_other_files_go_to_the_backend_in_the_brackets(nvjpeg, color):
    asked = []

    @hami.register
    class DecodeElsewhere(hami.Backend):
        def forward(self, batch):
            asked.append(len(batch))
            for item in batch:
                item["color"] = "rgb"
                item["result"] = np.ascontiguousarray(pixels(4, 3).transpose(1, 2, 0))

    files = (jpeg(3, 2), b"PNG", jpeg(3, 2, kind="u"))
    first, second, third = decode(nvjpeg, *files, tail="[DecodeElsewhere]", color=color)
    assert asked == [2]
    expected = {"rgb": pixels(4, 3), "bgr": pixels(4, 3)[::-1]}
    for request in (second, third):
        assert request["color"] == color
        if color in expected:
            assert (request["result"] == expected[color][None]).all()
        else:
            assert request["result"].shape == (1, 1, 3, 4)
    assert first["result"].shape[-2:] == (2, 3)


def needs_no_nvjpeg() -> None:
    if {param["name"]: param["default"] for param in hami.backends(load=True)["DecodeTensor"].params}["library"]:
        pytest.skip("nvJPEG is installed")


def test_without_nvjpeg_and_hami_image_the_error_says_what_to_install(fake):
    needs_no_nvjpeg()
    text = run(
        fake,
        """
try:
    hami.pipe("DecodeTensor")
except hami.PluginError as error:
    print(error)
""",
        HAMI_PLUGINS="no:image",
    )
    assert "nvJPEG is not installed: pip install hami-cuda[nvjpeg]; or hami-image, to decode on the CPU" in text


def test_a_library_that_is_not_nvjpeg_is_named(tmp_path):
    other = compiled("host_kernel.cpp", tmp_path)
    hami.native.allow_library(other)
    with pytest.raises(hami.PluginError, match="has no function nvjpegCreateEx"):
        hami.pipe(f"DecodeTensor(library='{other}')")


def test_a_library_that_cannot_be_loaded_is_named(tmp_path):
    broken = tmp_path / "libnvjpeg.so"
    broken.write_bytes(b"no library")
    hami.native.allow_library(broken)
    with pytest.raises(hami.PluginError, match=r"DecodeTensor: cannot load nvJPEG: .*libnvjpeg\.so"):
        hami.pipe(f"DecodeTensor(library='{broken}')")


def test_many_instances_share_the_decoders(nvjpeg):
    backend = f"S[DecodeTensor(library='{nvjpeg._name}'),SyncTensor]"
    with hami.pipe({"backend": backend, "instance_num": 6, "max": 4}) as pipe:
        requests = [{"data": jpeg(3, 2)} for _ in range(50)]
        pipe(requests)
        assert all(request["result"].shape == (1, 3, 2, 3) for request in requests)
