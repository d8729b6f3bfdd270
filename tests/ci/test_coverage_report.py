"""ci/test coverage: files are summed by room and package."""

from __future__ import annotations

import pytest
from _lib import coverage_report


@pytest.mark.parametrize(
    ("file", "room"),
    [
        ("hami-core/src/schedule/graph.cpp", "core: schedule"),
        ("hami-core/python/bind/pipe.cpp", "core: Python binding"),
        ("hami-core/include/hami/sdk/dict.hpp", "core: include"),
        ("hami-core/python/hami/__init__.py", "hami"),
        ("hami-core/python/hami/_config/values.py", "hami._config"),
        ("hami-plugins/hami-onnx/python/hami_onnx/plugin.py", "hami_onnx"),
    ],
)
def test_each_file_belongs_to_a_room_or_a_package(file: str, room: str) -> None:
    assert coverage_report.room_of(file) == room


def test_the_page_has_a_row_for_each_room_and_one_for_all() -> None:
    cpp = {"hami-core/src/lang/a.cpp": (1, 2), "hami-core/src/lang/b.cpp": (2, 2), "hami-core/src/pipe/c.cpp": (0, 4)}
    lines = coverage_report.page(cpp, {"hami-core/python/hami/x.py": (1, 1)}).splitlines()
    assert "| core: lang | 4 | 75 % |" in lines
    assert "| core: pipe | 4 | 0 % |" in lines
    assert lines[lines.index("## Python") - 2] == "| all | 8 | 38 % |"
    assert lines[-1] == "| all | 1 | 100 % |"
