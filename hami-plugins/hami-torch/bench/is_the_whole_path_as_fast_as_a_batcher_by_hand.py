"""JPEG bytes to scores, 64 callers: is a pipe as fast as a batcher that is written and tuned by hand?

The callers are threads, and then tasks of one loop; both sides choose their setting anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import hami
from _by_hand import Batcher, ByHand
from _work import (
    MODEL,
    ON_GPU,
    PREPARED,
    SECONDS,
    WHOLE,
    closed_loop,
    closed_loop_of_tasks,
    interleaved,
    medians,
    module,
    pictures,
    ratio,
    result,
    say,
    sizes,
)

CALLERS = 64


class Setting(NamedTuple):
    """Most in a batch, how many batches at once, how many ms one waits for more: both sides choose among them."""

    most: int
    at_once: int
    wait: float

    def __str__(self) -> str:
        return f"max {self.most}, {self.at_once} at once, wait {self.wait} ms"


SETTINGS = (Setting(12, 5, 4.0), Setting(16, 4, 4.0), Setting(20, 3, 4.0), Setting(24, 3, 4.0), Setting(32, 2, 4.0))

Loops = dict[str, Callable[[float], float]]


def make_batcher(setting: Setting) -> Batcher:
    model = module()
    workers = [ByHand(model, sizes(setting.most)) for _ in range(setting.at_once)]
    return Batcher(workers, setting.most, setting.wait)


def make_pipe(setting: Setting) -> hami.Pipe:
    node = {"backend": WHOLE, **MODEL, **PREPARED, "graphs": sizes(setting.most), "max": setting.most}
    node |= {"instance_num": setting.at_once, "batching": "max", "batching_timeout": setting.wait}
    return hami.pipe(node)


def loops_of_batcher(batcher: Any, files: list[bytes]) -> Loops:
    return {
        "threads": lambda seconds: closed_loop(batcher, files, CALLERS, seconds),
        "tasks": lambda seconds: closed_loop_of_tasks(batcher.acall, files, CALLERS, seconds),
    }


def loops_of_pipe(pipe: Any, files: list[bytes]) -> Loops:
    return {
        "threads": lambda seconds: closed_loop(lambda file: pipe({"data": file}), files, CALLERS, seconds),
        "tasks": lambda seconds: closed_loop_of_tasks(lambda file: pipe.acall({"data": file}), files, CALLERS, seconds),
    }


def speeds(
    make: Callable[[Setting], Any], loops_of: Callable[[Any, list[bytes]], Loops], files: list[bytes]
) -> dict[str, dict[Setting, float]]:
    """Return the images a second of each setting, by kind of caller."""
    found: dict[str, dict[Setting, float]] = {}
    for setting in SETTINGS if ON_GPU else SETTINGS[:1]:
        made = make(setting)
        for kind, loop in loops_of(made, files).items():
            loop(SECONDS / 4)  # a warm-up
            found.setdefault(kind, {})[setting] = statistics.median(loop(SECONDS / 4) for _ in range(3))
            say(f"{make.__name__}, {setting}, {kind}: {found[kind][setting]:.0f} images/s")
        made.close()
    return found


def compare(kind: str, hand_setting: Setting, pipe_setting: Setting, files: list[bytes]) -> None:
    batcher = make_batcher(hand_setting)
    with make_pipe(pipe_setting) as pipe:
        hand_loop, pipe_loop = loops_of_batcher(batcher, files)[kind], loops_of_pipe(pipe, files)[kind]
        taken = interleaved({"by hand": lambda: hand_loop(SECONDS), "pipe": lambda: pipe_loop(SECONDS)})
        counts = pipe.stats()["default"]
    batcher.close()
    result(
        f"JPEG bytes to ResNet-50 scores, 64 callers ({kind}) / a batcher by hand, each at its best setting",
        ratio(taken, "pipe", "by hand"),
        at_least=1.0,
        images_per_s=medians(taken),
        by_hand=str(hand_setting),
        pipe=f"{pipe_setting}, {counts['items'] / max(1, counts['batches']):.1f} a batch",
    )


def main() -> None:
    files = pictures()
    say(f"{len(files)} files of {sum(map(len, files)) / len(files) / 1000:.0f} kB")
    by_hand, by_pipe = speeds(make_batcher, loops_of_batcher, files), speeds(make_pipe, loops_of_pipe, files)
    for kind in by_hand:
        hand_setting, pipe_setting = (max(of[kind], key=of[kind].__getitem__) for of in (by_hand, by_pipe))
        compare(kind, hand_setting, pipe_setting, files)


if __name__ == "__main__":
    main()
