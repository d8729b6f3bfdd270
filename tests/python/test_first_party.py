"""The table of first-party names matches the projects of the plugins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hami._plugins import first_party as _first_party

GENERATOR = Path(__file__).parents[2] / "ci" / "first_party.py"


def test_the_table_is_not_stale() -> None:
    done = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_first_party_package_is_known() -> None:
    assert {
        "hami-accel",
        "hami-image",
        "hami-model-check",
        "hami-ocr",
        "hami-onnx",
        "hami-openvino",
        "hami-serve",
        "hami-torch",
        "hami-trt",
    } == _first_party.DISTRIBUTIONS
    without_backends = {"hami-accel", "hami-model-check", "hami-serve"}
    assert set(_first_party.BACKENDS.values()) == _first_party.DISTRIBUTIONS - without_backends
    assert _first_party.PIPELINES == {"ocr": "hami-ocr"}
