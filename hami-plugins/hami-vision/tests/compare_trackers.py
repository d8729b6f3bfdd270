"""Compare our trackers with those of the package `trackers` 2.6, by its own evaluation (HOTA, CLEAR, identity).

    python tests/compare_trackers.py

The first run makes an environment for it, as the package requires another distribution of OpenCV than ours. CI does not
run it. Every tracker gets the same detections: of the sequence in the package, of generated ones, and of the same with
dropped frames. Those of the package run with their own settings, and with ours where they have the same setting.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ENVIRONMENT = ROOT / ".cache" / "envs" / "trackers"
SEQUENCES = 20


def enter() -> None:
    """Continue in the environment with the package."""
    python = ENVIRONMENT / "bin" / "python"
    if Path(sys.prefix) == ENVIRONMENT:
        return
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        wanted = ["trackers==2.6.1", "pluggy", "onnx", "onnxruntime", "scipy"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    folders = [HERE, ROOT / "hami-core" / "python", *ROOT.glob("hami-plugins/*/python")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    os.execve(python, [str(python), *sys.argv], environment)


def mot(rows: Iterable[tuple[int, int, Any]]) -> str:
    """Return lines of frame (from 1), id (from 1), x, y, width, height, confidence, class, visibility."""
    lines = []
    for frame, number, (x1, y1, x2, y2) in rows:
        lines.append(f"{frame + 1},{number + 1},{x1:.2f},{y1:.2f},{x2 - x1:.2f},{y2 - y1:.2f},1,1,1\n")
    return "".join(lines)


OURS: dict[str, dict[str, Any]] = {  # the settings of ours that theirs have too
    "ByteTrackTracker": {
        "high_conf_det_threshold": 0.5,
        "track_activation_threshold": 0.6,
        "minimum_iou_threshold": 0.2,
    },
    "OCSORTTracker": {"high_conf_det_threshold": 0.5, "minimum_consecutive_frames": 2},
    "BoTSORTTracker": {"high_conf_det_threshold": 0.5, "track_activation_threshold": 0.6},
}


def theirs(name: str, settings: dict[str, Any]) -> Callable[[Any, float, Any], Any]:
    """Return a function that gives ids by a tracker of the package."""
    import numpy as np
    import supervision
    import trackers

    tracker = getattr(trackers, name)(**settings)

    def update(found: Any, time: float, image: Any) -> Any:
        rows = {"row": np.arange(len(found))}
        given = supervision.Detections(found.boxes, confidence=found.scores, class_id=found.classes, data=rows)
        tracked = tracker.update(given, timestamp=time, **({"frame": image} if name == "BoTSORTTracker" else {}))
        ids = np.full(len(found), -1)
        if len(tracked):
            ids[tracked.data["row"]] = tracked.tracker_id
        return ids

    return update


def packaged() -> list[tuple[Any, Any]]:
    """Return what the model of the sample finds in each frame of its video, with the truth, and the frames."""
    import cv2
    import numpy as np
    import onnxruntime
    from make_sample import FRAMES, RATE, SCALE, WALKS
    from sequences import Seen
    from small_models import SIZE, SQUARE

    import hami_vision
    from hami_vision import Detections

    sample = Path(hami_vision.__file__).parent / "sample"
    session = onnxruntime.InferenceSession(str(sample / "squares.onnx"))
    video, seen = cv2.VideoCapture(str(sample / "walk.webm")), []
    for i in range(FRAMES):
        image = video.read()[1]
        planes = cv2.dnn.blobFromImage(image, 1 / 255, (SIZE, SIZE), swapRB=True)
        (table,) = session.run(None, {"images": planes})[0]
        centres, sides, scores = table[:2].T, table[2:4].T, table[4:].max(0)
        boxes = np.clip(np.hstack([centres - sides / 2, centres + sides / 2]), 0, SIZE)
        kept = np.flatnonzero(scores > 0.1)  # this model finds no object twice
        truth = {}
        for number, (_, first, y, direction) in enumerate(WALKS):
            x = -SQUARE + 3 * (i - first)
            if i >= first and -SQUARE < x < SIZE:  # in part at least
                left = x if direction > 0 else SIZE - SQUARE - x
                truth[number] = np.clip([left, y, left + SQUARE, y + SQUARE], 0, SIZE) * SCALE
        found = Detections(boxes[kept] * SCALE, scores[kept], table[4:].argmax(0)[kept])
        seen.append((Seen(i / RATE, found, truth), image))
    return seen


def score(frames: list[tuple[Any, Any]], update: Callable[[Any, float, Any], Any]) -> tuple[float, float, float, int]:
    """Return HOTA, MOTA, IDF1 and the changes of id of a tracker on frames with their pictures."""
    from trackers.eval import evaluate_mot_sequence

    given = [update(each.found, each.time, image) for each, image in frames]
    with tempfile.TemporaryDirectory() as folder:
        truth, result = Path(folder, "truth.txt"), Path(folder, "result.txt")
        truth.write_text(mot((i, n, box) for i, (each, _) in enumerate(frames) for n, box in each.truth.items()))
        result.write_text(
            mot(
                (i, int(number), box)
                for i, ((each, _), ids) in enumerate(zip(frames, given, strict=True))
                for number, box in zip(ids, each.found.boxes, strict=True)
                if number >= 0
            )
        )
        scores = evaluate_mot_sequence(truth, result, ["CLEAR", "HOTA", "Identity"])
    return scores.HOTA.HOTA, scores.CLEAR.MOTA, scores.Identity.IDF1, scores.CLEAR.IDSW


def main() -> None:
    import numpy as np
    from sequences import HEIGHT, WIDTH, sequence

    from hami_vision.installed_trackers import BotSortTracker
    from hami_vision.oc_sort import OcSortTracker
    from hami_vision.tracking import Tracker

    def ours(tracker: Any) -> Callable[[Any, float, Any], Any]:
        return lambda found, time, image: tracker.update(found, time, *[image] * hasattr(tracker, "needs_image"))

    methods: dict[str, Callable[[], Callable[..., Any]]] = {}
    for title, own, name in (
        ("ByteTrack", Tracker, "ByteTrackTracker"),
        ("OC-SORT", OcSortTracker, "OCSORTTracker"),
        ("BoT-SORT", BotSortTracker, "BoTSORTTracker"),
    ):
        methods[f"{title}, ours"] = lambda own=own: ours(own())
        methods[f"{title}, trackers"] = lambda name=name: theirs(name, {})
        methods[f"{title}, trackers, as ours"] = lambda name=name: theirs(name, OURS[name])
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    generated = [[(each, image) for each in sequence(seed)] for seed in range(SEQUENCES)]
    for title, sequences in (
        ("the sequence in the package", [packaged()]),
        (f"{SEQUENCES} generated sequences", generated),
        (f"{SEQUENCES} generated sequences, 15 of 150 frames dropped", [each[:60] + each[75:] for each in generated]),
    ):
        print(f"{title}: mean HOTA, MOTA, IDF1, changes of id in each")
        for name, make in methods.items():
            found = [score(frames, make()) for frames in sequences]
            print(f"  {name:30}" + "".join(f"{value:9.3f}" for value in np.mean(found, 0)), flush=True)


if __name__ == "__main__":
    enter()
    main()
