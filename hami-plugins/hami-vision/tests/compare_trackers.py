"""Compare our trackers with those of the package `trackers` 2.6, by its own evaluation (HOTA, CLEAR, identity).

    python tests/compare_trackers.py

The first run makes an environment for it, as the package requires another distribution of OpenCV than ours. CI does not
run it. Every tracker gets the same detections, of generated sequences and of the same with dropped frames.
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
        wanted = ["trackers==2.6.1", "pluggy", "onnxruntime", "scipy"]
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


def theirs(name: str) -> Callable[[Any, float, Any], Any]:
    """Return a function that gives ids by a tracker of the package."""
    import numpy as np
    import supervision
    import trackers

    tracker = getattr(trackers, name)()

    def update(found: Any, time: float, image: Any) -> Any:
        rows = {"row": np.arange(len(found))}
        given = supervision.Detections(found.boxes, confidence=found.scores, class_id=found.classes, data=rows)
        tracked = tracker.update(given, timestamp=time, **({"frame": image} if name == "BoTSORTTracker" else {}))
        ids = np.full(len(found), -1)
        if len(tracked):
            ids[tracked.data["row"]] = tracked.tracker_id
        return ids

    return update


def main() -> None:
    import numpy as np
    from sequences import HEIGHT, WIDTH, sequence
    from trackers.eval import evaluate_mot_sequence

    from hami_vision.installed_trackers import BotSortTracker
    from hami_vision.oc_sort import OcSortTracker
    from hami_vision.tracking import Tracker

    methods: dict[str, Callable[[], Callable[..., Any]]] = {
        "ByteTrack, ours": lambda: lambda found, time, _: byte_track.update(found, time),
        "ByteTrack, trackers": lambda: theirs("ByteTrackTracker"),
        "OC-SORT, ours": lambda: lambda found, time, _: oc_sort.update(found, time),
        "OC-SORT, trackers": lambda: theirs("OCSORTTracker"),
        "BoT-SORT through ours": lambda: bot_sort.update,
        "BoT-SORT, trackers": lambda: theirs("BoTSORTTracker"),
    }
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for title, left_out in (("all frames", range(0)), ("15 of 150 frames dropped", range(60, 75))):
        print(f"{SEQUENCES} generated sequences, {title}: mean HOTA, MOTA, IDF1, changes of id in each")
        for name, make in methods.items():
            found = []
            for seed in range(SEQUENCES):
                byte_track, oc_sort, bot_sort = Tracker(), OcSortTracker(), BotSortTracker()
                update = make()
                frames = [each for i, each in enumerate(sequence(seed)) if i not in left_out]
                given = [update(each.found, each.time, image) for each in frames]
                with tempfile.TemporaryDirectory() as folder:
                    truth, result = Path(folder, "truth.txt"), Path(folder, "result.txt")
                    truth.write_text(mot((i, n, box) for i, each in enumerate(frames) for n, box in each.truth.items()))
                    result.write_text(
                        mot(
                            (i, int(number), box)
                            for i, (each, ids) in enumerate(zip(frames, given, strict=True))
                            for number, box in zip(ids, each.found.boxes, strict=True)
                            if number >= 0
                        )
                    )
                    scores = evaluate_mot_sequence(truth, result, ["CLEAR", "HOTA", "Identity"])
                found.append((scores.HOTA.HOTA, scores.CLEAR.MOTA, scores.Identity.IDF1, scores.CLEAR.IDSW))
            print(f"  {name:24}" + "".join(f"{value:9.3f}" for value in np.mean(found, 0)), flush=True)


if __name__ == "__main__":
    enter()
    main()
