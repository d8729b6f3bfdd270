"""ResizeTensor, CropTensor, CvtColorTensor and NormalizeTensor: values, shapes and rejected input."""

from __future__ import annotations

import hami
import numpy as np
import pytest
import torch
from helpers import message
from PIL import Image


def test_decode_resize_and_convert_run_in_one_sequence(pipe, encode):
    expression = "Sequential[DecodeTensor,ResizeTensor,CvtColorTensor,SyncTensor]"
    request = pipe(expression, width=20, height=10, color="bgr")({"data": encode("PNG")})
    assert request["result"].shape == (1, 3, 10, 20)
    assert request["color"] == "bgr"


def test_an_image_that_has_the_color_format_is_not_converted_again(run, encode, chw):
    """DecodeTensor and CvtColorTensor read the same node key `color`; the key of the request avoids two conversions."""
    for color, expected in (("rgb", chw), ("bgr", chw.flip(0))):
        request = run("S[DecodeTensor,CvtColorTensor]", {"color": color}, data=encode("PNG"))
        assert torch.equal(request["result"][0], expected)


@pytest.mark.parametrize(
    ("interpolation", "filter"), [("linear", Image.Resampling.BILINEAR), ("cubic", Image.Resampling.BICUBIC)]
)
def test_with_antialias_the_result_matches_pillow(run, image, chw, interpolation, filter):
    params = {"width": 17, "height": 13, "interpolation": interpolation, "antialias": True}
    result = run("ResizeTensor", params, data=chw)["result"]
    expected = np.asarray(Image.fromarray(image).resize((17, 13), filter)).transpose(2, 0, 1)
    assert result.dtype == torch.uint8
    assert np.abs(result.numpy().astype(int) - expected.astype(int)).max() <= 2


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic", "area"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_resizing_a_uniform_image_keeps_value_and_dtype(run, interpolation, dtype):
    data = torch.full((2, 3, 8, 6), 100, dtype=dtype)
    result = run("ResizeTensor", {"width": 11, "height": 5, "interpolation": interpolation}, data=data)["result"]
    assert result.dtype == dtype
    torch.testing.assert_close(result, torch.full((2, 3, 5, 11), 100, dtype=dtype))


@pytest.mark.parametrize(("interpolation", "mode"), [("linear", "bilinear"), ("cubic", "bicubic")])
def test_align_corners_maps_the_corner_pixels_onto_each_other(run, chw, interpolation, mode):
    params = {"resize_w": 17, "resize_h": "13", "interpolation": interpolation, "align_corners": True}
    result = run("ResizeTensor(rounded=false)", params, data=chw)["result"]
    expected = torch.nn.functional.interpolate(chw[None].float(), (13, 17), mode=mode, align_corners=True)[0]
    assert torch.equal(result, expected)
    corners = result[:, [0, 0, -1, -1], [0, -1, 0, -1]]
    torch.testing.assert_close(corners, chw[:, [0, 0, -1, -1], [0, -1, 0, -1]].float())


def test_images_in_the_layout_hwc_stay_in_it(run, encode, chw):
    expression = (
        "S[DecodeTensor,ResizeTensor,CvtColorTensor(color=bgr),CropTensor(box='0,0,10,5'),hami-torch::NormalizeTensor]"
    )
    params = {"resize_w": 20, "resize_h": 15}
    expected = run(expression, params, data=encode("PNG"))["result"]
    request = run(expression, {**params, "data_format": "hwc"}, data=encode("PNG"))
    assert request["data_format"] == "hwc"
    assert torch.equal(request["result"], expected[0].permute(1, 2, 0))


def test_images_of_both_layouts_run_in_one_batch(pipe, chw):
    resize = pipe("ResizeTensor", width=20, height=15, max=4)
    requests = [{"data": chw}, {"data": chw.permute(1, 2, 0).contiguous(), "data_format": "hwc"}]
    one, other = (request["result"] for request in resize(requests))
    assert torch.equal(one.permute(1, 2, 0), other)


def test_an_image_of_the_target_size_is_passed_on_without_a_copy(run, chw):
    assert run("ResizeTensor", {"width": 40, "height": 30}, data=chw)["result"].data_ptr() == chw.data_ptr()


def test_images_in_a_batch_get_the_same_result_as_alone(pipe, chw):
    """Images of equal shape are processed together; a batch may mix shapes and dtypes."""
    resize = pipe("ResizeTensor", width=9, height=7, max=8, batching="greedy")
    given = [chw, chw[None], chw.flip(1), chw[:, :20], torch.stack([chw, chw.flip(2)]), chw.float()]
    requests = resize([{"data": data} for data in given])
    for data, request in zip(given, requests, strict=True):
        assert torch.equal(request["result"], resize({"data": data})["result"])
        assert request["result"].shape == (*data.shape[:-2], 7, 9)


