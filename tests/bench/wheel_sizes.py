"""Print the packed and unpacked sizes of the wheels in dist/, and the largest file in each.

python tests/bench/wheel_sizes.py [FOLDER]
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "dist"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        print(f"not measured: {folder} contains no wheels; build them with ./ci/wheels")
        return 0
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            files = archive.infolist()
        unpacked = sum(file.file_size for file in files)
        largest = max(files, key=lambda file: file.file_size)
        print(
            f"{wheel.name}: {wheel.stat().st_size / 1e6:.3f} MB, unpacked {unpacked / 1e6:.3f} MB; "
            f"largest: {largest.filename}, {largest.file_size / 1e6:.3f} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
