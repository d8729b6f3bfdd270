"""ResizeMat and the Mat2Tensor that follows it in one pass: the bits of cv2.resize, for images of any kind and size."""

from __future__ import annotations

import os
import random

import cv2
import hami
import numpy as np
import pytest

# Sizes that are tried, taken at random in each run. HAMI_IMAGE_SIZES=1500 tries as many as were tried in development.
SIZES = int(os.environ.get("HAMI_IMAGE_SIZES", "60"))
HARD = [  # height and width of the image, then of the result
    ((1, 1), (1, 1)),
    ((1, 1), (40, 30)),
    ((40, 30), (1, 1)),
    ((1, 900), (7, 5)),
    ((900, 1), (7, 5)),
    ((2, 2), (1, 1)),
    ((2, 2), (3, 3)),
    ((10, 8), (5, 4)),  # exactly half, where OpenCV averages
    ((10, 8), (5, 5)),
    ((10, 8), (20, 16)),
    ((12, 16), (4, 4)),
    ((17, 33), (17, 33)),
    ((17, 33), (17, 32)),
    ((2, 3), (1, 32767)),
    ((3, 2), (32767, 1)),
    ((2, 70_000), (3, 9)),
    ((70_000, 2), (9, 3)),
]


def resized(image: np.ndarray, height: int, width: int, **params: object) -> np.ndarray:
    with hami.pipe({"backend": "S[ResizeMat,Mat2Tensor]", "height": height, "width": width, **params}) as pipe:
        return hami.to_numpy(pipe({"data": image})["result"])


def by_opencv(image: np.ndarray, height: int, width: int) -> np.ndarray:
    result = cv2.resize(image, (width, height)).reshape(height, width, -1)
    return result.transpose(2, 0, 1)[np.newaxis].astype(np.float32)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("before", "after"), HARD)
def test_the_pass_gives_the_bits_of_opencv_for_hard_sizes(before, after, channels):
    image = np.random.default_rng(1).integers(0, 256, (*before, channels), np.uint8)
    assert np.array_equal(resized(image, *after), by_opencv(image, *after))


def test_the_pass_gives_the_bits_of_opencv_for_random_sizes():
    seed = random.randrange(2**32)
    numbers = np.random.default_rng(seed)
    for _ in range(SIZES):
        most = numbers.choice([8, 60, 300])
        height, width, to_height, to_width = (int(number) for number in numbers.integers(1, most, 4))
        image = numbers.integers(0, 256, (height, width, numbers.choice([1, 3, 4])), np.uint8)
        same = np.array_equal(resized(image, to_height, to_width), by_opencv(image, to_height, to_width))
        assert same, f"seed {seed}: {image.shape} to {to_height} x {to_width}"


WHOLE = np.random.default_rng(2).integers(0, 256, (40, 60, 3), np.uint8)


@pytest.mark.parametrize(
    "image",
    [
        WHOLE[3:30, 4:41],
        WHOLE[::-1],
        WHOLE[:, ::-1],
        WHOLE[:, :, ::-1],
        WHOLE[::2, ::3],
        WHOLE[:, :, 1],
        WHOLE[:, :, :1],
    ],
    ids=["part", "upside down", "mirrored", "other order", "steps", "gray", "one channel"],
)
def test_views_of_arrays_are_resized_as_their_copies(image):
    expected = by_opencv(np.ascontiguousarray(image), 11, 13)
    assert np.array_equal(resized(image, 11, 13), expected)
    locked = image.copy()
    locked.flags.writeable = False
    assert np.array_equal(resized(locked, 11, 13), expected)


@pytest.fixture
def calls(monkeypatch):
    """The number of calls of cv2.resize."""
    from hami_image import _resize_backend

    calls: list[None] = []

    class Counting:
        @staticmethod
        def resize(*args: object, **options: object) -> np.ndarray:
            calls.append(None)
            return cv2.resize(*args, **options)

    monkeypatch.setattr(_resize_backend, "cv2", Counting)
    return calls


