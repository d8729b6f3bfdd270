"""Results on a terminal and as JSON."""

from __future__ import annotations

import json
from typing import Any

import hami
import pytest
from hami._cli.show import aligned, json_of, lines_of


class FakeArray:
    """Shape, type and list of an array; hami does not depend on numpy."""

    def __init__(self, values: list[Any], shape: tuple[int, ...]) -> None:
        self._values, self.shape, self.dtype = values, shape, "float32"

    def tolist(self) -> list[Any]:
        return self._values


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ("two\nlines", ["two", "lines"]),
        ("", [""]),
        (3, ["3"]),
        (0.123456, ["0.1235"]),
        (0.0, ["0"]),
        (None, ["None"]),
        (True, ["True"]),
        (b"abc", ["3 bytes"]),
        ([], ["[]"]),
        ([1, 2.5], ["[1, 2.5]"]),
        (["a", "b"], ["a", "b"]),
        ([[1, 2], [3, 4.5]], ["1,2 3,4.5"]),
        ({}, ["{}"]),
        ({"label": "cat", "score": 0.75}, ["label: cat", "score: 0.75"]),
        ({"det": {"n": 2}, "text": "a\nb"}, ["det:", "  n: 2", "text:", "  a", "  b"]),
        (FakeArray([[1.0, 2.5]], (1, 2)), ["1,2.5"]),
        (FakeArray([], (1, 3, 640, 640)), ["float32 array, shape 1x3x640x640"]),
        ([FakeArray([], (9, 9)), "x"], ["float32 array, shape 9x9", "x"]),
        ([{0: 0.984703, 1: 0.0152967}, {0: 0.5, 1: 0.5}], ["0      1", "0.985  0.015", "0.500  0.500"]),
    ],
)
def test_results_are_readable(value: Any, lines: list[str]) -> None:
    assert lines_of(value) == lines


def test_an_object_with_a_list_is_shown_as_that_list() -> None:
    """As hami.to_json does: the detections of hami-vision are such an object."""

    class Rows:
        def tolist(self) -> list[dict[str, int]]:
            return [{"id": 1}, {"id": 20}]

    assert lines_of({"found": Rows()}) == ["found:", "  id", "  1", "  20"]


def test_records_are_rows_with_text_last() -> None:
    page = [
        {"text": "Hello", "score": 0.98765, "box": [[1, 2], [30, 2], [30, 9], [1, 9]]},
        {"text": "a\nb", "score": 1.0, "box": FakeArray([[1.5, 2.0], [3.0, 4.0]], (2, 2)), "note": 7},
    ]
    assert lines_of(page) == [
        "score  box                note  text",
        "0.988  1,2 30,2 30,9 1,9        Hello",
        "1.000  1.5,2 3,4          7     a b",
    ]


def test_columns_are_aligned() -> None:
    assert aligned([["a", "bb", ""], ["ccc", "d", ""]]) == ["a    bb", "ccc  d"]
    assert aligned([]) == []


def test_json_contains_arrays_bytes_and_other_objects() -> None:
    value = {"a": FakeArray([1.0], (1,)), "b": b"\x00\xff", "c": {2, 1}, "d": 1j}
    assert json.loads(json_of(value)) == {
        "a": [1.0],
        "b": {"base64": "AP8="},
        "c": [1, 2],
        "d": "1j",
    }


def test_a_result_becomes_what_a_web_framework_can_return() -> None:
    numpy = pytest.importorskip("numpy", reason="makes arrays")
    with hami.pipe("Identity") as pipe:
        request = pipe({"data": {"boxes": numpy.float32([[1, 2.5]]), "label": numpy.int64(3), "raw": b"ab"}})
    result = hami.to_json(request["result"])
    assert json.loads(json.dumps(result, allow_nan=False)) == {
        "boxes": [[1.0, 2.5]],
        "label": 3,
        "raw": {"base64": "YWI="},
    }
    scores = numpy.float32([numpy.nan, numpy.inf, -numpy.inf])
    assert hami.to_json(scores) == [None, "Infinity", "-Infinity"]
    assert hami.to_json(numpy.array([0.5], numpy.longdouble)) == [0.5]
    assert hami.to_json([memoryview(b"ab"), 1j], default=repr) == [{"base64": "YWI="}, "1j"]
    responses = pytest.importorskip("fastapi.responses", reason="returns it from a handler")
    assert json.loads(responses.JSONResponse(hami.to_json(request)).body)["result"]["boxes"] == [[1.0, 2.5]]


def test_json_contains_neither_nan_nor_keys_that_are_not_text() -> None:
    values = {(1, 2): float("nan"), 3: [float("inf"), 0.5], None: ("a", {float("nan"): True}), b"k": {1j: b""}}
    assert json.loads(json_of(values)) == {
        "(1, 2)": None,
        "3": ["Infinity", 0.5],
        "null": ["a", {"nan": True}],
        "b'k'": {"1j": {"base64": ""}},
    }
    assert json_of([float("nan")], indent=1) == "[\n null\n]"
