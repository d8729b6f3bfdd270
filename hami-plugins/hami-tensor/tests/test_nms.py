"""NmsTensor, SoftNmsTensor and hami_tensor.boxes.nms, compared with the definition in NumPy."""

from __future__ import annotations

from typing import Any

import hami
import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")
from hami_tensor.boxes import nms  # noqa: E402  (needs numpy)

F32 = np.float32


def kept_by_definition(boxes: Any, scores: Any, classes: Any = None, iou: float = 0.45) -> list[int]:
    """Return what greedy suppression keeps, with the arithmetic of torchvision: float32, IoU > threshold, per class."""
    classes = np.zeros(len(scores)) if classes is None else classes
    order = [i for i in np.argsort(-scores, kind="stable") if not np.isnan(scores[i]) and not np.isnan(boxes[i]).any()]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    while order:
        best, rest = order[0], np.array(order[1:], int)
        kept.append(int(best))
        size = np.minimum(boxes[best, 2:], boxes[rest, 2:]) - np.maximum(boxes[best, :2], boxes[rest, :2])
        both = np.maximum(size, F32(0)).prod(-1, dtype=F32)
        with np.errstate(all="ignore"):
            overlaps = (both / (area[best] + area[rest] - both)).astype(np.float64) > iou
        order = list(rest[~(overlaps & (classes[rest] == classes[best]))])
    return kept


def random_set(random: Any, count: int, kinds: int) -> tuple[Any, Any, Any]:
    """Boxes with equal scores, without an area, inverted, equal to others, and with NaN."""
    corners = random.random((count, 2)) * 60
    boxes = np.hstack([corners, corners + random.random((count, 2)) * 30]).astype(F32)
    if count > 8:
        boxes[random.integers(count, size=count // 8), 2] = boxes[random.integers(count), 0]
        boxes[random.integers(count, size=2)] = boxes[random.integers(count)]
        boxes[random.integers(count), random.integers(4)] = np.nan
    scores = (random.integers(0, 50, count) / 50).astype(F32)
    if count > 3:
        scores[random.integers(count)] = np.nan
    return boxes, scores, random.integers(0, kinds, count)


@pytest.mark.parametrize("kinds", [1, 7])
@pytest.mark.parametrize("iou", [0.0, 0.3, 0.5, 0.75, 1.0])
def test_the_kept_boxes_are_those_of_the_definition(kinds, iou):
    random = np.random.default_rng(kinds)
    for count in (0, 1, 2, 15, 16, 17, 60, 150):
        boxes, scores, classes = random_set(random, count, kinds)
        found = nms(boxes, scores, classes, iou_threshold=iou)
        assert found.tolist() == kept_by_definition(boxes, scores, classes, iou)


def test_thirty_thousand_boxes_are_kept_as_a_grid_says():
    """Of 100 equal boxes on each place the lowest index is kept, as all scores are equal."""
    places = np.arange(30_000) % 300
    corners = np.stack([places % 20 * 10, places // 20 * 10], 1)
    boxes = np.hstack([corners, corners + 8]).astype(F32)
    assert nms(boxes, np.full(30_000, 0.5, F32)).tolist() == list(range(300))


def test_an_overlap_equal_to_the_threshold_is_kept():
    boxes = F32([[0, 0, 2, 2], [0, 0, 2, 1]])  # 0.5, exactly
    assert nms(boxes, F32([0.9, 0.8]), iou_threshold=0.5).tolist() == [0, 1]
    assert nms(boxes, F32([0.9, 0.8]), iou_threshold=np.nextafter(0.5, 0)).tolist() == [0]


def test_boxes_without_an_area_overlap_nothing():
    assert nms(F32([[1, 1, 1, 5]] * 2 + [[0, 0, 9, 9]]), F32([0.5, 0.5, 0.9]), iou_threshold=0).tolist() == [2, 0, 1]


def test_nan_is_left_out_and_counted():
    boxes = F32([[0, 0, 9, 9], [0, 0, 9, 9], [0, 0, np.nan, 9], [0, 0, np.nan, 9]])
    data = {"boxes": boxes, "scores": F32([np.nan, 0.6, 0.9, 0.1])}
    with hami.pipe("NmsTensor") as pipe:
        found = pipe({"data": data})["result"]
        assert pipe.stats()["default"].counters["nan_boxes"] == 2  # the last one does not pass the threshold
    assert hami.to_numpy(found["indices"]).tolist() == [1]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_backend_returns_the_kept_rows_of_each_request(dtype):
    random = np.random.default_rng(3)
    sets = [random_set(random, count, 3) for count in (40, 0, 90)]
    requests = [
        {"data": {"boxes": boxes.astype(dtype), "scores": scores.astype(dtype), "classes": classes}}
        for boxes, scores, classes in sets
    ]
    with hami.pipe({"backend": "NmsTensor(score_threshold=0.3,max_boxes=20)", "max": 3}) as pipe:
        pipe(requests)
    for request in requests:
        data, found = request["data"], {key: hami.to_numpy(value) for key, value in request["result"].items()}
        passing = np.flatnonzero(data["scores"] > 0.3)
        inputs = [data[key][passing] for key in ("boxes", "scores", "classes")]
        kept = passing[kept_by_definition(inputs[0].astype(F32), *inputs[1:])][:20]
        assert found["indices"].tolist() == kept.tolist()
        for key, value in data.items():
            assert found[key].dtype == value.dtype
            np.testing.assert_array_equal(found[key], value[kept])


def test_views_are_read_by_their_strides():
    boxes, scores, _ = random_set(np.random.default_rng(5), 50, 1)
    wide = np.zeros((50, 9), F32)
    wide[:, 2:6], wide[:, 8] = boxes, scores
    with hami.pipe("NmsTensor(score_threshold=0)") as pipe:
        found, expected = (
            hami.to_numpy(pipe({"data": {"boxes": b, "scores": s}})["result"]["indices"]).tolist()
            for b, s in ((wide[:, 2:6], wide[:, 8]), (boxes, scores))
        )
    assert found == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros(3), "takes a dict of tensors"),
        ({"boxes": np.zeros((3, 4))}, 'no "scores"'),
        ({"boxes": np.zeros((3, 6)), "scores": np.zeros(3)}, r"boxes float64 \[3, 6\]"),
        ({"boxes": np.zeros((3, 4)), "scores": np.zeros(2)}, r"scores float64 \[2\]"),
        ({"boxes": np.zeros((3, 4)), "scores": np.zeros(3, int)}, r"scores int64 \[3\]"),
        ({"boxes": np.zeros((3, 4)), "scores": np.zeros(3), "classes": np.zeros(3, complex)}, "classes complex128"),
    ],
)
def test_what_does_not_fit_fails_alone(data, message):
    good = {"data": {"boxes": np.zeros((1, 4), F32), "scores": F32([0.5])}}
    with (
        hami.pipe({"backend": "NmsTensor", "max": 2, "batching": "greedy"}) as pipe,
        pytest.raises(hami.BatchError, match=message) as raised,
    ):
        pipe([{"data": data}, good])
    assert [i for i, _ in raised.value.errors] == [0]
    assert hami.to_numpy(good["result"]["indices"]).tolist() == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"boxes": np.zeros((2, 3))}, "N x 4 or N x 5"),
        ({"scores": np.zeros(3)}, "scores must have one number for each of 2 boxes"),
        ({"classes": np.zeros(1)}, "classes must have"),
        ({"iou_threshold": 1.5}, "from 0 to 1"),
        ({"max_boxes": -1}, "must not be negative"),
    ],
)
def test_the_function_names_what_does_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        nms(**{"boxes": np.zeros((2, 4)), "scores": np.zeros(2), **arguments})


