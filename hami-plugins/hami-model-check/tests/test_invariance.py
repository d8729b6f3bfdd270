"""compare_sizes: which numbers of rows give a row the same bits as alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hami
import numpy as np
import pytest

from hami_model_check.invariance import compare_sizes, invariance_lines
from hami_model_check.row_test import RowInput

X = RowInput("x", np.dtype(np.float32), (None, 3), 0)


def rounded_from_four_rows_on(arrays: Sequence[Any]) -> dict[str, Any]:
    (x,) = arrays
    y = x * np.float32(3)
    return {"same": x, "y": np.nextafter(y, np.float32(np.inf)) if len(x) >= 4 else y}


def test_each_size_says_whether_all_bits_are_equal_and_where_they_differ_most() -> None:
    found = compare_sizes(rounded_from_four_rows_on, [X], sizes=(2, 3, 4, 8))
    assert [(each.rows, each.is_equal, each.output) for each in found] == [
        (2, True, ""),
        (3, True, ""),
        (4, False, "y"),
        (8, False, "y"),
    ]
    assert 0 < found[-1].largest < 1e-6


def test_zeros_of_another_sign_are_other_bits_without_a_difference() -> None:
    (found,) = compare_sizes(
        lambda arrays: {"y": arrays[0] * np.float32(0 if len(arrays[0]) < 2 else -0.0)}, [X], sizes=(2,)
    )
    assert (found.is_equal, found.largest) == (False, 0.0)


def test_a_model_that_cannot_be_compared_says_why() -> None:
    def fails(arrays: Sequence[Any]) -> dict[str, Any]:
        raise ValueError("no kernel")

    with pytest.raises(hami.ConfigError, match=r"rows cannot be compared: the model ran on none of .*: no kernel"):
        compare_sizes(fails, [X])
    assert invariance_lines("Identity", {}, None) == ["the inputs are not known, so that no rows can be made for them"]


def test_the_lines_are_a_table_about_the_backend_of_a_node() -> None:
    port = {"name": "x", "dtype": "float32", "shape": [-1, 2]}
    hami.register(type("Doubles", (hami.Backend,), {"forward": _doubles, "__doc__": "Doubles."}))
    assert invariance_lines("Doubles", {"inputs": ["x"]}, {"inputs": [port], "outputs": [port]}, sizes=(2, 8)) == [
        "rows in a batch  equal bit for bit  largest difference from the row alone",
        "              2                yes  none",
        "              8                yes  none",
    ]


def _doubles(self: Any, batch: list[Any]) -> None:
    for item in batch:
        item["result"] = {"y": item["data"]["x"] * 2}
