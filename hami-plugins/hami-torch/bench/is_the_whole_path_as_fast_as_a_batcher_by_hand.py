"""JPEG bytes to scores, 64 callers: is a pipe as fast as a batcher that is written and tuned by hand?

The callers are threads or tasks of one loop, whatever a side is faster with.
"""

from __future__ import annotations

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


SETTINGS = (Setting(16, 2, 0.0), Setting(32, 2, 0.0), Setting(32, 2, 4.0), Setting(32, 3, 4.0))

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


def best(make: Callable[[Setting], Any], loops_of: Callable[[Any, list[bytes]], Loops], files: list[bytes]) -> Any:
    """Return the setting and the kind of callers that are fastest, and the speed of each kind at its best setting."""
    found: dict[tuple[Setting, str], float] = {}
    for setting in SETTINGS if ON_GPU else SETTINGS[:1]:
        made = make(setting)
        for kind, loop in loops_of(made, files).items():
            loop(SECONDS / 4)  # a warm-up
            found[setting, kind] = loop(SECONDS / 3)
            say(f"{make.__name__}, {setting}, {kind}: {found[setting, kind]:.0f} images/s")
        made.close()
    of_kind = {kind: round(max(speed for (_, its), speed in found.items() if its == kind)) for _, kind in found}
    return *max(found, key=found.__getitem__), of_kind


def main() -> None:
    files = pictures()
    say(f"{len(files)} files of {sum(map(len, files)) / len(files) / 1000:.0f} kB")
    hand_setting, hand_kind, by_hand = best(make_batcher, loops_of_batcher, files)
    pipe_setting, pipe_kind, by_pipe = best(make_pipe, loops_of_pipe, files)
    batcher = make_batcher(hand_setting)
    with make_pipe(pipe_setting) as pipe:
        hand_loop, pipe_loop = loops_of_batcher(batcher, files)[hand_kind], loops_of_pipe(pipe, files)[pipe_kind]
        taken = interleaved({"by hand": lambda: hand_loop(SECONDS), "pipe": lambda: pipe_loop(SECONDS)})
    batcher.close()
    result(
        "JPEG bytes to ResNet-50 scores, 64 callers / a batcher by hand, each at its best setting",
        ratio(taken, "pipe", "by hand"),
        at_least=1.0,
        images_per_s=medians(taken),
        by_hand=f"{hand_setting}, callers are {hand_kind}",
        pipe=f"{pipe_setting}, callers are {pipe_kind}",
        by_hand_while_choosing=by_hand,
        pipe_while_choosing=by_pipe,
    )


if __name__ == "__main__":
    main()
