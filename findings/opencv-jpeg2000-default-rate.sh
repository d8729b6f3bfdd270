#!/usr/bin/env bash
# OpenCV 5.0.0.93, JPEG 2000: leaving out IMWRITE_JPEG2000_COMPRESSION_X1000 is not the same as its documented default.
#
# The documentation gives 1000 as the default, and with 1000 the file has no loss. Without the parameter, the same noise
# becomes a quarter of the size and nearly every value changes. Pictures with a side below 32 pixels cannot be written at
# all: imencode returns (False, ()) with a line on stderr, and Pillow 12, with the same OpenJPEG, writes them.
# Seen on 27 November 2026, x86-64, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check opencv-python-headless==5.0.0.93 numpy==2.2.6 pillow==12.0.0
"$work/env/bin/python" - 2>/dev/null <<'PY'
import io

import cv2
import numpy as np
from PIL import Image

print("opencv", cv2.__version__, "pillow", Image.__version__)
noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)


def changed(options):
    data = cv2.imencode(".jp2", noise, options)[1]
    return len(data), float((cv2.imdecode(data, cv2.IMREAD_COLOR_BGR) != noise).mean())


default = changed(())
explicit = changed((cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000))
print("without the parameter: %d bytes, %.0f %% of the values differ" % (default[0], 100 * default[1]))
print("with 1000:             %d bytes, %.0f %% of the values differ" % (explicit[0], 100 * explicit[1]))
assert default[1] > 0.9 and explicit[1] == 0 and default[0] < explicit[0] / 3

for side in (1, 16, 31, 32):
    written, data = cv2.imencode(".jp2", np.zeros((side, 64, 3), np.uint8))
    print(f"{side} x 64 pixels: imencode returns {written}, {type(data).__name__}")
    assert written == (side >= 32)
    file = io.BytesIO()
    Image.new("RGB", (64, side)).save(file, "JPEG2000")
    assert file.tell()
PY
