"""ResizeMat, LetterBoxMat, TopLeftResizeMat, CropMat: sizes, aspect, borders, and the boxes that map back."""

from __future__ import annotations

import cv2
import hami
import numpy as np
import pytest

SIZE = {"width": 60, "height": 90}


def test_resize_gives_the_exact_size(run, picture):
    result = run("ResizeMat", SIZE, data=picture)["result"]
    assert result.shape == (90, 60, 3)
    assert np.array_equal(result, cv2.resize(picture, (60, 90)))


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
def test_interpolation_is_opencvs_of_that_name(run, picture, name, flag):
    result = run("ResizeMat", {"width": 17, "height": 13, "interpolation": name}, data=picture)["result"]
    assert np.array_equal(result, cv2.resize(picture, (17, 13), interpolation=flag))


def test_resize_takes_gray_pictures(run, picture):
    assert run("ResizeMat", SIZE, data=picture[:, :, 0])["result"].shape == (90, 60)


@pytest.mark.parametrize("backend", ["ResizeMat", "LetterBoxMat", "TopLeftResizeMat"])
@pytest.mark.parametrize("shape", [(90, 60), (45, 30), (30, 40)])
def test_an_axis_of_one_channel_is_kept_whatever_the_size(run, backend, shape):
    gray = np.ones(shape, np.uint8)
    assert run(backend, SIZE, data=gray)["result"].shape == (90, 60)
    assert run(backend, SIZE, data=gray[:, :, np.newaxis])["result"].shape == (90, 60, 1)


def test_letter_box_keeps_the_aspect_and_centres(run, picture):
    request = run("LetterBoxMat", {**SIZE, "pad": 9}, data=picture)
    result, box = request["result"], request["letter_box"]
    assert result.shape == (90, 60, 3)
    assert box == {"scale": 1.5, "left": 0, "top": 22}
    assert (result[:22] == 9).all()
    assert (result[67:] == 9).all()
    assert np.array_equal(result[22:67], cv2.resize(picture, (60, 45)))


def test_top_left_resize_keeps_the_aspect_and_pads_right_and_bottom(run, picture):
    request = run("TopLeftResizeMat", {"width": 80, "height": 30, "pad": 7}, data=picture)
    assert request["scale"] == 1.0
    assert np.array_equal(request["result"][:, :40], picture)
    assert (request["result"][:, 40:] == 7).all()


@pytest.mark.parametrize("backend", ["LetterBoxMat", "TopLeftResizeMat"])
def test_a_border_has_a_value_that_the_picture_can_hold(run, picture, backend):
    for dtype, value, most in ((np.uint8, 10**12, 255), (np.uint8, -1, 255), (np.uint16, 65536, 65535)):
        with pytest.raises(hami.RequestError) as error:
            run(backend, {**SIZE, "pad": value}, data=picture.astype(dtype))
        expected = f'{backend}: "pad" is from 0 to {most} for a picture of {np.dtype(dtype)}, got {value}'
        assert str(error.value).splitlines()[0] == expected
    for dtype, value in ((np.uint8, 255), (np.uint16, 65535), (np.float32, -3)):
        result = run(backend, {**SIZE, "pad": value}, data=picture.astype(dtype))["result"]
        assert (result[-1] == value).all()


@pytest.mark.parametrize("backend", ["LetterBoxMat", "TopLeftResizeMat"])
@pytest.mark.parametrize("shape", [(1, 5000, 3), (5000, 1, 3), (1, 1)])
def test_extreme_aspects_map_back_once_cut_at_the_edges(run, backend, shape):
    request = run(backend, {**SIZE, "pad": 0}, data=np.ones(shape, np.uint8))
    box = request.get("letter_box") or {"scale": request["scale"], "left": 0, "top": 0}
    rows, columns = np.nonzero(request["result"].reshape(90, 60, -1)[:, :, 0])
    assert (rows.min() - box["top"], columns.min() - box["left"]) == (0, 0)
    height, width = shape[:2]
    assert min((rows.max() + 1 - box["top"]) / box["scale"], height) == pytest.approx(height)
    assert min((columns.max() + 1 - box["left"]) / box["scale"], width) == pytest.approx(width)


@pytest.mark.parametrize("backend", ["LetterBoxMat", "TopLeftResizeMat"])
@pytest.mark.parametrize("shape", [(1, 5000, 3), (5000, 1, 3), (1, 1)])
def test_extreme_aspects_still_give_the_exact_size(run, backend, shape):
    assert run(backend, SIZE, data=np.ones(shape, np.uint8))["result"].shape[:2] == (90, 60)


