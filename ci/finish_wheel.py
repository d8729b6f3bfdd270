"""Finishes a repaired wheel as ci/wheels does: adds the bill of materials, writes a reproducible archive.

    python ci/finish_wheel.py --destination wheelhouse /tmp/repaired/*.whl

For builds by cibuildwheel, which use the C++ library of the system; ci/wheels finishes its wheels itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from _lib.dist import PLUGINS
from _lib.paths import pinned
from hami_build import project, sbom, sources, wheel_file
from packaging.utils import canonicalize_name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--destination", type=Path, required=True)
    parser.add_argument("wheel", nargs="+", type=Path)
    arguments = parser.parse_args()
    for wheel in arguments.wheel:
        plugin = PLUGINS / canonicalize_name(wheel.name.partition("-")[0])
        inside = [sbom.pybind11(pinned("pybind11"))] if wheel.name.startswith("hami_core-") else []
        inside += sources.parts(project.read(plugin)) if plugin.is_dir() else []
        wheel_file.finish(wheel, arguments.destination, wheel.stem.split("-")[-1].split("."), inside)
        wheel.unlink()  # the next wheel uses the same folder


if __name__ == "__main__":
    main()
