"""The package as a plugin: its entry points match its backends, and registering them imports no heavy library."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import hami


def test_every_declared_name_is_a_backend_of_this_package():
    declared = {point.name for point in entry_points(group="hami.backends") if point.value == "hami_vision.plugin"}
    assert {name for name, found in hami.backends(load=True).items() if found.owner == "hami-vision"} == declared


def test_the_entry_module_imports_no_opencv_and_no_numpy():
    code = "import sys, hami_vision.plugin; print(sorted({'cv2', 'numpy', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
