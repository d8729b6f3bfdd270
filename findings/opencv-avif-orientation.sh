#!/usr/bin/env bash
# OpenCV 5.0.0.93, orientation: IMREAD_COLOR turns JPEG, PNG and WebP files as their orientation says, but not AVIF files.
#
# An AVIF file has its orientation in the properties irot and imir, which a reader must apply. Pillow writes them from the
# orientation of its EXIF data. OpenCV returns such a picture as it is stored, for each of the seven orientations that are
# not the identity, without a warning. The flag that asks for stored pixels is not uniform either: IMREAD_UNCHANGED leaves
# JPEG, PNG, WebP and AVIF files as stored, and turns TIFF files.
# Seen on 28 November 2026, x86-64, CPython 3.11. Fails if this changes.
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
from PIL import Image, ImageOps

print("opencv", cv2.__version__, "pillow", PIL.__version__)
stored = np.zeros((64, 128, 3), np.uint8)  # red and green above, black below: each orientation shows
stored[:32, :64, 0] = 255
stored[:32, 64:, 1] = 255


def same(picture, other):
    return picture.shape == other.shape and np.abs(picture.astype(int) - other).mean() < 12


def verdict(picture, turned):
    return "as stored" if same(picture, stored) else "turned" if same(picture, turned) else "something else"


for kind in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF"):
    colour, unchanged = set(), set()
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = io.BytesIO()
        Image.fromarray(stored).save(file, kind, exif=exif)
        turned = np.asarray(ImageOps.exif_transpose(Image.open(file)).convert("RGB"))
        assert not same(turned, stored)
        data = np.frombuffer(file.getvalue(), np.uint8)
        colour.add(verdict(cv2.imdecode(data, cv2.IMREAD_COLOR_RGB), turned))
        unchanged.add(verdict(cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_UNCHANGED), cv2.COLOR_BGR2RGB), turned))
    print(f"{kind:4}  IMREAD_COLOR_RGB: {', '.join(colour):9}  IMREAD_UNCHANGED: {', '.join(unchanged)}")
    assert colour == {"as stored" if kind == "AVIF" else "turned"}
    assert unchanged == {"turned" if kind == "TIFF" else "as stored"}
PY
