"""ResizeMat, LetterBoxMat, TopLeftResizeMat and CropMat: sizes, aspect ratios, borders and coordinates."""

from __future__ import annotations

import ctypes
import sys

import cv2
import hami
import numpy as np
import pytest
from PIL import Image

SIZE = {"width": 60, "height": 90}
BAD_BOX = 'CropMat: "box" must be [x1, y1, x2, y2], four finite numbers in pixels, got '


def test_resize_returns_the_exact_size(run, image):
    result = run("ResizeMat", SIZE, data=image)["result"]
    assert result.shape == (90, 60, 3)
    assert np.array_equal(result, cv2.resize(image, (60, 90)))


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("nearest", cv2.INTER_NEAREST),
        ("linear", cv2.INTER_LINEAR),
        ("cubic", cv2.INTER_CUBIC),
        ("area", cv2.INTER_AREA),
        ("lanczos", cv2.INTER_LANCZOS4),
    ],
)
def test_interpolation_uses_the_opencv_method_with_that_name(run, image, name, flag):
    result = run("ResizeMat", {"width": 17, "height": 13, "interpolation": name}, data=image)["result"]
    assert np.array_equal(result, cv2.resize(image, (17, 13), interpolation=flag))


def test_resize_accepts_gray_images(run, image):
    assert run("ResizeMat", SIZE, data=image[:, :, 0])["result"].shape == (90, 60)


@pytest.mark.parametrize("backend", ["ResizeMat", "LetterBoxMat", "TopLeftResizeMat"])
@pytest.mark.parametrize("shape", [(90, 60), (45, 30), (30, 40)])
def test_a_channel_axis_of_length_1_is_kept(run, backend, shape):
    gray = np.ones(shape, np.uint8)
    assert run(backend, SIZE, data=gray)["result"].shape == (90, 60)
    assert run(backend, SIZE, data=gray[:, :, np.newaxis])["result"].shape == (90, 60, 1)


def test_letter_box_keeps_the_aspect_ratio_and_centres_the_image(run, image):
    request = run("LetterBoxMat", {**SIZE, "pad": 9}, data=image)
    result, box = request["result"], request["letter_box"]
    assert result.shape == (90, 60, 3)
    assert box == {"scale": 1.5, "left": 0, "top": 22, "image_width": image.shape[1], "image_height": image.shape[0]}
    assert (result[:22] == 9).all()
    assert (result[67:] == 9).all()
    assert np.array_equal(result[22:67], cv2.resize(image, (60, 45)))


def test_top_left_resize_keeps_the_aspect_ratio_and_pads_right_and_bottom(run, image):
    request = run("TopLeftResizeMat", {"width": 80, "height": 30, "pad": 7}, data=image)
    assert request["scale"] == 1.0
    assert np.array_equal(request["result"][:, :40], image)
    assert (request["result"][:, 40:] == 7).all()


@pytest.mark.parametrize("backend", ["LetterBoxMat", "TopLeftResizeMat"])
def test_a_border_may_have_one_value_for_each_channel(run, image, backend):
    request = run(backend, {"resize_w": 60, "resize_h": 90, "pad_val": "1, 2,3"}, data=image)
    assert (request["result"][-1] == (1, 2, 3)).all()
    with pytest.raises(hami.RequestError) as error:
        run(backend, {**SIZE, "pad": "1,2,3"}, data=image[:, :, 0])
    assert str(error.value).splitlines()[0] == (
        f'{backend}: "pad" has 3 values, but the image has 1 channels; give one value, or one for each channel'
    )
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": backend, **SIZE, "pad": "gray"})
    assert str(error.value).splitlines()[0] == (
        f'{backend}: "pad" must be an int, or an int for each channel as in 0,0,255, got "gray"'
    )


@pytest.mark.parametrize("backend", ["LetterBoxMat", "TopLeftResizeMat"])
def test_a_border_value_that_the_image_cannot_hold_is_refused(run, image, backend):
    for dtype, value, most in ((np.uint8, 10**12, 255), (np.uint8, -1, 255), (np.uint16, 65536, 65535)):
        with pytest.raises(hami.RequestError) as error:
            run(backend, {**SIZE, "pad": value}, data=image.astype(dtype))
        expected = f'{backend}: "pad" must be from 0 to {most} for an image of {np.dtype(dtype)}, got {value}'
        assert str(error.value).splitlines()[0] == expected
    for dtype, value in ((np.uint8, 255), (np.uint16, 65535), (np.float32, -3)):
        result = run(backend, {**SIZE, "pad": value}, data=image.astype(dtype))["result"]
        assert (result[-1] == value).all()


