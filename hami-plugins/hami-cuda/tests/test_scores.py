"""SoftmaxTensor, ArgMaxTensor, TopKTensor, FixTensor, NmsTensor and RestoreBoxes, compared with NumPy and hami-tensor.

They run on a GPU, else on the fake driver.
"""

from __future__ import annotations

from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
pytestmark = pytest.mark.usefixtures("cuda")

MOVE = "S[hami-cuda::GpuTensor,{},hami-cuda::CpuTensor]"


def run(expression: str, *requests: Any, **keys: Any) -> list[Any]:
    """Return the results of requests that run as one batch."""
    items = [{"data": data, **keys} for data in requests]
    with hami.pipe({"backend": expression, "max": len(items), "batching": "greedy"}) as pipe:
        pipe(items)
    return [arrays(item["result"]) for item in items]


def arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: arrays(each) for key, each in value.items()}
    return [arrays(each) for each in value] if isinstance(value, list) else hami.to_numpy(value)


def on_both(backend: str, *data: Any, **keys: Any) -> tuple[list[Any], list[Any]]:
    """Return the results on the device, and those of hami-tensor."""
    found = run(MOVE.format(f"hami-cuda::{backend}"), *data, **keys)
    return found, run(f"hami-tensor::{backend}", *data, **keys)


def scores(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    random = np.random.default_rng(7)
    return [(random.standard_normal(shape) * 20).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12), ("float16", 1e-3)])
def test_softmax_is_that_of_the_core(axis, dtype, tolerance):
    data = scores((3, 7), (2, 300, 5), (1, 1), dtype=dtype)
    found, expected = on_both(f"SoftmaxTensor(axis={axis})", *data)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def test_softmax_of_infinite_scores_is_that_of_the_core():
    data = [np.float32([[1, np.inf, 3]]), np.float32([[1, np.nan, 3]]), np.float32([[-np.inf, 0, 1]])]
    found, expected = on_both("SoftmaxTensor", *data)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_the_largest_elements_are_those_of_the_core(dtype, axis):
    data = scores((6, 7), (5, 300, 4), (5, 5), dtype=dtype)
    found, expected = on_both(f"ArgMaxTensor(axis={axis})", *data)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    found, expected = on_both(f"TopKTensor(k=4,axis={axis})", *data)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one["indices"], other["indices"])
        np.testing.assert_array_equal(one["values"], other["values"])


def test_equal_elements_come_in_their_order_and_nan_first():
    data = np.float32([3, -0.0, np.nan, 0.0, 3, np.nan, -np.inf, np.inf])
    ((found,), (expected,)) = on_both("TopKTensor(k=8)", data)
    assert found["indices"].tolist() == expected["indices"].tolist() == [2, 5, 7, 0, 4, 1, 3, 6]
    ((found,), _) = on_both("ArgMaxTensor", np.uint64([2**63, 2**64 - 1, 5]))
    assert found == 1


def test_lists_dicts_and_views_are_computed_too():
    data = scores((4, 6))[0]
    (found,) = run(MOVE.format("hami-cuda::ArgMaxTensor"), {"a": data, "b": data[:, ::2]})
    assert found["a"].tolist() == data.argmax(-1).tolist()
    assert found["b"].tolist() == data[:, ::2].argmax(-1).tolist()
    with (
        hami.pipe("hami-cuda::GpuTensor") as move,
        hami.pipe("S[hami-cuda::SoftmaxTensor,hami-cuda::CpuTensor]") as pipe,
    ):
        tensor = move({"data": data})["result"]
        ((part,), _) = on_both("SoftmaxTensor", data[:, 1:3])
        np.testing.assert_array_equal(hami.to_numpy(pipe({"data": tensor[:, 1:3]})["result"]), part)


