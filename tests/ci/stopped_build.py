"""Builds hami-ocr into a folder; test_stopped_builds.py stops it halfway.

python stopped_build.py FOLDER full 20000    with little space on the disk, and more with each attempt
python stopped_build.py FOLDER wait          waits before the wheel is finished, and prints "waiting"
python stopped_build.py FOLDER               to the end
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))

from _lib import dist
from hami_build import cache, wheel_file
from hami_build.steps import guarded

STEP = 30_000  # bytes


def build() -> int:
    wheel = dist.build_plugin(dist.PLUGINS / "hami-ocr", dist.PURE)
    print("built", wheel_file.metadata(wheel_file.read(wheel))["Name"], flush=True)
    return 0


def wait(*arguments: object) -> None:
    print("waiting", flush=True)
    sys.stdin.read()


def fill(folder: Path) -> int:
    """Build repeatedly, each time with STEP more free bytes; return the last status."""
    for left in range(0, shutil.disk_usage(folder).free, STEP):
        filler = folder / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(folder).free - left))
        status = guarded(build)
        filler.unlink()
        if status == 0:
            break
    return status


def main(folder: Path, how: str = "") -> int:
    cache.use(folder)
    dist.CACHE, dist.FINISHED = folder, folder / "wheels"
    if how == "full":
        return fill(folder)
    if how == "wait":
        wheel_file.finish = wait  # type: ignore[assignment]
    return guarded(build)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
