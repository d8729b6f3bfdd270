"""DecodeDetections: every head finds the same object, is chosen where that is unambiguous, and maps boxes back."""

from __future__ import annotations

import hami
import numpy as np
import pytest
from hami.cli import main

from hami_vision.heads import HEADS, heads_of
from hami_vision.letter_box_input import LetterBox

F32 = np.float32
SIZE, CELLS = 128, 336  # pixels; 16 x 16 + 8 x 8 + 4 x 4
BOX = LetterBox.fit(256, 128, SIZE, SIZE)  # a wide picture, so there are 32 rows of border above it
CENTRE = np.array([20.0, 46.0, 8.0, 6.0])  # in the input; in the picture: 32, 22, 48, 34
IN_PICTURE = [32, 22, 48, 34]
LABELS = 80


def table(columns: int, rows: int = CELLS) -> np.ndarray:
    """Rows of zeros, but for one object of class 2 with score 0.75 in row 7."""
    made = np.zeros((rows, columns), F32)
    made[7, :4] = CENTRE
    return made


def corners() -> np.ndarray:
    return np.concatenate([CENTRE[:2] - CENTRE[2:] / 2, CENTRE[:2] + CENTRE[2:] / 2])


def outputs_of(head: str):
    """The outputs of a model of this head with 80 classes (key points: 1), which found one object."""
    made = table({"yolov5": 85, "yolov8": 84, "yolov8-obb": 85, "yolov8-pose": 11, "yolov8-seg": 116}.get(head, 84))
    made[7, 6] = 0.75
    if head == "yolov5":
        made = table(85, 3 * CELLS)
        made[7, [4, 7]] = 0.9375, 0.8
        return made[None]
    if head == "yolov8-pose":
        made[7, 4:] = 0.75, 20, 46, 0.5, 24, 48, 0.25
    if head == "yolov8-obb":
        made[7, 84] = 0.25
    if head.startswith("yolov8"):
        if head != "yolov8-seg":
            return made.T[None]
        made[7, 84] = 1.0
        prototypes = np.full((1, 32, 32, 32), -1, F32)
        prototypes[0, 0, :, 5:] = 1  # from x = 20 of the input, 40 of the picture
        return [made.T[None], prototypes]
    if head == "yolov10":
        made = np.zeros((1, 300, 6), F32)
        made[0, 3] = [*corners(), 0.75, 2]
        return made
    boxes, scores = np.zeros((1, 10, 4), F32), np.zeros((1, 10), F32)
    scores[0, 4] = 0.75
    if head in ("detr", "rt-detr"):
        boxes[0, 4] = CENTRE / SIZE
        logits = np.full((1, 10, LABELS + (head == "detr")), -30, F32)
        logits[..., -1] = 0 if head == "detr" else -30
        logits[0, 4, 2] = np.log(3)  # 0.75 against a logit of 0, and of no other number
        return {"logits": logits, "pred_boxes": boxes}
    boxes[0, 4] = corners() if head != "ssd" else corners()[[1, 0, 3, 2]] / SIZE
    names = (
        ("detection_boxes", "detection_scores", "detection_classes") if head == "ssd" else ("boxes", "scores", "labels")
    )
    labels = np.full((1, 10), 2 + (head == "ssd"), F32)
    return dict(zip(names, (boxes, scores, labels), strict=True))


def decode(data, box: LetterBox = BOX, **params):
    with hami.pipe({"backend": "DecodeDetections", **params}) as pipe:
        return pipe({"data": data, "letter_box": box})["result"]


@pytest.mark.parametrize("head", [name for name in HEADS if name != "classification"])
def test_every_head_finds_the_same_object(head):
    found = decode(outputs_of(head), head=head)
    assert len(found) == 1
    np.testing.assert_allclose(found.boxes[0], IN_PICTURE, atol=1e-4)
    assert found.scores[0] == pytest.approx(0.75)
    assert found.classes[0] == (0 if head == "yolov8-pose" else 2)


def labels_file(tmp_path, count: int):
    file = tmp_path / f"labels{count}.txt"
    file.write_text("\n".join(f"name{i}" for i in range(count)))
    return str(file)


