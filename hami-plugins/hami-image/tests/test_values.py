"""CvtColorMat, Mat2Tensor, Tensor2Mat and NormalizeTensor: channel orders, layouts and values."""

from __future__ import annotations

import cv2
import hami
import numpy as np
import pytest


def test_the_channel_order_is_converted(run, image):
    assert np.array_equal(run("CvtColorMat", {"color": "rgb"}, data=image)["result"], image[:, :, ::-1])
    assert run("CvtColorMat", {"color": "bgr"}, data=image)["result"] is image
    back = run("CvtColorMat", {"color": "bgr", "source": "rgb"}, data=image)["result"]
    assert np.array_equal(back, image[:, :, ::-1])


def test_the_key_color_of_the_request_is_the_source_and_is_updated(run, image):
    request = run("CvtColorMat", {"color": "rgb"}, data=image, color="rgb")
    assert request["result"] is image
    request = run("CvtColorMat", {"color": "rgb", "source": "rgb"}, data=image, color="bgr")
    assert np.array_equal(request["result"], image[:, :, ::-1])
    assert request["color"] == "rgb"


def test_an_unknown_color_of_the_request_is_an_error(run, image):
    with pytest.raises(hami.RequestError) as error:
        run("CvtColorMat", {"color": "rgb"}, data=image, color="cmyk")
    assert str(error.value).splitlines()[0] == "CvtColorMat: the key \"color\" must be rgb, bgr or gray, got 'cmyk'"


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_one_color_key_configures_decoding_and_conversion(run, encode, image, color):
    request = run("S[DecodeMat,CvtColorMat]", {"color": color}, data=encode(".png"))
    assert np.array_equal(request["result"], image if color == "bgr" else image[:, :, ::-1])
    assert request["color"] == color


def test_mat_to_tensor_keeps_the_layout_of_the_image(run, image):
    request = run("Mat2Tensor", {"data_format": "hwc", "dtype": "uint8"}, data=image)
    assert np.array_equal(request["result"], image)
    assert request["data_format"] == "hwc"
    assert run("Mat2Tensor", {"layout": "hwc"}, data=image[:, :, 0])["result"].shape == (30, 40, 1)


def test_gray_has_no_channel_axis_and_converts_back_to_three_channels(run, image):
    gray = run("CvtColorMat", {"color": "gray"}, data=image)["result"]
    assert np.array_equal(gray, cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))
    assert np.array_equal(run("CvtColorMat", {"color": "rgb"}, data=gray)["result"], np.dstack([gray] * 3))
    assert run("CvtColorMat", {"color": "gray"}, data=gray[:, :, None])["result"].shape == (30, 40)


@pytest.mark.parametrize("source", ["bgr", "rgb"])
@pytest.mark.parametrize("color", ["bgr", "rgb", "gray"])
def test_alpha_is_dropped(run, image, source, color):
    with_alpha = np.dstack([image, np.full((30, 40), 3, np.uint8)])
    params = {"color": color, "source": source}
    expected = run("CvtColorMat", params, data=image)["result"]
    assert np.array_equal(run("CvtColorMat", params, data=with_alpha)["result"], expected)


def test_an_unknown_color_is_a_config_error():
    with pytest.raises(hami.ConfigError):
        hami.pipe({"backend": "CvtColorMat", "color": "cmyk"})


def test_mat_to_tensor_moves_the_channels_first(run, image):
    tensor = run("Mat2Tensor", data=image)["result"]
    assert tensor.shape == (1, 3, 30, 40)
    assert tensor.dtype == np.float32
    assert tensor.flags.c_contiguous
    assert np.array_equal(tensor[0], image.transpose(2, 0, 1))


def test_mat_to_tensor_applies_layout_and_dtype(run, image):
    tensor = run("Mat2Tensor", {"layout": "chw", "dtype": "uint8"}, data=image[:, :, 1])["result"]
    assert tensor.shape == (1, 30, 40)
    assert tensor.dtype == np.uint8
    assert np.array_equal(tensor[0], image[:, :, 1])


@pytest.mark.parametrize(
    ("values", "dtype", "text"),
    [
        (
            np.uint16([1000, 255]),
            "uint8",
            "uint8 can hold values from 0 to 255, but the image of uint16 has values from 255 to 1000",
        ),
        (
            np.float32([0, 300]),
            "uint8",
            "uint8 can hold values from 0 to 255, but the image of float32 has values from 0.0 to 300.0",
        ),
        (
            np.float32([-1, 3]),
            "uint8",
            "uint8 can hold values from 0 to 255, but the image of float32 has values from -1.0 to 3.0",
        ),
        (
            np.float32([0, np.nan]),
            "uint8",
            "uint8 can hold values from 0 to 255, but the image of float32 has values from nan to nan",
        ),
        (
            np.float32([0, 1e6]),
            "float16",
            "float16 can hold values from -65504 to 65504, but the image of float32 has values from 0.0 to 1000000.0",
        ),
        (
            np.uint16([0, 65535]),
            "float16",
            "float16 can hold values from -65504 to 65504, but the image of uint16 has values from 0 to 65535",
        ),
    ],
)
def test_mat_to_tensor_refuses_values_that_the_dtype_cannot_hold(run, values, dtype, text):
    with pytest.raises(hami.RequestError) as error:
        run("Mat2Tensor", {"dtype": dtype}, data=values.reshape(1, -1))
    assert str(error.value).splitlines()[0] == f'Mat2Tensor: "dtype" = {text}; scale the image first or use float32'


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
def test_mat_to_tensor_keeps_values_that_the_dtype_can_hold(run, values, dtype):
    tensor = run("Mat2Tensor", {"dtype": dtype}, data=values.reshape(1, -1))["result"]
    assert np.array_equal(tensor.ravel(), values, equal_nan=dtype == "float32")


