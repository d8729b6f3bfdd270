"""LetterBoxTensor, WarpAffineTensor and CropTensor, compared with NumPy. They run on a GPU, else on the fake driver."""

from __future__ import annotations

from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("cuda")


def run(backend: str, *requests: dict[str, Any]) -> list[Any]:
    """Return the results of requests that run as one batch, as NumPy arrays."""
    config = {
        "backend": f"S[GpuTensor,{backend},hami-cuda::CpuTensor]",
        "max": len(requests),
        "batching": "greedy",
    }
    with hami.pipe(config) as pipe:
        pipe(list(requests))
    return [hami.to_numpy(request["result"]) for request in requests]


def pictures(*sizes: tuple[int, int], dtype: Any = np.uint8) -> list[Any]:
    random = np.random.default_rng(11)
    return [random.integers(0, 256, (1, 3, *size)).astype(dtype) for size in sizes]


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
def test_an_image_is_fitted_centred_and_padded(dtype):
    images = pictures((20, 30), (64, 5), (7, 7), (1, 100), dtype=dtype)
    requests = [{"data": image} for image in images]
    results = run("LetterBoxTensor(width=24,height=16)", *requests)
    for image, request, result in zip(images, requests, results, strict=True):
        rows, columns = image.shape[2:]
        scale = min(24 / columns, 16 / rows)
        height, width = max(1, round(rows * scale)), max(1, round(columns * scale))
        top, left = (16 - height) // 2, (24 - width) // 2
        size = {"image_width": columns, "image_height": rows}
        assert request["letter_box"] == {"scale": pytest.approx(scale), "left": left, "top": top, **size}
        expected = np.full((1, 3, 16, 24), 114, dtype)
        (fitted,) = run(f"ResizeTensor(width={width},height={height})", {"data": image})
        expected[..., top : top + height, left : left + width] = fitted
        np.testing.assert_array_equal(result, expected)


def test_the_border_has_a_value_for_each_channel():
    (image,) = pictures((8, 4))
    (result,) = run("LetterBoxTensor(width=8,height=8,pad='1,2,3')", {"data": image})
    assert (result[0, :, :, 0] == np.array([[1], [2], [3]])).all()
    assert (result[..., 2:6] == image).all()


def test_a_letter_box_is_fused_with_color_and_normalization():
    chain = "LetterBoxTensor(pad='10,20,30'),CvtColorTensor,hami-cuda::NormalizeTensor"
    keys = {"width": 24, "height": 16, "color": "bgr", "mean": "3,2,1", "std": "2"}

    def results(**more: Any) -> list[Any]:
        config = {
            "backend": f"S[GpuTensor,{chain},hami-cuda::CpuTensor]",
            "max": 2,
            "batching": "greedy",
            **keys,
            **more,
        }
        requests = [{"data": image} for image in pictures((20, 30), (64, 5))]
        with hami.pipe(config) as pipe:
            pipe(requests)
        return [hami.to_numpy(request["result"]) for request in requests]

    for one, other in zip(results(), results(fuse=False), strict=True):
        np.testing.assert_array_equal(one, other)


def warped(image: Any, matrix: Any, width: int, height: int, pad: float) -> Any:
    """Return the image, C x H x W, transformed by the definition of bilinear interpolation, in float64."""
    whole = np.vstack([np.reshape(matrix, (2, 3)), [0, 0, 1]])
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))
    x, y, _ = np.einsum("ij,jhw->ihw", np.linalg.inv(whole), np.stack([columns, rows, np.ones_like(rows)]))
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    padded = np.pad(image.astype(float), ((0, 0), (1, 1), (1, 1)), constant_values=pad)

    def at(row: Any, column: Any) -> Any:
        return padded[:, np.clip(row + 1, 0, padded.shape[1] - 1), np.clip(column + 1, 0, padded.shape[2] - 1)]

    right, lower = x - left, y - top
    above = at(top, left) * (1 - right) + at(top, left + 1) * right
    below = at(top + 1, left) * (1 - right) + at(top + 1, left + 1) * right
    return above * (1 - lower) + below * lower


MATRICES = {
    "moved": [1, 0, 3, 0, 1, -2],
    "scaled": [0.5, 0, 0.25, 0, 0.75, 1],
    "turned": [0.8, -0.6, 5, 0.6, 0.8, -3],
    "sheared": [1.2, 0.3, -4, -0.1, 0.9, 2],
}