@pytest.mark.parametrize("backend", ["LetterBoxMat", "TopLeftResizeMat"])
@pytest.mark.parametrize("shape", [(1, 5000, 3), (5000, 1, 3), (1, 1)])
def test_clipped_coordinates_map_back_for_extreme_aspect_ratios(run, backend, shape):
    request = run(backend, {**SIZE, "pad": 0}, data=np.ones(shape, np.uint8))
    box = request.get("letter_box") or {"scale": request["scale"], "left": 0, "top": 0}
    rows, columns = np.nonzero(request["result"].reshape(90, 60, -1)[:, :, 0])
    assert (rows.min() - box["top"], columns.min() - box["left"]) == (0, 0)
    height, width = shape[:2]
    assert min((rows.max() + 1 - box["top"]) / box["scale"], height) == pytest.approx(height)
    assert min((columns.max() + 1 - box["left"]) / box["scale"], width) == pytest.approx(width)


@pytest.mark.parametrize("backend", ["LetterBoxMat", "TopLeftResizeMat"])
@pytest.mark.parametrize("shape", [(1, 5000, 3), (5000, 1, 3), (1, 1)])
def test_extreme_aspect_ratios_are_resized_to_the_exact_size(run, backend, shape):
    assert run(backend, SIZE, data=np.ones(shape, np.uint8))["result"].shape[:2] == (90, 60)


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        ("ResizeMat", 'parameter "width" of ResizeMat takes int from 1 to 32767, got 0'),
        ("LetterBoxMat", 'LetterBoxMat: "width" must be from 1 to 32767, got 0'),
        ("TopLeftResizeMat", 'TopLeftResizeMat: "width" must be from 1 to 32767, got 0'),
    ],
)
def test_an_invalid_size_is_a_config_error(backend, text):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": backend, "width": 0, "height": 5})
    assert text in str(error.value)


def test_crop_prefers_the_box_of_the_request_to_the_parameter(run, image):
    params = {"box": [0, 0, 4, 4]}
    assert np.array_equal(run("CropMat", params, data=image)["result"], image[:4, :4])
    assert np.array_equal(run("CropMat", params, data=image, box=[5, 6, 15, 26])["result"], image[6:26, 5:15])


def test_crop_rounds_the_box_and_clips_it_to_the_image(run, image):
    result = run("CropMat", data=image, box=np.array([-3.0, 10.4, 1000.0, 20.6]))["result"]
    assert np.array_equal(result, image[10:21])


def test_a_box_outside_the_image_is_refused(run, image):
    with pytest.raises(hami.RequestError) as error:
        run("CropMat", data=image, box=[50, 0, 60, 10])
    assert str(error.value).splitlines()[0] == (
        "CropMat: the box [50.0, 0.0, 60.0, 10.0] does not overlap the image, which is 40 x 30; "
        "a box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2"
    )


@pytest.mark.parametrize("box", [[0.4, 0.4, 0.5, 9.0], [1.0, 7.6, 9.0, 8.4], [39.6, 0.0, 39.9, 9.0]])
def test_a_box_that_is_empty_after_rounding_is_refused(run, image, box):
    with pytest.raises(hami.RequestError) as error:
        run("CropMat", data=image, box=box)
    assert str(error.value).splitlines()[0] == (
        f"CropMat: the box {box} is empty after rounding to whole pixels; enlarge it"
    )


def test_a_missing_box_is_an_error(run, image):
    with pytest.raises(hami.RequestError) as error:
        run("CropMat", data=image)
    assert str(error.value).splitlines()[0] == (
        'CropMat: no box was given; give [x1, y1, x2, y2] as the key "box" of the request or as a parameter'
    )


