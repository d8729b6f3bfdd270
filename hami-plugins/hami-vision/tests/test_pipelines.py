"""The packaged pipelines, with a detector of squares."""

from __future__ import annotations

import json
import subprocess
import sys

import cv2
import hami
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import SIZE, SQUARE, picture


@pytest.fixture
def settings(detector):
    return {"model": str(detector), "labels": str(detector.with_name("labels.txt"))}


def png(image: np.ndarray) -> bytes:
    return cv2.imencode(".png", image)[1].tobytes()


def test_detect_finds_the_squares_of_a_picture(settings):
    """The picture is twice as wide as the input, and its channels are in another order."""
    image = cv2.resize(picture(("red", 0, 16), ("blue", 48, 24), height=48), None, fx=2, fy=2)
    with hami.pipe({"extends": "detect", "global": {**settings, "pad": 0}}) as pipe:
        request = pipe({"data": png(image), "source": "a.png"})
    found = request["result"]
    assert sorted(found.name_of(i) for i in range(len(found))) == ["blue", "red"]
    red, blue = (found.of_class(name).boxes[0] for name in ("red", "blue"))
    np.testing.assert_allclose(red, np.array([0, 16, SQUARE, 16 + SQUARE]) * 2, atol=4)
    np.testing.assert_allclose(blue, np.array([48, 24, 48 + SQUARE, 24 + SQUARE]) * 2, atol=4)
    assert found.source == "a.png"
    assert request["image"].shape == image.shape


def test_segment_wants_masks(settings):
    """The small detector has none: the pipeline says which head it expects."""
    with (
        pytest.raises(hami.ConfigError, match="the head yolov8-seg needs prototypes, table, got table"),
        hami.pipe({"extends": "segment", "global": settings}) as pipe,
    ):
        pipe({"data": png(picture())})


def test_segment_gives_masks(tmp_path):
    """A model that answers with one object, whose mask is the right half of its box, for any picture."""
    table = np.zeros((1, 4 + 1 + 32, 84), np.float32)
    table[0, :6, 3] = 32, 32, 32, 32, 0.75, 1.0
    prototypes = np.full((1, 32, 16, 16), -1, np.float32)
    prototypes[0, 0, :, 8:] = 1
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "0"], ["no"]),
    ]
    nodes += [helper.make_node("Add", [name, "no"], [f"{name}_out"]) for name in ("table", "prototypes")]
    values = {"table": table, "prototypes": prototypes, "0": np.float32(0)}
    outputs = [
        helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, values[name].shape)
        for name in ("table", "prototypes")
    ]
    graph = helper.make_graph(
        nodes,
        "segments",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        outputs,
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "segments.onnx")
    with hami.pipe({"extends": "segment", "global": {"model": str(tmp_path / "segments.onnx")}}) as pipe:
        found = pipe({"data": png(picture())})["result"]
    assert found.boxes.tolist() == [[16, 16, 48, 48]]
    assert found.masks[0, 20:44, 36:48].all()
    assert not found.masks[0, :, :28].any()
    assert not found.masks[0, :16].any()


def test_the_command_prints_the_objects(settings, tmp_path):
    file = tmp_path / "squares.png"
    file.write_bytes(png(picture(("red", 8, 16))))
    keys = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "hami", "run", "detect", *keys, str(file)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["box", "score", "class", "name"],
        ["[8,", "16,", "24,", "32]", "1.000", "0", "red"],
    ]


def test_track_keeps_the_ids_of_every_stream(settings):
    with hami.pipe({"extends": "track", "global": settings}) as pipe:
        for i in range(6):
            frames = {"left": ("red", 4 + 3 * i, 8), "right": ("blue", 44 - 3 * i, 40)}
            requests = [
                {"data": picture(square), "req_id": name, "source": name, "frame": i, "time": i / 10}
                for name, square in frames.items()
            ]
            pipe(requests)
            for request, name in zip(requests, frames, strict=True):
                found = request["result"]
                best = found[found.scores > 0.6]
                assert (best.ids.tolist(), found.source, found.frame, found.time) == ([0], name, i, i / 10)


def test_people_who_cross_a_line_are_counted(settings):
    keys = {"lines": ["door: 32,64, 32,0"], "zones": [f"left: 0,0, 32,0, 32,{SIZE}, 0,{SIZE}"]}
    with hami.pipe({"extends": "count-people", "global": {**settings, **keys}}) as pipe:
        for i in range(12):
            squares = ("red", 4 * i, 0), ("blue", 44 - 4 * i, 48)  # class 0 walks to the right
            result = pipe({"data": picture(*squares), "req_id": "camera", "time": i / 10})["result"]
    assert result["lines"] == {"door": {"in": 1, "out": 0}}
    assert (result["objects"], result["zones"]["left"]["inside"], result["zones"]["left"]["entered"]) == (1, 0, 1)
    assert json.loads(json.dumps(hami.to_json(result)))["objects"] == 1


def test_one_wrong_picture_fails_alone(settings):
    good = {"data": picture(("red", 8, 8)), "req_id": "a"}
    with (
        hami.pipe({"extends": "track", "global": settings}) as pipe,
        pytest.raises(hami.BatchError, match=r"uint8 array H x W x 3, as DecodeMat returns.*float64") as raised,
    ):
        pipe([{"data": np.zeros((4, 4, 3)), "req_id": "b"}, good, {"data": picture()[:0], "req_id": "c"}])
    assert [i for i, _ in raised.value.errors] == [0, 2]
    assert len(good["result"]) == 1


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("LetterBoxInput", "the size of the input is not known"),
        ("LetterBoxInput(width=8,height=8,pad=300)", "pad must be from 0 to 255"),
        ("LetterBoxInput(width=8,height=8,mean='1,2')", "mean has 1 or 3 numbers"),
        ("LetterBoxInput(width=8,height=8,std=0)", "no number of it can be 0"),
    ],
)
def test_a_wrong_input_fails_when_the_pipe_is_built(backend, message):
    with pytest.raises(hami.ConfigError, match=message):
        hami.pipe(backend)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_the_input_is_contiguous_and_exact(color):
    """It was in the order of the picture: every engine copied it."""
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    with hami.pipe(f"LetterBoxInput(width=8,height=8,color={color})") as pipe:
        made = hami.to_numpy(pipe({"data": image})["result"])
    assert made.flags.c_contiguous
    ordered = image[:, :, ::-1] if color == "rgb" else image
    assert np.array_equal(made[0], ordered.transpose(2, 0, 1).astype(np.float32) * np.float32(1 / 255))


def test_the_input_is_the_letterboxed_picture_in_the_order_of_the_model():
    image = np.full((2, 4, 3), (10, 20, 30), np.uint8)  # BGR
    with hami.pipe("LetterBoxInput(width=4,height=4,pad=0,scale=1,mean='1,2,3',std=2)") as pipe:
        made = pipe({"data": image})["result"]
        same = pipe({"data": image[..., ::-1], "color": "rgb"})["result"]
    assert made[0, :, 1, 0].tolist() == [(30 - 1) / 2, (20 - 2) / 2, (10 - 3) / 2]
    assert made[0, :, 0, 0].tolist() == [-0.5, -1.0, -1.5]
    np.testing.assert_array_equal(made, same)
