"""CvtColorMat, Mat2Tensor, Tensor2Mat, NormalizeTensor: channel orders, layouts, numbers."""

from __future__ import annotations

import cv2
import hami
import numpy as np
import pytest


def test_colors_are_exchanged(run, picture):
    assert np.array_equal(run("CvtColorMat", {"color": "rgb"}, data=picture)["result"], picture[:, :, ::-1])
    assert run("CvtColorMat", {"color": "bgr"}, data=picture)["result"] is picture
    back = run("CvtColorMat", {"color": "bgr", "source": "rgb"}, data=picture)["result"]
    assert np.array_equal(back, picture[:, :, ::-1])


def test_gray_has_one_plane_and_spreads_back_to_three(run, picture):
    gray = run("CvtColorMat", {"color": "gray"}, data=picture)["result"]
    assert np.array_equal(gray, cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY))
    assert np.array_equal(run("CvtColorMat", {"color": "rgb"}, data=gray)["result"], np.dstack([gray] * 3))
    assert run("CvtColorMat", {"color": "gray"}, data=gray[:, :, None])["result"].shape == (30, 40)


@pytest.mark.parametrize("source", ["bgr", "rgb"])
@pytest.mark.parametrize("color", ["bgr", "rgb", "gray"])
def test_alpha_is_dropped(run, picture, source, color):
    with_alpha = np.dstack([picture, np.full((30, 40), 3, np.uint8)])
    params = {"color": color, "source": source}
    expected = run("CvtColorMat", params, data=picture)["result"]
    assert np.array_equal(run("CvtColorMat", params, data=with_alpha)["result"], expected)


def test_an_unknown_color_is_a_config_error():
    with pytest.raises(hami.ConfigError):
        hami.pipe({"backend": "CvtColorMat", "color": "cmyk"})


def test_mat_to_tensor_moves_channels_first(run, picture):
    tensor = run("Mat2Tensor", data=picture)["result"]
    assert tensor.shape == (1, 3, 30, 40)
    assert tensor.dtype == np.float32
    assert tensor.flags.c_contiguous
    assert np.array_equal(tensor[0], picture.transpose(2, 0, 1))


def test_mat_to_tensor_layout_and_dtype_are_chosen(run, picture):
    tensor = run("Mat2Tensor", {"layout": "chw", "dtype": "uint8"}, data=picture[:, :, 1])["result"]
    assert tensor.shape == (1, 30, 40)
    assert tensor.dtype == np.uint8
    assert np.array_equal(tensor[0], picture[:, :, 1])


@pytest.mark.parametrize(
    ("values", "dtype", "told"),
    [
        (np.uint16([1000, 255]), "uint8", "uint8 holds 0 to 255, got a picture of uint16 with values from 255 to 1000"),
        (np.float32([0, 300]), "uint8", "uint8 holds 0 to 255, got a picture of float32 with values from 0.0 to 300.0"),
        (np.float32([-1, 3]), "uint8", "uint8 holds 0 to 255, got a picture of float32 with values from -1.0 to 3.0"),
        (
            np.float32([0, np.nan]),
            "uint8",
            "uint8 holds 0 to 255, got a picture of float32 with values from nan to nan",
        ),
        (
            np.float32([0, 1e6]),
            "float16",
            "float16 holds -65504 to 65504, got a picture of float32 with values from 0.0 to 1000000.0",
        ),
        (
            np.uint16([0, 65535]),
            "float16",
            "float16 holds -65504 to 65504, got a picture of uint16 with values from 0 to 65535",
        ),
    ],
)
def test_mat_to_tensor_refuses_values_that_the_type_cannot_hold(run, values, dtype, told):
    with pytest.raises(hami.RequestError) as error:
        run("Mat2Tensor", {"dtype": dtype}, data=values.reshape(1, -1))
    assert str(error.value).splitlines()[0] == f'Mat2Tensor: "dtype" = {told}; scale it before, or take float32'


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.uint16([0, 255]), "uint8"),
        (np.float32([0, 255]), "uint8"),
        (np.float32([-65504, 65504]), "float16"),
        (np.uint16([0, 65535]), "float32"),
        (np.float32([np.nan, np.inf]), "float32"),
    ],
)
def test_mat_to_tensor_keeps_values_that_the_type_can_hold(run, values, dtype):
    tensor = run("Mat2Tensor", {"dtype": dtype}, data=values.reshape(1, -1))["result"]
    assert np.array_equal(tensor.ravel(), values, equal_nan=dtype == "float32")