def test_opencv_resizes_only_what_the_pass_does_not(calls):
    resized(WHOLE, 11, 13)
    resized(WHOLE, *WHOLE.shape[:2])
    assert not calls
    for image, params in (
        (WHOLE.astype(np.uint16), {}),
        (WHOLE.astype(np.float32), {}),
        (WHOLE[:, ::-1], {}),
        (WHOLE, {"interpolation": "area"}),
        (WHOLE, {"dtype": "uint8"}),
        (WHOLE, {"layout": "hwc"}),
        (WHOLE, {"fuse": False}),
    ):
        calls.clear()
        resized(image, 11, 13, **params)
        assert len(calls) == 1, (image.dtype, params)


def absorbed(expression: str) -> dict[str, bool]:
    with hami.pipe({"backend": expression, "width": 9, "height": 5}) as pipe:
        (chain,) = pipe.describe()["nodes"]["default"]["backends"]
        return {each["class"]: each["absorbed"] for each in chain["children"]}


def test_only_backends_that_follow_each_other_are_one():
    assert absorbed("S[ResizeMat,Mat2Tensor,NormalizeTensor]") == {
        "ResizeMat": False,
        "Mat2Tensor": True,
        "NormalizeTensor": True,
    }
    assert absorbed("S[ResizeMat,Identity,Mat2Tensor]")["Mat2Tensor"] is False
    assert absorbed("S[ResizeMat,CvtColorMat(rgb),Mat2Tensor]")["Mat2Tensor"] is False
    assert absorbed("S[ResizeMat,Mat2Tensor,Identity,NormalizeTensor]")["NormalizeTensor"] is False
    assert absorbed("S[ResizeMat(fuse=false),Mat2Tensor,NormalizeTensor]") == {
        "ResizeMat": False,
        "Mat2Tensor": False,
        "NormalizeTensor": True,
    }


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (np.zeros((0, 5, 3), np.uint8), hami.RequestError, "ResizeMat: the image is empty, its shape is (0, 5, 3)"),
        (
            np.full((4, 5, 3), 70_000, np.float32),
            hami.RequestError,
            'Mat2Tensor: "dtype" = float16 can hold values from -65504 to 65504, but the image of float32 has values '
            "from 70000.0 to 70000.0; scale the image first or use float32",
        ),
        (
            np.zeros((4, 5), np.uint8),
            hami.RequestError,
            'NormalizeTensor: "mean" and "std" are for 3 channels, got a tensor of shape (1, 1, 7, 6)',
        ),
        (
            "page.png",
            hami.DataTypeError,
            'ResizeMat: "data" must be an image (array H x W or H x W x C, as DecodeMat returns), got str',
        ),
    ],
)
def test_an_error_names_the_backend_that_found_it(data, error, text):
    for fuse in (True, False):
        chain = "S[ResizeMat,Mat2Tensor(dtype=float16),NormalizeTensor(mean='1,2,3')]"
        with hami.pipe({"backend": chain, "width": 6, "height": 7, "fuse": fuse}) as pipe:
            with pytest.raises(error) as raised:
                pipe({"data": data})
            assert str(raised.value).splitlines()[0] == text
            assert pipe({"data": WHOLE})["result"].shape == (1, 3, 7, 6)


def test_the_pass_sets_the_keys_of_its_backends():
    with hami.pipe("S[ResizeMat(6,7),Mat2Tensor(layout=chw)]") as pipe:
        assert pipe({"data": WHOLE})["data_format"] == "chw"


class SumOfEach(hami.Backend):
    max = 4

    def forward(self, batch):
        for item in batch:
            item["result"] = float(hami.to_numpy(item["data"]).sum())


def test_nodes_with_other_batches_and_instances_get_each_its_own_tensor():
    hami.register(SumOfEach)
    images = [np.full((9 + i, 30 - i, 3), i, np.uint8) for i in range(16)]
    config = {
        "resize": {"backend": "S[ResizeMat(8,6),Mat2Tensor]", "instance_num": 2, "next": "sum"},
        "sum": {"backend": "SumOfEach", "max": 4, "batching_timeout": 5, "instance_num": 2},
    }
    with hami.pipe(config) as pipe:
        futures = [pipe.submit({"data": image}) for image in images]
        assert [future.result()["result"] for future in futures] == [i * 3 * 8 * 6 for i in range(16)]
