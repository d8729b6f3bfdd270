"""The kernels, compiled for the CPU, against NumPy and torch: bytes within 1, and floats within 1e-5."""

from __future__ import annotations

import ctypes

import pytest
from native import Image, Job, compiled

np = pytest.importorskip("numpy", reason="numpy is not installed")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The library of the kernels for the CPU"""
    return ctypes.CDLL(str(compiled("host_kernel.cpp", tmp_path_factory.mktemp("kernels"))))


U8, F16, BF16, F32 = range(4)
TYPES = {np.dtype(np.uint8): U8, np.dtype(np.float16): F16, np.dtype(np.float32): F32}
SAME, NEAREST, LINEAR, CUBIC, AREA, LINEAR_ANTIALIAS, CUBIC_ANTIALIAS = range(7)
KEEP, REVERSE, GRAY, GRAY_OF_BGR, REPEAT = range(5)


def described(array, result):
    """Describe an image, C x H x W with any strides, for the kernel."""
    strides = [stride // array.itemsize for stride in array.strides]
    sizes = (array.shape[2], array.shape[1], result.shape[2], result.shape[1])
    return Image(array.ctypes.data, result.ctypes.data, *strides, *sizes, 0, 0, result.shape[2], result.shape[1])


def run(kernels, images, width, height, dtype=None, channels=None, **job):
    """Run one launch for all images and return the results."""
    dtype = np.dtype(dtype or images[0].dtype)
    channels = channels or images[0].shape[0]
    job = {"sampling": LINEAR, "rounded": 1, **job}
    results = [np.zeros((channels, height, width), dtype) for _ in images]
    batch = (Image * len(images))(*map(described, images, results))
    types = {"in_type": TYPES[images[0].dtype], "out_type": TYPES[dtype]}
    kernels.run_image(batch, len(images), ctypes.byref(Job(channels=channels, **types, **job)))
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
    """Return what torch computes for ResizeTensor, before it rounds."""
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
    results = run(kernels, images, width, height)
    for image, result in zip(images, results, strict=True):
        assert np.abs(result - np.rint(expected(image, width, height))).max() <= 1


def test_an_image_of_the_right_size_is_unchanged(kernels, images):
    same = [image for image in images if image.shape[1:] == (224, 224)]
    for image, result in zip(same, run(kernels, same, 224, 224), strict=True):
        assert (image == result).all()


def test_the_nearest_pixel_is_that_around_the_centre(kernels, images):
    for image, result in zip(images, run(kernels, images, 40, 30, sampling=NEAREST), strict=True):
        rows = ((np.arange(30) + 0.5) * image.shape[1] / 30).astype(int)
        columns = ((np.arange(40) + 0.5) * image.shape[2] / 40).astype(int)
        assert (result == image[:, rows][:, :, columns]).all()


@pytest.mark.parametrize(("width", "height"), [(96, 64), (50, 301), (224, 224), (13, 7)])
def test_the_mean_of_an_area_is_that_of_adaptive_pooling(kernels, images, width, height):
    floats = [image.astype(np.float32) for image in images]
    for image, result in zip(floats, run(kernels, floats, width, height, sampling=AREA), strict=True):
        _, rows, columns = image.shape
        for y in range(0, height, max(1, height // 5)):
            for x in range(0, width, max(1, width // 5)):
                part = image[
                    :,
                    y * rows // height : -(-(y + 1) * rows // height),
                    x * columns // width : -(-(x + 1) * columns // width),
                ]
                np.testing.assert_allclose(result[:, y, x], part.mean((1, 2)), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("width", "height"), [(96, 64), (50, 301), (224, 224)])
def test_cubic_interpolation_is_that_of_opencv(kernels, width, height):
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    random = np.random.default_rng(4)
    image = random.random((120, 90, 3), np.float32)
    (result,) = run(kernels, [image.transpose(2, 0, 1)], width, height, sampling=CUBIC)
    expected = cv2.resize(image, (width, height), interpolation=cv2.INTER_CUBIC).transpose(2, 0, 1)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("sampling", "name"), [(LINEAR_ANTIALIAS, "BILINEAR"), (CUBIC_ANTIALIAS, "BICUBIC")])
@pytest.mark.parametrize(("width", "height"), [(32, 24), (50, 301), (224, 224), (5, 3)])
def test_antialiasing_is_that_of_pillow(kernels, sampling, name, width, height):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image = np.random.default_rng(4).random((1, 120, 90), np.float32)
    (result,) = run(kernels, [image], width, height, sampling=sampling)
    expected = np.asarray(pillow.fromarray(image[0]).resize((width, height), getattr(pillow.Resampling, name)))
    np.testing.assert_allclose(result[0], expected, rtol=0, atol=1e-4)


def test_corners_are_aligned_on_request(kernels):
    image = np.float32([[[0, 10], [20, 30]]])
    (result,) = run(kernels, [image], 3, 3, align_corners=1)
    assert result[0].tolist() == [[0, 5, 10], [10, 15, 20], [20, 25, 30]]


def test_floats_are_resized_without_rounding(kernels, images):
    floats = [image.astype(np.float32) / 255 for image in images]
    for image, result in zip(floats, run(kernels, floats, 50, 40), strict=True):
        np.testing.assert_allclose(result, reference(image, 50, 40), rtol=0, atol=1e-4)


def test_colors_are_reversed_repeated_or_made_gray(kernels, images):
    plain = run(kernels, images, 40, 30)
    weights = np.array([0.299, 0.587, 0.114]).reshape(3, 1, 1)
    for one, other in zip(plain, run(kernels, images, 40, 30, color=REVERSE), strict=True):
        assert (one[::-1] == other).all()
    for color, order in ((GRAY, 1), (GRAY_OF_BGR, -1)):
        for one, other in zip(plain, run(kernels, images, 40, 30, channels=1, color=color), strict=True):
            assert np.abs((one[::order] * weights).sum(0) - other[0]).max() <= 0.501
    gray = [image[:1] for image in images]
    for one, other in zip(gray, run(kernels, gray, 40, 30, channels=3, color=REPEAT), strict=True):
        assert (run(kernels, [one], 40, 30)[0] == other).all()


def normalization():
    factor = [1 / 255 / std for std in STD]
    offset = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]
    return factor, offset, {"factor": (ctypes.c_float * 16)(*factor), "offset": (ctypes.c_float * 16)(*offset)}


def test_the_fused_kernel_gives_what_the_single_steps_give(kernels, images):
    _, _, job = normalization()
    fused = run(kernels, images, 96, 64, np.float32, color=REVERSE, normalize=1, **job)
    resized = run(kernels, images, 96, 64)
    swapped = run(kernels, resized, 96, 64, sampling=SAME, color=REVERSE)
    single = run(kernels, swapped, 96, 64, np.float32, sampling=SAME, normalize=1, **job)
    for one, other in zip(fused, single, strict=True):
        assert (one == other).all()


def test_normalization_is_by_channel(kernels, images):
    factor, offset, job = normalization()
    resized = run(kernels, images, 96, 64)
    for image, result in zip(
        resized, run(kernels, resized, 96, 64, np.float32, sampling=SAME, normalize=1, **job), strict=True
    ):
        expected = image * np.float32(factor)[:, None, None] + np.float32(offset)[:, None, None]
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


def test_without_rounding_the_normalization_takes_the_exact_value(kernels):
    image = np.uint8([[[0, 1]]])
    job = {"factor": (ctypes.c_float * 16)(2.0), "offset": (ctypes.c_float * 16)(1.0), "normalize": 1}
    exact = run(kernels, [image], 4, 1, np.float32, rounded=0, **job)[0]
    assert exact.tolist() == [[[1.0, 1.5, 2.5, 3.0]]]


def test_half_precision_is_converted_as_numpy_does(kernels):
    kernels.float_of_half.restype = ctypes.c_float
    kernels.half_of.restype = ctypes.c_ushort
    kernels.half_of.argtypes = (ctypes.c_float,)
    for bits in range(1 << 16):
        expected = np.array(bits, np.uint16).view(np.float16)
        found = kernels.float_of_half(bits)
        if np.isnan(expected):
            assert np.isnan(found)
        else:
            assert found == expected
            assert kernels.half_of(float(expected)) == bits
    random = np.random.default_rng(5)
    for number in (random.standard_normal(20000) * 10.0 ** random.integers(-9, 6, 20000)).astype(np.float32):
        with np.errstate(over="ignore"):
            assert kernels.half_of(float(number)) == int(np.float16(number).view(np.uint16))


def test_bfloat16_is_rounded_to_the_nearest_even_number(kernels):
    kernels.bfloat16_of.restype = ctypes.c_ushort
    kernels.bfloat16_of.argtypes = (ctypes.c_float,)
    # 1.0, halfway up to the next number (even: down), just above halfway, infinity
    cases = [(1.0, 0x3F80), (1.00390625, 0x3F80), (1.0039064, 0x3F81), (1.01171875, 0x3F82), (float("inf"), 0x7F80)]
    assert [kernels.bfloat16_of(number) for number, _ in cases] == [bits for _, bits in cases]