def test_the_core_hands_data_on_the_device_to_these_backends():
    data = scores((4, 6))[0]
    for backend in ("SoftmaxTensor", "ArgMaxTensor", "TopKTensor(k=2)", "FixTensor(dtype=float64)"):
        (found,), (expected,) = run(MOVE.format(backend), data), run(backend, data)
        for one, other in zip(
            *(each.values() if isinstance(each, dict) else [each] for each in (found, expected)), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("backend", "data", "message"),
    [
        ("SoftmaxTensor", np.zeros(3, int), "SoftmaxTensor takes floating point numbers"),
        ("ArgMaxTensor", np.zeros((3, 0)), "ArgMaxTensor: axis -1 of float64 [3, 0] is empty"),
        ("ArgMaxTensor(axis=2)", np.zeros(3), "ArgMaxTensor works along axis 2, which float64 [3] does not have"),
        ("ArgMaxTensor", np.zeros(3, complex), "ArgMaxTensor takes real numbers, got complex128 [3]"),
        ("TopKTensor(k=4)", np.zeros(3), "TopKTensor: k is 4, and axis -1 of float64 [3] has 3"),
        ("FixTensor(shape='2,-1')", np.zeros((3, 4)), "FixTensor takes [2, -1], got float64 [3, 4]"),
        ("FixTensor(dtype=uint8)", np.zeros(3), "would lose values"),
        ("NmsTensor", np.zeros(3), "NmsTensor takes a dict of tensors on the device"),
        ("NmsTensor", {"boxes": np.zeros((3, 4))}, 'got no "scores"'),
        ("NmsTensor", {"boxes": np.zeros((3, 4)), "scores": np.zeros(2)}, "got scores float64 [2]"),
    ],
)
def test_bad_input_is_an_error_of_the_request(backend, data, message):
    with pytest.raises(hami.Error) as raised:
        run(MOVE.format(f"hami-cuda::{backend}"), data)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("uint8", "float32"),
        ("uint8", "int64"),
        ("bool", "float16"),
        ("int32", "float64"),
        ("float16", "float32"),
        ("float32", "float64"),
        ("int16", "int32"),
    ],
)
def test_types_are_cast_exactly(source, target):
    data = scores((3, 5), (2, 2, 2), dtype=source)
    for one, given in zip(run(MOVE.format(f"hami-cuda::FixTensor(dtype={target})"), *data), data, strict=True):
        assert one.dtype == target
        np.testing.assert_array_equal(one, given.astype(target))


@pytest.mark.parametrize("target", ["float32", "float16"])
def test_floating_point_numbers_are_rounded_on_request(target):
    (data,) = scores((30, 5), dtype="float64")
    (found,) = run(MOVE.format(f"hami-cuda::FixTensor(dtype={target},exact=false)"), data)
    np.testing.assert_allclose(found, data.astype(target), rtol=1e-3)


def announcing(**engine: Any) -> str:
    """Register a backend that announces an engine with one input, and return its name."""

    @hami.register
    class AnnounceEngine(hami.Backend):
        def init(self, options: Any) -> None:
            options["engine_inputs"] = [{"name": "x", "device": "cuda:0", "batch_axis": True, **engine}]

        def forward(self, batch: Any) -> None:
            for item in batch:
                item["result"] = item["data"]

    return "AnnounceEngine"


def test_tensors_fit_the_engine_of_the_instance():
    engine = announcing(dtype="float32", shape=[-1, 3, 4, 5])
    rng = np.random.default_rng(3)
    fitting = rng.random((2, 3, 4, 5), np.float32)
    last = np.ascontiguousarray(fitting.transpose(0, 2, 3, 1))
    row = rng.integers(0, 256, (3, 4, 5), np.uint8)
    for move in ("hami-cuda::GpuTensor,", ""):  # from the device, and from the CPU
        expression = f"S[{move}hami-cuda::FixTensor,{engine},hami-cuda::CpuTensor]"
        results = run(expression, fitting, last, row, fitting.astype("float64"))
        np.testing.assert_array_equal(results[0], fitting)
        np.testing.assert_array_equal(results[1], fitting)
        np.testing.assert_array_equal(results[2], row[None].astype("float32"))
        np.testing.assert_array_equal(results[3], fitting)
        with pytest.raises(hami.Error, match=r"FixTensor takes float32 \[-1, 3, 4, 5\] for input .* got float32"):
            run(expression, np.zeros((2, 3, 4, 6), np.float32))


def suppressed(data: dict[str, Any], iou: float, least: float, limit: int) -> list[int]:
    """Return the indices that greedy non-maximum suppression keeps, by definition."""
    boxes, values = data["boxes"].astype(np.float32), data["scores"]
    classes = data.get("classes", np.zeros(len(values)))
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    for index in sorted(np.flatnonzero(values > least), key=lambda each: (-values[each], each)):
        both = np.minimum(boxes[index, 2:], boxes[kept, 2:]) - np.maximum(boxes[index, :2], boxes[kept, :2])
        shared = np.maximum(both, 0).prod(-1)
        overlap = shared / (area[index] + area[kept] - shared)
        if not ((overlap > iou) & (classes[kept] == classes[index])).any():
            kept.append(int(index))
    return kept[:limit]


def boxes(count: int, classes: int = 0, dtype: str = "float32") -> dict[str, Any]:
    random = np.random.default_rng(count)
    corners, sizes = random.random((count, 2)) * 100, random.random((count, 2)) * 40 + 1
    data = {"boxes": np.hstack([corners, corners + sizes]).astype(dtype), "scores": random.random(count).astype(dtype)}
    return {**data, "classes": random.integers(0, classes, count)} if classes else data


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("limit", [1000, 10])
def test_boxes_that_overlap_better_ones_are_removed(classes, limit):
    data = [boxes(count, classes) for count in (200, 1, 37, 700)]
    backend = f"hami-cuda::NmsTensor(iou_threshold=0.4,score_threshold=0.2,max_boxes={limit})"
    for given, found in zip(data, run(MOVE.format(backend), *data), strict=True):
        kept = suppressed(given, 0.4, 0.2, limit)
        assert found["indices"].tolist() == kept
        for key, value in given.items():
            np.testing.assert_array_equal(found[key], value[kept])