def test_rotated_boxes_overlap_by_their_polygons():
    square, turned = [0, 0, 2, 2, 0], [0, 0, 2, 2, np.pi / 4]  # share an octagon: IoU = 8 (√2 - 1) / (8 - 8 (√2 - 1))
    shared = 8 * (np.sqrt(2) - 1)
    iou = shared / (8 - shared)
    for threshold, kept in ((iou - 1e-6, [0]), (iou + 1e-6, [0, 1])):
        assert nms(F32([square, turned]), F32([0.9, 0.8]), iou_threshold=threshold).tolist() == kept
    aside = [1.9, 1.9, 2, 2, np.pi / 4]  # its upright hull overlaps the square, the box itself does not
    assert nms(F32([square, aside]), F32([0.9, 0.8]), iou_threshold=0).tolist() == [0, 1]


def test_rotated_boxes_without_a_turn_are_kept_as_plain_ones():
    boxes, scores, classes = random_set(np.random.default_rng(11), 120, 2)
    boxes = np.abs(boxes[~np.isnan(boxes).any(1) & (boxes[:, 2] > boxes[:, 0])])
    scores, classes = scores[: len(boxes)], classes[: len(boxes)]
    rotated = np.hstack([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2], np.zeros((len(boxes), 1))])
    assert nms(rotated, scores, classes).tolist() == nms(boxes, scores, classes).tolist()


def test_soft_suppression_lowers_scores_by_the_overlap():
    boxes = F32([[0, 0, 2, 2], [0, 0, 2, 1], [5, 5, 6, 6]])
    data = {"boxes": boxes, "scores": F32([0.9, 0.8, 0.7])}
    with hami.pipe("SoftNmsTensor(sigma=0.5,score_threshold=0.1)") as pipe:
        found = pipe({"data": data})["result"]
        other = pipe({"data": {**data, "classes": np.array([0, 1, 0])}})["result"]
    assert hami.to_numpy(found["indices"]).tolist() == [0, 2, 1]
    np.testing.assert_allclose(hami.to_numpy(found["scores"]), [0.9, 0.7, 0.8 * np.exp(-(0.5**2) / 0.5)], rtol=1e-6)
    assert hami.to_numpy(other["scores"]).tolist() == pytest.approx([0.9, 0.8, 0.7])
    with pytest.raises(hami.ConfigError, match="sigma must be above 0"):
        hami.pipe("SoftNmsTensor(sigma=0)")