@pytest.mark.parametrize("layout", ["nchw", "chw"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_tensor_to_mat_undoes_mat_to_tensor(run, picture, layout, dtype):
    tensor = run("Mat2Tensor", {"layout": layout, "dtype": dtype}, data=picture)["result"]
    assert np.array_equal(run("Tensor2Mat", data=tensor)["result"], picture)


def test_tensor_to_mat_rounds_and_cuts(run):
    tensor = np.array([-5.0, 0.6, 254.4, 300.0, np.nan, np.inf], np.float32).reshape(1, 1, 6)
    assert run("Tensor2Mat", data=tensor)["result"].tolist() == [[0, 1, 254, 255, 0, 255]]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((2, 3, 4, 4), "Tensor2Mat makes one picture: the batch axis is 1, got a tensor of shape (2, 3, 4, 4)"),
        ((5, 4, 4), "Tensor2Mat: a picture has 1, 3 or 4 channels, got a tensor of shape (5, 4, 4)"),
    ],
)
def test_a_tensor_that_is_no_picture_is_refused(run, shape, text):
    with pytest.raises(hami.RequestError) as error:
        run("Tensor2Mat", data=np.zeros(shape, np.float32))
    assert str(error.value).splitlines()[0] == text


def test_normalize_computes_scale_mean_and_std_per_channel(run, picture):
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    tensor = run("Mat2Tensor", data=picture)["result"]
    result = run("NormalizeTensor", {"mean": mean, "std": std, "scale": 1 / 255}, data=tensor)["result"]
    expected = (tensor.astype(np.float64) / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_normalize_takes_one_value_for_all_and_integers(run):
    tensor = np.full((2, 4, 5), 10, np.uint8)
    assert (run("NormalizeTensor", {"mean": [5], "std": [2]}, data=tensor)["result"] == 2.5).all()


def test_normalize_leaves_the_data_alone(run):
    tensor = np.ones((1, 2, 2), np.float32)
    run("NormalizeTensor", {"mean": [1]}, data=tensor)
    assert (tensor == 1).all()


def test_normalize_for_other_channels_is_refused(run):
    with pytest.raises(hami.RequestError) as error:
        run("NormalizeTensor", {"mean": [1, 2, 3]}, data=np.zeros((1, 4, 4), np.float32))
    assert str(error.value).splitlines()[0] == (
        'NormalizeTensor: "mean" and "std" are for 3 channels, got a tensor of shape (1, 4, 4)'
    )


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"std": ["0"]}, "NormalizeTensor: \"std\" divides, so no value of it may be 0, got ['0']"),
        ({"mean": ["red"]}, "NormalizeTensor: \"mean\" is a list of finite numbers, got ['red']"),
        ({"std": [float("inf")]}, 'NormalizeTensor: "std" is a list of finite numbers, got [inf]'),
        (
            {"std": [1e-300]},
            "NormalizeTensor: scale / std and mean / std must be finite numbers of float32, "
            "got scale 1.0, mean [0.0] and std [1e-300]",
        ),
        (
            {"scale": float("nan")},
            "NormalizeTensor: scale / std and mean / std must be finite numbers of float32, "
            "got scale nan, mean [0.0] and std [1.0]",
        ),
        (
            {"mean": ["1", "2"], "std": ["1", "2", "3"]},
            'NormalizeTensor: "mean" and "std" have one number per channel or one for all, '
            "got mean ['1', '2'] and std ['1', '2', '3']",
        ),
    ],
)
def test_impossible_means_are_config_errors(params, text):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "NormalizeTensor", **params})
    assert text in str(error.value)


@pytest.mark.parametrize("backend", ["Tensor2Mat", "NormalizeTensor"])
def test_what_is_no_tensor_is_a_data_type_error(run, backend):
    with pytest.raises(hami.DataTypeError) as error:
        run(backend, data=b"bytes")
    assert str(error.value).splitlines()[0] == (
        f"{backend} takes a tensor (an array C x H x W or N x C x H x W), got bytes"
    )