@pytest.mark.parametrize(
    "head", [name for name in HEADS if name not in ("boxes-scores-labels", "ssd", "classification")]
)
def test_the_labels_make_the_head_unambiguous(head, tmp_path):
    found = decode(outputs_of(head), labels=labels_file(tmp_path, 1 if head == "yolov8-pose" else LABELS))
    np.testing.assert_allclose(found.boxes[0], IN_PICTURE, atol=1e-4)
    assert found.name_of(0) == ("name0" if head == "yolov8-pose" else "name2")


def test_a_table_of_six_columns_is_told_by_its_rows():
    """6 columns: YOLOv10, or YOLOv5 with one class; the input says how many rows that one has."""
    found = decode(outputs_of("yolov10"))
    np.testing.assert_allclose(found.boxes[0], IN_PICTURE, atol=1e-4)
    made = table(6, 3 * CELLS)
    made[7, 4:] = 1, 0.75
    np.testing.assert_allclose(decode(made[None]).boxes[0], IN_PICTURE, atol=1e-4)


@pytest.mark.parametrize(
    ("data", "params", "message"),
    [
        (np.zeros((1, 84, CELLS), F32), {}, "yolov8, yolov8-obb fit table .*set labels"),
        (np.zeros((1, 56, CELLS), F32), {}, "yolov8-obb, yolov8-pose fit"),
        ({"logits": np.zeros((1, 9, 5)), "pred_boxes": np.zeros((1, 9, 4))}, {}, "detr, rt-detr fit"),
        (np.zeros((1, 84, 85), F32), {}, r"no head fits table \[84, 85\] of an input of 128 x 128 pixels; set head"),
        (np.zeros((1, 10, 2, 2), F32), {}, r"the outputs fit no head: 0 \[1, 10, 2, 2\]"),
        (np.zeros((2, 84, CELLS), F32), {}, "outputs for one picture"),
        (np.zeros((1, 300, 7), F32), {"head": "yolov10"}, "has 6 columns"),
        (np.zeros((1, 84, CELLS), F32), {"head": "detr"}, r"boxes, logits, got table .*; such outputs are of yolov5, "),
        (np.zeros((1, 4, CELLS), F32), {"head": "yolov8"}, "has not the columns of the head yolov8"),
    ],
)
def test_what_is_ambiguous_or_fits_no_head_names_what_to_do(data, params, message):
    with pytest.raises(hami.Error, match=message):
        decode(data, **params)


@pytest.mark.parametrize(
    ("params", "message"),
    [({"head": "yolo"}, "head must be one of yolov5"), ({"iou_threshold": 2}, "iou_threshold must be from 0 to 1")],
)
def test_parameters_out_of_range_fail_when_the_pipe_is_built(params, message):
    with pytest.raises(hami.ConfigError, match=message):
        hami.pipe({"backend": "DecodeDetections", **params})


def test_a_newer_name_of_a_layout_is_accepted():
    np.testing.assert_allclose(decode(outputs_of("yolov8"), head="yolo11").boxes[0], IN_PICTURE, atol=1e-4)


def test_masks_key_points_and_angles_are_in_the_picture():
    mask = decode(outputs_of("yolov8-seg"), head="yolov8-seg").masks[0]
    rows, columns = np.nonzero(mask)
    assert (rows.min(), rows.max(), columns.max()) == (22, 33, 47)  # the box
    assert columns.min() == pytest.approx(40, abs=4)  # between two prototypes, which are 8 pixels apart
    points = decode(outputs_of("yolov8-pose"), head="yolov8-pose").keypoints[0]
    np.testing.assert_allclose(points, [[40, 28, 0.5], [48, 32, 0.25]], atol=1e-4)
    assert decode(outputs_of("yolov8-obb"), head="yolov8-obb").angles.tolist() == [0.25]


def test_only_heads_that_repeat_objects_are_suppressed():
    made = table(84)
    made[[7, 8, 9], :4] = CENTRE
    made[[7, 8, 9], 6] = 0.75, 0.5, 0.6
    assert decode(made.T[None], head="yolov8").scores.tolist() == [0.75]
    ends = np.zeros((1, 300, 6), F32)
    ends[0, :2] = [*corners(), 0.75, 2]
    assert len(decode(ends)) == 2
    assert len(decode(ends, max_objects=1)) == 1