@pytest.mark.parametrize("name", MATRICES)
def test_an_image_is_warped_with_a_matrix(name):
    images = pictures((20, 30), (17, 9), dtype="float32")
    requests = [{"data": image, "matrix": MATRICES[name]} for image in images]
    results = run("WarpAffineTensor(width=25,height=22,pad=7)", *requests)
    for image, result in zip(images, results, strict=True):
        expected = warped(image[0], MATRICES[name], 25, 22, 7)
        np.testing.assert_allclose(result[0], expected, rtol=0, atol=0.05)  # coordinates are float32


def test_bytes_are_warped_to_the_nearest_value():
    (image,) = pictures((20, 30))
    matrix = np.float32(MATRICES["turned"]).reshape(2, 3)
    (result,) = run("WarpAffineTensor(width=25,height=22)", {"data": image, "matrix": matrix})
    assert np.abs(result[0] - np.rint(warped(image[0], matrix, 25, 22, 0))).max() <= 1


def test_the_matrix_of_the_configuration_is_that_of_requests_without_one():
    (image,) = pictures((20, 30))
    backend = "WarpAffineTensor(width=30,height=20,matrix='1,0,2,0,1,1',interpolation=nearest,pad=9)"
    default, own = run(backend, {"data": image}, {"data": image, "matrix": [1, 0, 0, 0, 1, 0]})
    assert (own == image).all()
    assert (default[..., 1:, 2:] == image[..., :-1, :-2]).all()
    assert (default[..., 0, :] == 9).all()


@pytest.mark.parametrize("box", [[2, 3, 10, 9], [1.6, 2.4, 9.5, 8.5], [-5, -5, 4, 100], [0, 0, 30, 20]])
def test_a_box_is_cut_out_of_an_image(box):
    (image,) = pictures((20, 30))
    x1, y1, x2, y2 = (min(max(round(place), 0), limit) for place, limit in zip(box, (30, 20, 30, 20), strict=True))
    part = image[..., y1:y2, x1:x2]
    requests = [{"data": image, "box": box}, {"data": image[0], "box": np.array(box, np.float64)}]
    results = run("CropTensor", *requests)
    assert (results[0] == part).all()
    assert (results[1] == part[0]).all()
    hwc = np.ascontiguousarray(image[0].transpose(1, 2, 0))
    (result,) = run("CropTensor", {"data": hwc, "box": box, "data_format": "hwc"})
    assert (result == part[0].transpose(1, 2, 0)).all()


def test_a_part_of_an_image_is_resized_without_a_copy():
    (image,) = pictures((20, 30))
    part = np.ascontiguousarray(image[..., 3:17, 2:25])
    cropped, copied = (
        run(f"{crop}ResizeTensor(width=9,height=7)", {"data": data})[0]
        for crop, data in (("CropTensor(box='2,3,25,17'),", image), ("", part))
    )
    assert (cropped == copied).all()


@pytest.mark.parametrize(
    ("backend", "request_", "message"),
    [
        ("CropTensor", {}, 'CropTensor: the request has no key "box" and the parameter "box" is not set'),
        ("CropTensor", {"box": [1, 2, 3]}, 'CropTensor: "box" must be [x1, y1, x2, y2] in pixels'),
        ("CropTensor", {"box": [40, 0, 50, 9]}, "CropTensor: the box [40, 0, 50, 9] does not overlap the image"),
        ("WarpAffineTensor(width=3,height=3)", {}, 'the request has no key "matrix"'),
        ("WarpAffineTensor(width=3,height=3)", {"matrix": [1, 0, 0, 2, 0, 0]}, "maps the image to a line"),
        ("WarpAffineTensor(width=3,height=3)", {"matrix": "1"}, "must be the 6 numbers of a matrix 2 x 3"),
        ("LetterBoxTensor(width=9,height=9,pad='1,2')", {}, '"pad" is for 2 channels'),
        ("LetterBoxTensor(width=9,height=9,pad='300')", {}, '"pad" must be an integer from 0 to 255'),
    ],
)
def test_bad_input_is_an_error_of_the_request(backend, request_, message):
    (image,) = pictures((20, 30))
    with pytest.raises(hami.Error) as raised:
        run(backend, {"data": image, **request_})
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("CropTensor(box='1,2')", '"box" must be [x1, y1, x2, y2] in pixels'),
        ("LetterBoxTensor(width=9,height=9,pad=x)", '"pad" must be one number for all channels'),
        ("WarpAffineTensor(width=9,height=9,matrix='0,0,0,0,0,0')", "maps the image to a line"),
    ],
)
def test_a_mistake_in_the_configuration_is_an_error_of_the_build(backend, message):
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe(backend)
    assert message in str(raised.value)
