"""The kernels, compiled for the CPU, against NumPy and torch: bytes within 1, and floats within 1e-5."""

from __future__ import annotations

import ctypes

import pytest
from cuda_native import Image, Resize, compiled

np = pytest.importorskip("numpy", reason="numpy is not installed")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The library of the kernels for the CPU"""
    return ctypes.CDLL(str(compiled("host_kernel.cpp", tmp_path_factory.mktemp("kernels"))))


def described(array, result):
    """Describe an image, C x H x W with any strides, for a kernel."""
    channel, row, pixel = array.strides
    return Image(array.ctypes.data, result.ctypes.data, channel, row, pixel, array.shape[2], array.shape[1])


def run(function, images, width, height, dtype, **job):
    """Run one launch for all images and return the results."""
    channels = images[0].shape[0]
    results = [np.zeros((channels, height, width), dtype) for _ in images]
    batch = (Image * len(images))(*map(described, images, results))
    function(batch, len(images), ctypes.byref(Resize(width, height, channels, **job)))
    return results


def neighbours(out_size, in_size):
    """Return the two source indices of each output index, and the weight of the second."""
    position = np.maximum((np.arange(out_size) + 0.5) * in_size / out_size - 0.5, 0)
    first = np.minimum(np.floor(position).astype(int), in_size - 1)
    return first, np.minimum(first + 1, in_size - 1), position - first


def reference(image, width, height):
    """Return the image resized in float64, by the definition of bilinear interpolation."""
    top, bottom, down = neighbours(height, image.shape[1])
    left, right, across = neighbours(width, image.shape[2])
    pixels = image.astype(float)
    rows = pixels[:, top] * (1 - down)[:, None] + pixels[:, bottom] * down[:, None]
    return rows[:, :, left] * (1 - across) + rows[:, :, right] * across


def torch_reference(image, width, height):
    """Return what ResizeTensor of hami-torch computes, before it rounds."""
    torch = pytest.importorskip("torch")
    pixels = torch.from_numpy(np.ascontiguousarray(image))[None].float()
    return torch.nn.functional.interpolate(pixels, (height, width), mode="bilinear")[0].numpy()


@pytest.fixture
def images():
    """Images of different sizes; every second one has interleaved pixels"""
    random = np.random.default_rng(3)
    sizes = [(480, 640), (1, 1), (31, 17), (224, 224), (600, 13), (2, 900)]
    planes = [random.integers(0, 256, (3, *size), np.uint8) for size in sizes]
    interleaved = [random.integers(0, 256, (*size, 3), np.uint8).transpose(2, 0, 1) for size in sizes]
    return planes + interleaved


@pytest.mark.parametrize("expected", [reference, torch_reference])
@pytest.mark.parametrize(("width", "height"), [(224, 224), (64, 48), (1, 1), (301, 7)])
def test_one_launch_resizes_images_of_different_sizes(kernels, images, width, height, expected):
    results = run(kernels.resize_bytes, images, width, height, np.uint8)
    for image, result in zip(images, results, strict=True):
        assert np.abs(result - np.rint(expected(image, width, height))).max() <= 1


def test_an_image_of_the_right_size_is_unchanged(kernels, images):
    same = [image for image in images if image.shape[1:] == (224, 224)]
    for image, result in zip(same, run(kernels.resize_bytes, same, 224, 224, np.uint8), strict=True):
        assert (image == result).all()


def test_swap_reverses_the_channels(kernels, images):
    plain = run(kernels.resize_bytes, images, 40, 30, np.uint8)
    swapped = run(kernels.resize_bytes, images, 40, 30, np.uint8, swap=1)
    for one, other in zip(plain, swapped, strict=True):
        assert (one[::-1] == other).all()


def test_the_fused_kernel_gives_what_the_single_steps_give(kernels, images):
    factor = [1 / 255 / std for std in STD]
    offset = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]
    job = {"factor": (ctypes.c_float * 4)(*factor), "offset": (ctypes.c_float * 4)(*offset)}
    fused = run(kernels.resize_normalize, images, 96, 64, np.float32, swap=1, round_first=1, **job)
    resized = run(kernels.resize_bytes, images, 96, 64, np.uint8, swap=1)
    for step, result in zip(resized, fused, strict=True):
        expected = step * np.float32(factor)[:, None, None] + np.float32(offset)[:, None, None]
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


def test_without_rounding_the_normalization_takes_the_exact_value(kernels):
    image = np.uint8([[[0, 1]]])
    job = {"factor": (ctypes.c_float * 4)(2.0), "offset": (ctypes.c_float * 4)(1.0)}
    exact = run(kernels.resize_normalize, [image], 4, 1, np.float32, **job)[0]
    assert exact.tolist() == [[[1.0, 1.5, 2.5, 3.0]]]
