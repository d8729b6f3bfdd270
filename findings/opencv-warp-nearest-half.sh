#!/usr/bin/env bash
# OpenCV 5.0.0.93, warpAffine with INTER_NEAREST: a move by half a pixel doubles every other column and loses those between.
#
# A place exactly between two pixels is rounded to the even one. So a move by 0.5 takes the columns 0, 0, 2, 2, 4, 4 of the picture,
# which tears masks and label maps apart. OpenCV 4.12 moved all columns in one direction there, also with WARP_INVERSE_MAP; its remap
# already rounded to even. INTER_LINEAR changed too: 4.12 rounds places to 1/32 of a pixel, 5.0 does not.
# Seen on 30 November 2026, x86-64, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/warp.py" <<'PY'
import sys

import cv2
import numpy as np

columns = np.tile(np.arange(12, dtype=np.uint8), (4, 1))
ramp = np.tile(np.linspace(0, 1000, 16, dtype=np.float32), (4, 1))


def moved(picture, by, how):
    matrix = np.float32([[1, 0, by], [0, 1, 0]])
    return cv2.warpAffine(picture, matrix, picture.shape[::-1], flags=how)[1]


print("opencv", cv2.__version__)
nearest = moved(columns, 0.5, cv2.INTER_NEAREST)
print("columns after a move by 0.5, nearest:", nearest.tolist())
places = np.tile(np.arange(12, dtype=np.float32) - np.float32(0.5), (4, 1))
rows = np.repeat(np.arange(4, dtype=np.float32)[:, None], 12, axis=1)
assert cv2.remap(columns, places, rows, cv2.INTER_NEAREST)[1].tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10]
by_the_rule = ramp[1, 8] - 0.01 * (ramp[1, 8] - ramp[1, 7])
linear = moved(ramp, 0.01, cv2.INTER_LINEAR)[8]
print(f"a ramp moved by 0.01, linear: {linear:.4f}, by the rule {by_the_rule:.4f}")
if sys.argv[1] == "5":
    assert nearest.tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10]
    assert abs(linear - by_the_rule) < 0.01
else:
    assert nearest.tolist() == list(range(12))
    assert linear == ramp[1, 8]
PY
for version in 5.0.0.93 4.12.0.88; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/pip" install --quiet --disable-pip-version-check "opencv-python-headless==$version" numpy==2.2.6
  "$work/$version/bin/python" "$work/warp.py" "${version%%.*}"
done
