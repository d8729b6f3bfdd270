"""The install tests get the third-party requirements of our wheels."""

from __future__ import annotations

import zipfile
from pathlib import Path

from _lib import wheel_env


def write_wheel(folder: Path, name: str, *requires: str) -> Path:
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    lines = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n{lines}")
    return wheel


def test_requirements_of_others_are_kept_with_their_markers(tmp_path: Path) -> None:
    core = write_wheel(
        tmp_path, "hami_core", "pluggy>=1.2", 'tomli>=2; python_version < "3.11"', 'rich; extra == "rich"'
    )
    plugin = write_wheel(tmp_path, "hami_onnx", "hami-core>=0.1", "numpy>=1.26", "pluggy>=1.2")
    assert wheel_env.third_party([core, plugin]) == [
        "numpy>=1.26",
        "pluggy>=1.2",
        'tomli>=2; python_version < "3.11"',
    ]


def test_names_are_compared_as_indexes_do(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "hami_ocr", "Hami_ONNX>=0.1", "hami-onnx-tools")
    assert wheel_env.third_party([wheel]) == ["hami-onnx-tools"]