@pytest.mark.parametrize("backend", ["ResizeMat", "LetterBoxMat", "TopLeftResizeMat"])
def test_a_size_that_cannot_be_is_a_config_error(backend):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": backend, "width": 0, "height": 5})
    assert f'{backend}: "width" is from 1 to 32767, got 0' in str(error.value)


def test_crop_takes_the_box_of_the_request_before_that_of_the_parameter(run, picture):
    params = {"box": [0, 0, 4, 4]}
    assert np.array_equal(run("CropMat", params, data=picture)["result"], picture[:4, :4])
    assert np.array_equal(run("CropMat", params, data=picture, box=[5, 6, 15, 26])["result"], picture[6:26, 5:15])


def test_crop_rounds_and_cuts_at_the_edges(run, picture):
    result = run("CropMat", data=picture, box=np.array([-3.0, 10.4, 1000.0, 20.6]))["result"]
    assert np.array_equal(result, picture[10:21])


def test_a_box_outside_the_picture_is_refused(run, picture):
    with pytest.raises(hami.RequestError) as error:
        run("CropMat", data=picture, box=[50, 0, 60, 10])
    assert str(error.value).splitlines()[0] == (
        "CropMat: nothing of the box [50.0, 0.0, 60.0, 10.0] lies inside the picture, which is 40 x 30; "
        "a box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2"
    )


@pytest.mark.parametrize("box", [[0.4, 0.4, 0.5, 9.0], [1.0, 7.6, 9.0, 8.4], [39.6, 0.0, 39.9, 9.0]])
def test_a_box_that_rounds_to_no_pixel_is_refused(run, picture, box):
    with pytest.raises(hami.RequestError) as error:
        run("CropMat", data=picture, box=box)
    assert str(error.value).splitlines()[0] == (
        f"CropMat: the box {box} holds no pixel once it is rounded to whole ones; give a larger one"
    )


def test_a_missing_box_is_named(run, picture):
    with pytest.raises(hami.RequestError) as error:
        run("CropMat", data=picture)
    assert str(error.value).splitlines()[0] == (
        'CropMat: the request has no "box" and the backend no default; give [x1, y1, x2, y2] in one of them'
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
def test_a_box_that_is_none_is_refused(run, picture, box):
    with pytest.raises(hami.RequestError) as error:
        run("CropMat", data=picture, box=box)
    assert str(error.value).splitlines()[0] == f'CropMat: "box" is [x1, y1, x2, y2] in pixels, got {box!r}'


@pytest.mark.parametrize("box", [[1, 2, 3], [0, 0, float("inf"), 1], ["left", 0, 1, 1]])
def test_a_parameter_box_that_is_none_is_a_config_error(box):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "CropMat", "box": box})
    assert str(error.value).splitlines()[0] == f'CropMat: "box" is x1, y1, x2, y2 in pixels, got {box!r}'


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("page.png", "ResizeMat takes a picture (an array H x W or H x W x C, as DecodeMat gives), got str"),
        (
            np.zeros((2, 3, 4, 5), np.uint8),
            "ResizeMat takes a picture (an array H x W or H x W x C with 1, 3 or 4 channels), "
            "got an array of shape (2, 3, 4, 5)",
        ),
        (np.zeros((4, 4), np.int64), "ResizeMat takes a picture of uint8, uint16 or float32, got int64"),
    ],
)
def test_what_is_no_picture_is_a_data_type_error(run, data, text):
    with pytest.raises(hami.DataTypeError) as error:
        run("ResizeMat", SIZE, data=data)
    assert str(error.value).splitlines()[0] == text


def test_an_empty_picture_is_refused(run):
    with pytest.raises(hami.RequestError) as error:
        run("ResizeMat", SIZE, data=np.zeros((0, 5, 3), np.uint8))
    assert str(error.value).splitlines()[0] == "ResizeMat: the picture is empty, its shape is (0, 5, 3)"


def test_what_speaks_dlpack_is_taken(run, picture):
    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    result = run("ResizeMat", {"width": 40, "height": 30}, data=Tensor(picture))["result"]
    assert np.array_equal(result, picture)


def test_what_speaks_dlpack_badly_is_a_data_type_error(run):
    class Half:
        def __dlpack__(self, **_):
            return None

    with pytest.raises(hami.DataTypeError) as error:
        run("ResizeMat", SIZE, data=Half())
    assert str(error.value).startswith(
        "ResizeMat takes a picture (an array H x W or H x W x C, as DecodeMat gives), got a Half that is not readable: "
    )
