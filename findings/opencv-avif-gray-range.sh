#!/usr/bin/env bash
# OpenCV 5.0.0.93, AVIF: a gray file of the limited range is not expanded, so black is 16 and white 235.
#
# An AVIF file says whether its values have the full range. OpenCV expands the limited range in files with colours, for colour
# and for gray results. In a file without colours (4:0:0) it returns the values as they are stored, in each mode. Pillow,
# which has libavif too, returns 0 and 255 for all of them.
# Seen on 30 November 2026, x86-64, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check opencv-python-headless==5.0.0.93 numpy==2.2.6 pillow==12.0.0
"$work/env/bin/python" - <<'PY'
import io

import cv2
import numpy as np
import PIL
from PIL import Image

print("opencv", cv2.__version__, "pillow", PIL.__version__)
ramp = np.tile(np.linspace(0, 255, 64).round().astype(np.uint8), (48, 1))
for subsampling in ("4:2:0", "4:4:4", "4:0:0"):
    for extent in ("full", "limited"):
        file = io.BytesIO()
        picture = Image.fromarray(ramp) if subsampling == "4:0:0" else Image.fromarray(ramp).convert("RGB")
        picture.save(file, "AVIF", quality=100, subsampling=subsampling, range=extent)
        data = np.frombuffer(file.getvalue(), np.uint8)
        by_pillow = np.asarray(Image.open(file).convert("L"))
        found = [cv2.imdecode(data, flag) for flag in (cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE, cv2.IMREAD_UNCHANGED)]
        ends = {(int(image.min()), int(image.max())) for image in found}
        print(f"{subsampling} {extent:7}: OpenCV {sorted(ends)}, Pillow {by_pillow.min()} to {by_pillow.max()}")
        assert ends == {(16, 235) if (subsampling, extent) == ("4:0:0", "limited") else (0, 255)}
        assert (by_pillow.min(), by_pillow.max()) == (0, 255)
PY
