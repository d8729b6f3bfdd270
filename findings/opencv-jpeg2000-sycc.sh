#!/usr/bin/env bash
# OpenCV 5.0.0.93, JPEG 2000 in YCbCr: the colours are converted with the factors of analog video (YUV), not those of sYCC.
#
# A JP2 file may state the colour space sYCC (number 18), which is YCbCr of ITU-R BT.601 in the full range; Pillow writes
# pictures of its mode YCbCr so. OpenCV converts Cr with 1.14 instead of 1.402 and Cb with 2.03 instead of 1.772: a red of
# 200, 30, 60 becomes 177, 42, 56. Gray stays gray, and the file is lossless. Pillow and OpenJPEG return the colours.
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
for color in ((200, 30, 60), (20, 180, 70), (40, 60, 210), (128, 128, 128)):
    ycbcr = Image.new("RGB", (64, 64), color).convert("YCbCr")
    file = io.BytesIO()
    ycbcr.save(file, "JPEG2000")
    by_opencv = cv2.imdecode(np.frombuffer(file.getvalue(), np.uint8), cv2.IMREAD_COLOR_RGB)[5, 5].astype(int)
    by_pillow = np.array(Image.open(file).convert("RGB").getpixel((5, 5)))
    y, cb, cr = (int(value) for value in ycbcr.getpixel((5, 5)))
    u, v = cb - 128, cr - 128
    analog = np.clip([y + 1.14 * v, y - 0.395 * u - 0.581 * v, y + 2.032 * u], 0, 255)
    print(f"{color}: OpenCV {tuple(by_opencv.tolist())}, Pillow {tuple(by_pillow.tolist())}")
    assert np.abs(by_pillow - color).max() <= 2
    assert np.abs(by_opencv - analog).max() <= 1
    assert u == v == 0 or np.abs(by_opencv - color).max() >= 15
PY