def test_an_invalid_image_fails_alone(pipe, chw):
    requests = [{"data": chw}, {"data": "image"}, {"data": chw[0]}, {"data": chw[:, :0]}, {}]
    with pytest.raises(hami.BatchError) as raised:
        pipe("ResizeTensor", width=9, height=7, max=8, batching="greedy")(requests)
    messages = {index: str(error).splitlines()[0] for index, error in raised.value.errors}
    dtypes = "uint8, float16, bfloat16, float32, float64"
    assert messages == {
        1: "ResizeTensor takes a torch tensor or an object with DLPack, for example a NumPy array; got str",
        2: f"ResizeTensor takes images (a tensor C x H x W or N x C x H x W of {dtypes}), got uint8 [30, 40]",
        3: "ResizeTensor: the image is empty, its shape is [3, 0, 40]",
        4: 'ResizeTensor: the request has no "data"; its keys are []',
    }
    assert requests[0]["result"].shape == (3, 7, 9)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"width": 0, "height": 1}, 'ResizeTensor: "width" must be at least 1, got 0'),
        (
            {"width": 1, "height": 1, "interpolation": "area", "antialias": True},
            'ResizeTensor: "antialias" needs interpolation linear or cubic, got area',
        ),
        (
            {"width": 1, "height": 1, "interpolation": "nearest", "align_corners": True},
            'ResizeTensor: "align_corners" needs interpolation linear or cubic, got nearest',
        ),
    ],
)
def test_invalid_parameters_are_rejected(pipe, config, text):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("ResizeTensor", **config)
    assert message(raised) == text


def test_the_box_of_the_request_overrides_the_parameter_and_is_clipped(run, chw):
    params = {"box": "1,2,5,6"}
    assert torch.equal(run("CropTensor", params, data=chw)["result"], chw[:, 2:6, 1:5])
    result = run("CropTensor", params, data=chw[None], box=[-3, 20.4, 9.6, 99])["result"]
    assert torch.equal(result, chw[None, :, 20:, :10])


@pytest.mark.parametrize(
    ("request_keys", "text"),
    [
        (
            {},
            'CropTensor: the request has no key "box" and the parameter "box" is not set; set one of them to '
            "[x1, y1, x2, y2]",
        ),
        ({"box": [1, 2, 3]}, 'CropTensor: "box" must be [x1, y1, x2, y2] in pixels, got [1, 2, 3]'),
        ({"box": "here"}, "CropTensor: \"box\" must be [x1, y1, x2, y2] in pixels, got 'here'"),
        (
            {"box": [50, 0, 60, 10]},
            "CropTensor: the box [50.0, 0.0, 60.0, 10.0] does not overlap the image, which is 40 x 30; "
            "a box is [x1, y1, x2, y2] with x1 < x2 and y1 < y2",
        ),
    ],
)
def test_a_missing_or_invalid_box_is_rejected(run, chw, request_keys, text):
    with pytest.raises(hami.RequestError) as raised:
        run("CropTensor", data=chw, **request_keys)
    assert message(raised) == text


def test_gray_is_the_weighted_sum_for_rgb_and_bgr(run, chw):
    expected = (chw * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(0, keepdim=True).round().to(torch.uint8)
    assert torch.equal(run("CvtColorTensor", {"color": "gray"}, data=chw)["result"], expected)
    turned = run("CvtColorTensor", {"color": "gray", "source": "bgr"}, data=chw.flip(0))
    assert torch.equal(turned["result"], expected)
    assert run("CvtColorTensor", {"color": "rgb"}, data=turned["result"])["result"].shape == (3, 30, 40)


def test_an_unknown_color_format_or_number_of_channels_is_rejected(run, chw):
    with pytest.raises(hami.RequestError) as raised:
        run("CvtColorTensor", {"color": "gray"}, data=chw, color="hsv")
    assert message(raised) == "CvtColorTensor: the key \"color\" must be rgb, bgr or gray, got 'hsv'"
    with pytest.raises(hami.DataTypeError) as raised:
        run("CvtColorTensor", {"color": "gray"}, data=chw[:2])
    assert message(raised) == "CvtColorTensor takes images of 1 or 3 channels, got shape [2, 30, 40]"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_normalization_scales_subtracts_and_divides(run, chw, dtype):
    params = {"mean": [0.5, 0.25, 0.125], "std": [0.5, 1, 2], "scale": 1 / 255, "dtype": dtype}
    result = run("hami-torch::NormalizeTensor", params, data=chw)["result"]
    mean, std = torch.tensor([0.5, 0.25, 0.125]).view(3, 1, 1), torch.tensor([0.5, 1, 2]).view(3, 1, 1)
    expected = ((chw.double() / 255 - mean) / std).to(result.dtype)
    assert result.dtype == getattr(torch, dtype)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (
            {"mean": [1, 2], "std": [1, 2, 3]},
            'NormalizeTensor: "mean" and "std" must have one number per channel, or one for all; '
            "got [1, 2] and [1, 2, 3]",
        ),
        ({"std": [0]}, 'NormalizeTensor: "std" is a divisor and must not contain 0, got [0]'),
        ({"mean": ["x"]}, "NormalizeTensor: \"mean\" must be a list of numbers, got ['x']"),
    ],
)
def test_invalid_mean_and_std_are_rejected(pipe, params, text):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("hami-torch::NormalizeTensor", **params)
    assert message(raised) == text


def test_images_with_another_number_of_channels_are_rejected(run, chw):
    with pytest.raises(hami.RequestError) as raised:
        run("hami-torch::NormalizeTensor", {"mean": [1, 2]}, data=chw)
    assert message(raised) == (
        'NormalizeTensor: "mean" and "std" are for 2 channels, got a tensor of shape [3, 30, 40]'
    )