def test_boxes_outside_the_picture_are_clipped_to_it():
    ends = np.zeros((1, 300, 6), F32)
    ends[0, 0] = [-50, -50, 500, 500, 0.75, 2]
    assert decode(ends).boxes.tolist() == [[0, 0, 256, 128]]


def test_objects_in_the_border_are_left_out_and_counted():
    """They came as flat boxes at the edge of the picture."""
    ends = np.zeros((1, 300, 6), F32)
    for row, y in enumerate((0, 30, 100)):  # the picture is between 32 and 96: above it, partly in it, below it
        ends[0, row] = [10, y, 20, y + 20, 0.75, 2]
    with hami.pipe({"backend": "DecodeDetections"}) as pipe:
        found = pipe({"data": ends, "letter_box": BOX})["result"]
        assert pipe.stats()["default"].counters == {"outside": 2}
    assert found.boxes.tolist() == [[20, 0, 40, 36]]


@pytest.mark.parametrize(("head", "inside"), [("yolov8", [20, 46, 8, 6]), ("yolov10", [16, 43, 24, 49])])
def test_objects_in_the_border_take_no_place_of_those_in_the_picture(head, inside):
    rows = table(6 if head == "yolov10" else 84)
    rows[:2, :5] = [*(4, 4, 12, 10), 0.875], [*inside, 0.75]  # the first is above the picture in both layouts
    rows[7] = 0
    with hami.pipe({"backend": "DecodeDetections", "head": head, "max_objects": 1}) as pipe:
        found = pipe({"data": (rows if head == "yolov10" else rows.T)[None], "letter_box": BOX})["result"]
        assert pipe.stats()["default"].counters == {"outside": 1}
    assert found.boxes.tolist() == [IN_PICTURE]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int64, np.float16])
def test_labels_of_any_type_keep_the_class_before_the_first(dtype):
    """Unsigned ones became 255."""
    made = outputs_of("ssd")
    made["detection_boxes"][0, 5], made["detection_scores"][0, 5] = made["detection_boxes"][0, 4], 0.5
    made["detection_classes"] = np.array([[1] * 4 + [3, 0] + [1] * 4], dtype)
    assert decode(made, head="ssd").classes.tolist() == [2, -1]


def test_the_letter_box_maps_back_what_it_made():
    for width, height in ((64, 64), (127, 63), (63, 127), (1920, 1080), (5, 3), (1000, 1)):
        box = LetterBox.fit(width, height, 64, 48)
        corner = np.float32([[box.left, box.top], [box.left + width * box.scale, box.top + height * box.scale]])
        np.testing.assert_allclose(box.to_image(corner), [[0, 0], [width, height]], atol=1e-3)
        assert box.left + box.inner[0] <= 64
        assert box.top + box.inner[1] <= 48


@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1, 1)])
@pytest.mark.parametrize("name", ["logits", "scores", "prob"])
def test_a_classifier_gives_its_best_classes_for_the_whole_picture(shape, name):
    logits = np.log(np.array([0.1, 0.5, 0.25, 0.15], F32)) + 3
    found = decode({name: logits.reshape(shape)}, score_threshold=0.12, max_objects=2)
    np.testing.assert_allclose(found.scores, [0.5, 0.25], rtol=1e-5)
    assert (found.classes.tolist(), found.boxes.tolist()) == ([1, 2], [[0, 0, 256, 128]] * 2)
    same = decode(np.array([[0.1, 0.5, 0.25, 0.15]], F32))  # probabilities already
    np.testing.assert_allclose(same.scores, [0.5], rtol=1e-5)


def test_a_classifier_of_another_number_of_labels_fits_no_head(tmp_path):
    with pytest.raises(hami.ConfigError, match=r"no head fits classes \[4\] .* and 3 labels"):
        decode(np.zeros((1, 4), F32), labels=labels_file(tmp_path, 3))


