#!/usr/bin/env bash
# OpenCV 5.0.0.93, VideoCapture: an address that hangs while it is opened keeps all other threads from opening a video.
#
# Opening and closing hold one lock of the process, also for local files, and while the network is waited for. Threads do
# not help, and CAP_PROP_OPEN_TIMEOUT_MSEC only says for how long. With OPENCV_FFMPEG_IS_THREAD_SAFE=1 in the environment
# before the call the lock is off, and a warning comes at each opening instead. FFmpeg 8, which is in the wheel, is safe without it.
# Seen on 30 November 2026, x86-64, CPython 3.11. Fails if this changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check opencv-python-headless==5.0.0.93 numpy==2.2.6
cat >"$work/program.py" <<'PY'
import os
import socket
import sys
import tempfile
import threading
import time

import cv2
import numpy as np

TIMEOUT_MS = 3000
file = os.path.join(tempfile.mkdtemp(dir=sys.argv[1]), "video.avi")
writer = cv2.VideoWriter(file, cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 64))
writer.write(np.zeros((64, 64, 3), np.uint8))
writer.release()

silent = socket.create_server(("127.0.0.1", 0))  # accepts, and sends nothing
address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
options = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, TIMEOUT_MS]
hanging = threading.Thread(target=cv2.VideoCapture, args=(address, cv2.CAP_FFMPEG, options))
hanging.start()
connection, _ = silent.accept()  # the other thread is inside VideoCapture

start = time.monotonic()
video = cv2.VideoCapture(file, cv2.CAP_FFMPEG)
took, waited = time.monotonic() - start, not hanging.is_alive()
assert video.isOpened()
hanging.join()
lock = os.environ.get("OPENCV_FFMPEG_IS_THREAD_SAFE") != "1"
print(f"opencv {cv2.__version__}, {'with' if lock else 'without'} its lock: a local file opens in {took:.2f} s")
assert waited == lock
PY
"$work/env/bin/python" "$work/program.py" "$work" 2>/dev/null
OPENCV_FFMPEG_IS_THREAD_SAFE=1 "$work/env/bin/python" "$work/program.py" "$work" 2>/dev/null
