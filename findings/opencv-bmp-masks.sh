#!/usr/bin/env bash
# OpenCV 5.0.0.93, BMP files with colour masks: they are ignored, halfway expanded, or refused, by size of pixel and header.
#
# A BMP file of the kind BI_BITFIELDS states which bits of a pixel are red, green and blue. With 32 bits per pixel and a
# header of 40 bytes, OpenCV ignores the masks: red and blue are exchanged in a file that has red in the low bits. Behind a
# header of 108 bytes, the same masks are followed. With 16 bits per pixel, the masks 5-6-5 are followed behind 40 bytes,
# but white becomes 248, 252, 248; behind 108 bytes, the file is refused. Pillow reads both of these, with white as 255.
# Seen on 30 November 2026, x86-64, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check opencv-python-headless==5.0.0.93 numpy==2.2.6 pillow==12.0.0
"$work/env/bin/python" - <<'PY'
import io
import struct

import cv2
import numpy as np
import PIL
from PIL import Image

print("opencv", cv2.__version__, "pillow", PIL.__version__)


def bmp(bits, masks, header_size, pixel):
    """A picture of 64 x 64 equal pixels."""
    pixels = struct.pack("<I" if bits == 32 else "<H", pixel) * 64 * 64
    header = struct.pack("<IiiHHIIiiII", header_size, 64, 64, 1, bits, 3, len(pixels), 0, 0, 0, 0)
    header = (header + struct.pack("<III", *masks)).ljust(header_size, b"\0")
    begin = 14 + len(header)
    return b"BM" + struct.pack("<IHHI", begin + len(pixels), 0, 0, begin) + header + pixels


def by_opencv(data):
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    return None if image is None else image[0, 0].tolist()


def by_pillow(data):
    return list(Image.open(io.BytesIO(data)).convert("RGB").getpixel((0, 0)))


red_is_low, red = (0xFF, 0xFF00, 0xFF0000), 0x0000FF
found = {size: by_opencv(bmp(32, red_is_low, size, red)) for size in (40, 108)}
print("32 bits, red in the low bits, a red pixel:", found)
assert found == {40: [0, 0, 255], 108: [255, 0, 0]}

rgb_565, white = (0xF800, 0x7E0, 0x1F), 0xFFFF
for size, expected in ((40, [248, 252, 248]), (108, None)):
    data = bmp(16, rgb_565, size, white)
    print(f"16 bits, 5-6-5, header of {size} bytes, white: OpenCV {by_opencv(data)}, Pillow {by_pillow(data)}")
    assert by_opencv(data) == expected
    assert by_pillow(data) == [255, 255, 255]
PY