def with_nan(outputs, head: str):
    """Add a box with NaN and a good score, a NaN score, and a box with NaN whose score does not pass."""
    if isinstance(outputs, dict):
        boxes, scores = (outputs[name] for name in sorted(outputs, key=lambda name: "box" not in name)[:2])
        boxes[0, 5], scores[0, 5] = np.nan, scores[0, 4]
        scores[0, 6] = np.nan
        boxes[0, 7] = np.nan
        return outputs
    table = outputs[0] if isinstance(outputs, list) else outputs
    rows = table[0].T if HEADS[head].axes == "columns" else table[0]
    rows[20:23] = rows[3 if head == "yolov10" else 7]
    rows[20, 0] = rows[21, 4:] = rows[22, 0] = np.nan
    rows[22, 4:] = 0
    return outputs


@pytest.mark.parametrize("head", [name for name in HEADS if name != "classification"])
def test_nan_boxes_and_scores_are_left_out_and_counted(head):
    with hami.pipe({"backend": "DecodeDetections", "head": head}) as pipe:
        found = pipe({"data": with_nan(outputs_of(head), head), "letter_box": BOX})["result"]
        assert pipe.stats()["default"].counters == {"nan_boxes": 2}
    np.testing.assert_allclose(found.boxes, [IN_PICTURE], atol=1e-4)


@pytest.mark.parametrize(("head", "column"), [("yolov10", 5), ("yolov8-obb", 84), ("yolov8-seg", 90)])
def test_an_object_whose_class_angle_or_mask_is_nan_is_left_out_and_counted(head, column):
    outputs = outputs_of(head)
    table = outputs[0] if isinstance(outputs, list) else outputs
    (table[0] if head == "yolov10" else table[0].T)[3 if head == "yolov10" else 7, column] = np.nan
    with hami.pipe({"backend": "DecodeDetections", "head": head}) as pipe:
        assert len(pipe({"data": outputs, "letter_box": BOX})["result"]) == 0
        assert pipe.stats()["default"].counters == {"nan_boxes": 1}


def test_a_key_point_with_nan_is_kept_with_its_object():
    made = outputs_of("yolov8-pose")
    made[0, 5, 7] = np.nan
    points = decode(made, head="yolov8-pose").keypoints
    assert np.isnan(points).tolist() == [[[True, False, False], [False] * 3]]


def test_pictures_with_more_than_max_objects_are_counted():
    ends = np.zeros((1, 300, 6), F32)
    ends[0, :3] = [*corners(), 0.75, 2]
    with hami.pipe({"backend": "DecodeDetections", "max_objects": 2}) as pipe:
        assert len(pipe({"data": ends, "letter_box": BOX})["result"]) == 2
        ends[0, 0, 4] = 0
        assert len(pipe({"data": ends, "letter_box": BOX})["result"]) == 2
        assert pipe.stats()["default"].counters == {"over_max_objects": 1}


def test_a_classifier_with_nan_gives_nothing_and_all_its_scores_are_counted():
    with hami.pipe({"backend": "DecodeDetections"}) as pipe:
        assert len(pipe({"data": np.full((1, 4), np.nan, F32), "letter_box": BOX})["result"]) == 0
        assert pipe.stats()["default"].counters == {"nan_boxes": 4}


def signature_of(data) -> dict:
    data = data if isinstance(data, (dict, list)) else [data]
    named = data.items() if isinstance(data, dict) else enumerate(data)
    outputs = [{"name": str(name), "shape": [-1, *array.shape[1:]]} for name, array in named]
    return {"inputs": [{"name": "x", "shape": [-1, 3, SIZE, SIZE]}], "outputs": outputs}


@pytest.mark.parametrize("head", [name for name in HEADS if name != "classification"])
def test_the_declared_shapes_say_which_heads_fit(head):
    assert head in heads_of(signature_of(outputs_of(head)))


def test_declared_shapes_without_a_picture_or_sizes_say_nothing():
    found = signature_of(outputs_of("yolov8"))
    assert heads_of({**found, "inputs": [{"name": "x", "shape": [-1, 3, -1, -1]}]}) == []
    assert heads_of({**found, "inputs": [{"name": "x", "shape": [-1, 128]}]}) == []
    assert heads_of({**found, "outputs": [{"name": "y", "shape": [-1, 84, -1]}]}) == []


def test_show_names_the_head_of_a_model(detector, capsys):
    assert main(["show", str(detector)]) == 0
    assert "looks like yolov8, yolov8-obb; `labels`, the file with the names" in capsys.readouterr().out