def test_no_boxes_are_no_error():
    nothing = {"boxes": np.zeros((0, 4), np.float32), "scores": np.zeros(0, np.float32)}
    low = {**boxes(5), "scores": np.zeros(5, np.float32)}
    for found in run(MOVE.format("hami-cuda::NmsTensor"), nothing, low):
        assert found["boxes"].shape == (0, 4)
        assert found["indices"].shape == (0,)


def test_boxes_with_nan_are_left_out_as_on_the_cpu():
    data = {**boxes(40), "classes": np.arange(40) % 3}
    data["boxes"][3, 2] = data["boxes"][9, 0] = data["scores"][5] = np.nan
    ((found,), (expected,)) = on_both("NmsTensor(score_threshold=0.1)", data)
    assert found["indices"].tolist() == expected["indices"].tolist()
    assert not {3, 5, 9} & set(found["indices"].tolist())


def test_equal_scores_keep_the_earlier_box():
    data = {"boxes": np.float32([[0, 0, 4, 4], [0, 0, 4, 4], [9, 9, 12, 12]]), "scores": np.float32([0.5, 0.5, 0.5])}
    (found,) = run(MOVE.format("hami-cuda::NmsTensor"), data)
    assert found["indices"].tolist() == [0, 2]


LETTER_BOX = {"scale": 640 / 1920, "left": 0, "top": 140, "image_width": 1920, "image_height": 1080}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(700, 4), (4,), (0, 4), (2, 3, 4)])
@pytest.mark.parametrize("known", [5, 3])
def test_boxes_are_restored_bit_for_bit_as_on_the_cpu(dtype, shape, known):
    data = (np.random.default_rng(3).random(shape) * 800 - 80).astype(dtype)
    data.flat[:1] = np.nan
    box = dict(list(LETTER_BOX.items())[:known])
    ((found,), (expected,)) = on_both("RestoreBoxes", data, letter_box=box)
    assert (found.dtype, found.shape) == ("float64" if dtype == "float64" else "float32", shape)
    np.testing.assert_array_equal(found, expected)
    exact = (data.astype(np.float64) - [0, 140, 0, 140]) / LETTER_BOX["scale"]
    inside = np.clip(exact, 0, [1920, 1080] * 2) if known == 5 else exact
    np.testing.assert_allclose(found, inside, rtol=1e-6, atol=1e-4)


def test_the_boxes_of_a_dict_are_restored_and_the_rest_stays():
    sets = [{**boxes(count), "classes": np.arange(count)} for count in (40, 1, 7)]
    together = run(MOVE.format("hami-cuda::RestoreBoxes"), *sets, letter_box=LETTER_BOX)
    for given, found in zip(sets, together, strict=True):
        ((restored,), (expected,)) = on_both("RestoreBoxes", given, letter_box=LETTER_BOX)
        assert found.keys() == restored.keys() == expected.keys() == given.keys()
        np.testing.assert_array_equal(found["boxes"], expected["boxes"])
        for key in ("scores", "classes"):
            np.testing.assert_array_equal(found[key], given[key])


def test_kept_boxes_are_restored_on_the_device():
    data = boxes(60)
    (found,) = run(MOVE.format("hami-cuda::NmsTensor,hami-cuda::RestoreBoxes"), data, letter_box=LETTER_BOX)
    (expected,) = run("S[hami-tensor::NmsTensor,hami-tensor::RestoreBoxes]", data, letter_box=LETTER_BOX)
    for key in ("boxes", "scores", "indices"):
        np.testing.assert_array_equal(found[key], expected[key])


@pytest.mark.parametrize(
    ("data", "keys", "message"),
    [
        (np.zeros((3, 4)), {}, 'RestoreBoxes needs the key "letter_box", a dict with a "scale" above 0'),
        (np.zeros((3, 4)), {"letter_box": {"scale": 0.0}}, 'a dict with a "scale" above 0'),
        (np.zeros((3, 5)), {"letter_box": LETTER_BOX}, "got float64 [3, 5]"),
        (np.zeros((3, 4), int), {"letter_box": LETTER_BOX}, "got int64 [3, 4]"),
        ({"scores": np.zeros(3)}, {"letter_box": LETTER_BOX}, 'got a dict without "boxes"'),
        ([], {"letter_box": LETTER_BOX}, "RestoreBoxes takes "),
        ({"boxes": []}, {"letter_box": LETTER_BOX}, " takes "),
        ({"boxes": {}}, {"letter_box": LETTER_BOX}, " takes "),
    ],
)
@pytest.mark.parametrize("backend", ["S[hami-cuda::GpuTensor,hami-cuda::RestoreBoxes]", "hami-tensor::RestoreBoxes"])
def test_boxes_that_cannot_be_restored_are_errors_of_the_request(backend, data, keys, message):
    with pytest.raises(hami.Error) as raised:
        run(backend, data, **keys)
    assert message in str(raised.value)
