"""Pictures of squares, and an ONNX file that finds them as a YOLO does: made by convolutions, not trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SIZE = 64  # pixels of the input
SQUARE = 16  # pixels of a side
CELL = 8
LABELS = ("red", "blue")


def picture(*squares: tuple[str, int, int], width: int = SIZE, height: int = SIZE) -> NDArray[np.uint8]:
    """Return a black BGR picture with squares of a colour at x, y (their upper left corners); may be partly outside."""
    image = np.zeros((height, width, 3), np.uint8)
    for colour, x, y in squares:
        part = image[max(y, 0) : max(y + SQUARE, 0), max(x, 0) : max(x + SQUARE, 0)]
        part[...] = (255, 0, 0) if colour == "blue" else (0, 0, 255)
    return image


def write_detector(file: Path) -> Path:
    """Write a model [batch, 3, 64, 64] -> [batch, 6, 84], the layout of YOLOv8 with two classes.

    A cell of 8 pixels sees the colours in a window of 31 pixels around its centre. Their mean position is the centre of
    the box, and the cell finds an object if that position is in it. The score of a class is its share of a square. The
    levels of 16 and 32 pixels find nothing. Squares of any colour must be 16 pixels apart.
    """
    window = 2 * SQUARE - 1
    ramp = np.arange(window) - window // 2
    kernels = np.zeros((4, 2, window, window), np.float32)  # red, blue; of both: their positions x and y
    kernels[0, 0] = kernels[1, 1] = 1
    kernels[2] = ramp
    kernels[3] = ramp[:, None]
    centre = np.arange(CELL // 2, SIZE, CELL).astype(np.float32)
    cells = len(centre) ** 2
    rest = np.zeros((1, 6, (SIZE // 16) ** 2 + (SIZE // 32) ** 2), np.float32)
    places = np.stack([np.tile(centre, len(centre)), np.repeat(centre, len(centre))])[None]
    constants = {
        "kernels": kernels,
        "places": places + 0.5,  # the middle of a pixel
        "sides": np.full((1, 2, cells), SQUARE, np.float32),
        "rest": rest,
        "one": np.float32([1]),
        "half_cell": np.float32([CELL / 2]),
        "area": np.float32([SQUARE**2]),
        "channels": np.int64([0, 2]),
        "flat": np.int64([0, 4, cells]),
        "splits": np.int64([2, 2]),
        "axis": np.int64([1]),
        "repeats": np.int64([1, 1]),
    }
    before = window // 2 - CELL // 2
    nodes = [
        helper.make_node("Gather", ["images", "channels"], ["colours"], axis=1),
        helper.make_node(
            "Conv",
            ["colours", "kernels"],
            ["maps"],
            strides=[CELL, CELL],
            pads=[before, before, before + 7, before + 7],
        ),
        helper.make_node("Reshape", ["maps", "flat"], ["columns"]),
        helper.make_node("Split", ["columns", "splits"], ["masses", "moments"], axis=1),
        helper.make_node("ReduceSum", ["masses", "axis"], ["mass"]),
        helper.make_node("Max", ["mass", "one"], ["divisor"]),
        helper.make_node("Div", ["moments", "divisor"], ["offsets"]),
        helper.make_node("Add", ["offsets", "places"], ["centres"]),
        helper.make_node("Abs", ["offsets"], ["distances"]),
        helper.make_node("ReduceMax", ["distances", "axis"], ["distance"]),
        helper.make_node("LessOrEqual", ["distance", "half_cell"], ["is_inside"]),
        helper.make_node("Cast", ["is_inside"], ["inside"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["masses", "area"], ["shares"]),
        helper.make_node("Mul", ["shares", "inside"], ["all_scores"]),
        helper.make_node("Min", ["all_scores", "one"], ["scores"]),
        helper.make_node("Shape", ["images"], ["shape"], start=0, end=1),
        helper.make_node("Concat", ["shape", "repeats"], ["times"], axis=0),
        helper.make_node("Tile", ["sides", "times"], ["all_sides"]),
        helper.make_node("Tile", ["rest", "times"], ["all_rest"]),
        helper.make_node("Concat", ["centres", "all_sides", "scores"], ["found"], axis=1),
        helper.make_node("Concat", ["found", "all_rest"], ["output0"], axis=2),
    ]
    graph = helper.make_graph(
        nodes,
        "squares",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", 6, cells + rest.shape[2]])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, file)
    file.with_name("labels.txt").write_text("\n".join(LABELS))
    return file
