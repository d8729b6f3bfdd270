"""Builds hami-onnx into the folder that is given, as test_stopped_builds.py has it stopped halfway.

python stopped_build.py FOLDER full 20000    20000 bytes are left on the disk; then room is made
python stopped_build.py FOLDER wait          stops before the wheel is finished, and says so
python stopped_build.py FOLDER               to the end
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))

from _lib import core_wheel, plugin_wheels, wheel_file
from _lib.steps import guarded

STEP = 30_000  # bytes


def build() -> int:
    wheel = plugin_wheels.build(plugin_wheels.PLUGINS / "hami-onnx", plugin_wheels.PURE)
    print("built", wheel_file.metadata(wheel_file.read(wheel))["Name"], flush=True)
    return 0


def wait(*arguments: object) -> None:
    print("waiting", flush=True)
    sys.stdin.read()


def fill(folder: Path) -> int:
    """Build again and again, each time with STEP bytes more that are left; the last status."""
    for left in range(0, shutil.disk_usage(folder).free, STEP):
        filler = folder / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(folder).free - left))
        status = guarded(build)
        filler.unlink()
        if status == 0:
            break
    return status


def main(folder: Path, how: str = "") -> int:
    plugin_wheels.CACHE, core_wheel.WHEELS = folder, folder / "wheels"
    if how == "full":
        return fill(folder)
    if how == "wait":
        wheel_file.finish = wait  # type: ignore[assignment]
    return guarded(build)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