@pytest.mark.parametrize("layout", ["nchw", "chw"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_tensor_to_mat_is_the_inverse_of_mat_to_tensor(run, image, layout, dtype):
    tensor = run("Mat2Tensor", {"layout": layout, "dtype": dtype}, data=image)["result"]
    assert np.array_equal(run("Tensor2Mat", data=tensor)["result"], image)


def test_tensor_to_mat_rounds_and_clips(run):
    tensor = np.array([-5.0, 0.6, 254.4, 300.0, np.nan, np.inf], np.float32).reshape(1, 1, 6)
    assert run("Tensor2Mat", data=tensor)["result"].tolist() == [[0, 1, 254, 255, 0, 255]]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((2, 3, 4, 4), "Tensor2Mat: the tensor must hold one image (batch axis of length 1), got shape (2, 3, 4, 4)"),
        ((5, 4, 4), "Tensor2Mat: the tensor must have 1, 3 or 4 channels, got shape (5, 4, 4)"),
    ],
)
def test_a_tensor_that_is_not_one_image_is_refused(run, shape, text):
    with pytest.raises(hami.RequestError) as error:
        run("Tensor2Mat", data=np.zeros(shape, np.float32))
    assert str(error.value).splitlines()[0] == text


def test_normalize_computes_scale_mean_and_std_per_channel(run, image):
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    tensor = run("Mat2Tensor", data=image)["result"]
    result = run("NormalizeTensor", {"mean": mean, "std": std, "scale": 1 / 255}, data=tensor)["result"]
    expected = (tensor.astype(np.float64) / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_normalize_accepts_one_value_for_all_channels_and_integer_data(run):
    tensor = np.full((2, 4, 5), 10, np.uint8)
    assert (run("NormalizeTensor", {"mean": [5], "std": [2]}, data=tensor)["result"] == 2.5).all()


def test_normalize_does_not_modify_the_data(run):
    tensor = np.ones((1, 2, 2), np.float32)
    run("NormalizeTensor", {"mean": [1]}, data=tensor)
    assert (tensor == 1).all()


def test_normalize_refuses_another_number_of_channels(run):
    with pytest.raises(hami.RequestError) as error:
        run("NormalizeTensor", {"mean": [1, 2, 3]}, data=np.zeros((1, 4, 4), np.float32))
    assert str(error.value).splitlines()[0] == (
        'NormalizeTensor: "mean" and "std" are for 3 channels, got a tensor of shape (1, 4, 4)'
    )


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"std": ["0"]}, "NormalizeTensor: \"std\" is a divisor and must not contain 0, got ['0']"),
        ({"mean": ["red"]}, "NormalizeTensor: \"mean\" must be a list of finite numbers, got ['red']"),
        ({"std": [float("inf")]}, 'NormalizeTensor: "std" must be a list of finite numbers, got [inf]'),
        (
            {"std": [1e-300]},
            "NormalizeTensor: scale / std and mean / std must be finite numbers in float32, "
            "got scale 1.0, mean [0.0] and std [1e-300]",
        ),
        (
            {"scale": float("nan")},
            "NormalizeTensor: scale / std and mean / std must be finite numbers in float32, "
            "got scale nan, mean [0.0] and std [1.0]",
        ),
        (
            {"mean": ["1", "2"], "std": ["1", "2", "3"]},
            'NormalizeTensor: "mean" and "std" must have one number per channel, or one for all channels, '
            "got mean ['1', '2'] and std ['1', '2', '3']",
        ),
    ],
)
def test_invalid_mean_std_or_scale_is_a_config_error(params, text):
    with pytest.raises(hami.ConfigError) as error:
        hami.pipe({"backend": "NormalizeTensor", **params})
    assert text in str(error.value)


@pytest.mark.parametrize("backend", ["Tensor2Mat", "NormalizeTensor"])
def test_data_that_is_not_a_tensor_is_a_data_type_error(run, backend):
    with pytest.raises(hami.DataTypeError) as error:
        run(backend, data=b"bytes")
    assert str(error.value).splitlines()[0] == (
        f'{backend}: "data" must be a tensor (array C x H x W or N x C x H x W), got bytes'
    )