@pytest.mark.parametrize(
    "box",
    [
        [1, 2, 3],
        "left",
        "1234",
        b"1234",
        {1: 0, 2: 0, 3: 0, 4: 0},
        {1, 2, 3, 4},
        5,
        [1, 2, 3, float("nan")],
        [1, 2, 3, "x"],
        [0, 0, 1, 10**400],
    ],
)
def test_an_invalid_box_is_refused(run, image, box):
    with pytest.raises(hami.RequestError) as error:
        run("CropMat", data=image, box=box)
    assert str(error.value).splitlines()[0] == BAD_BOX + repr(box)


@pytest.mark.parametrize("box", [[1, 2, 3], [0, 0, float("inf"), 1], ["left", 0, 1, 1]])
def test_an_invalid_box_parameter_is_a_config_error(box):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "CropMat", "box": box})
    assert str(error.value).splitlines()[0] == BAD_BOX + repr(box)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("page.png", 'ResizeMat: "data" must be an image (array H x W or H x W x C, as DecodeMat returns), got str'),
        (
            np.zeros((2, 3, 4, 5), np.uint8),
            'ResizeMat: "data" must be an image (array H x W, or H x W x C with 1, 3 or 4 channels), '
            "got an array of shape (2, 3, 4, 5)",
        ),
        (
            np.zeros((4, 4), np.int64),
            "ResizeMat: the image must be uint8, uint16 or float32, got int64; convert it with .astype()",
        ),
    ],
)
def test_data_that_is_not_an_image_is_a_data_type_error(run, data, text):
    with pytest.raises(hami.DataTypeError) as error:
        run("ResizeMat", SIZE, data=data)
    assert str(error.value).splitlines()[0] == text


def test_an_empty_image_is_refused(run):
    with pytest.raises(hami.RequestError) as error:
        run("ResizeMat", SIZE, data=np.zeros((0, 5, 3), np.uint8))
    assert str(error.value).splitlines()[0] == "ResizeMat: the image is empty, its shape is (0, 5, 3)"


def test_an_object_that_supports_dlpack_is_accepted(run, image):
    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    result = run("ResizeMat", {"width": 40, "height": 30}, data=Tensor(image))["result"]
    assert np.array_equal(result, image)


def test_an_object_with_broken_dlpack_support_is_a_data_type_error(run):
    class Broken:
        def __dlpack__(self, **_):
            return None

    with pytest.raises(hami.DataTypeError) as error:
        run("ResizeMat", SIZE, data=Broken())
    assert str(error.value).startswith(
        'ResizeMat: "data" must be an image (array H x W or H x W x C, as DecodeMat returns), '
        "got a Broken that cannot be read through DLPack: "
    )


def test_a_dlpack_struct_without_a_shape_is_a_data_type_error(run):
    """NumPy would read the shape at address 0."""

    class WithoutShape:
        def __dlpack__(self, **_):
            capsule = np.zeros((2, 2), np.uint8).__dlpack__()
            address = ctypes.pythonapi.PyCapsule_GetPointer
            address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            ctypes.memset(address(capsule, b"dltensor") + 24, 0, 8)
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(hami.DataTypeError) as error:
        run("Mat2Tensor", data=WithoutShape())
    assert str(error.value).splitlines()[0].endswith("read through DLPack: a DLPack tensor without a shape")


@pytest.mark.parametrize("name", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_pillow_resize_has_the_bits_of_pillow(run, name, channels):
    shape = (37, 53, channels) if channels else (37, 53)
    source = np.random.default_rng(channels).integers(0, 256, shape, np.uint8)
    for size in ((17, 13), (80, 90), (53, 5)):
        result = run("PillowResizeMat", {"resize_w": size[0], "resize_h": size[1], "interpolation": name}, data=source)
        picture = Image.fromarray(source[..., 0] if channels == 1 else source)
        expected = np.asarray(picture.resize(size, Image.Resampling[name.upper()]))
        assert np.array_equal(result["result"], expected.reshape(result["result"].shape))
        assert result["result"].shape == (size[1], size[0], *shape[2:])


def test_pillow_resize_takes_uint8_only(run, image):
    with pytest.raises(hami.DataTypeError, match="must be uint8, got float32"):
        run("PillowResizeMat", SIZE, data=image.astype(np.float32))


def test_without_pillow_the_error_names_what_to_install(run, image, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(hami.PluginError, match=r"needs Pillow: pip install \"hami-image\[pillow\]\""):
        run("PillowResizeMat", SIZE, data=image)
